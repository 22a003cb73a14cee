//! What is typed by its connection, on SQLite.

pub(crate) type Conn = diesel::SqliteConnection;

pub(crate) const DIALECT: crate::session::Dialect = crate::session::Dialect::Sqlite;

#[path = "../typed/mod.rs"]
pub(crate) mod typed;
