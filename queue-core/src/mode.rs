//! The three ways in which messages are worked, and what a handler is in each.

use crate::backend::QueueConnection;
use crate::entity::Queueable;
use crate::error::Error;
use crate::handler::Handler;
use crate::lane::{BoxedLane, Served};
use crate::lease::LeaseHandler;
use crate::poller::PollerSettings;
use crate::statement::QueueOn;

/// One message, one transaction: the default. For short handlers whose effects are in the database.
#[derive(Debug, Clone, Copy)]
pub enum TransactionMode {}

/// Many messages, one transaction, a savepoint for each: `#[queue(group = 50)]`. For many small handlers whose effects
/// are in the database.
#[derive(Debug, Clone, Copy)]
pub enum GroupMode {}

/// The claim is committed, the work runs without a transaction, its end is written in a short one:
/// `#[queue(lease = "60s")]`. For handlers that call the outside world or take long.
#[derive(Debug, Clone, Copy)]
pub enum LeaseMode {}

/// What serves the entity `Q`: a [`Handler`] in transaction and group mode, a [`LeaseHandler`] in lease mode.
///
/// There is nothing to implement by hand. `M` is the entity's mode.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not serve `{Q}`, whose mode is `{M}`",
    label = "this is no handler in `{M}` on `{C}`",
    note = "in `TransactionMode`, the default, and in `GroupMode`, `#[queue(group = ..)]`, a handler implements \
            `Handler<{Q}, {C}>` or is a closure: `|entity: &{Q}, message: &mut Message<'_, {C}>| Ok(Outcome::Done)`",
    note = "in `LeaseMode`, `#[queue(lease = ..)]`, it implements `LeaseHandler<{Q}, {C}>` or is two closures: \
            `(|entity: &{Q}, lease: &Lease| Ok(answer), |entity: &{Q}, answer: &Answer, message: &mut Message<'_, {C}>| \
            Ok(Outcome::Done))`"
)]
pub trait HandlerFor<Q: Queueable, C: QueueConnection, M = <Q as Queueable>::Mode>: Sized + Send {
    #[doc(hidden)]
    fn into_lane(self, settings: &PollerSettings) -> Result<BoxedLane<C>, Error>;
}

impl<Q, C, H> HandlerFor<Q, C, TransactionMode> for H
where
    Q: QueueOn<C>,
    C: QueueConnection,
    H: Handler<Q, C> + 'static,
{
    fn into_lane(self, settings: &PollerSettings) -> Result<BoxedLane<C>, Error> {
        Ok(BoxedLane(Box::new(Served::<Q, C>::new(Box::new(self), settings.error_text_limit)?)))
    }
}

impl<Q, C, H> HandlerFor<Q, C, GroupMode> for H
where
    Q: QueueOn<C>,
    C: QueueConnection,
    H: Handler<Q, C> + 'static,
{
    fn into_lane(self, settings: &PollerSettings) -> Result<BoxedLane<C>, Error> {
        Ok(BoxedLane(Box::new(Served::<Q, C>::new(Box::new(self), settings.error_text_limit)?)))
    }
}

impl<Q, C, H> HandlerFor<Q, C, LeaseMode> for H
where
    Q: QueueOn<C> + Send,
    C: QueueConnection,
    H: LeaseHandler<Q, C> + 'static,
{
    fn into_lane(self, settings: &PollerSettings) -> Result<BoxedLane<C>, Error> {
        Ok(BoxedLane(Box::new(crate::lease_lane::LeaseLane::<Q, C, H>::new(self, settings)?)))
    }
}
