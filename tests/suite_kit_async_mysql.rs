//! The whole test kit on MySQL and MariaDB through diesel-async. `.ci/nightly` runs it.

#[allow(unused, reason = "the `db` modules offer the same, also where a root needs less")]
#[path = "db/async_mysql.rs"]
mod db;
mod kit;

#[path = "kit/async_handlers.rs"]
mod async_handlers;
#[path = "kit/in_async_code.rs"]
mod in_async_code;
