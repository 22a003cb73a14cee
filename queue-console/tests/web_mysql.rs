//! The page over HTTP, without a browser, on MySQL and MariaDB.

#[allow(unused, reason = "the suite of the library needs more of it")]
#[path = "../../tests/db/mysql.rs"]
mod db;
#[path = "web/server.rs"]
mod server;
#[path = "web/mod.rs"]
mod suite;
