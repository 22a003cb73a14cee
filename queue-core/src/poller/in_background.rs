//! The poller of an asynchronous application: what waits for the database or for handlers runs on a thread of its own,
//! and a future waits for that thread. Any executor may poll the futures; no runtime is needed.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use super::handle::{Controls, PollerHandle, Shutdown};
use super::poller::Poller;
use super::start::start;
use super::work_board::WorkBoard;
use crate::attempt::Tally;
use crate::backend::QueueConnection;
use crate::error::Error;
use crate::sync::{InTurn, Mutex, TasksOf};

impl<C: QueueConnection> Poller<C> {
    /// Does what [`start`](Poller::start) does, on a thread of its own, so that a task of an asynchronous application can
    /// wait for it. The workers are threads as always.
    ///
    /// If the future is dropped before it is ready, the poller is shut down, with its
    /// [grace period](Poller::shutdown_grace), on that thread.
    ///
    /// # Errors
    ///
    /// Those of [`start`](Poller::start).
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use diesel::prelude::*;
    /// # use diesel::r2d2::{ConnectionManager, Pool};
    /// # use queueable::{Error, HandlerResult, Message, Outcome, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
    /// # async fn serve() {}
    /// async fn run(pool: Pool<ConnectionManager<SqliteConnection>>) -> Result<(), Error> {
    ///     let poller = Payment::poller(pool, charge).start_async().await?;
    ///     serve().await; // the web server, until it is told to stop
    ///     let shutdown = poller.shutdown_async(Duration::from_secs(10)).await;
    ///     println!("{} payments, {} rolled back", shutdown.tally.succeeded, shutdown.rolled_back);
    ///     Ok(())
    /// }
    /// ```
    pub async fn start_async(self) -> Result<PollerHandle, Error> {
        // A runtime of this thread alone may not run any more when this is done.
        let poller = Poller { tasks: Some(TasksOf::blocked_caller()), ..self };
        on_thread(move || poller.start()).await
    }

    /// Starts the poller, and shuts it down when `stop` is ready, with its [grace period](Poller::shutdown_grace). `stop`
    /// is any future: a signal, the receiver of a channel, `token.cancelled()` of a `CancellationToken`.
    ///
    /// If the future is dropped, for example by a `select!`, the poller is shut down in the same way, on a thread of
    /// its own, and no thread waits for that. If `stop` is ready before the poller has started, its start ends: what has begun by then
    /// is shut down, and nothing else begins. If the poller does not start for another reason, the error is also logged, because nobody
    /// may await a spawned task.
    ///
    /// # Errors
    ///
    /// Those of [`start`](Poller::start).
    ///
    /// ```no_run
    /// # use diesel::prelude::*;
    /// # use diesel::r2d2::{ConnectionManager, Pool};
    /// # use queueable::{Error, HandlerResult, Message, Outcome, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
    /// async fn run(
    ///     pool: Pool<ConnectionManager<SqliteConnection>>,
    ///     cancelled: impl Future<Output = ()>,
    /// ) -> Result<(), Error> {
    ///     let shutdown = Payment::poller(pool, charge).run_until(cancelled).await?;
    ///     println!("{} payments, {} rolled back", shutdown.tally.succeeded, shutdown.rolled_back);
    ///     Ok(())
    /// }
    /// ```
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<Shutdown, Error> {
        let poller = self.of_this_runtime();
        let early = poller.stop.clone();
        let start = move || {
            let stop = poller.stop.clone();
            // An early stop is no refusal, and the caller knows of it.
            poller.start().inspect_err(|error| {
                if !stop.is_stopped() {
                    log_refusal(error);
                }
            })
        };
        let (mut starting, mut stop) = (pin!(on_thread(start)), pin!(stop));
        let started = poll_fn(|context| match starting.as_mut().poll(context) {
            Poll::Ready(started) => Poll::Ready(Some(started)),
            // A connect may wait for a server that accepts connections and says nothing.
            Poll::Pending => stop.as_mut().poll(context).map(|()| None),
        });
        let Some(started) = started.await else {
            let Some((control, board)) = early.stop() else {
                return Ok(Shutdown { tally: Tally::default(), rolled_back: 0 });
            };
            // Its first workers may have processed messages before the last has its connection.
            let rolled_back = on_thread(move || control.clone().stop(control.default_grace()).rolled_back).await;
            return Ok(Shutdown { tally: board.tally(), rolled_back });
        };
        let running = Running(Some(started?));
        stop.await;
        let handle = running.into_handle();
        let grace = handle.control.default_grace();
        Ok(handle.shutdown_async(grace).await)
    }

