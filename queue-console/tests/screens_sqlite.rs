//! `top` in a real terminal, and the page over HTTP without a browser, on SQLite. One program has both, because each would build the
//! console for this database once more.

#[allow(unused, reason = "the suite of the library needs more of it")]
#[path = "../../tests/db/sqlite.rs"]
mod db;
#[path = "top/program.rs"]
mod program;
#[path = "top/pty.rs"]
mod pty;
#[path = "top/suite.rs"]
mod top;
#[path = "top/file.rs"]
mod top_file;
#[path = "web/mod.rs"]
mod web;
#[path = "web/bytes.rs"]
mod web_bytes;
