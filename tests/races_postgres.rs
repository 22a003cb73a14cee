//! Races at fail points on PostgreSQL.

#[allow(unused, reason = "the three `db` modules offer the same, also where a root needs less")]
#[path = "db/postgres.rs"]
mod db;
#[path = "races/lanes.rs"]
mod lanes;
#[path = "races/lost_commit.rs"]
mod lost_commit;
mod races;

/// What is shared with the suite.
mod suite {
    #[allow(unused, reason = "the suite needs more of it")]
    #[path = "bank.rs"]
    pub(crate) mod bank;
}
