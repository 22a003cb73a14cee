//! The handler of lease mode, in two parts.

use super::background::Background;
use super::handler::{Failure, HandlerResult, Message};
use super::lease::Lease;
use crate::error::Error;

/// Processes one message of the entity `Q` in two parts: [`call`](LeaseHandler::call) does the slow work without a
/// transaction, [`apply`](LeaseHandler::apply) writes its result in the message's transaction, on a connection of type `C`.
///
/// It is for entities with `#[queue(lease = "60s")]`. What `apply` writes commits together with the queue state, or not
/// at all. `call` happens *at least* once: every attempt of one occasion has the same
/// [`idempotency_key`](Lease::idempotency_key).
///
/// A pair of closures is a handler too:
///
/// ```
/// # use queueable::{Failure, LeaseHandler, Lease, Message, HandlerResult, Outcome};
/// # struct Webhook { id: i64, url: String }
/// # fn post(url: &str, key: &str) -> Result<u16, std::io::Error> { Ok(200) }
/// # fn is_handler<C>(_: impl LeaseHandler<Webhook, C>) {}
/// # fn example<C: 'static>() {
/// is_handler((
///     |webhook: &Webhook, lease: &Lease| Ok(post(&webhook.url, lease.idempotency_key())?),
///     |webhook: &Webhook, status: &u16, message: &mut Message<'_, C>| {
///         println!("webhook {} was answered {status}", webhook.id);
///         Ok(Outcome::Done)
///     },
/// ));
/// # }
/// ```
///
/// So is a handler in an [`Arc`](std::sync::Arc) or a [`Box`].
///
/// Each running call keeps a worker. With the feature `tokio`, `AsyncCalls` is a handler whose calls are futures, a thousand of
/// them on a few workers.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not handle `{Q}` under a lease on `{C}`",
    note = "implement `LeaseHandler<{Q}, {C}>` for it, or pass two closures: `(|entity: &{Q}, lease: &Lease| Ok(answer), \
            |entity: &{Q}, answer: &Answer, message: &mut Message<'_, {C}>| Ok(Outcome::Done))`"
)]
pub trait LeaseHandler<Q, C>: Send + Sync {
    /// The answer of `call`, for `apply` to write.
    type Answer;

    /// Does the slow work. It has no transaction and no connection, so it holds up nobody in the database. It may take
    /// as long as the entity's `timeout`, which is the lease by default; [`Lease::extend`] asks for more.
    ///
    /// # Errors
    ///
    /// Every error means that the message is retried by its policy, unless it was made with [`Failure::fatal`].
    fn call(&self, entity: &Q, lease: &Lease) -> Result<Self::Answer, Failure>;

    /// Writes the answer of `call` in the message's transaction. It should be short: it may take 30 seconds, on SQLite
    /// one second, whatever the entity's `timeout` says. The worker runs it again, with the same answer, if its
    /// transaction meets a conflict or loses its connection.
    ///
    /// # Errors
    ///
    /// Every error rolls back what `apply` has written. The message is then retried by its policy, and `call` runs
    /// again, unless the failure was made with [`Failure::fatal`].
    fn apply(&self, entity: &Q, answer: &Self::Answer, message: &mut Message<'_, C>) -> HandlerResult;

    /// Returns how the calls run beside the workers, if they do: then the poller does not use `call`.
    #[doc(hidden)]
    fn background(&self) -> Result<Option<Background<C>>, Error> {
        Ok(None)
    }
}

impl<Q, C, A, Call, Apply> LeaseHandler<Q, C> for (Call, Apply)
where
    Call: Fn(&Q, &Lease) -> Result<A, Failure> + Send + Sync,
    Apply: Fn(&Q, &A, &mut Message<'_, C>) -> HandlerResult + Send + Sync,
{
    type Answer = A;

    fn call(&self, entity: &Q, lease: &Lease) -> Result<A, Failure> {
        (self.0)(entity, lease)
    }

    fn apply(&self, entity: &Q, answer: &A, message: &mut Message<'_, C>) -> HandlerResult {
        (self.1)(entity, answer, message)
    }
}
