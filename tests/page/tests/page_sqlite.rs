//! The page on SQLite.

#[allow(unused, reason = "each root needs some of it")]
mod browser;
#[allow(unused, reason = "the three `db` modules offer the same, also where a root needs less")]
#[path = "../../db/sqlite.rs"]
mod db;
#[path = "only/harness.rs"]
mod harness;
#[path = "only/http2.rs"]
mod http2;
#[path = "only/pictures.rs"]
mod pictures;
mod site;
mod suite;
