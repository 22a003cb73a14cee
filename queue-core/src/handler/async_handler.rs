//! Handlers that are async: on the connection of an async application, in the message's transaction.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use super::group::{Group, GroupConnection};
use super::handler::{Failure, Handler, HandlerResult, Message};
use super::lease::{Lease, LeaseHandler};
use super::panic_safe::StopSignal;
use crate::backend::{AsyncClient, DieselAsyncSession, ending_transactions};

/// Processes one message of the entity `Q` by async code, on a connection of type `C`: diesel-async's `AsyncPgConnection`
/// or `AsyncMysqlConnection`.
///
/// It is a [`Handler`] in all other respects. It runs inside the message's transaction, and what it writes through
/// [`Message::connection`] commits together with the queue state, or not at all. [`Async`] passes it to a poller.
///
/// An async closure is a handler too, and so is an `async fn` of the same arguments. The closure's arguments need no types
/// in [`Poller::serve_async_with`](crate::Poller::serve_async_with). Several pollers may share an
/// [`Arc`](std::sync::Arc) of an `Async`.
///
/// ```
/// # use diesel::prelude::*;
/// # use diesel::r2d2::{ConnectionManager, Pool};
/// use diesel_async::{AsyncPgConnection, RunQueryDsl};
/// use queueable::{Async, AsyncPgSession, HandlerResult, Message, Outcome, Queueable};
///
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # diesel::table! { ledger (payment_id) { payment_id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// async fn book(payment: &Payment, message: &mut Message<'_, AsyncPgConnection>) -> HandlerResult {
///     diesel::insert_into(ledger::table)
///         .values(ledger::payment_id.eq(payment.id))
///         .execute(message.connection())
///         .await?;
///     Ok(Outcome::Done)
/// }
///
/// # fn example(pool: Pool<ConnectionManager<AsyncPgSession>>) {
/// let poller = Payment::poller(pool, Async(book));
/// # }
/// ```
///
/// One thread runs a future from its first line to its last, so it need not be `Send`. Timers and sockets of tokio work in
/// it, and `tokio::spawn`: what a handler starts runs on the application's runtime, or, if the poller was started outside of
/// every runtime, on a thread of the library's own. It goes on between messages.
///
/// When the entity's `timeout` is over, or the poller shuts down and its grace is over, the worker drops the future and
/// closes the session. It records the failure, or leaves the row as it was, and goes on.
///
/// A future that the handler drops before its end, as by `tokio::select!`, may have sent its statement: the statement is
/// then a part of the message's transaction like any other. If it was a transaction inside the message's, the attempt is
/// a failure, nothing that it wrote remains, and the worker closes the session. On MySQL and MariaDB the worker closes the
/// session after every statement that was given up, as if it were lost, and the row is tried again.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not handle `{Q}` by async code on `{C}`",
    note = "implement `AsyncHandler<{Q}, {C}>` for it, or take an async closure: `async |entity: &{Q}, message: &mut \
            Message<'_, {C}>| Ok(Outcome::Done)`"
)]
pub trait AsyncHandler<Q, C>: Send + Sync {
    /// Processes the message, see [`Handler::handle`].
    ///
    /// # Errors
    ///
    /// Those of [`Handler::handle`].
    fn handle(&self, entity: &Q, message: &mut Message<'_, C>) -> impl Future<Output = HandlerResult>;

    /// Processes a whole group at once, see [`Handler::handle_group`]. The default returns `None`: the worker then
    /// handles every message alone.
    fn handle_group(
        &self,
        _entities: &[Q],
        _group: &mut Group<'_, C>,
    ) -> impl Future<Output = Option<Vec<HandlerResult>>> {
        async { None }
    }
}

impl<Q, C, F> AsyncHandler<Q, C> for F
where
    F: AsyncFn(&Q, &mut Message<'_, C>) -> HandlerResult + Send + Sync,
{
    async fn handle(&self, entity: &Q, message: &mut Message<'_, C>) -> HandlerResult {
        self(entity, message).await
    }
}

/// A handler whose code is async, for a poller: an [`AsyncHandler`], or an async closure.
///
/// The poller's connections are then sessions that async code can use: [`AsyncPgSession`](crate::AsyncPgSession)s or
/// [`AsyncMysqlSession`](crate::AsyncMysqlSession)s.
///
/// ```
/// # use diesel::prelude::*;
/// # use diesel::r2d2::{ConnectionManager, Pool};
/// use diesel_async::{AsyncPgConnection, RunQueryDsl};
/// use queueable::{Async, AsyncPgSession, Message, Outcome, Queueable};
///
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # diesel::table! { ledger (payment_id) { payment_id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// # fn example(pool: Pool<ConnectionManager<AsyncPgSession>>) {
/// let book = async |payment: &Payment, message: &mut Message<'_, AsyncPgConnection>| {
///     let row = ledger::payment_id.eq(payment.id);
///     diesel::insert_into(ledger::table).values(row).execute(message.connection()).await?;
///     Ok(Outcome::Done)
/// };
/// let poller = Payment::poller(pool, Async(book));
/// # }
/// ```
///
/// In lease mode it is the second part of a handler: `(call, Async(apply))`, where `apply` is an async closure or an
/// `async fn` of the entity, the answer and the message.
#[derive(Debug, Clone, Copy)]
pub struct Async<H>(
    /// The handler.
    pub H,
);

impl<Q, C, H> Handler<Q, DieselAsyncSession<C>> for Async<H>
where
    C: AsyncClient,
    H: AsyncHandler<Q, C>,
{
    fn handle(&self, entity: &Q, message: &mut Message<'_, DieselAsyncSession<C>>) -> HandlerResult {
        on_connection(message, async |message| self.0.handle(entity, message).await)
    }

    fn handle_group(&self, entities: &[Q], group: &mut Group<'_, DieselAsyncSession<C>>) -> Option<Vec<HandlerResult>> {
        let Group { connection, messages, stop } = group;
        let (runtime, messages, stop) = (connection.to_look_at().runtime.clone(), std::mem::take(messages), *stop);
        // The future may ask for the connection, and so for statements of the queue's own that block on the runtime.
        ending_transactions(
            &mut OfSession(&mut **connection),
            |connection| connection.0.to_look_at(),
            |connection| {
                let mut group = Group { connection, messages, stop };
                runtime.drive(unless_stopped(stop, self.0.handle_group(entities, &mut group)))
            },
        )?
    }
}

// The compiler's messages about two closures say the same with and without this.
#[diagnostic::do_not_recommend]
impl<Q, C, A, Call, Apply> LeaseHandler<Q, DieselAsyncSession<C>> for (Call, Async<Apply>)
where
    A: Send + 'static,
    C: AsyncClient,
    Call: Fn(&Q, &Lease) -> Result<A, Failure> + Send + Sync,
    Apply: AsyncFn(&Q, &A, &mut Message<'_, C>) -> HandlerResult + Send + Sync,
{
    type Answer = A;

    fn call(&self, entity: &Q, lease: &Lease) -> Result<A, Failure> {
        (self.0)(entity, lease)
    }

    fn apply(&self, entity: &Q, answer: &A, message: &mut Message<'_, DieselAsyncSession<C>>) -> HandlerResult {
        on_connection(message, async |message| (self.1.0)(entity, answer, message).await)
    }
}

/// Runs async code for a message, on the connection of its session.
fn on_connection<C: AsyncClient>(
    message: &mut Message<'_, DieselAsyncSession<C>>,
    work: impl AsyncFnOnce(&mut Message<'_, C>) -> HandlerResult,
) -> HandlerResult {
    let Message { connection: session, state, details, try_number, idempotency_key, stop } = message;
    let (state, details, try_number, idempotency_key, stop) = (*state, *details, *try_number, *idempotency_key, *stop);
    let answer = session.run_to_end(async |connection| {
        let mut message = Message { connection, state, details, try_number, idempotency_key, stop };
        unless_stopped(stop, work(&mut message)).await
    });
    // This text is not recorded: the thread that took the transaction away records why.
    answer.unwrap_or_else(|| Err(Failure::retry("the handler was stopped")))
}

/// Waits for a future, and drops it when the signal is given.
async fn unless_stopped<T>(stop: &StopSignal, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| match stop.is_given_or_wakes(context.waker()) {
        true => Poll::Ready(None),
        false => future.as_mut().poll(context).map(Some),
    })
    .await
}

/// The async connection of a group's session.
struct OfSession<'a, S>(&'a mut (dyn GroupConnection<S> + Send));

impl<C: AsyncClient> GroupConnection<C> for OfSession<'_, DieselAsyncSession<C>> {
    fn to_use(&mut self) -> &mut C {
        self.0.to_use().connection()
    }

    fn to_look_at(&mut self) -> &mut C {
        self.0.to_look_at().connection()
    }
}
