//! The suite of promises on PostgreSQL.

#[allow(unused, reason = "the three `db` modules offer the same, also where a root needs less")]
#[path = "db/postgres.rs"]
mod db;
#[path = "only/postgres.rs"]
mod only;
mod suite;
