//! The heart: the one thread of a poller that keeps its leases alive, on a connection of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::shared::{Crew, Presence};
use crate::attempt::Lane;
use crate::backend::{Link, QueueConnection, SessionLimits};

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
            lock_timeout: crew.limits.lock_timeout.min(self.pause),
            timeout: self.pause.max(Duration::from_secs(1)),
            attempts: false,
        };
        let mut link = Link::new(crew.pool.clone(), crew.settings.pool_timeout.min(self.pause), limits);
        // At once: later the application may have taken every other connection. A beat tries again, and tells why not.
        let _ = link.session();
        loop {
            let is_stopping = crew.is_stopping();
            for_each_lane(crew, &mut link, |lane, link| lane.beat(link, &crew.noise, is_stopping));
            if crew.has_revoked() {
                return for_each_lane(crew, &mut link, |lane, link| lane.give_back_revoked(link, &crew.noise));
            }
            if is_stopping && crew.is_last() {
                // Once more, for what the last of them has claimed.
                return for_each_lane(crew, &mut link, |lane, link| lane.beat(link, &crew.noise, true));
            }
            crew.rest(self.pause, STOPPING);
        }
    }
}

/// Does something for each lane. A panic, which is ours, the driver's or a key's, must not end the leases of all.
fn for_each_lane<C: QueueConnection>(
    crew: &Crew<C>,
    link: &mut Link<C>,
    mut work: impl FnMut(&dyn Lane<C>, &mut Link<C>),
) {
    for lane in &crew.lanes {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(&**lane, link))) {
            std::mem::forget(panic);
            crew.noise.warn(lane.entity(), "the keeping of leases panicked");
            link.close();
        }
    }
}
