//! The page over HTTP, without a browser, on PostgreSQL.

#[allow(unused, reason = "the suite of the library needs more of it")]
#[path = "../../tests/db/postgres.rs"]
mod db;
#[path = "web/server.rs"]
mod server;
#[path = "web/mod.rs"]
mod suite;
