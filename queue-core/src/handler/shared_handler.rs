//! Handlers behind a pointer: one handler for several pollers, or one that is chosen at run time.

use std::sync::Arc;

use super::background::Background;
use super::handler::{Failure, Group, Handler, HandlerResult, Message};
use super::lease::Lease;
use super::lease_handler::LeaseHandler;
use crate::error::Error;

impl<Q, C, H: Handler<Q, C> + ?Sized> Handler<Q, C> for Arc<H> {
    fn handle(&self, entity: &Q, message: &mut Message<'_, C>) -> HandlerResult {
        (**self).handle(entity, message)
    }

    fn handle_group(&self, entities: &[Q], group: &mut Group<'_, C>) -> Option<Vec<HandlerResult>> {
        (**self).handle_group(entities, group)
    }
}

// Not for every box: a closure in a box is a closure, and so a handler, itself.
impl<Q, C> Handler<Q, C> for Box<dyn Handler<Q, C>> {
    fn handle(&self, entity: &Q, message: &mut Message<'_, C>) -> HandlerResult {
        (**self).handle(entity, message)
    }

    fn handle_group(&self, entities: &[Q], group: &mut Group<'_, C>) -> Option<Vec<HandlerResult>> {
        (**self).handle_group(entities, group)
    }
}

impl<Q, C, H: LeaseHandler<Q, C> + ?Sized> LeaseHandler<Q, C> for Arc<H> {
    type Answer = H::Answer;

    fn call(&self, entity: &Q, lease: &Lease) -> Result<H::Answer, Failure> {
        (**self).call(entity, lease)
    }

    fn apply(&self, entity: &Q, answer: &H::Answer, message: &mut Message<'_, C>) -> HandlerResult {
        (**self).apply(entity, answer, message)
    }

    fn background(&self) -> Result<Option<Background<C>>, Error> {
        (**self).background()
    }
}

impl<Q, C, H: LeaseHandler<Q, C> + ?Sized> LeaseHandler<Q, C> for Box<H> {
    type Answer = H::Answer;

    fn call(&self, entity: &Q, lease: &Lease) -> Result<H::Answer, Failure> {
        (**self).call(entity, lease)
    }

    fn apply(&self, entity: &Q, answer: &H::Answer, message: &mut Message<'_, C>) -> HandlerResult {
        (**self).apply(entity, answer, message)
    }

    fn background(&self) -> Result<Option<Background<C>>, Error> {
        (**self).background()
    }
}
