//! [`QueueOn`]: the entities whose queues work on a connection.

use super::erased::ErasedQueue;
use super::rows::ReadFrom;
use crate::backend::QueueConnection;

/// An entity whose queue works on a connection of type `C`.
///
/// It is implemented for every entity on every [`QueueConnection`] whose backend can store the entity's columns; there
/// is nothing to implement by hand. Name it in the bounds of generic code.
///
/// ```
/// use diesel::r2d2::{ConnectionManager, Pool};
/// use queueable::{Entity, Error, Handler, PollerHandle, QueueConnection, QueueOn, Queueable, TransactionMode};
///
/// fn start<Q, C>(pool: Pool<ConnectionManager<C>>, handler: impl Handler<Q, C> + 'static) -> Result<PollerHandle, Error>
/// where
///     Q: Entity<Mode = TransactionMode> + QueueOn<C> + Send + 'static,
///     C: QueueConnection,
/// {
///     Q::poller(pool, handler).start()
/// }
/// ```
///
/// A function that serves entities of every mode takes a [`HandlerFor`](crate::HandlerFor). To migrate and to operate,
/// it also names [`StoredIn`](crate::StoredIn) and the trait of the operation, here [`ReadOn`](crate::ReadOn):
///
/// ```
/// use diesel::Connection;
/// use diesel::r2d2::{ConnectionManager, Pool};
/// use diesel_migrations::MigrationHarness;
/// use queueable::{
///     AllFilters, HandlerFor, Migrations, PollerHandle, Queue, QueueConnection, QueueOn, Queueable, ReadOn, StoredIn,
/// };
///
/// fn serve<Q, C>(
///     pool: Pool<ConnectionManager<C>>,
///     handler: impl HandlerFor<Q, C> + 'static,
/// ) -> Result<PollerHandle, Box<dyn std::error::Error + Send + Sync>>
/// where
///     Q: QueueOn<C> + StoredIn<C::Backend> + 'static,
///     C: QueueConnection + MigrationHarness<<C as Connection>::Backend>,
///     Queue<Q, AllFilters>: ReadOn<C>,
/// {
///     let mut connection = pool.get()?;
///     connection.run_pending_migrations(Migrations::new().entity::<Q>())?;
///     println!("{} rows of {} are due", Q::queue().due().count(&mut connection)?, Q::ENTITY);
///     Ok(Q::poller(pool, handler).start()?)
/// }
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # #[derive(diesel::Queryable, diesel::Selectable, Queueable)] struct Payment { id: i64 }
/// # fn instance(pool: Pool<ConnectionManager<diesel::SqliteConnection>>, handler: impl HandlerFor<Payment, diesel::SqliteConnection> + 'static) {
/// #     let _ = serve::<Payment, _>(pool, handler);
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be used as a queue on `{C}`",
    note = "the entity derives `Queryable`, `Selectable` and `Queueable`, and every field's type can be read on this database; \
            `#[diesel(check_for_backend(diesel::pg::Pg))]` on the struct shows which field cannot, or another backend there"
)]
pub trait QueueOn<C: QueueConnection>: ReadFrom<C::Backend> + Send {
    /// The queue as a value.
    #[doc(hidden)]
    const QUEUE: &'static ErasedQueue<Self::Key, C>;
}

#[diagnostic::do_not_recommend]
impl<Q: ReadFrom<C::Backend> + Send, C: QueueConnection> QueueOn<C> for Q {
    const QUEUE: &'static ErasedQueue<Q::Key, C> = &ErasedQueue::of::<Q>();
}
