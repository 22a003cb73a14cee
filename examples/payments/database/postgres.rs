//! The job on PostgreSQL.

use diesel::ConnectionResult;
use diesel::prelude::*;
use diesel_migrations::{EmbeddedMigrations, embed_migrations};

type Conn = PgConnection;

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("../migrations/postgres");

fn connect(url: &str) -> ConnectionResult<Conn> {
    Conn::establish(url)
}

#[allow(clippy::duplicate_mod, reason = "one job, compiled for each kind of connection")]
#[path = "../job.rs"]
pub(super) mod job;
