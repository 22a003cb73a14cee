//! The lock of an exclusive queue, which processes one message at a time.

use diesel::result::QueryResult;

use super::target::Target;

/// The lock of an exclusive queue, which processes one message at a time.
pub trait Exclusion {
    /// Takes the queue's lock without waiting. `false`: another session holds it. A session that already holds it gets
    /// it again. The call must be in a transaction. The lock ends with that transaction or, on some databases, with
    /// [`end_exclusion`](Self::end_exclusion) after it. The end of the session always ends it.
    fn try_exclude(&mut self, target: &Target) -> QueryResult<bool>;

    /// Returns the session that holds the lock, in words by which an operator finds it. `None`: this session, or none.
    fn exclusion_holder(&mut self, _target: &Target) -> QueryResult<Option<String>> {
        Ok(None)
    }

    /// Gives the lock back after the end of the transaction, if it outlives the transaction.
    fn end_exclusion(&mut self, target: &Target) -> QueryResult<()>;
}
