//! The heart: the one thread of a poller that keeps its leases alive, on a connection of its own.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{QueueConnection, SessionLimits};
use crate::crew::{Crew, Presence};
use crate::session::Link;

/// The shortest rest: a twentieth of the shortest lease.
const SHORTEST: Duration = Duration::from_millis(5);

/// How often the heart looks, while the poller stops, whether the workers have left.
const STOPPING: Duration = Duration::from_millis(50);

/// The heart before it starts.
pub(crate) struct Heart<C: QueueConnection> {
    crew: Arc<Crew<C>>,
    pause: Duration,
}

impl<C: QueueConnection> Heart<C> {
    /// The heart of a crew, if one of its lanes has leases.
    pub(crate) fn new(crew: &Arc<Crew<C>>) -> Option<Self> {
        let pause = crew.lanes.iter().filter_map(|lane| lane.pulse()).min()?;
        Some(Heart { crew: crew.clone(), pause: pause.max(SHORTEST) })
    }

    /// Beats until every worker has left, or is left behind.
    pub(crate) fn run(self) {
        let crew = &*self.crew;
        let _presence = Presence(crew);
        // A lock that is held for long must not keep the other leases from being extended.
        let limits = SessionLimits {
            lock_wait: crew.limits.lock_wait.min(self.pause),
            budget: self.pause.max(Duration::from_secs(1)),
            attempts: false,
        };
        let mut link = Link::new(crew.pool.clone(), crew.settings.pool_wait.min(self.pause), limits);
        loop {
            let is_stopping = crew.is_stopping();
            for lane in &crew.lanes {
                lane.beat(&mut link, &crew.noise, is_stopping);
            }
            if crew.has_revoked() {
                for lane in &crew.lanes {
                    lane.give_back_revoked(&mut link, &crew.noise);
                }
                return;
            }
            if is_stopping && crew.is_last() {
                // Once more, for what the last of them has claimed.
                for lane in &crew.lanes {
                    lane.beat(&mut link, &crew.noise, true);
                }
                return;
            }
            crew.rest(if is_stopping { STOPPING.min(self.pause) } else { self.pause });
        }
    }
}
