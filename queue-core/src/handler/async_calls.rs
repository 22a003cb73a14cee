//! Runs the calls of lease mode on a tokio runtime of the application.

use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;
use tracing::Span;

use super::handler::{Failure, HandlerResult, Message, Panicked};
use super::lease::{AbortCall, Answered, Background, BeginCall, Called, Done, Lease, LeaseHandler, OwnedMessage};
use super::panic_safe::{PanicSafeDrop, drop_safely};
use crate::error::Error;
use crate::sync::opened;

/// How many calls are in flight unless the application says otherwise: as many as an ordinary service answers at the
/// same time, and few enough that sockets and memory are no concern.
const IN_FLIGHT: usize = 100;

/// How many answers one transaction applies at most unless the application says otherwise. With so many, a commit costs
/// little for each.
const ANSWERS_PER_TRANSACTION: u32 = 64;

/// The handler of a lease queue whose calls run on a tokio runtime of the application, many at the same time.
///
/// The poller claims rows in batches and begins the call of each at once. A call waits on the runtime, without a thread
/// and without a connection. Once it has answered, a worker applies the answer and settles the row in one transaction, as
/// in [`LeaseHandler`]. So a few workers serve a thousand calls that wait. [`in_flight`](AsyncCalls::in_flight) says how
/// many calls wait, `workers` how many transactions write answers at the same time, and
/// [`answers_per_transaction`](AsyncCalls::answers_per_transaction) how many answers one of them writes.
///
/// The poller has threads of its own and works on every kind of connection. It needs the feature `tokio`.
///
/// - No row is claimed whose call cannot begin at once: never are more rows `IN_PROGRESS` in this process than
///   `in_flight`, the answers that wait to be written included. This also bounds the memory.
/// - One heartbeat extends all leases.
/// - While the queue is paused or its window is closed, no call begins, and the answers of running calls are written.
/// - A shutdown claims nothing more and waits for the running calls, up to its grace. Then it drops their futures and gives
///   their rows back, with no try used.
/// - A call past the entity's `timeout` is dropped, and recorded as a failure. So is one that panics.
/// - If another session changes a call's row, the poller drops the call and writes nothing.
///
/// ```no_run
/// # use diesel::prelude::*;
/// # use diesel::r2d2::{ConnectionManager, Pool};
/// # use queueable::{AsyncCalls, Failure, Lease, Message, Outcome, Queueable};
/// # diesel::table! { webhooks (id) { id -> BigInt, url -> Text, answer -> Nullable<Integer>, } }
/// # #[derive(Queryable, Selectable, Queueable)] #[queue(lease = "60s")] struct Webhook { id: i64, url: String }
/// # #[derive(Clone)] struct Client;
/// # impl Client { async fn post(&self, _: &str) -> Result<i32, std::io::Error> { Ok(200) } }
/// # async fn serve(pool: Pool<ConnectionManager<SqliteConnection>>, client: Client) -> Result<(), queueable::Error> {
/// let calls = AsyncCalls::of(
///     move |webhook: &Webhook, _: &Lease| {
///         let client = client.clone();
///         Box::pin(async move { Ok(client.post(&webhook.url).await?) })
///     },
///     |webhook: &Webhook, status: &i32, message: &mut Message<'_, SqliteConnection>| {
///         diesel::update(webhooks::table.find(webhook.id))
///             .set(webhooks::answer.eq(status))
///             .execute(message.connection())?;
///         Ok(Outcome::Done)
///     },
/// );
/// let handle = Webhook::poller(pool, calls.in_flight(1000)).workers(2).start_async().await?;
/// # Ok(()) }
/// ```
pub struct AsyncCalls<H> {
    handler: Arc<H>,
    in_flight: usize,
    answers_per_transaction: u32,
    runtime: Option<Handle>,
}

