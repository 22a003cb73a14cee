//! A handler under a lease without the types of its entity and its answer.

use std::marker::PhantomData;

use crate::attempt::AttemptBody;
use crate::erased_entity::{ErasedEntity, opened};
use crate::error::Error;
use crate::handler::{Background, Failure, Lease, LeaseHandler};

/// A handler under a lease that returns its answer together with the code that applies it.
pub(crate) trait AnyLeaseHandler<C>: Send + Sync {
    fn call<'a>(&'a self, entity: &ErasedEntity, lease: &Lease) -> Result<Box<AttemptBody<'a, C>>, Failure>;

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
    fn call<'a>(&'a self, entity: &ErasedEntity, lease: &Lease) -> Result<Box<AttemptBody<'a, C>>, Failure> {
        let answer = self.0.call(opened(entity), lease)?;
        Ok(Box::new(move |entity, message| self.0.apply(opened(entity), &answer, message)))
    }

    fn background(&self) -> Result<Option<Background<C>>, Error> {
        self.0.background()
    }
}
