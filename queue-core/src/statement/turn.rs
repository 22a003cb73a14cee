//! What decides whose turn it is: the due time alone, an order, the head of an exclusive queue.

use super::scope::Scope;
use crate::backend::QueueBackend;
use crate::entity::{Entity, QueueTable};
use crate::row::Options;

/// Whether the next row is always found by the one statement that is prepared once and for all.
pub(crate) fn is_plain<Q: Entity, DB: QueueBackend>(scope: Scope<'_, Q::Key>) -> bool {
    let Options { order, exclusive, .. } = Q::Queue::OPTIONS;
    !exclusive && order.is_none_or(|order| order.age.is_none()) && !locks_what_it_passes::<Q, DB>(scope)
}

/// Whether the due time alone decides whose turn it is.
pub(crate) fn due_time_alone_decides<Q: Entity>(scope: Scope<'_, Q::Key>) -> bool {
    let Options { order, conditional, exclusive, .. } = Q::Queue::OPTIONS;
    order.is_none() && !conditional && !exclusive && scope.stages.is_none() && scope.only.is_none()
}

/// Whether a claim may pass rows that it does not want, and would keep their locks.
pub(crate) fn locks_what_it_passes<Q: Entity, DB: QueueBackend>(scope: Scope<'_, Q::Key>) -> bool {
    let Options { order, conditional, .. } = Q::Queue::OPTIONS;
    DB::LOCKS_WHAT_IT_PASSES && (conditional || order.is_some() || scope.stages.is_some())
}
