//! No test changes anything: the feature `testing` is off.

use std::any::{Any, TypeId};
use std::error::Error;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, SystemTime};

use diesel::result::Error as DieselError;

/// There is none.
#[derive(Clone, Copy)]
pub(crate) enum MovedClock {
    #[expect(dead_code, reason = "with the feature it is")]
    Later(i64),
    #[expect(dead_code, reason = "with the feature it is")]
    At(i64),
}

pub(crate) const fn moved_clock() -> Option<MovedClock> {
    None
}

pub(crate) const fn outer_transactions() -> u32 {
    0
}

pub(crate) const fn pass(_point: &'static str) {}

/// There is none.
pub(crate) enum NoCall {}

pub(crate) const fn wants_second_call() -> bool {
    false
}

pub(crate) fn offer_second_call() -> (Option<NoCall>, Receiver<()>, Sender<()>) {
    let (end, begun) = mpsc::channel();
    (None, begun, end)
}

/// No test ends a handler.
pub(crate) const fn thrown(payload: Box<dyn Any + Send>) -> Result<Box<dyn Error + Send + Sync>, Box<dyn Any + Send>> {
    Err(payload)
}

pub(crate) const fn note_enqueued<T: 'static>() {}

/// There is none.
pub(crate) struct FailedCommit {
    pub(crate) error: DieselError,
    pub(crate) is_committed: bool,
}

pub(crate) const fn fails_to_commit() -> bool {
    false
}

pub(crate) const fn take_failed_commit() -> Option<FailedCommit> {
    None
}

pub(crate) const fn take_late() -> bool {
    false
}

/// There is none.
pub(crate) enum NextTime {
    #[expect(dead_code, reason = "with the feature it is")]
    In(Duration),
    #[expect(dead_code, reason = "with the feature it is")]
    At(SystemTime),
}

pub(crate) fn note_next(_key: &Arc<str>, _next: impl FnOnce() -> Option<NextTime>) {}

pub(crate) const fn take_wanted<K>(_queue: TypeId) -> Option<Vec<K>> {
    None
}

pub(crate) fn note_warning(_warning: impl FnOnce() -> String) {}

pub(crate) const fn is_in_turn() -> bool {
    false
}

pub(crate) const fn has_wanted() -> bool {
    false
}
