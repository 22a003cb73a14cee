//! The suite of promises on MySQL and MariaDB through diesel-async: the same tests, on other connections.

#[allow(unused, reason = "the `db` modules offer the same, also where a root needs less")]
#[path = "db/async_mysql.rs"]
mod db;

#[path = "only/async_code.rs"]
mod async_code;
#[path = "only/async_handlers.rs"]
mod async_handlers;
#[path = "only/attempt_mysql.rs"]
mod attempt_only;
#[path = "only/committed.rs"]
mod committed;
#[path = "only/async_mysql.rs"]
mod only;
#[path = "only/outage.rs"]
mod outage;
#[path = "only/silent.rs"]
mod silent;
#[path = "only/stuck.rs"]
mod stuck;

/// The part of the suite that runs on these connections.
#[allow(unused, reason = "the whole suite needs more of it")]
mod suite {
    mod async_calls;
    pub(crate) mod attempt;
    pub(crate) mod bank;
    pub(crate) mod events;
    pub(crate) mod group;
    mod group_end;
    pub(crate) mod health;
    pub(crate) mod lease;
    mod lease_together;
    mod misconduct;
    pub(crate) mod modes;
    mod session_settings;
    mod sessions;
    pub(crate) mod thorough;
    pub(crate) mod warnings;
}
