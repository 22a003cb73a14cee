//! The suite of promises on PostgreSQL through diesel-async: the same tests, on other connections.

#[allow(unused, reason = "the `db` modules offer the same, also where a root needs less")]
#[path = "db/async_postgres.rs"]
mod db;

#[path = "only/ended_group.rs"]
mod ended_group;
#[path = "only/ended_session.rs"]
mod ended_session;
#[path = "only/linked.rs"]
mod linked;
#[path = "only/notified.rs"]
mod notified;
#[path = "only/silent.rs"]
mod silent;

/// The part of the suite that runs on these connections.
#[allow(unused, reason = "the whole suite needs more of it")]
mod suite {
    mod async_calls;
    pub(crate) mod attempt;
    pub(crate) mod bank;
    pub(crate) mod group;
    mod group_end;
    pub(crate) mod lease;
    mod lease_together;
    mod misconduct;
    pub(crate) mod modes;
    mod session_settings;
    mod sessions;
    pub(crate) mod thorough;
    pub(crate) mod warnings;
}