impl<H> AsyncCalls<H> {
    /// Takes an [`AsyncLeaseHandler`]. Its calls run on the runtime in which `new` is called, unless
    /// [`runtime`](AsyncCalls::runtime) names another.
    ///
    /// ```no_run
    /// # use queueable::{AsyncCalls, AsyncLeaseHandler};
    /// # struct Webhook;
    /// # fn calls<H: AsyncLeaseHandler<Webhook, diesel::SqliteConnection>>(deliver: H) -> AsyncCalls<H> {
    /// AsyncCalls::new(deliver)
    /// # }
    /// ```
    pub fn new(handler: H) -> Self {
        AsyncCalls {
            handler: Arc::new(handler),
            in_flight: IN_FLIGHT,
            answers_per_transaction: ANSWERS_PER_TRANSACTION,
            runtime: Handle::try_current().ok(),
        }
    }

    /// Sets how many calls may be in flight at the same time: rows that are claimed and not settled yet. It does not
    /// depend on the number of workers. The default is 100, as many as an ordinary service answers at the same time.
    ///
    /// If the process is killed, so many rows wait for the end of their lease, and each has used a try.
    ///
    /// ```no_run
    /// # use queueable::{AsyncCalls, AsyncLeaseHandler};
    /// # struct Webhook;
    /// # fn calls<H: AsyncLeaseHandler<Webhook, diesel::SqliteConnection>>(deliver: H) -> AsyncCalls<H> {
    /// AsyncCalls::new(deliver).in_flight(1000)
    /// # }
    /// ```
    pub fn in_flight(mut self, most: usize) -> Self {
        self.in_flight = most;
        self
    }

    /// Sets how many answers one transaction applies at most: those that wait for a worker at that moment. The default is
    /// 64; with 1, each has a transaction of its own.
    ///
    /// If one of the answers cannot be committed, because its `apply` fails, for example, or its row has changed, the
    /// transaction is undone, and each answer is applied in a transaction of its own. What one `apply` leaves behind in the
    /// transaction beside its writes, the next one sees: a `SET LOCAL` of the application's own setting, an advisory lock,
    /// a temporary table, the time of `now()`. If that matters, set 1.
    ///
    /// ```no_run
    /// # use queueable::{AsyncCalls, AsyncLeaseHandler};
    /// # struct Webhook;
    /// # fn calls<H: AsyncLeaseHandler<Webhook, diesel::SqliteConnection>>(deliver: H) -> AsyncCalls<H> {
    /// AsyncCalls::new(deliver).answers_per_transaction(1)
    /// # }
    /// ```
    pub fn answers_per_transaction(mut self, most: u32) -> Self {
        self.answers_per_transaction = most;
        self
    }

    /// Sets the runtime on which the calls run. Its threads have to run for as long as the poller does.
    /// [`run_until_idle`](crate::Poller::run_until_idle) on the only thread of the runtime would block the calls that it
    /// waits for, and returns an error after five seconds: there, await
    /// [`run_until_idle_async`](crate::Poller::run_until_idle_async).
    ///
    /// ```no_run
    /// # use queueable::{AsyncCalls, AsyncLeaseHandler};
    /// # struct Webhook;
    /// # fn calls<H: AsyncLeaseHandler<Webhook, diesel::SqliteConnection>>(
    /// #     deliver: H,
    /// #     runtime: &tokio::runtime::Runtime,
    /// # ) -> AsyncCalls<H> {
    /// AsyncCalls::new(deliver).runtime(runtime.handle().clone())
    /// # }
    /// ```
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    fn chosen_runtime(&self) -> Result<&Handle, Error> {
        self.runtime.as_ref().ok_or_else(|| Error::Setting {
            setting: "the runtime of async calls",
            found: "none".to_owned(),
            expected: "`AsyncCalls::new` inside a tokio runtime, or its handle: `.runtime(Handle::current())`",
        })
    }
}

