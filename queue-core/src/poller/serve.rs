//! Which handler serves an entity: this follows from the entity's mode.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::attempt::{BoxedRunner, RunnerSettings, TransactionRunner};
use crate::backend::QueueConnection;
use crate::entity::{Entity, GroupMode, LeaseMode, TransactionMode};
use crate::error::Error;
use crate::group::GroupRunner;
use crate::handler::{Handler, Kept, LeaseHandler};
use crate::lease::{Calling, LeaseRunner};
use crate::statement::QueueOn;

/// A handler for the entity `Q`: a [`Handler`] in transaction and group mode, a [`LeaseHandler`] in lease mode.
///
/// There is nothing to implement by hand. `M` is the entity's mode.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not serve `{Q}`, whose mode is `{M}`",
    label = "this is not a handler in `{M}` on `{C}`",
    note = "in `TransactionMode`, the default, and in `GroupMode`, `#[queue(group = ..)]`, a handler implements \
            `Handler<{Q}, {C}>` or is a closure: `|entity: &{Q}, message: &mut Message<'_, {C}>| Ok(Outcome::Done)`",
    note = "in `LeaseMode`, `#[queue(lease = ..)]`, it implements `LeaseHandler<{Q}, {C}>` or is two closures: \
            `(|entity: &{Q}, lease: &Lease| Ok(answer), |entity: &{Q}, answer: &Answer, message: &mut Message<'_, {C}>| \
            Ok(Outcome::Done))`"
)]
pub trait HandlerFor<Q: Entity, C, M = <Q as Entity>::Mode>: Sized + Send {
    #[doc(hidden)]
    fn into_runner<'h>(self, settings: RunnerSettings) -> Result<BoxedRunner<'h, C>, Error>
    where
        C: QueueConnection,
        Self: 'h;

    /// Serves the entity by a handler that a test keeps.
    #[doc(hidden)]
    fn borrowed_runner(&self, settings: RunnerSettings) -> Result<BoxedRunner<'_, C>, Error>
    where
        C: QueueConnection;
}

/// A connection on which the queue of `Q` can be used.
///
/// It is implemented for every [`QueueConnection`] and every entity that can be a queue there, see [`QueueOn`]. It says
/// the same from the connection's side, for the compiler's sake. Before the compiler knows which connection a pool
/// gives, it would look for everything that any connection might need of the entity, again and again, at every call of
/// [`Queueable::poller`](crate::Queueable::poller).
#[diagnostic::on_unimplemented(
    message = "the queue of `{Q}` cannot be used on `{Self}`",
    label = "`{Q}` has no queue here",
    note = "the connection is Diesel's `PgConnection`, `MysqlConnection` or `SqliteConnection`, and queueable's feature of that name \
            is on; for a `MultiConnection`, docs/into-your-application.md has \"One build for several databases\"",
    note = "the entity derives `Queryable`, `Selectable` and `Queueable`, is `Send`, and every field's type can be read on this \
            database; `#[diesel(check_for_backend(diesel::pg::Pg))]` on the struct shows which field cannot, or another backend there"
)]
pub trait ConnectionFor<Q: Entity>: QueueConnection {
    #[doc(hidden)]
    fn transaction_runner<'h>(
        handler: Box<dyn Handler<Q, Self> + 'h>,
        settings: RunnerSettings,
    ) -> Result<BoxedRunner<'h, Self>, Error>;

    #[doc(hidden)]
    fn group_runner<'h>(
        handler: Box<dyn Handler<Q, Self> + 'h>,
        settings: RunnerSettings,
    ) -> Result<BoxedRunner<'h, Self>, Error>;

    #[doc(hidden)]
    fn lease_runner<'h, H>(handler: H, settings: RunnerSettings) -> Result<BoxedRunner<'h, Self>, Error>
    where
        H: LeaseHandler<Q, Self> + 'h;
}

