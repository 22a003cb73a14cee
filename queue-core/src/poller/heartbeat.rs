//! The heartbeat: the one thread of a poller that extends its leases, on a connection of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Duration;

use super::shared::{PollerShared, ThreadGuard};
use crate::attempt::Runner;
use crate::backend::{QueueConnection, SessionHolder, SessionLimits};

/// The shortest rest: a twentieth of the shortest lease.
const SHORTEST: Duration = Duration::from_millis(5);

/// How often the heartbeat looks, while the poller stops, whether the workers have left.
const STOPPING: Duration = Duration::from_millis(50);

/// The heartbeat before it starts.
pub(crate) struct Heartbeat<C: QueueConnection> {
    shared: Arc<PollerShared<C>>,
    pause: Duration,
}

impl<C: QueueConnection> Heartbeat<C> {
    /// The heartbeat of a poller, if one of its runners has leases.
    pub(crate) fn new(shared: &Arc<PollerShared<C>>) -> Option<Self> {
        let pause = shared.runners.iter().filter_map(|runner| runner.heartbeat_interval()).min()?;
        Some(Heartbeat { shared: shared.clone(), pause: pause.max(SHORTEST) })
    }

    /// Beats until every worker has left, or is left behind. `has_tried` is dropped when it has tried to open its session.
    pub(crate) fn run(self, has_tried: Sender<()>) {
        let shared = &*self.shared;
        let _thread_guard = ThreadGuard(shared);
        // A lock that is held for long must not keep the other leases from being extended.
        let timeout = self.pause.max(Duration::from_secs(1));
        let limits = SessionLimits {
            lock_timeout: shared.limits.lock_timeout.min(self.pause),
            timeout,
            statement_timeout: timeout,
            attempts: false,
        };
        let mut holder =
            SessionHolder::new(shared.connections.clone(), shared.settings.pool_timeout.min(self.pause), limits);
        // At once: later the application may have taken every other connection. A beat tries again, and tells why not.
        let _ = holder.session();
        drop(has_tried);
        loop {
            let is_stopping = shared.is_stopping();
            holder.move_to_file(shared.files.load(Ordering::Acquire));
            for_each_runner(shared, &mut holder, |runner, holder| runner.heartbeat(holder, &shared.log, is_stopping));
            if shared.has_revoked() {
                return for_each_runner(shared, &mut holder, |runner, holder| {
                    runner.give_back_revoked(holder, &shared.log)
                });
            }
            if is_stopping && shared.is_last() {
                // Once more, for what the last of them has claimed.
                return for_each_runner(shared, &mut holder, |runner, holder| {
                    runner.heartbeat(holder, &shared.log, true)
                });
            }
            shared.sleep_until_change(self.pause, STOPPING);
        }
    }
}

/// Does something for each runner. A panic, which is ours, the driver's or a key's, must not end the leases of all.
fn for_each_runner<C: QueueConnection>(
    shared: &PollerShared<C>,
    holder: &mut SessionHolder<C>,
    mut work: impl FnMut(&dyn Runner<C>, &mut SessionHolder<C>),
) {
    for runner in &shared.runners {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(&**runner, holder))) {
            std::mem::forget(panic);
            shared.log.warn(runner.entity(), "the keeping of leases panicked");
            holder.close();
        }
    }
}
