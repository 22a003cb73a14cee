//! What is typed by its connection, on PostgreSQL.

pub(crate) type Conn = diesel::PgConnection;

#[path = "../typed/mod.rs"]
pub(crate) mod typed;
