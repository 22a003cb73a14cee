//! The suite of promises on PostgreSQL through diesel-async: the same tests, on other connections.

#[allow(unused, reason = "the `db` modules offer the same, also where a root needs less")]
#[path = "db/async_postgres.rs"]
mod db;
#[path = "suite/on_async.rs"]
mod suite;

#[path = "only/async_code.rs"]
mod async_code;
#[path = "only/linked.rs"]
mod linked;
