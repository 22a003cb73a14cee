//! The test kit on SQLite.

#[allow(unused, reason = "the `db` modules offer the same, also where a root needs less")]
#[path = "db/sqlite.rs"]
mod db;
mod kit;

#[path = "kit/fixture.rs"]
mod fixture;
#[path = "only/testing_page.rs"]
mod testing_page;