impl<Call, Apply> AsyncCalls<(Call, Apply)> {
    /// Takes two closures: the call, which returns a boxed future, and what writes its answer. Both borrow the entity.
    ///
    /// The compiler cannot say of an `async` closure yet that its future may move between threads. So the first closure
    /// returns `Box::pin(async move { .. })`.
    ///
    /// ```no_run
    /// # use queueable::{AsyncCalls, Failure, Lease, Message, Outcome};
    /// # struct Webhook { id: i64, url: String }
    /// # async fn post(_: &str, _: &str) -> Result<u16, std::io::Error> { Ok(200) }
    /// # fn example() {
    /// let calls = AsyncCalls::of(
    ///     |webhook: &Webhook, lease: &Lease| {
    ///         Box::pin(async move { Ok(post(&webhook.url, lease.idempotency_key()).await?) })
    ///     },
    ///     |webhook: &Webhook, status: &u16, message: &mut Message<'_, diesel::SqliteConnection>| {
    ///         println!("webhook {} was answered {status}", webhook.id);
    ///         Ok(Outcome::Done)
    ///     },
    /// );
    /// # }
    /// ```
    pub fn of<Q, C, A>(call: Call, apply: Apply) -> Self
    where
        Call: for<'a> Fn(&'a Q, &'a Lease) -> CallFuture<'a, A>,
        Apply: Fn(&Q, &A, &mut Message<'_, C>) -> HandlerResult,
    {
        AsyncCalls::new((call, apply))
    }
}

impl<Q, C, H> LeaseHandler<Q, C> for AsyncCalls<H>
where
    Q: Send + Sync + 'static,
    C: 'static,
    H: AsyncLeaseHandler<Q, C> + 'static,
{
    type Answer = H::Answer;

    /// Blocks on the future. The poller does not use it: a handler that passes its calls on to this one does.
    fn call(&self, entity: &Q, lease: &Lease) -> Result<H::Answer, Failure> {
        self.chosen_runtime()?.block_on(self.handler.call(entity, lease))
    }

    fn apply(&self, entity: &Q, answer: &H::Answer, message: &mut Message<'_, C>) -> HandlerResult {
        self.handler.apply(entity, answer, message)
    }

    fn background(&self) -> Result<Option<Background>, Error> {
        let settings = [
            ("the async calls in flight", self.in_flight == 0),
            ("the answers per transaction", self.answers_per_transaction == 0),
        ];
        if let Some((setting, _)) = settings.into_iter().find(|(_, is_zero)| *is_zero) {
            return Err(Error::Setting { setting, found: "0".to_owned(), expected: "at least 1" });
        }
        let (handler, runtime) = (self.handler.clone(), self.chosen_runtime()?.clone());
        let (in_flight, most_together) = (self.in_flight, self.answers_per_transaction);
        Ok(Some(Background {
            in_flight,
            most_together,
            executor: Box::new(OnTokio { handler, runtime, types: PhantomData::<fn(&Q, &C)> }),
        }))
    }
}

impl<H> fmt::Debug for AsyncCalls<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncCalls").field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}

/// A handler whose calls are tasks of a tokio runtime.
struct OnTokio<Q, C, H> {
    handler: Arc<H>,
    runtime: Handle,
    types: PhantomData<fn(&Q, &C)>,
}

impl<Q, C, H> BeginCall for OnTokio<Q, C, H>
where
    Q: Send + Sync + 'static,
    C: 'static,
    H: AsyncLeaseHandler<Q, C> + 'static,
{
    fn begin(&self, message: OwnedMessage, lease: Lease, done: Done) -> AbortCall {
        let handler = self.handler.clone();
        let call = async move {
            // A runtime that is busy may poll it late.
            lease.begin();
            let entity: &Q = opened(&message.0);
            let answer = handler.call(entity, &lease).await?;
            Ok(Answered { message, answer: Box::new(answer) })
        };
        let task = Task { call: Some(Box::pin(call)), done: Some(done), span: Span::current() };
        let abort = self.runtime.spawn(task).abort_handle();
        AbortCall(Box::new(move || abort.abort()))
    }

    fn has_ended(&self) -> bool {
        let (answer, answered) = mpsc::channel();
        self.runtime.spawn(async move { answer.send(()) });
        // A runtime that has ended drops what it is given at once.
        answered.try_recv() == Err(mpsc::TryRecvError::Disconnected)
    }

    fn responds_within(&self, patience: Duration) -> bool {
        let (runtime, (answer, answered)) = (self.runtime.clone(), mpsc::channel());
        // From another thread, as calls begin: what a runtime's own thread spawns may wait for that thread.
        let spawned = thread::Builder::new().spawn(move || runtime.spawn(async move { answer.send(()) }));
        spawned.is_err() || answered.recv_timeout(patience).is_ok()
    }
}

/// A call on the runtime. However it ends, `done` is called once, after the future is dropped.
struct Task<F> {
    call: Option<Pin<Box<F>>>,
    done: Option<Done>,
    span: Span,
}

impl<F> Future for Task<F>
where
    F: Future<Output = Result<Answered, Failure>>,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let task = &mut *self;
        let Some(call) = &mut task.call else { return Poll::Ready(()) };
        let entered = task.span.enter();
        let called: Called = match catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(context))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(called)) => PanicSafeDrop::new(called),
            Err(panic) => PanicSafeDrop::new(Err(Failure::retry(Panicked::new(panic)))),
        };
        drop(entered);
        drop_safely(task.call.take());
        if let Some(done) = task.done.take() {
            done(Some(called));
        }
        Poll::Ready(())
    }
}

