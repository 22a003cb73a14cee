//! Async closures for a poller, whose arguments need no types.

use super::poller::Poller;
use super::serve::HandlerFor;
use crate::backend::{AsyncClient, DieselAsyncSession};
use crate::entity::Entity;
use crate::handler::{Async, HandlerResult, Message};

impl<C: AsyncClient> Poller<DieselAsyncSession<C>> {
    /// Serves an entity with an async closure, whose arguments need no types: [`serve`](Poller::serve) with
    /// [`Async`](crate::Async).
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::r2d2::{ConnectionManager, Pool};
    /// use diesel_async::RunQueryDsl;
    /// use queueable::{AsyncPgSession, Outcome, Poller, Queueable};
    ///
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # fn poller(pool: Pool<ConnectionManager<AsyncPgSession>>) {
    /// let poller = Poller::new(pool).serve_async_with::<Payment, _>(async |payment, message| {
    ///     diesel::delete(payments::table.find(payment.id)).execute(message.connection()).await?;
    ///     Ok(Outcome::Done)
    /// });
    /// # }
    /// ```
    pub fn serve_async_with<Q, H>(self, handle: H) -> Self
    where
        Q: Entity + 'static,
        H: AsyncFn(&Q, &mut Message<'_, C>) -> HandlerResult + Send + Sync + 'static,
        Async<H>: HandlerFor<Q, DieselAsyncSession<C>>,
    {
        self.serve(Async(handle))
    }
}
