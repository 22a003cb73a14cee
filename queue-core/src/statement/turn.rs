//! What decides which row is next: the due time alone, an order, or the head of an exclusive queue.

use super::scope::Scope;
use crate::backend::QueueBackend;
use crate::entity::{Entity, QueueTable};
use crate::row::Options;

/// Tells whether the one statement that is prepared once and for all always finds the next row.
pub(crate) fn is_plain<Q: Entity, DB: QueueBackend>(scope: Scope<'_, Q::Key>) -> bool {
    let Options { order, exclusive, .. } = Q::Queue::OPTIONS;
    !exclusive
        && !Q::Queue::OPTIONS.is_scheduled()
        && order.is_none_or(|order| order.age.is_none())
        && !locks_what_it_passes::<Q, DB>(scope)
}

/// Tells whether the due time alone decides which row is next.
pub(crate) fn due_time_alone_decides<Q: Entity>(scope: Scope<'_, Q::Key>) -> bool {
    let Options { order, conditional, exclusive, .. } = Q::Queue::OPTIONS;
    let is_plain = order.is_none() && !conditional && !exclusive && !Q::Queue::OPTIONS.is_scheduled();
    is_plain && scope.stages.is_none() && scope.only.is_none()
}

/// Tells whether a claim may pass rows that it does not take, and would keep their locks.
pub(crate) fn locks_what_it_passes<Q: Entity, DB: QueueBackend>(scope: Scope<'_, Q::Key>) -> bool {
    let Options { order, conditional, .. } = Q::Queue::OPTIONS;
    let may_pass = conditional || order.is_some() || scope.stages.is_some();
    DB::LOCKS_WHAT_IT_PASSES && may_pass
}
