//! How a row is claimed: what the setting asks for, and what the database's locks and the entity's order allow.

use serde::{Deserialize, Serialize};

use crate::backend::QueueBackend;
use crate::row::Options;
use crate::statement::Scope;

/// How a claim finds the rows that it locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimWay {
    /// By keys that the claim is given.
    Given,
    /// By the key of the row at the head of an exclusive queue.
    Head,
    /// Along the index: the claim passes over rows that others hold, and locks only those that it takes.
    Index,
    /// By keys that were read before, since a claim along the index would keep others from settling their rows. The
    /// due time alone decides which row is next, so that the workers can share the keys.
    Keys,
    /// The same where an order, a condition or the stages decide too: each claim reads candidates of its own.
    Candidates,
}

impl ClaimWay {
    /// Returns the way for the rows of this scope. Nothing but the keys and the stages of a scope changes it, and stages
    /// can be paused.
    pub(crate) fn of<DB: QueueBackend, K>(options: &Options, scope: &Scope<'_, K>) -> Self {
        let chooses = options.order.is_some() || options.conditional || scope.stages.is_some();
        match () {
            () if scope.only.is_some() => ClaimWay::Given,
            () if options.exclusive => ClaimWay::Head,
            () if chooses && DB::LOCKS_WHAT_IT_PASSES => ClaimWay::Candidates,
            () if !chooses && !options.is_scheduled() && DB::PREFETCHES_KEYS => ClaimWay::Keys,
            () => ClaimWay::Index,
        }
    }
}

/// How lease mode claims its rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ClaimStyle {
    /// A select passes over the rows that others are claiming (`SKIP LOCKED`), if the server supports it. Otherwise,
    /// and on SQLite, the same as [`UpdateThenSelect`](ClaimStyle::UpdateThenSelect).
    #[default]
    Auto,
    /// An update marks the rows, and a select finds them by the mark. Every database supports this, but workers that
    /// claim at the same time wait for one another.
    UpdateThenSelect,
}
