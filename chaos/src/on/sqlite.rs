//! The code that is typed by its connection, on SQLite.

pub(crate) type Conn = diesel::SqliteConnection;

pub(crate) const DIALECT: crate::session::Dialect = crate::session::Dialect::Sqlite;

#[path = "booking/blocking.rs"]
mod booking;
#[path = "../typed/mod.rs"]
pub(crate) mod typed;

/// Lets a connection wait for others from its first statement on: after a crash, the first one locks the whole database.
fn be_patient(connection: &mut Conn) -> diesel::QueryResult<()> {
    diesel::connection::SimpleConnection::batch_execute(connection, "PRAGMA busy_timeout = 20000")
}
