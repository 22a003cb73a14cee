//! `top` in a real terminal, on SQLite.

#[allow(unused, reason = "the suite of the library needs more of it")]
#[path = "../../tests/db/sqlite.rs"]
mod db;
#[path = "top/file.rs"]
mod only;
#[path = "top/program.rs"]
mod program;
#[path = "top/pty.rs"]
mod pty;
#[path = "top/suite.rs"]
mod suite;
