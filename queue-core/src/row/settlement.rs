//! The result of a message.

/// The result that a worker committed on a row.
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

impl Settlement {
    /// Tells whether the attempt has failed.
    pub(crate) fn is_failure(self) -> bool {
        matches!(self, Settlement::Retried | Settlement::Failed)
    }
}
