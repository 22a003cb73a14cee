//! The job on PostgreSQL.

use diesel::ConnectionResult;
use diesel::prelude::*;

type Conn = PgConnection;

const TABLES: &str = include_str!("../tables/postgres.sql");

fn connect(url: &str) -> ConnectionResult<Conn> {
    Conn::establish(url)
}

#[allow(clippy::duplicate_mod, reason = "one job, compiled for each kind of connection")]
#[path = "../job.rs"]
pub(super) mod job;
#[allow(clippy::duplicate_mod, reason = "one handler, compiled for each kind of connection")]
#[path = "../send.rs"]
pub(super) mod send;
