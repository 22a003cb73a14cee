//! The test kit on MySQL and MariaDB.

#[allow(unused, reason = "the `db` modules offer the same, also where a root needs less")]
#[path = "db/mysql.rs"]
mod db;
mod kit;
