//! What a test of the application's has changed on this thread: the clock, the transaction around each attempt, and what is
//! to happen at the points that an attempt passes. [`testing`](crate::testing) sets it.

use std::any::{Any, TypeId, type_name};
use std::cell::{Cell, RefCell};
use std::error::Error as StdError;
use std::mem;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

/// By how much the clock of a test differs from the database's, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MovedClock {
    /// It goes on, so much later.
    Later(i64),
    /// It stands still, so long after 1970.
    At(i64),
}

/// The clock of a connection's test, which its connection owns: it ends with the transaction, or with the connection.
pub(crate) type TestClock = Arc<Mutex<Option<MovedClock>>>;

/// What happens at a point that an attempt passes.
pub(crate) type AtPoint = Box<dyn FnMut(&'static str)>;

thread_local! {
    static CLOCK: RefCell<Weak<Mutex<Option<MovedClock>>>> = RefCell::default();
    static OUTER: Cell<u32> = const { Cell::new(0) };
    static AT_POINT: RefCell<Option<AtPoint>> = const { RefCell::new(None) };
    static WANTS_SECOND_CALL: Cell<bool> = const { Cell::new(false) };
    static SECOND_CALL: RefCell<Option<SecondCall>> = const { RefCell::new(None) };
    static NEXT: RefCell<Vec<(Arc<str>, NextTime)>> = const { RefCell::new(Vec::new()) };
    static ENQUEUED: RefCell<Vec<(TypeId, &'static str)>> = const { RefCell::new(Vec::new()) };
}

/// Returns how the clock of this thread's statements differs from the database's.
pub(crate) fn moved_clock() -> Option<MovedClock> {
    *clock()?.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the clock that this thread's statements follow, if its test has one.
pub(crate) fn clock() -> Option<TestClock> {
    CLOCK.with_borrow(Weak::upgrade)
}

/// Makes it the clock that this thread's statements follow, for as long as somebody has it.
pub(crate) fn follow(clock: &TestClock) {
    CLOCK.set(Arc::downgrade(clock));
}

/// Returns how many transactions are open around each transaction of the library's.
pub(crate) fn outer_transactions() -> u32 {
    OUTER.get()
}

/// Sets how many are, and returns how many there were.
pub(crate) fn set_outer_transactions(open: u32) -> u32 {
    OUTER.replace(open)
}

/// Passes a point.
pub(crate) fn pass(point: &'static str) {
    // Taken out meanwhile, because what happens may pass points too.
    if let Some(mut at_point) = AT_POINT.take() {
        let restored = Restored(Some(&mut at_point));
        restored.pass(point);
    }
}

/// Puts what happens at points back, also after a panic there.
struct Restored<'a>(Option<&'a mut AtPoint>);

impl Restored<'_> {
    fn pass(mut self, point: &'static str) {
        if let Some(at_point) = &mut self.0 {
            at_point(point);
        }
    }
}

impl Drop for Restored<'_> {
    fn drop(&mut self) {
        if let Some(at_point) = self.0.take() {
            let at_point = mem::replace(at_point, Box::new(|_| {}));
            AT_POINT.with_borrow_mut(|place| _ = place.get_or_insert(at_point));
        }
    }
}

/// Sets what happens at points, and returns what did.
pub(crate) fn set_at_point(at_point: Option<AtPoint>) -> Option<AtPoint> {
    AT_POINT.replace(at_point)
}

/// The first call's ends of the channels to a second one, which lasts as long as the value that withdraws it.
struct SecondCall {
    begins: Sender<()>,
    ends: Receiver<()>,
}

/// Withdraws the offer of a second call when it is dropped.
pub(crate) struct OfferedCall;

impl Drop for OfferedCall {
    fn drop(&mut self) {
        SECOND_CALL.set(None);
    }
}

/// Tells whether the calls of leased rows on this thread offer a second one.
pub(crate) fn wants_second_call() -> bool {
    WANTS_SECOND_CALL.get()
}

/// Sets whether they do.
pub(crate) fn set_wants_second_call(wants: bool) {
    WANTS_SECOND_CALL.set(wants);
}

/// Offers a second call. Returns the channel by which it is to begin, and the one by which it says that it has ended.
pub(crate) fn offer_second_call() -> (OfferedCall, Receiver<()>, Sender<()>) {
    let ((begins, begun), (end, ends)) = (mpsc::channel(), mpsc::channel());
    SECOND_CALL.set(Some(SecondCall { begins, ends }));
    (OfferedCall, begun, end)
}

/// Makes the second call that is offered, if one is, and waits at most so long for its end. Returns whether it has ended.
pub(crate) fn make_second_call(at_most: Duration) -> bool {
    let Some(SecondCall { begins, ends }) = SECOND_CALL.take() else { return true };
    // The thread of the call lives as long as the first call.
    begins.send(()).is_err() || ends.recv_timeout(at_most).is_ok()
}

/// The error with which a handler is to fail, as the payload of a panic.
pub struct Thrown(pub Box<dyn StdError + Send + Sync>);

/// Returns the error with which a test has ended a handler, or else the payload of its panic.
pub(crate) fn thrown(payload: Box<dyn Any + Send>) -> Result<Box<dyn StdError + Send + Sync>, Box<dyn Any + Send>> {
    payload.downcast::<Thrown>().map(|thrown| thrown.0)
}

/// When the row of an attempt is due next.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NextTime {
    In(Duration),
    At(SystemTime),
}

/// Notes when the row with this key is due next, if it is.
pub(crate) fn note_next(key: &Arc<str>, next: impl FnOnce() -> Option<NextTime>) {
    if let Some(next) = next() {
        NEXT.with_borrow_mut(|noted| noted.push((key.clone(), next)));
    }
}

/// Returns the keys and the times since the last call.
pub(crate) fn take_next() -> Vec<(Arc<str>, NextTime)> {
    NEXT.take()
}

/// Notes that a statement with a due time of this queue is made.
pub(crate) fn note_enqueued<T: 'static>() {
    let queue = (TypeId::of::<T>(), type_name::<T>());
    ENQUEUED.with_borrow_mut(|queues| {
        if !queues.contains(&queue) {
            queues.push(queue);
        }
    });
}

/// Returns the queues since the last call, each with the name of its type.
pub(crate) fn take_enqueued() -> Vec<(TypeId, &'static str)> {
    ENQUEUED.take()
}
