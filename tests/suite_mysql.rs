//! The whole suite of promises on MySQL and MariaDB. `.ci/nightly` runs it.

#[allow(unused, reason = "the three `db` modules offer the same, also where a root needs less")]
#[path = "db/mysql.rs"]
mod db;
#[path = "only/mysql.rs"]
mod only;
mod suite;

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
