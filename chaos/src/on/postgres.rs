//! The code that is typed by its connection, on PostgreSQL.

pub(crate) type Conn = diesel::PgConnection;

pub(crate) const DIALECT: crate::session::Dialect = crate::session::Dialect::Postgres;

#[path = "booking/blocking.rs"]
mod booking;
#[path = "../typed/mod.rs"]
pub(crate) mod typed;

/// Does nothing: the server lets connections wait by itself.
fn be_patient(_: &mut Conn) -> diesel::QueryResult<()> {
    Ok(())
}
