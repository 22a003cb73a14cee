//! The connection of a session.

use std::ops::{Deref, DerefMut};

use diesel_async::AsyncPgConnection;

/// The connection that a session holds.
pub(super) enum Held {
    /// A connection of its own.
    Own(AsyncPgConnection),
    /// A connection of the application's, which goes back to where it came from when it is dropped.
    Lent(Box<dyn DerefMut<Target = AsyncPgConnection> + Send>),
}

impl Deref for Held {
    type Target = AsyncPgConnection;

    fn deref(&self) -> &AsyncPgConnection {
        match self {
            Held::Own(connection) => connection,
            Held::Lent(connection) => connection,
        }
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut AsyncPgConnection {
        match self {
            Held::Own(connection) => connection,
            Held::Lent(connection) => connection,
        }
    }
}
