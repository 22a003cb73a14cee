//! What decides which row is next: the due time alone, an order, or the head of an exclusive queue.

use super::scope::Scope;
use crate::backend::QueueBackend;
use crate::row::Options;

/// Tells whether the one statement that is prepared once and for all always finds the next row.
pub(crate) fn is_plain<DB: QueueBackend, K>(options: &Options, scope: Scope<'_, K>) -> bool {
    let Options { order, exclusive, .. } = *options;
    !exclusive
        && !options.is_scheduled()
        && order.is_none_or(|order| order.age.is_none())
        && !locks_what_it_passes::<DB, _>(options, scope)
}

/// Tells whether the due time alone decides which row is next.
pub(crate) fn due_time_alone_decides<K>(options: &Options, scope: Scope<'_, K>) -> bool {
    let Options { order, conditional, exclusive, .. } = *options;
    let is_plain = order.is_none() && !conditional && !exclusive && !options.is_scheduled();
    is_plain && scope.stages.is_none() && scope.only.is_none()
}

/// Tells whether a claim may pass rows that it does not take, and would keep their locks.
pub(crate) fn locks_what_it_passes<DB: QueueBackend, K>(options: &Options, scope: Scope<'_, K>) -> bool {
    let Options { order, conditional, .. } = *options;
    let may_pass = conditional || order.is_some() || scope.stages.is_some();
    DB::LOCKS_WHAT_IT_PASSES && may_pass
}
