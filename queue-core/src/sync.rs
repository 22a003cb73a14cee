//! Small tools that every room uses: a lock of panicked holders, a guard, entities in boxes, and fail points.

use std::any::Any;
use std::sync::{self, MutexGuard, PoisonError};

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

        pub(crate) fn enter(&self) -> impl Sized + '_ {}
    }
}

pub(crate) use self::runtime::{TasksOf, is_in_runtime};

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
        ::fail::fail_point!(name);
    }
}

#[cfg(not(feature = "failpoints"))]
mod fail_points {
    /// Does nothing: without the feature, the crate `fail` is not needed.
    pub(crate) const fn fail_point(_name: &'static str) {}
}
