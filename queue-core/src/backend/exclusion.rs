//! The lock with which a queue works one message at a time.

use diesel::result::QueryResult;

use super::target::Target;

/// The lock with which a queue works one message at a time.
pub trait Exclusion {
    /// Takes the lock with which a queue works one message at a time, without waiting. `false`: another session has it. A
    /// session that has it already gets it again. It is called in a transaction, whose end ends it, or
    /// [`end_exclusion`](Self::end_exclusion) after that; so does the session's end, however it comes.
    fn try_exclude(&mut self, target: &Target) -> QueryResult<bool>;

    /// The session that has that lock, in the words by which an operator finds it. `None`: this one, or none.
    fn exclusion_holder(&mut self, _target: &Target) -> QueryResult<Option<String>> {
        Ok(None)
    }

    /// Gives that lock back once the transaction has ended, where it outlives the transaction.
    fn end_exclusion(&mut self, target: &Target) -> QueryResult<()>;
}
