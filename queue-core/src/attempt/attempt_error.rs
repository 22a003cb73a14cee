//! The errors of an attempt besides the handler's own.

use std::time::Duration;

use diesel::result::Error as DieselError;

/// The errors of an attempt besides the handler's own. Their texts are written on the row.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttemptError {
    #[error("the row cannot be decoded")]
    Undecodable(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("cannot decode the primary key `{0}`: {1}")]
    UndecodableKey(String, String),
    #[error("the handler ignored the error of one of its statements")]
    SwallowedError(#[source] DieselError),
    #[error(
        "the handler ended the message's transaction (by COMMIT, ROLLBACK, a statement that commits, or an error that it \
         swallowed); what it committed itself is not undone"
    )]
    TransactionEnded(#[source] DieselError),
    #[error(
        "{0}; besides, the message's transaction had ended before, and what the handler committed itself is not undone"
    )]
    FailedAndEnded(String),
    // The refused COMMIT has released the row too, so another attempt may have run. Alone, its COMMIT is not refused.
    #[error(
        "the handler tried to commit the transaction of its group, which was refused; what another attempt has committed \
         meanwhile is not undone"
    )]
    GroupCommitRefused,
    #[error(
        "{0}; besides, the handler had tried to commit the transaction of its group, which was refused; what another attempt \
         has committed meanwhile is not undone"
    )]
    FailedAndRefused(String),
    #[error("the handler removed the row or changed its queue columns: answer Outcome::Delete, Again or Skip instead")]
    RowChanged,
    /// The handler has named a stage that its entity does not have.
    #[error("the handler named the next stage `{0}`, but {1}")]
    NoSuchStage(&'static str, String),
    /// A failure asks for a new key, and the entity has no column that could make one. It is retried with the old key, as
    /// it would be without the request.
    #[error(
        "there is no new idempotency key for the next attempt: add `#[queue(occasion)]` to the entity; the failure: {0}"
    )]
    NoNewKey(String),
    #[error("the row's new state cannot be written")]
    NotWritten(#[source] DieselError),
    #[error("the row cannot be marked before it is handled")]
    NotMarked(#[source] DieselError),
    #[error("the row cannot be leased")]
    NotLeased(#[source] DieselError),
    #[error("the commit was refused")]
    CommitRefused(#[source] DieselError),
    #[error("interrupted {0} times in a row; the last cause: {1}")]
    Interrupted(u32, String),
    #[error("the handler took longer than its timeout of {0:?}")]
    TimedOut(Duration),
    #[error(
        "a handler of the same group ended the transaction (by COMMIT, ROLLBACK, a statement that commits, or an error that it \
         swallowed), and the effects of this message may have been committed: check them before you rerun the message"
    )]
    InDoubt,
}
