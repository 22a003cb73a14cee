//! Small tools that every room uses: a lock of panicked holders, what threads hold, a guard, entities in boxes, fail points,
//! and what a test has changed on its thread.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{self, Arc, MutexGuard, PoisonError};

#[cfg_attr(
    not(feature = "testing"),
    allow(dead_code, unreachable_pub, reason = "only the tests of applications set it")
)]
pub(crate) mod in_test;

/// A mutex whose lock is taken even if its holder has panicked: every section under it leaves the state whole.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(state: T) -> Self {
        Mutex(sync::Mutex::new(state))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(any(feature = "_async", feature = "tokio"))]
mod runtime {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use tokio::runtime::{Handle, RuntimeFlavor};

    /// Tells whether a tokio runtime has this thread, for a task or to block on.
    pub(crate) fn is_in_runtime() -> bool {
        Handle::try_current().is_ok()
    }

    /// The application's tokio runtime, on which the tasks run that handlers spawn.
    #[derive(Clone, Default)]
    pub(crate) struct TasksOf(Option<Handle>);

    impl TasksOf {
        /// Takes the runtime of the calling task, which waits without blocking a thread of it.
        pub(crate) fn caller() -> Self {
            TasksOf(Handle::try_current().ok())
        }

        /// Takes the runtime of the calling thread, unless the runtime has only this thread, which may block.
        pub(crate) fn blocked_caller() -> Self {
            let has_others = |handle: &Handle| handle.runtime_flavor() != RuntimeFlavor::CurrentThread;
            TasksOf(Handle::try_current().ok().filter(has_others))
        }

        /// Tells whether the runtime has ended: it drops each task at once.
        pub(crate) fn has_ended(&self) -> bool {
            let Some(handle) = &self.0 else { return false };
            let mut task = pin!(handle.spawn(async {}));
            let polled = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            matches!(polled, Poll::Ready(Err(error)) if error.is_cancelled())
        }

        /// Makes it the runtime of this thread until the returned value is dropped.
        pub(crate) fn enter(&self) -> impl Sized + '_ {
            self.0.as_ref().map(Handle::enter)
        }
    }
}

#[cfg(not(any(feature = "_async", feature = "tokio")))]
mod runtime {
    pub(crate) fn is_in_runtime() -> bool {
        false
    }

    #[derive(Clone, Default)]
    pub(crate) struct TasksOf;

    impl TasksOf {
        pub(crate) fn caller() -> Self {
            TasksOf
        }

        pub(crate) fn blocked_caller() -> Self {
            TasksOf
        }

        pub(crate) fn has_ended(&self) -> bool {
            false
        }

        pub(crate) fn enter(&self) -> impl Sized + '_ {}
    }
}

pub(crate) use self::runtime::{TasksOf, is_in_runtime};

/// Notes until it is dropped that this thread is in a turn for whose end others wait: those who want its row, on a database with
/// one writer everybody, and a suspect row that is to run alone, behind which all other messages of the process wait.
pub(crate) struct InTurn;

impl InTurn {
    pub(crate) fn begin() -> Self {
        IN_TURN.set(true);
        InTurn
    }

    pub(crate) fn is_taken() -> bool {
        IN_TURN.get()
    }

    /// Returns what makes another thread, for which this one waits, count as being in this thread's turn.
    pub(crate) fn inherited() -> impl FnOnce() + Send + 'static {
        let in_turn = IN_TURN.get();
        move || IN_TURN.set(in_turn)
    }
}

impl Drop for InTurn {
    fn drop(&mut self) {
        IN_TURN.set(false);
    }
}

/// A process's turn to write, on a database with one writer: the database does not serve those who wait in their order.
#[derive(Debug, Default)]
pub(crate) struct TurnToWrite {
    /// Held by who is to be the next.
    next: Mutex<()>,
    turn: Mutex<()>,
}

impl TurnToWrite {
    /// Waits for the turn. A thread that has just given it back mostly has it again, without a change of threads.
    pub(crate) fn take(&self) -> MutexGuard<'_, ()> {
        drop(self.next.lock());
        self.turn.lock()
    }

    /// Waits for it, and lets nobody pass who comes later.
    pub(crate) fn take_next(&self) -> MutexGuard<'_, ()> {
        let _next = self.next.lock();
        self.turn.lock()
    }
}

thread_local! {
    static MARK: RefCell<ThreadMark> = RefCell::default();
    static IN_TURN: Cell<bool> = const { Cell::new(false) };
}

/// What tells whether the thread that holds something for the time being is still at work. A thread that never returns,
/// because its handler or the database does not, is given up, and what bears its mark is held by nobody any more.
#[derive(Debug, Clone, Default)]
pub(crate) struct ThreadMark(Arc<AtomicBool>);

impl ThreadMark {
    /// Returns the mark of this thread.
    pub(crate) fn current() -> Self {
        MARK.with_borrow(Clone::clone)
    }

    /// Makes it the mark of this thread. One that was given up, and goes on all the same, gets a new one.
    pub(crate) fn enter(&mut self) {
        if self.is_given_up() {
            *self = ThreadMark::default();
        }
        MARK.with_borrow_mut(|mark| *mark = self.clone());
    }