impl<F> Drop for Task<F> {
    fn drop(&mut self) {
        drop_safely(self.call.take());
        if let Some(done) = self.done.take() {
            done(None);
        }
    }
}

/// Processes one message of the entity `Q` in two parts, as a [`LeaseHandler`](crate::LeaseHandler) does, but
/// [`call`](AsyncLeaseHandler::call) is an `async fn`. Many calls wait at the same time, and none of them keeps a worker,
/// a thread or a connection.
///
/// Wrap it in [`AsyncCalls`](crate::AsyncCalls), which says how many calls may be in flight and on which runtime they
/// run, and pass that to the poller:
///
/// ```no_run
/// # use diesel::prelude::*;
/// # use diesel::r2d2::{ConnectionManager, Pool};
/// # use queueable::{AsyncCalls, AsyncLeaseHandler, Failure, HandlerResult, Lease, Message, Outcome, Queueable};
/// # diesel::table! { webhooks (id) { id -> BigInt, url -> Text, answer -> Nullable<Integer>, } }
/// #[derive(Queryable, Selectable, Queueable)]
/// #[queue(lease = "60s")]
/// struct Webhook {
///     id: i64,
///     url: String,
/// }
///
/// # struct Client;
/// # impl Client { async fn post(&self, _: &str, _: &str) -> Result<i32, std::io::Error> { Ok(200) } }
/// struct Deliver {
///     client: Client, // reqwest's, for example
/// }
///
/// impl AsyncLeaseHandler<Webhook, SqliteConnection> for Deliver {
///     type Answer = i32;
///
///     async fn call(&self, webhook: &Webhook, lease: &Lease) -> Result<i32, Failure> {
///         Ok(self.client.post(&webhook.url, lease.idempotency_key()).await?)
///     }
///
///     fn apply(&self, webhook: &Webhook, status: &i32, message: &mut Message<'_, SqliteConnection>) -> HandlerResult {
///         diesel::update(webhooks::table.find(webhook.id))
///             .set(webhooks::answer.eq(status))
///             .execute(message.connection())?;
///         Ok(Outcome::Done)
///     }
/// }
///
/// # async fn serve(pool: Pool<ConnectionManager<SqliteConnection>>) -> Result<(), queueable::Error> {
/// let calls = AsyncCalls::new(Deliver { client: Client }).in_flight(1000);
/// let handle = Webhook::poller(pool, calls).workers(2).start_async().await?;
/// # Ok(()) }
/// ```
///
/// For closures, see [`AsyncCalls::of`](crate::AsyncCalls::of). A handler in an [`Arc`](std::sync::Arc) is a handler too.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not handle `{Q}` by async calls on `{C}`",
    note = "implement `AsyncLeaseHandler<{Q}, {C}>` for it, or pass two closures to `AsyncCalls::of`: `|entity, lease| \
            Box::pin(async move {{ Ok(answer) }})` and `|entity: &{Q}, answer: &Answer, message: &mut Message<'_, {C}>| \
            Ok(Outcome::Done)`"
)]
pub trait AsyncLeaseHandler<Q, C>: Send + Sync {
    /// The answer of `call`, for `apply` to write. It goes from the runtime's thread to a worker's.
    type Answer: Send;

