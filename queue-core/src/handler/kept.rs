//! A handler that a test keeps.

use super::around::{are_heard, around_call};
use super::group::Group;
use super::handler::{Failure, Handler, HandlerResult, Message};
use super::lease::{Background, Lease, LeaseHandler};
use crate::error::Error;

/// A handler that a test keeps, with what the test has happen around each call.
pub(crate) struct Kept<'h, H>(pub(crate) &'h H);

impl<Q: 'static, C, H: Handler<Q, C>> Handler<Q, C> for Kept<'_, H> {
    fn handle(&self, entity: &Q, message: &mut Message<'_, C>) -> HandlerResult {
        around_call(entity, None, || self.0.handle(entity, message))
    }

    fn handle_group(&self, entities: &[Q], group: &mut Group<'_, C>) -> Option<Vec<HandlerResult>> {
        if are_heard() { None } else { self.0.handle_group(entities, group) }
    }
}

impl<Q: 'static, C, H: LeaseHandler<Q, C>> LeaseHandler<Q, C> for Kept<'_, H> {
    type Answer = H::Answer;

    fn call(&self, entity: &Q, lease: &Lease) -> Result<H::Answer, Failure> {
        around_call(entity, Some(lease), || self.0.call(entity, lease))
    }

    fn apply(&self, entity: &Q, answer: &H::Answer, message: &mut Message<'_, C>) -> HandlerResult {
        around_call(entity, None, || self.0.apply(entity, answer, message))
    }

    fn background(&self) -> Result<Option<Background>, Error> {
        self.0.background()
    }
}
