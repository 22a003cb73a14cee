//! The runtime that drives the futures of one session.

use std::fmt;
use std::future::{self, Future, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use futures_util::FutureExt;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio::task::yield_now;

/// Runs the tasks of handlers in a process whose pollers were started outside of every runtime.
static TASKS: LazyLock<Handle> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build().expect("the system has room for a runtime");
    let handle = runtime.handle().clone();
    thread::spawn(move || runtime.block_on(future::pending::<()>()));
    handle
});

/// Drives the futures of one session, on the thread that waits for them.
#[derive(Clone)]
pub(crate) enum SessionRuntime {
    /// A runtime on the thread that waits. It also runs the task that reads from the connection, so that an answer wakes
    /// the thread that waits for it, and no other one before.
    Own(OwnRuntime),
    /// The application's runtime, which runs that task on its own threads.
    Application(Handle),
}

impl SessionRuntime {
    /// Makes a runtime of the session's own.
    pub(super) fn new() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(SessionRuntime::Own(OwnRuntime(Some(Arc::new(runtime)))))
    }

    /// Takes the runtime of the application, on one of whose threads this is called.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub(super) fn of_the_application() -> Self {
        SessionRuntime::Application(Handle::current())
    }

    /// Waits for a future.
    ///
    /// # Panics
    ///
    /// On a thread that runs async tasks.
    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.try_block_on(future).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Waits for a future, unless this thread runs async tasks.
    pub(super) fn try_block_on<F: Future>(&self, future: F) -> Result<F::Output, OnAsyncThread> {
        let (mut future, mut has_begun) = (pin!(future), false);
        let watched = poll_fn(|context| {
            has_begun = true;
            future.as_mut().poll(context)
        });
        let waited = catch_unwind(AssertUnwindSafe(|| match self {
            SessionRuntime::Own(runtime) => runtime.get().block_on(watched),
            SessionRuntime::Application(handle) => handle.block_on(watched),
        }));
        match waited {
            Ok(output) => Ok(output),
            // Nothing else tells whether tokio would refuse to wait here: it panics before it polls anything.
            Err(_) if !has_begun => Err(OnAsyncThread),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Drives a future that may itself call what blocks on this runtime: it is polled outside the runtime, which runs
    /// only while the future waits.
    pub(crate) fn drive<F: Future>(&self, future: F) -> F::Output {
        // Panics on a thread that runs async tasks, before the future has sent anything.
        self.block_on(future::ready(()));
        // What the future spawns must go on after it, so it does not belong to the session's own runtime.
        let tasks = Handle::try_current().unwrap_or_else(|_| TASKS.clone());
        let _tasks = tasks.enter();
        let woken = Arc::new(Woken(Notify::new()));
        let waker = Waker::from(woken.clone());
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return answer;
            }
            match woken.0.notified().now_or_never() {
                // It has woken itself and waits for nothing, but something may have come on its connection.
                Some(()) => self.block_on(yield_now()),
                None => self.block_on(woken.0.notified()),
            }
        }
    }
}

/// A session has to wait for its server, and the thread runs async tasks.
#[derive(Debug)]
pub(super) struct OnAsyncThread;

impl fmt::Display for OnAsyncThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a session of queueable waits for its server, and this thread runs async tasks: start a poller by \
             `start_async().await` or `run_until_idle_async().await`, make other calls inside \
             `AsyncPgSession::on(connection, |session| ..).await` (or `AsyncMysqlSession`), and open a session inside \
             `tokio::task::spawn_blocking`",
        )
    }
}

/// Remembers that a future was woken, also while no thread waits.
struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

#[derive(Clone)]
pub(crate) struct OwnRuntime(
    /// `None` once it is being dropped.
    Option<Arc<Runtime>>,
);

impl OwnRuntime {
    fn get(&self) -> &Runtime {
        self.0.as_ref().expect("a session has its runtime until it is dropped")
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        // A plain drop waits for threads, and panics on a thread that runs async tasks.
        if let Some(runtime) = self.0.take().and_then(Arc::into_inner) {
            runtime.shutdown_background();
        }
    }
}
