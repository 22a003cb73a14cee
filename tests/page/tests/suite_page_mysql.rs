//! All that a browser shows, on MariaDB. `.ci/nightly` runs it.

#[allow(unused, reason = "each root needs some of it")]
mod browser;
#[allow(unused, reason = "the three `db` modules offer the same, also where a root needs less")]
#[path = "../../db/mysql.rs"]
mod db;
#[path = "only/server.rs"]
mod server;
mod site;
mod suite;
