//! The whole suite of promises on PostgreSQL. `.ci/nightly` runs it.

#[allow(unused, reason = "the three `db` modules offer the same, also where a root needs less")]
#[path = "db/postgres.rs"]
mod db;
#[path = "only/postgres.rs"]
mod only;
mod suite;

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