    /// Does what [`run_until_idle`](Poller::run_until_idle) does, without blocking the task's thread.
    ///
    /// If the future is dropped, the poller is shut down with its [grace period](Poller::shutdown_grace), and no thread
    /// waits for that.
    ///
    /// # Errors
    ///
    /// Those of [`run_until_idle`](Poller::run_until_idle).
    ///
    /// ```no_run
    /// # use diesel::prelude::*;
    /// # use diesel::r2d2::{ConnectionManager, Pool};
    /// # use queueable::{Error, HandlerResult, Message, Outcome, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
    /// async fn nightly(pool: Pool<ConnectionManager<SqliteConnection>>) -> Result<u64, Error> {
    ///     let tally = Payment::poller(pool, charge).run_until_idle_async().await?;
    ///     Ok(tally.succeeded)
    /// }
    /// ```
    pub async fn run_until_idle_async(self) -> Result<Tally, Error> {
        let (inherit, poller) = (InTurn::inherited(), self.of_this_runtime());
        let handle = on_thread(move || {
            inherit();
            start(poller, true)
        })
        .await
        .inspect_err(log_refusal)?;
        let _stop = StopOnDrop(handle.control.clone(), handle.board.clone());
        Ok(on_thread(move || handle.wait_until_idle()).await)
    }

    /// Has the tasks that handlers spawn run on the runtime of the calling task.
    fn of_this_runtime(self) -> Self {
        Poller { tasks: Some(TasksOf::caller()), ..self }
    }
}

impl PollerHandle {
    /// Does what [`shutdown`](PollerHandle::shutdown) does, without blocking the task's thread: running handlers have
    /// `grace` to finish.
    ///
    /// If the future is dropped, the shutdown goes on in the background.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// async fn stop(poller: queueable::PollerHandle) {
    ///     let shutdown = poller.shutdown_async(Duration::from_secs(10)).await;
    ///     println!("{} messages, {} rolled back", shutdown.tally.succeeded, shutdown.rolled_back);
    /// }
    /// ```
    pub async fn shutdown_async(self, grace: Duration) -> Shutdown {
        let running = Running(Some(self));
        on_thread(move || running.into_handle().shutdown(grace)).await
    }
}

/// Logs why a poller does not start, because nobody may await the task that was spawned for it.
fn log_refusal(error: &Error) {
    tracing::error!("the poller does not start: {error}");
}

/// A poller that shuts down in the background, unless it was shut down before.
struct Running(Option<PollerHandle>);

impl Running {
    fn into_handle(mut self) -> PollerHandle {
        self.0.take().expect("it is taken once")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(handle) = self.0.take() {
            thread::spawn(move || drop(handle));
        }
    }
}

/// Tells a poller to stop. One that has stopped already does not mind.
struct StopOnDrop(Arc<dyn Controls>, Arc<WorkBoard>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        let control = self.0.clone();
        if !self.1.is_empty() {
            thread::spawn(move || control.clone().stop(control.default_grace()));
        }
    }
}

/// The answer of a thread.
struct OnThread<T: Send + 'static>(Arc<Mutex<Awaited<T>>>);

struct Awaited<T> {
    answer: Option<thread::Result<T>>,
    waker: Option<Waker>,
}

/// Runs `work` on a thread of its own.
fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> OnThread<T> {
    let here = OnThread(Arc::new(Mutex::new(Awaited { answer: None, waker: None })));
    let awaited = Arc::downgrade(&here.0);
    thread::spawn(move || {
        let answer = catch_unwind(AssertUnwindSafe(work));
        // If no task waits any more, the answer is dropped on this thread. A poller in it shuts down then, which takes a
        // while.
        let Some(awaited) = awaited.upgrade() else { return };
        let mut state = awaited.lock();
        state.answer = Some(answer);
        let waker = state.waker.take();
        // An executor may poll the future at once, on this thread.
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    });
    here
}

impl<T: Send + 'static> Future for OnThread<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut awaited = self.0.lock();
        match awaited.answer.take() {
            Some(Ok(answer)) => Poll::Ready(answer),
            Some(Err(panic)) => resume_unwind(panic),
            None => {
                awaited.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T: Send + 'static> Drop for OnThread<T> {
    fn drop(&mut self) {
        if let Some(answer) = self.0.lock().answer.take() {
            thread::spawn(move || drop(answer));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::Wake;
    use std::time::Duration;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// An executor of one future, which polls it on the thread that wakes it.
    struct AtOnce {
        future: std::sync::Mutex<OnThread<u8>>,
        answer: mpsc::Sender<u8>,
    }

    impl AtOnce {
        fn poll(self: &Arc<Self>) {
            let mut future = self.future.lock().expect("no poll panics");
            if let Poll::Ready(answer) = Pin::new(&mut *future).poll(&mut Context::from_waker(&self.clone().into())) {
                self.answer.send(answer).expect("the test waits");
            }
        }
    }

    impl Wake for AtOnce {
        fn wake(self: Arc<Self>) {
            self.poll();
        }
    }

    #[test]
    fn a_future_may_be_polled_on_the_thread_that_wakes_it() {
        let ((go, waits), (answer, answers)) = (mpsc::channel(), mpsc::channel());
        let future = on_thread(move || waits.recv().map_or(0, |()| 7));
        let executor = Arc::new(AtOnce { future: future.into(), answer });
        executor.poll();
        go.send(()).expect("the work waits");
        assert_eq!(answers.recv_timeout(PATIENCE), Ok(7), "the thread waits for itself");
    }
}
