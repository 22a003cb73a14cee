//! The suite of promises on PostgreSQL, as far as it can break them in its own way.

#[allow(unused, reason = "the three `db` modules offer the same, also where a root needs less")]
#[path = "db/postgres.rs"]
mod db;
#[path = "only/postgres.rs"]
mod only;

#[path = "only/altered_types.rs"]
mod altered_types;
#[path = "only/announced.rs"]
mod announced;
#[path = "only/attempt_postgres.rs"]
mod attempt_only;
#[path = "only/clock.rs"]
mod clock;
#[path = "only/committed.rs"]
mod committed;
#[path = "only/deferred.rs"]
mod deferred;
#[path = "only/doctor_postgres.rs"]
mod doctor_only;
#[path = "only/leased_at_once.rs"]
mod leased_at_once;
#[path = "only/limited_session.rs"]
mod limited_session;
#[path = "only/long_texts.rs"]
mod long_texts;
#[path = "only/notified.rs"]
mod notified;
#[path = "only/outage.rs"]
mod outage;
#[path = "only/padded_key.rs"]
mod padded_key;
#[path = "only/partitions.rs"]
mod partitions;
#[path = "only/pooler.rs"]
mod pooler;
#[path = "only/prefetch_rows.rs"]
mod prefetch_rows;
#[path = "only/printed_postgres.rs"]
mod printed;
#[path = "only/private_server.rs"]
mod private_server;
#[path = "only/repeated_calls.rs"]
mod repeated_calls;
#[path = "only/rerun_postgres.rs"]
mod rerun_only;
#[path = "only/rights.rs"]
mod rights;
#[path = "only/rights_postgres.rs"]
mod rights_postgres;
#[path = "only/seen_by_operators.rs"]
mod seen_by_operators;
#[path = "only/silent.rs"]
mod silent;
#[path = "only/stuck.rs"]
mod stuck;
#[path = "only/turn_holder.rs"]
mod turn_holder;
#[path = "only/undecodable_lane.rs"]
mod undecodable_lane;
#[path = "only/upsert.rs"]
mod upsert;

/// The part of the suite in which the database counts. `suite_postgres` mounts all of it.
#[allow(unused, reason = "the whole suite needs more of it")]
mod suite {
    mod adopted;
    pub(crate) mod altered_table;
    mod async_calls;
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
    mod explain;
    mod frozen;
    mod gauges;
    pub(crate) mod group;
    mod group_at_once;
    pub(crate) mod group_end;
    mod group_size;
    mod harness;
    pub(crate) mod health;
    mod heartbeat;
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
    mod poller;
    mod pollers;
    mod pools;
    mod prefetch_keys;
    mod printed_schema;
    mod queries;
    pub(crate) mod refused;
    mod release;
    mod reports;
    pub(crate) mod rerun_on_change;
    mod restore;
    mod rolling;
    mod schema;
    mod scout;
    mod session_settings;
    mod sessions;
    mod shares;
    mod shutdown;
    mod snapshots;
    pub(crate) mod stages;
    mod states;
    mod takeover;
    pub(crate) mod thorough;
    mod timestamps;
    mod traced;
    mod triggers;
    mod undecodable_key;
    mod upkeep;
    pub(crate) mod upsert;
    pub(crate) mod warnings;
    mod window;
}
