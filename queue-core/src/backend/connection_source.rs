//! What makes the connections of a poller that has its own.

use std::fmt::Display;

use diesel::r2d2::{ConnectionManager, ManageConnection, R2D2Connection};

use crate::error::ConnectFailure;

/// Makes the connections of a poller that has its own: an r2d2 [`ConnectionManager`], or a closure that returns a
/// connection or an error.
///
/// A closure makes connections in any way: with a password that is fetched anew each time, by TLS, by the manager of an
/// async application's pool.
///
/// ```no_run
/// # use diesel::prelude::*;
/// # use queueable::{HandlerResult, Message, Outcome, Poller, Queueable};
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
/// # fn main() -> Result<(), queueable::Error> {
/// let connect = || SqliteConnection::establish("app.sqlite");
/// let handle = Poller::with_own_connections(connect).serve::<Payment>(charge).start()?;
/// # Ok(()) }
/// ```
///
/// The poller calls it from several threads, again after each lost connection, and waits for its answer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` makes no connections",
    note = "a poller's own connections come from an r2d2 `ConnectionManager`, or from a closure that returns a `Result` with a \
            connection"
)]
pub trait ConnectionSource: Send + Sync + 'static {
    /// The type of the connections.
    type Connection: R2D2Connection + 'static;

    /// Makes a connection.
    ///
    /// # Errors
    ///
    /// Why there is none.
    #[doc(hidden)]
    fn make_connection(&self) -> Result<Self::Connection, ConnectFailure>;
}

impl<C: R2D2Connection + 'static> ConnectionSource for ConnectionManager<C> {
    type Connection = C;

    fn make_connection(&self) -> Result<C, ConnectFailure> {
        self.connect().map_err(|error| ConnectFailure::new(&error))
    }
}

impl<C, E, F> ConnectionSource for F
where
    C: R2D2Connection + 'static,
    E: Display,
    F: Fn() -> Result<C, E> + Send + Sync + 'static,
{
    type Connection = C;

    fn make_connection(&self) -> Result<C, ConnectFailure> {
        self().map_err(|error| ConnectFailure::new(&error))
    }
}
