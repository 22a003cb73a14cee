//! The tests' database: PostgreSQL through libpq.

#[path = "postgresql.rs"]
mod postgresql;

pub(crate) use self::postgresql::*;

/// The connection that the tests of this root use.
pub(crate) type Conn = diesel::pg::PgConnection;

/// Whether the worker sees that the database has refused a handler's COMMIT in a group, also if the handler ignores that.
pub(crate) const SEES_REFUSED_COMMITS: bool = true;
