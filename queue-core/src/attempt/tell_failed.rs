//! The one line about a message that no operator may miss.

use crate::entity::Entity;
use crate::row::{ErrorText, RowKey, Status};
use crate::statement::Change;

/// Tells of a row that has become `FAILED`, always and at once: nothing else will ever be done about it. Other changes are not
/// told of.
pub(crate) fn tell_failed<Q: Entity>(key: &RowKey<Q::Key>, change: &Change) {
    if change.status == Some(Status::Failed) {
        let error = if let ErrorText::Set(text) = &change.error { text.as_str() } else { "" };
        tracing::warn!(entity = Q::ENTITY, ?key, tries = change.try_count, error, "a row has failed for good");
    }
}
