//! One entity in lease mode inside a poller.

use std::any::TypeId;
use std::marker::PhantomData;
use std::time::Duration;

use diesel::result::QueryResult;

use crate::backend::QueueConnection;
use crate::error::{Error, Finding};
use crate::lane::{Lane, Turn};
use crate::lease::LeaseHandler;
use crate::noise::Noise;
use crate::poller::PollerSettings;
use crate::session::Link;
use crate::slot::Slot;
use crate::statement::QueueOn;

/// An entity, its handler and its settings.
pub(crate) struct LeaseLane<Q, C, H> {
    handler: H,
    entity: PhantomData<fn(Q, C)>,
}

impl<Q, C, H> LeaseLane<Q, C, H> {
    pub(crate) fn new(handler: H, _settings: &PollerSettings) -> Result<Self, Error> {
        Ok(LeaseLane { handler, entity: PhantomData })
    }
}

impl<Q: QueueOn<C>, C: QueueConnection, H: LeaseHandler<Q, C>> Lane<C> for LeaseLane<Q, C, H> {
    fn entity(&self) -> &'static str {
        Q::ENTITY
    }

    fn queue(&self) -> TypeId {
        TypeId::of::<Q::Queue>()
    }

    fn budget(&self) -> Duration {
        Q::SETTINGS.lease
    }

    fn check(&self, _connection: &mut C) -> QueryResult<Vec<Finding>> {
        Ok(Vec::new())
    }

    fn look(&self, connection: &mut C) -> QueryResult<Option<Duration>> {
        Q::look(connection)
    }

    fn turn(&self, _link: &mut Link<C>, _slot: &Slot, _noise: &Noise, _claimed: &dyn Fn() -> bool) -> Turn {
        let _ = &self.handler;
        Turn::Idle
    }

    fn has_interrupted(&self) -> bool {
        false
    }
}
