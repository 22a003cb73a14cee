//! The one log line about a message that no operator may miss.

use crate::entity::Entity;
use crate::row::{ErrorText, RowKey, Status};
use crate::statement::Change;

/// Logs that a row has become `FAILED`, always and at once, because nothing else will ever be done about it. Other
/// changes are not logged.
pub(crate) fn tell_failed<Q: Entity>(key: &RowKey<Q::Key>, change: &Change) {
    if change.status == Some(Status::Failed) {
        let error = if let ErrorText::Set(text) = &change.error { text.as_str() } else { "" };
        tracing::warn!(entity = Q::ENTITY, ?key, tries = change.try_count, error, "a row has failed for good");
    }
}
