//! The job on SQLite.

use diesel::ConnectionResult;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;

type Conn = SqliteConnection;

const TABLES: &str = include_str!("../tables/sqlite.sql");

fn connect(url: &str) -> ConnectionResult<Conn> {
    let mut connection = Conn::establish(url)?;
    // The poller sets up its own connections; this one is the application's, and it waits for writers in its turn.
    connection.batch_execute("PRAGMA busy_timeout = 5000").map_err(ConnectionError::CouldntSetupConfiguration)?;
    Ok(connection)
}

#[allow(clippy::duplicate_mod, reason = "one job, compiled for each kind of connection")]
#[path = "../job.rs"]
pub(super) mod job;
#[allow(clippy::duplicate_mod, reason = "one handler, compiled for each kind of connection")]
#[path = "../send.rs"]
pub(super) mod send;
