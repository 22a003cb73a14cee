//! The suite of promises on MySQL and MariaDB, as far as these can break them in their own way.

#[allow(unused, reason = "the three `db` modules offer the same, also where a root needs less")]
#[path = "db/mysql.rs"]
mod db;
#[path = "only/mysql.rs"]
mod only;

#[path = "only/announced.rs"]
mod announced;
#[path = "only/attempt_mysql.rs"]
mod attempt_only;
#[path = "only/clock.rs"]
mod clock;
#[path = "only/committed.rs"]
mod committed;
#[path = "only/doctor_mysql.rs"]
mod doctor_only;
#[path = "only/limited_session.rs"]
mod limited_session;
#[path = "only/long_texts_mysql.rs"]
mod long_texts;
#[path = "only/outage.rs"]
mod outage;
#[path = "only/printed_mysql.rs"]
mod printed;
#[path = "only/private_server.rs"]
mod private_server;
#[path = "only/repeated_calls.rs"]
mod repeated_calls;
#[path = "only/rerun_mysql.rs"]
mod rerun_only;
#[path = "only/rights.rs"]
mod rights;
#[path = "only/silent.rs"]
mod silent;
#[path = "only/stuck.rs"]
mod stuck;
#[path = "only/turn_holder.rs"]
mod turn_holder;
#[path = "only/upsert_mysql.rs"]
mod upsert;

/// The part of the suite in which the database counts: its SQL, its locks, its sessions, its DDL. `suite_mysql` mounts all of it.
#[allow(unused, reason = "the whole suite needs more of it")]
mod suite {
    mod altered_table;
    pub(crate) mod attempt;
    mod audit;
    pub(crate) mod bank;
    mod check;
    pub(crate) mod chinook;
    mod columns;
    mod crash;
    pub(crate) mod doctor;
    mod early_times;
    pub(crate) mod events;
    mod frozen;
    mod gauges;
    pub(crate) mod group;
    mod group_at_once;
    pub(crate) mod group_end;
    mod group_size;
    mod harness;
    pub(crate) mod health;
    mod held;
    pub(crate) mod keyed;
    pub(crate) mod keys;
    mod lanes;
    pub(crate) mod lease;
    mod lease_batch;
    mod lease_together;
    mod lease_trouble;
    mod lost_key;
    pub(crate) mod low_water;
    pub(crate) mod main_job;
    mod metrics;
    mod migration;
    mod migration_race;
    mod minutes;
    mod misconduct;
    mod model;
    pub(crate) mod modes;
    pub(crate) mod names;
    mod occasion;
    pub(crate) mod on_finish;
    mod operations;
    pub(crate) mod order;
    mod pause;
    pub(crate) mod periodic;
    mod pollers;
    mod prefetch_keys;
    mod printed_schema;
    mod queries;
    pub(crate) mod refused;
    mod reports;
    pub(crate) mod rerun_on_change;
    mod restore;
    mod schema;
    mod session_settings;
    mod sessions;
    mod snapshots;
    pub(crate) mod stages;
    mod states;
    pub(crate) mod thorough;
    mod timestamps;
    mod traced;
    mod triggers;
    mod undecodable_key;
    mod upkeep;
    pub(crate) mod upsert;
    pub(crate) mod warnings;
}
