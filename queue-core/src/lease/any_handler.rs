//! A handler under a lease without the types of its entity and its answer.

use std::marker::PhantomData;

use crate::attempt::AttemptBody;
use crate::erased_entity::{ErasedEntity, opened};
use crate::error::Error;
use crate::handler::{Background, Failure, HandlerResult, Lease, LeaseHandler, Message};

/// A handler under a lease that returns its answer together with the code that applies it.
pub(crate) trait AnyLeaseHandler<C>: Send + Sync {
    fn call<'a>(&'a self, entity: &ErasedEntity, lease: &Lease) -> Result<Box<dyn AttemptBody<C> + 'a>, Failure>;

    fn background(&self) -> Result<Option<Background<C>>, Error>;
}

/// A handler of entities of type `Q`.
pub(crate) struct Calling<Q, H>(H, PhantomData<fn(&Q)>);

impl<Q, H> Calling<Q, H> {
    pub(crate) fn new(handler: H) -> Self {
        Calling(handler, PhantomData)
    }
}

impl<Q, C, H> AnyLeaseHandler<C> for Calling<Q, H>
where
    Q: 'static,
    C: 'static,
    H: LeaseHandler<Q, C> + 'static,
{
    fn call<'a>(&'a self, entity: &ErasedEntity, lease: &Lease) -> Result<Box<dyn AttemptBody<C> + 'a>, Failure> {
        let answer = self.0.call(opened(entity), lease)?;
        Ok(Box::new(Applying { handler: &self.0, answer, entity: PhantomData }))
    }

    fn background(&self) -> Result<Option<Background<C>>, Error> {
        self.0.background()
    }
}

/// An answer and the handler that applies it.
struct Applying<'a, Q, H, A> {
    handler: &'a H,
    answer: A,
    entity: PhantomData<fn(&Q)>,
}

impl<Q: 'static, C, H: LeaseHandler<Q, C>> AttemptBody<C> for Applying<'_, Q, H, H::Answer> {
    fn handle(&self, entity: &ErasedEntity, message: &mut Message<'_, C>) -> HandlerResult {
        self.handler.apply(opened(entity), &self.answer, message)
    }
}
