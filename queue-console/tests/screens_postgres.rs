//! `top` in a real terminal, and the page over HTTP without a browser, on PostgreSQL. One program has both, because each would build the
//! console for this database once more.

#[allow(unused, reason = "the suite of the library needs more of it")]
#[path = "../../tests/db/postgres.rs"]
mod db;
#[path = "top/program.rs"]
mod program;
#[path = "top/pty.rs"]
mod pty;
#[path = "top/suite.rs"]
mod top;
#[path = "top/lock.rs"]
mod top_lock;
#[path = "top/server.rs"]
mod top_server;
#[path = "web/mod.rs"]
mod web;
#[path = "web/server.rs"]
mod web_server;
