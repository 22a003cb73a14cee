//! A handler that a test keeps: what the test has happen around each call of it.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use super::Group;
use super::handler::{Failure, Handler, HandlerResult, Message};
use super::lease::{Background, Lease, LeaseHandler};
use crate::error::Error;

/// A handler that a test keeps.
pub(crate) struct Kept<'h, H>(pub(crate) &'h H);

/// A call of a test's handler, before it begins or after it has ended.
pub struct CallOfHandler<'a> {
    /// The entity.
    pub entity: &'a dyn Any,
    /// The part of the handler.
    pub part: HandlerPart<'a>,
    /// Whether the call has ended.
    pub has_ended: bool,
}

/// The part of a handler that a worker calls.
#[derive(Clone, Copy)]
pub enum HandlerPart<'a> {
    /// [`Handler::handle`], or [`LeaseHandler::apply`].
    InTransaction,
    /// [`LeaseHandler::call`].
    UnderLease(&'a Lease),
}

/// What happens before and after a call. A failure is the answer in its place; a panic of the handler stays.
type Around = dyn FnMut(&CallOfHandler<'_>) -> Option<Failure>;

/// The same, with a number that finds it again.
type Numbered = (u64, Rc<RefCell<Around>>);

thread_local! {
    static AROUND: RefCell<Vec<Numbered>> = const { RefCell::new(Vec::new()) };
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// Has this happen before and after each call of a handler on this thread, until the returned value is dropped. A group is
/// handled row by row meanwhile.
#[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "only tests of applications have something happen"))]
pub fn around_handlers(happens: impl FnMut(&CallOfHandler<'_>) -> Option<Failure> + 'static) -> AroundHandlers {
    let number = NUMBER.replace(NUMBER.get() + 1);
    AROUND.with_borrow_mut(|around| around.push((number, Rc::new(RefCell::new(happens)))));
    AroundHandlers(number)
}

/// Ends what happens around handlers when it is dropped.
#[must_use = "it ends what happens around handlers when it is dropped"]
#[derive(Debug)]
pub struct AroundHandlers(u64);

impl Drop for AroundHandlers {
    fn drop(&mut self) {
        // Dropped outside of the borrow, because it is the test's own code.
        let ended = AROUND.with_borrow_mut(|around| {
            around.iter().position(|(number, _)| *number == self.0).map(|place| around.remove(place))
        });
        drop(ended);
    }
}

/// Calls a handler, with what the test has happen before and after.
fn call<T>(
    entity: &dyn Any,
    part: HandlerPart<'_>,
    handler: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let around: Vec<_> = AROUND.with_borrow(|around| around.iter().map(|(_, happens)| happens.clone()).collect());
    call_inside(&around, entity, part, handler)
}

/// Calls a handler inside of what happens around it: what has begun last is nearest to the handler.
fn call_inside<T>(
    around: &[Rc<RefCell<Around>>],
    entity: &dyn Any,
    part: HandlerPart<'_>,
    handler: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let Some((outer, inner)) = around.split_first() else { return handler() };
    if let Some(instead) = outer.borrow_mut()(&CallOfHandler { entity, part, has_ended: false }) {
        return Err(instead);
    }
    let answer = catch_unwind(AssertUnwindSafe(|| call_inside(inner, entity, part, handler)));
    let instead = outer.borrow_mut()(&CallOfHandler { entity, part, has_ended: true });
    match answer {
        Ok(answer) => instead.map_or(answer, Err),
        Err(panic) => resume_unwind(panic),
    }
}

impl<Q: 'static, C, H: Handler<Q, C>> Handler<Q, C> for Kept<'_, H> {
    fn handle(&self, entity: &Q, message: &mut Message<'_, C>) -> HandlerResult {
        call(entity, HandlerPart::InTransaction, || self.0.handle(entity, message))
    }

    fn handle_group(&self, entities: &[Q], group: &mut Group<'_, C>) -> Option<Vec<HandlerResult>> {
        if AROUND.with_borrow(|around| !around.is_empty()) {
            return None;
        }
        self.0.handle_group(entities, group)
    }
}

impl<Q: 'static, C, H: LeaseHandler<Q, C>> LeaseHandler<Q, C> for Kept<'_, H> {
    type Answer = H::Answer;

    fn call(&self, entity: &Q, lease: &Lease) -> Result<H::Answer, Failure> {
        call(entity, HandlerPart::UnderLease(lease), || self.0.call(entity, lease))
    }

    fn apply(&self, entity: &Q, answer: &H::Answer, message: &mut Message<'_, C>) -> HandlerResult {
        call(entity, HandlerPart::InTransaction, || self.0.apply(entity, answer, message))
    }

    fn background(&self) -> Result<Option<Background<C>>, Error> {
        self.0.background()
    }
}
