//! What a test of the application's has changed on this thread: the clock, the transaction around each attempt, and what is
//! to happen at the points that an attempt passes. `testing` sets it; without that feature nothing does.

use std::any::{Any, TypeId, type_name};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::error::Error as StdError;
use std::mem;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use diesel::result::Error as DieselError;

/// By how much the clock of a test differs from the database's, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MovedClock {
    /// It goes on, so much later.
    Later(i64),
    /// It stands still, so long after 1970.
    At(i64),
}

/// The clock of a connection's test, which its connection owns.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TestClock {
    pub(crate) moved: Option<MovedClock>,
    /// Whether it was moved in a transaction, with which it ends. Else it ends with the connection.
    pub(crate) ends_with_transaction: bool,
    /// Whether no connection keeps it for the moment.
    pub(crate) is_held: bool,
}

/// A clock as its connection, and the threads that follow it, share it.
pub(crate) type SharedClock = Arc<Mutex<TestClock>>;

/// What happens at a point that an attempt passes.
pub(crate) type AtPoint = Box<dyn FnMut(&'static str)>;

thread_local! {
    // Most threads never have one.
    static HAS_CLOCK: Cell<bool> = const { Cell::new(false) };
    static CLOCK: RefCell<Weak<Mutex<TestClock>>> = RefCell::default();
    static OUTER: Cell<u32> = const { Cell::new(0) };
    static AT_POINT: RefCell<Option<AtPoint>> = const { RefCell::new(None) };
    static WANTED: RefCell<Option<(TypeId, Box<dyn Any>)>> = const { RefCell::new(None) };
    static WANTS_SECOND_CALL: Cell<bool> = const { Cell::new(false) };
    static SECOND_CALL: RefCell<Option<SecondCall>> = const { RefCell::new(None) };
    static NOTED: RefCell<Option<Noted>> = const { RefCell::new(None) };
    static COMMIT: RefCell<Option<FailedCommit>> = const { RefCell::new(None) };
    static IS_LATE: Cell<bool> = const { Cell::new(false) };
}

/// Returns how the clock of this thread's statements differs from the database's.
pub(crate) fn moved_clock() -> Option<MovedClock> {
    clock()?.lock().unwrap_or_else(PoisonError::into_inner).moved
}

/// Returns the clock that this thread's statements follow, if its test has one.
pub(crate) fn clock() -> Option<SharedClock> {
    HAS_CLOCK.get().then(|| CLOCK.with_borrow(Weak::upgrade)).flatten()
}

/// Makes it the clock that this thread's statements follow, for as long as somebody has it.
pub(crate) fn follow(clock: &SharedClock) {
    HAS_CLOCK.set(true);
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
    if let Ok(Some(mut at_point)) = AT_POINT.try_with(RefCell::take) {
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

/// Sets which rows of a queue are claimed, once each: a `VecDeque` of their keys. `None`: all rows. Returns what was set.
pub(crate) fn set_wanted(wanted: Option<(TypeId, Box<dyn Any>)>) -> Option<(TypeId, Box<dyn Any>)> {
    WANTED.replace(wanted)
}

/// Tells whether only some rows are claimed.
pub(crate) fn has_wanted() -> bool {
    WANTED.with_borrow(Option::is_some)
}

/// Takes the key of the next row of a queue that is to be claimed. `None`: all rows may be. One at a time: a group gives rows back that
/// it cannot work with the others.
pub(crate) fn take_wanted<K: 'static>(queue: TypeId) -> Option<Vec<K>> {
    WANTED.with_borrow_mut(|wanted| {
        let (_, keys) = wanted.as_mut().filter(|(of, _)| *of == queue)?;
        let keys = keys.downcast_mut::<VecDeque<K>>()?;
        Some(keys.pop_front().into_iter().collect())
    })
}

/// How a commit fails.
#[derive(Debug)]
pub(crate) struct FailedCommit {
    pub(crate) error: DieselError,
    /// Whether the transaction is committed all the same, and only the answer is lost.
    pub(crate) is_committed: bool,
}

/// Sets how the next commit of an attempt fails, or that it does not.
pub(crate) fn set_failed_commit(failed: Option<FailedCommit>) {
    COMMIT.set(failed);
}

/// Tells whether the next commit of an attempt fails.
pub(crate) fn fails_to_commit() -> bool {
    COMMIT.with_borrow(Option::is_some)
}

/// Returns how this commit fails, if it does. The next one does not.
pub(crate) fn take_failed_commit() -> Option<FailedCommit> {
    COMMIT.take()
}

/// Sets whether the handler that runs is past its timeout, whatever the time.
pub(crate) fn set_late(is_late: bool) {
    IS_LATE.set(is_late);
}

/// Tells, once, whether the handler is past its timeout.
pub(crate) fn take_late() -> bool {
    IS_LATE.take()
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

/// What is noted in a turn that a test takes.
#[derive(Default)]
pub(crate) struct Noted {
    /// The keys of the rows that are due again, each with its time.
    pub(crate) next: Vec<(Arc<str>, NextTime)>,
    /// The row whose handler was called last.
    pub(crate) begun: Option<Arc<str>>,
    /// The queues of whose due times a statement was made, each with the row whose handler had been called, and the name of its type.
    pub(crate) enqueued: Vec<(Option<Arc<str>>, TypeId, &'static str)>,
    /// What the worker has logged as warnings.
    pub(crate) warnings: Vec<String>,
}

/// Sets where notes are taken. `None`: nowhere. Returns what was set.
pub(crate) fn set_noted(noted: Option<Noted>) -> Option<Noted> {
    NOTED.replace(noted)
}

/// Tells whether a test takes a turn on this thread.
pub(crate) fn is_in_turn() -> bool {
    NOTED.with_borrow(Option::is_some)
}

fn note(note: impl FnOnce(&mut Noted)) {
    // A value of the thread's may enqueue a row when it is dropped, at the thread's end.
    let _ = NOTED.try_with(|noted| noted.borrow_mut().as_mut().map(note));
}

/// Notes when the row with this key is due next, if it is.
pub(crate) fn note_next(key: &Arc<str>, next: impl FnOnce() -> Option<NextTime>) {
    note(|noted| noted.next.extend(next().map(|next| (key.clone(), next))));
}

/// Notes that the handler of this row is called.
pub(crate) fn note_begun(key: &Arc<str>) {
    note(|noted| noted.begun = Some(key.clone()));
}

/// Notes that a statement with a due time of this queue is made.
pub(crate) fn note_enqueued<T: 'static>() {
    note(|noted| {
        let queue = (noted.begun.clone(), TypeId::of::<T>(), type_name::<T>());
        if !noted.enqueued.contains(&queue) {
            noted.enqueued.push(queue);
        }
    });
}

/// Notes what a worker logs as a warning.
pub(crate) fn note_warning(warning: impl FnOnce() -> String) {
    note(|noted| noted.warnings.push(warning()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_where_no_test_asks() {
        let note_all = || {
            note_next(&Arc::from("1"), || Some(NextTime::In(Duration::ZERO)));
            note_enqueued::<()>();
            note_warning(|| "trouble".to_owned());
        };
        let kept = |noted: Noted| (noted.next.len(), noted.enqueued.len(), noted.warnings.len());
        note_all();
        assert!(set_noted(Some(Noted::default())).is_none());
        note_all();
        assert_eq!(set_noted(None).map(kept), Some((1, 1, 1)));
        note_all();
        assert!(set_noted(None).is_none());
    }
}