#[diagnostic::do_not_recommend]
impl<Q, C> ConnectionFor<Q> for C
where
    Q: QueueOn<C> + Send,
    C: QueueConnection,
{
    fn transaction_runner<'h>(
        handler: Box<dyn Handler<Q, C> + 'h>,
        settings: RunnerSettings,
    ) -> Result<BoxedRunner<'h, C>, Error> {
        Ok(BoxedRunner(Box::new(TransactionRunner::new::<Q>(Arc::from(handler), settings)?)))
    }

    fn group_runner<'h>(
        handler: Box<dyn Handler<Q, C> + 'h>,
        settings: RunnerSettings,
    ) -> Result<BoxedRunner<'h, C>, Error> {
        Ok(BoxedRunner(Box::new(GroupRunner::new::<Q>(Arc::from(handler), settings)?)))
    }

    fn lease_runner<'h, H>(handler: H, settings: RunnerSettings) -> Result<BoxedRunner<'h, C>, Error>
    where
        H: LeaseHandler<Q, C> + 'h,
    {
        let handler = Box::new(Calling::<Q, _>::new(handler));
        Ok(BoxedRunner(Box::new(LeaseRunner::new::<Q>(handler, settings)?)))
    }
}

/// An entity that a poller is to serve with a handler. It has no bound on the connection, so that a connection that no
/// queue can use is one error, at the call that names it.
pub(super) trait ServeLater<C>: Send {
    /// Builds the runner.
    fn build(self: Box<Self>, settings: RunnerSettings) -> Result<BoxedRunner<'static, C>, Error>
    where
        C: QueueConnection;
}

/// The entity `Q`, its handler, and the stages in which its rows are served: `None` for all rows.
pub(super) struct Served<Q, H> {
    handler: H,
    stages: Option<Vec<&'static str>>,
    entity: PhantomData<fn() -> Q>,
}

impl<Q, H> Served<Q, H> {
    pub(super) fn new(handler: H, stages: Option<Vec<&'static str>>) -> Self {
        Served { handler, stages, entity: PhantomData }
    }
}

impl<Q, C, H> ServeLater<C> for Served<Q, H>
where
    Q: Entity,
    H: HandlerFor<Q, C> + 'static,
{
    fn build(self: Box<Self>, settings: RunnerSettings) -> Result<BoxedRunner<'static, C>, Error>
    where
        C: QueueConnection,
    {
        if self.stages.as_ref().is_some_and(Vec::is_empty) {
            let (setting, found) = ("the stages of an entity that are served", format!("none of {}", Q::ENTITY));
            return Err(Error::Setting { setting, found, expected: "at least one stage, or `serve`" });
        }
        self.handler.into_runner(RunnerSettings { stages: self.stages, ..settings })
    }
}

impl<Q, C, H> HandlerFor<Q, C, TransactionMode> for H
where
    Q: Entity + 'static,
    C: ConnectionFor<Q>,
    H: Handler<Q, C>,
{
    fn into_runner<'h>(self, settings: RunnerSettings) -> Result<BoxedRunner<'h, C>, Error>
    where
        Self: 'h,
    {
        C::transaction_runner(Box::new(self), settings)
    }

    fn borrowed_runner(&self, settings: RunnerSettings) -> Result<BoxedRunner<'_, C>, Error> {
        C::transaction_runner(Box::new(Kept(self)), settings)
    }
}

impl<Q, C, H> HandlerFor<Q, C, GroupMode> for H
where
    Q: Entity + 'static,
    C: ConnectionFor<Q>,
    H: Handler<Q, C>,
{
    fn into_runner<'h>(self, settings: RunnerSettings) -> Result<BoxedRunner<'h, C>, Error>
    where
        Self: 'h,
    {
        C::group_runner(Box::new(self), settings)
    }

    fn borrowed_runner(&self, settings: RunnerSettings) -> Result<BoxedRunner<'_, C>, Error> {
        C::group_runner(Box::new(Kept(self)), settings)
    }
}

impl<Q, C, H> HandlerFor<Q, C, LeaseMode> for H
where
    Q: Entity + 'static,
    C: ConnectionFor<Q>,
    H: LeaseHandler<Q, C>,
{
    fn into_runner<'h>(self, settings: RunnerSettings) -> Result<BoxedRunner<'h, C>, Error>
    where
        Self: 'h,
    {
        C::lease_runner(self, settings)
    }

    fn borrowed_runner(&self, settings: RunnerSettings) -> Result<BoxedRunner<'_, C>, Error> {
        C::lease_runner(Kept(self), settings)
    }
}
