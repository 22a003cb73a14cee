//! The page over HTTP, without a browser, on SQLite.

#[allow(unused, reason = "the suite of the library needs more of it")]
#[path = "../../tests/db/sqlite.rs"]
mod db;
#[path = "web/mod.rs"]
mod suite;

#[path = "web/bytes.rs"]
mod bytes;