    /// Does the slow work on the application's runtime. It has no transaction and no connection of the queue, so it
    /// blocks no other session of the database. It may take as long as the entity's `timeout`, which is the lease by
    /// default; [`Lease::extend`] asks for more.
    ///
    /// The future may be dropped at any `.await`: when its time is over, when another session has changed the row, when
    /// the lease has ended, and after the grace of a shutdown. A future that never waits cannot be dropped, and keeps
    /// its place among those in flight; its row is settled all the same, and a late answer is discarded.
    ///
    /// # Errors
    ///
    /// Every error means that the message is retried by its policy, unless it was made with [`Failure::fatal`]. A panic is
    /// such an error too.
    fn call(&self, entity: &Q, lease: &Lease) -> impl Future<Output = Result<Self::Answer, Failure>> + Send;

    /// Writes the answer of `call` in the message's transaction, on a worker's thread, as
    /// [`LeaseHandler::apply`](crate::LeaseHandler::apply) does. It should be short, because all answers pass through the
    /// few workers. A transaction may hold [several answers](crate::AsyncCalls::answers_per_transaction), and may be undone
    /// and repeated, so `apply` may run more than once for one answer; its writes are committed once.
    ///
    /// # Errors
    ///
    /// Every error rolls back what `apply` has written. The message is then retried by its policy, and `call` runs
    /// again, unless the failure was made with [`Failure::fatal`].
    fn apply(&self, entity: &Q, answer: &Self::Answer, message: &mut Message<'_, C>) -> HandlerResult;
}

/// The future that the first closure of [`AsyncCalls::of`](crate::AsyncCalls::of) returns. A function may take its place:
///
/// ```
/// # use queueable::{CallFuture, Lease};
/// # struct Webhook { url: String }
/// # async fn post(_: &str, _: &str) -> Result<u16, std::io::Error> { Ok(200) }
/// fn deliver<'a>(webhook: &'a Webhook, lease: &'a Lease) -> CallFuture<'a, u16> {
///     Box::pin(async move { Ok(post(&webhook.url, lease.idempotency_key()).await?) })
/// }
/// # let _ = deliver;
/// ```
pub type CallFuture<'a, A> = Pin<Box<dyn Future<Output = Result<A, Failure>> + Send + 'a>>;

impl<Q, C, A, Call, Apply> AsyncLeaseHandler<Q, C> for (Call, Apply)
where
    Q: Sync,
    A: Send,
    Call: for<'a> Fn(&'a Q, &'a Lease) -> CallFuture<'a, A> + Send + Sync,
    Apply: Fn(&Q, &A, &mut Message<'_, C>) -> HandlerResult + Send + Sync,
{
    type Answer = A;

    async fn call(&self, entity: &Q, lease: &Lease) -> Result<A, Failure> {
        (self.0)(entity, lease).await
    }

    fn apply(&self, entity: &Q, answer: &A, message: &mut Message<'_, C>) -> HandlerResult {
        (self.1)(entity, answer, message)
    }
}

impl<Q, C, H: AsyncLeaseHandler<Q, C>> AsyncLeaseHandler<Q, C> for Arc<H> {
    type Answer = H::Answer;

    fn call(&self, entity: &Q, lease: &Lease) -> impl Future<Output = Result<H::Answer, Failure>> + Send {
        (**self).call(entity, lease)
    }

    fn apply(&self, entity: &Q, answer: &H::Answer, message: &mut Message<'_, C>) -> HandlerResult {
        (**self).apply(entity, answer, message)
    }
}
