//! The whole suite of promises on PostgreSQL through diesel-async. `.ci/nightly` runs it.

#[allow(unused, reason = "the `db` modules offer the same, also where a root needs less")]
#[path = "db/async_postgres.rs"]
mod db;
#[allow(unused, reason = "some of it serves tests that other roots have")]
mod suite;

#[path = "only/printed_postgres.rs"]
mod printed;
#[path = "only/upsert.rs"]
mod upsert;
