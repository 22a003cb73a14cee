//! The handler of lease mode whose call is a future.

use std::pin::Pin;
use std::sync::Arc;

use super::handler::{Failure, HandlerResult, Message};
use super::lease::Lease;

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
    /// holds up nobody in the database. It may take as long as the entity's `timeout`, which is the lease by default;
    /// [`Lease::extend`] asks for more.
    ///
    /// The future may be dropped at any `.await`: when its time is over, when somebody else has changed the row, when
    /// the lease has ended, and after the grace of a shutdown. A future that never waits cannot be dropped, and keeps its
    /// place among those in flight; its row is settled all the same, and a late answer is discarded.
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
