//! The code that is typed by its connection, on PostgreSQL through diesel-async. Only worker processes use it: the
//! application beside them is the one of the other connection.

pub(crate) type Conn = queueable::AsyncPgSession;

#[path = "booking/awaiting.rs"]
mod booking;
/// The part of the typed code that a worker process needs.
#[path = "../typed"]
pub(crate) mod typed {
    mod handler;
    mod kinds;
    mod lanes;
    mod misconduct;
    pub(crate) mod serve;

    use super::{Conn, be_patient, booking};
}

/// Does nothing: the server lets connections wait by itself.
fn be_patient(_: &mut Conn) -> diesel::QueryResult<()> {
    Ok(())
}
