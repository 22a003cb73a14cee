//! What is typed by its connection, on PostgreSQL.

pub(crate) type Conn = diesel::PgConnection;

pub(crate) const DIALECT: crate::session::Dialect = crate::session::Dialect::Postgres;

#[path = "../typed/mod.rs"]
pub(crate) mod typed;
