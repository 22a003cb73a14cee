//! What became of a message.

/// What was committed on a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settlement {
    Succeeded,
    Deleted,
    Again,
    Advanced,
    Skipped,
    Retried,
    Failed,
}
