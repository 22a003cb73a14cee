//! A handler under a lease without the type of its answer, so that the code that runs it is compiled once for an
//! entity, not once for each handler.

use std::any::Any;
use std::marker::PhantomData;

use crate::attempt::{AttemptBody, opened};
use crate::error::Error;
use crate::handler::{Background, Failure, HandlerResult, Lease, LeaseHandler, Message};

/// A handler whose answer can apply itself.
pub(crate) trait AnyLeaseHandler<Q, C>: Send + Sync {
    /// Does the work, and returns the part that runs in the message's transaction.
    fn call<'a>(&'a self, entity: &Q, lease: &Lease) -> Result<Box<dyn AttemptBody<C> + 'a>, Failure>;

    /// Returns how the calls run beside the workers, if they do.
    fn background(&self) -> Result<Option<Background<Q, C>>, Error>;
}

impl<Q, C, H> AnyLeaseHandler<Q, C> for H
where
    Q: 'static,
    C: 'static,
    H: LeaseHandler<Q, C> + 'static,
{
    fn call<'a>(&'a self, entity: &Q, lease: &Lease) -> Result<Box<dyn AttemptBody<C> + 'a>, Failure> {
        let answer = LeaseHandler::call(self, entity, lease)?;
        Ok(Box::new(Applying { handler: self, answer, entity: PhantomData }))
    }

    fn background(&self) -> Result<Option<Background<Q, C>>, Error> {
        LeaseHandler::background(self)
    }
}

/// The finishing part of a handler, with the answer that it writes.
struct Applying<'a, Q, H, A> {
    handler: &'a H,
    answer: A,
    entity: PhantomData<fn(&Q)>,
}

impl<Q: 'static, C, H: LeaseHandler<Q, C>> AttemptBody<C> for Applying<'_, Q, H, H::Answer> {
    fn handle(&self, entity: &dyn Any, message: &mut Message<'_, C>) -> HandlerResult {
        self.handler.apply(opened(entity), &self.answer, message)
    }
}
