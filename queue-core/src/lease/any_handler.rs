//! A handler under a lease without the type of its answer, so that the code that runs it is compiled once for an
//! entity, not once for each handler.

use crate::attempt::AttemptBody;
use crate::error::Error;
use crate::handler::{Background, Failure, HandlerResult, Lease, LeaseHandler, Message};

/// A handler whose answer can apply itself.
pub(crate) trait AnyLeaseHandler<Q, C>: Send + Sync {
    /// Does the work, and returns the part that runs in the message's transaction.
    fn call<'a>(&'a self, entity: &Q, lease: &Lease) -> Result<Box<dyn AttemptBody<Q, C> + 'a>, Failure>;

    /// Returns how the calls run beside the workers, if they do.
    fn background(&self) -> Result<Option<Background<Q, C>>, Error>;
}

impl<Q, C, H> AnyLeaseHandler<Q, C> for H
where
    Q: 'static,
    C: 'static,
    H: LeaseHandler<Q, C> + 'static,
{
    fn call<'a>(&'a self, entity: &Q, lease: &Lease) -> Result<Box<dyn AttemptBody<Q, C> + 'a>, Failure> {
        let answer = LeaseHandler::call(self, entity, lease)?;
        Ok(Box::new(Applying { handler: self, answer }))
    }

    fn background(&self) -> Result<Option<Background<Q, C>>, Error> {
        LeaseHandler::background(self)
    }
}

/// The finishing part of a handler, with the answer that it writes.
struct Applying<'a, H, A> {
    handler: &'a H,
    answer: A,
}

impl<Q, C, H: LeaseHandler<Q, C>> AttemptBody<Q, C> for Applying<'_, H, H::Answer> {
    fn handle(&self, entity: &Q, message: &mut Message<'_, C>) -> HandlerResult {
        self.handler.apply(entity, &self.answer, message)
    }
}
