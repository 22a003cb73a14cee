//! What a test has happen around each call of a handler on its thread.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use super::handler::Failure;
use super::lease::Lease;

/// A call of a test's handler, before it begins or after it has ended.
pub struct CallOfHandler<'a> {
    /// The entity.
    pub entity: &'a dyn Any,
    /// The lease, if it is the call under one: [`LeaseHandler::call`](super::LeaseHandler::call).
    pub lease: Option<&'a Lease>,
    /// Whether the call has ended.
    pub has_ended: bool,
    /// Whether it has ended by a panic of the handler, which stays.
    pub has_panicked: bool,
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
pub(super) fn around_call<T>(
    entity: &dyn Any,
    lease: Option<&Lease>,
    handler: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let around: Vec<_> = AROUND.with_borrow(|around| around.iter().map(|(_, happens)| happens.clone()).collect());
    call_inside(&around, entity, lease, handler)
}

/// Calls a handler inside of what happens around it: what has begun last is nearest to the handler.
fn call_inside<T>(
    around: &[Rc<RefCell<Around>>],
    entity: &dyn Any,
    lease: Option<&Lease>,
    handler: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let Some((outer, inner)) = around.split_first() else { return handler() };
    if let Some(instead) = outer.borrow_mut()(&CallOfHandler { entity, lease, has_ended: false, has_panicked: false }) {
        return Err(instead);
    }
    let answer = catch_unwind(AssertUnwindSafe(|| call_inside(inner, entity, lease, handler)));
    let has_panicked = answer.is_err();
    let instead = outer.borrow_mut()(&CallOfHandler { entity, lease, has_ended: true, has_panicked });
    match answer {
        Ok(answer) => instead.map_or(answer, Err),
        Err(panic) => resume_unwind(panic),
    }
}

/// Tells whether something happens around the calls of this thread.
pub(super) fn are_heard() -> bool {
    AROUND.with_borrow(|around| !around.is_empty())
}
