//! The console on MariaDB.

#[allow(unused, reason = "the three `db` modules offer the same, also where a root needs less")]
#[path = "../../db/mysql.rs"]
mod db;
#[allow(unused, reason = "the tests need some of it")]
#[path = "../src/entities.rs"]
mod entities;
#[path = "only/rights.rs"]
mod rights;
mod suite;
