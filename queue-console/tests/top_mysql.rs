//! `top` in a real terminal, on MySQL and MariaDB.

#[allow(unused, reason = "the suite of the library needs more of it")]
#[path = "../../tests/db/mysql.rs"]
mod db;
#[path = "top/program.rs"]
mod program;
#[path = "top/pty.rs"]
mod pty;
#[path = "top/server.rs"]
mod server;
#[path = "top/suite.rs"]
mod suite;
