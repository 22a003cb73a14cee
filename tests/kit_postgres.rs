//! The test kit on PostgreSQL.

#[allow(unused, reason = "the `db` modules offer the same, also where a root needs less")]
#[path = "db/postgres.rs"]
mod db;
mod kit;