    /// Gives the thread up.
    pub(crate) fn give_up(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl PartialEq for ThreadMark {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Whether a thread does something that only one does at a time.
#[derive(Debug, Default)]
pub(crate) struct OneAtATime(Option<ThreadMark>);

impl OneAtATime {
    /// Notes that this thread begins.
    pub(crate) fn begin(&mut self) {
        self.0 = Some(ThreadMark::current());
    }

    pub(crate) fn end(&mut self) {
        self.0 = None;
    }

    pub(crate) fn is_running(&self) -> bool {
        self.0.as_ref().is_some_and(|mark| !mark.is_given_up())
    }
}

/// What threads of this process hold, each of them until it lets go or is given up.
#[derive(Debug)]
pub(crate) struct HeldByThreads<T>(Arc<Mutex<Held<T>>>);

type Held<T> = Vec<Arc<(T, ThreadMark)>>;

impl<T> Default for HeldByThreads<T> {
    fn default() -> Self {
        HeldByThreads(Arc::default())
    }
}

impl<T: Clone + PartialEq> HeldByThreads<T> {
    /// Holds this for the calling thread until the returned value is dropped. `None`: `most` threads hold it.
    pub(crate) fn hold(&self, held: T, most: usize) -> Option<HeldByThread<T>> {
        let mut all = self.0.lock();
        all.retain(|entry| !entry.1.is_given_up());
        let is_free = all.iter().filter(|entry| entry.0 == held).count() < most;
        is_free.then(|| self.push(&mut all, held))
    }

    /// Holds this for the calling thread, however many others hold it.
    pub(crate) fn hold_with_others(&self, held: T) -> HeldByThread<T> {
        self.push(&mut self.0.lock(), held)
    }

    fn push(&self, all: &mut Held<T>, held: T) -> HeldByThread<T> {
        let entry = Arc::new((held, ThreadMark::current()));
        all.push(entry.clone());
        HeldByThread { all: self.0.clone(), entry }
    }

    /// Returns what is held.
    pub(crate) fn all(&self) -> Vec<T> {
        let mut all = self.0.lock();
        all.retain(|entry| !entry.1.is_given_up());
        all.iter().map(|entry| entry.0.clone()).collect()
    }
}

/// What one thread holds.
#[derive(Debug)]
pub(crate) struct HeldByThread<T> {
    all: Arc<Mutex<Held<T>>>,
    entry: Arc<(T, ThreadMark)>,
}

impl<T> Drop for HeldByThread<T> {
    fn drop(&mut self) {
        self.all.lock().retain(|other| !Arc::ptr_eq(other, &self.entry));
    }
}

/// Does this when the returned value is dropped.
pub(crate) fn at_end(act: impl FnMut()) -> impl Drop {
    AtEnd(act)
}

struct AtEnd<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// An entity in a box, whose type its runner knows.
pub type ErasedEntity = Box<dyn Any + Send>;

/// Takes an entity of a known type out of its box.
pub(crate) fn unboxed<Q: 'static>(entity: ErasedEntity) -> Q {
    *entity.downcast().unwrap_or_else(|_| unreachable!("a runner reads entities of its own type"))
}

/// Returns the entity in a box, whose type its runner knows.
pub(crate) fn opened<Q: 'static>(entity: &ErasedEntity) -> &Q {
    entity.downcast_ref().expect("a runner reads entities of its own type")
}

// A test stops, delays or breaks an attempt at a fail point: it configures the point by its name, as the crate `fail` describes.
pub(crate) use self::fail_points::fail_point;

#[cfg(feature = "failpoints")]
mod fail_points {
    /// Passes a fail point: does nothing, unless a test has configured it.
    pub(crate) fn fail_point(name: &'static str) {
        crate::sync::in_test::pass(name);
        ::fail::fail_point!(name);
    }
}

#[cfg(not(feature = "failpoints"))]
mod fail_points {
    /// Without the feature, the crate `fail` is not needed.
    pub(crate) fn fail_point(name: &'static str) {
        crate::sync::in_test::pass(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_free_when_its_thread_lets_go_or_was_given_up() {
        let (places, mut mark) = (HeldByThreads::default(), ThreadMark::default());
        mark.enter();
        let first = places.hold("7", 1);
        assert!(first.is_some() && places.hold("7", 1).is_none() && places.hold("8", 1).is_some());
        assert_eq!(places.all(), ["7"]);
        drop(first);
        let silent = places.hold("7", 1);
        mark.give_up();
        assert!(places.all().is_empty());
        mark.enter();
        let next = places.hold("7", 1);
        assert!(next.is_some());
        // The late end of the one that was given up takes nothing from the other.
        drop(silent);
        assert!(places.hold("7", 1).is_none());
        let with_others = places.hold_with_others("7");
        drop(next);
        assert!(places.hold("7", 1).is_none());
        drop(with_others);
        assert!(places.hold("7", 1).is_some());
    }
}
