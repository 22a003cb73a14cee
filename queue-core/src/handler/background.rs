//! Calls that run beside the workers: what a lease runner and the executor of the calls tell each other. It knows no
//! executor.

use super::handler::{Failure, HandlerResult, Message};
use super::lease::Lease;
use super::panic_safe::PanicSafeDrop;
use crate::erased_entity::ErasedEntity;
use crate::row::QueueState;

/// Calls that run beside the workers.
#[doc(hidden)]
pub struct Background<C> {
    /// How many rows of the entity are leased by this process at most.
    pub(crate) in_flight: usize,
    /// How many answers one transaction applies at most.
    pub(crate) most_together: u32,
    pub(crate) executor: Box<dyn BeginCall<C>>,
}

/// Where the calls run.
pub(crate) trait BeginCall<C>: Send + Sync {
    /// Begins a call, which does not block, and returns at once. `done` is called once, on any thread, after the call's
    /// future is dropped.
    fn begin(&self, message: OwnedMessage, lease: Lease, done: Done<C>) -> AbortCall;
}

/// A message that its call owns, because it outlives the turn of the worker that has begun it.
pub(crate) type OwnedMessage = PanicSafeDrop<(ErasedEntity, QueueState)>;

/// Hears of the end of a call. `None`: the executor has dropped the call before its end.
pub(crate) type Done<C> = Box<dyn FnOnce(Option<Called<C>>) + Send>;

/// The result of a call. A panic is a failure.
pub(crate) type Called<C> = PanicSafeDrop<Result<Answered<C>, Failure>>;

/// The answer of a call, with the message that it answers.
pub(crate) struct Answered<C> {
    pub(crate) message: OwnedMessage,
    pub(crate) answer: ApplyAnswer<C>,
}

/// Applies an answer by its handler.
pub(crate) type ApplyAnswer<C> = Box<dyn Fn(&ErasedEntity, &mut Message<'_, C>) -> HandlerResult + Send>;

/// What ends a call from outside.
pub(crate) struct AbortCall(pub(crate) Box<dyn Fn() + Send + Sync>);

impl AbortCall {
    /// Has the call's future dropped at the next point where it waits. A call that has ended already does not mind.
    pub(crate) fn abort(&self) {
        (self.0)();
    }
}
