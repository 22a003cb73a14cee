//! The suite of promises on SQLite.

#[allow(unused, reason = "the three `db` modules offer the same, also where a root needs less")]
#[path = "db/sqlite.rs"]
mod db;
#[path = "only/sqlite.rs"]
mod only;
mod suite;

#[path = "only/attempt_sqlite.rs"]
mod attempt_only;
#[path = "only/blocked_runtime.rs"]
mod blocked_runtime;
#[path = "only/deferred.rs"]
mod deferred;
#[path = "only/doctor_sqlite.rs"]
mod doctor_only;
#[path = "only/long_texts.rs"]
mod long_texts;
#[path = "only/printed_sqlite.rs"]
mod printed;
#[path = "only/rerun_sqlite.rs"]
mod rerun_only;
#[path = "only/rights_sqlite.rs"]
mod rights_sqlite;
#[path = "only/session_settings_sqlite.rs"]
mod session_settings_only;
#[path = "only/undecodable_lane.rs"]
mod undecodable_lane;
#[path = "only/upsert.rs"]
mod upsert;
