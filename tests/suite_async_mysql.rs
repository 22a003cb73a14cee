//! The whole suite of promises on MySQL and MariaDB through diesel-async. `.ci/nightly` runs it.

#[allow(unused, reason = "the `db` modules offer the same, also where a root needs less")]
#[path = "db/async_mysql.rs"]
mod db;
#[allow(unused, reason = "some of it serves tests that other roots have")]
mod suite;

#[path = "only/printed_mysql.rs"]
mod printed;
#[path = "only/upsert_mysql.rs"]
mod upsert;
