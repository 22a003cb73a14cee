//! What is typed by its connection, on SQLite.

pub(crate) type Conn = diesel::SqliteConnection;

#[path = "../typed/mod.rs"]
pub(crate) mod typed;
