//! A session on PostgreSQL, whichever client speaks to the server.

use diesel::connection::LoadConnection;
use diesel::pg::Pg;
use diesel::r2d2::R2D2Connection;
use diesel::result::QueryResult;

/// A session on PostgreSQL. All that the queue does on one is written once, for every type of this trait; here are the
/// few things that the clients do differently.
pub trait PgSession: LoadConnection<Backend = Pg> + R2D2Connection + Send + 'static {
    /// Begins a transaction by this text.
    ///
    /// # Errors
    ///
    /// `AlreadyInTransaction` if one is open; otherwise the server's error, and no transaction is counted.
    fn begin_with(&mut self, begin: &str) -> QueryResult<()>;

    /// Whether the client sees in each answer of the server whether a transaction is open.
    const SEES_END_OF_TRANSACTION: bool;

    /// Notes that the last text has committed the transaction, for a client that does not see this in the server's answer:
    /// it would count the transaction as open, and begin no other.
    fn has_committed(&mut self) {}

    /// Returns the channels with notifications since the last call, each once, without asking the server.
    ///
    /// # Errors
    ///
    /// If the connection is lost.
    fn notified_channels(&mut self) -> QueryResult<Vec<String>>;
}
