//! `top` in a real terminal, on PostgreSQL.

#[allow(unused, reason = "the suite of the library needs more of it")]
#[path = "../../tests/db/postgres.rs"]
mod db;
#[path = "top/server.rs"]
mod only;
#[path = "top/program.rs"]
mod program;
#[path = "top/pty.rs"]
mod pty;
#[path = "top/suite.rs"]
mod suite;
