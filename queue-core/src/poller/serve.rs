//! Which handler serves an entity: it follows from the entity's mode.

use super::settings::PollerSettings;
use crate::attempt::{BoxedRunner, TransactionRunner};
use crate::backend::QueueConnection;
use crate::entity::{Entity, GroupMode, LeaseMode, TransactionMode};
use crate::error::Error;
use crate::group::GroupRunner;
use crate::handler::{Handler, LeaseHandler};
use crate::lease::LeaseRunner;
use crate::statement::QueueOn;

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
pub trait HandlerFor<Q: Entity, C: QueueConnection, M = <Q as Entity>::Mode>: Sized + Send {
    #[doc(hidden)]
    fn into_runner(self, settings: &PollerSettings) -> Result<BoxedRunner<C>, Error>;
}

impl<Q, C, H> HandlerFor<Q, C, TransactionMode> for H
where
    Q: QueueOn<C> + Send,
    C: QueueConnection,
    H: Handler<Q, C> + 'static,
{
    fn into_runner(self, settings: &PollerSettings) -> Result<BoxedRunner<C>, Error> {
        Ok(BoxedRunner(Box::new(TransactionRunner::<Q, C>::new(Box::new(self), settings.failure_texts())?)))
    }
}

impl<Q, C, H> HandlerFor<Q, C, GroupMode> for H
where
    Q: QueueOn<C> + Send,
    C: QueueConnection,
    H: Handler<Q, C> + 'static,
{
    fn into_runner(self, settings: &PollerSettings) -> Result<BoxedRunner<C>, Error> {
        let runner = TransactionRunner::<Q, C>::new(Box::new(self), settings.failure_texts())?;
        Ok(BoxedRunner(Box::new(GroupRunner::new(runner))))
    }
}

impl<Q, C, H> HandlerFor<Q, C, LeaseMode> for H
where
    Q: QueueOn<C> + Send,
    C: QueueConnection,
    H: LeaseHandler<Q, C> + 'static,
{
    fn into_runner(self, settings: &PollerSettings) -> Result<BoxedRunner<C>, Error> {
        let PollerSettings { claim_batch, claim_style, .. } = *settings;
        Ok(BoxedRunner(Box::new(LeaseRunner::<Q, C, H>::new(
            self,
            settings.failure_texts(),
            claim_batch,
            claim_style,
        )?)))
    }
}
