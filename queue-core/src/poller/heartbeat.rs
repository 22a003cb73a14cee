//! The heartbeat: the one thread of a poller that extends its leases, on a connection of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use super::post::{Duty, Post};
use super::shared::{PollerShared, spawn};
use crate::attempt::Runner;
use crate::backend::{QueueConnection, SessionHolder};
use crate::error::Error;
use crate::event::ThreadConnection;

/// The shortest pause: a twentieth of the shortest lease.
const SHORTEST: Duration = Duration::from_millis(5);

/// The database may take this long at least to answer the heartbeat, which is left behind sooner than the other threads: the
/// leases must not end meanwhile.
const LEAST_PATIENCE: Duration = Duration::from_secs(2);

/// How often the heartbeat checks, while the poller stops, whether the workers have left.
const STOPPING: Duration = Duration::from_millis(50);

/// The heartbeat before it starts.
pub(crate) struct Heartbeat<C: QueueConnection> {
    shared: Arc<PollerShared<C>>,
    post: Arc<Post>,
    pause: Duration,
}

impl<C: QueueConnection> Heartbeat<C> {
    /// Returns the heartbeat of a poller, if one of its runners has leases.
    pub(crate) fn new(shared: &Arc<PollerShared<C>>, connection: ThreadConnection) -> Option<Self> {
        let pause = shared.runners.iter().filter_map(|runner| runner.info().heartbeat_interval).min()?.max(SHORTEST);
        let patience = shared.settings.patience().min(LEAST_PATIENCE.max(pause.saturating_mul(2)));
        let post = shared.new_post(Duty::Heartbeat, connection, patience);
        Some(Heartbeat { shared: shared.clone(), post, pause })
    }

    /// Starts the thread.
    pub(crate) fn spawn(self, has_tried: Option<Sender<()>>) -> Result<(), Error> {
        let (shared, post) = (self.shared.clone(), self.post.clone());
        post.tells_trial(has_tried);
        spawn(&shared, post, "queueable-heart".to_owned(), move || self.run())
    }

    /// Beats until every worker has left, or is left behind.
    fn run(self) {
        let Heartbeat { shared, post, pause } = self;
        let shared = &*shared;
        let mut holder = shared.sessions.of_heartbeat(&post, pause);
        // At once, because later the application may have taken every other connection. A beat tries again, and logs
        // why it cannot.
        for_all_leases(shared, &mut holder, |_, holder| drop(holder.session()));
        post.note_trial();
        while !post.is_left_behind() {
            let is_stopping = shared.board.is_stopping();
            holder.move_to_file(shared.sessions.files());
            for_all_leases(shared, &mut holder, |runner, holder| runner.heartbeat(holder, is_stopping));
            if shared.board.has_revoked() {
                return for_all_leases(shared, &mut holder, |runner, holder| runner.give_back_revoked(holder));
            }
            if is_stopping && shared.board.is_last() {
                // Once more, for the rows that the last worker has claimed. If the grace is over, the poller has revoked the
                // rows of calls for which it no longer waits, and the board may be about to say so.
                return for_all_leases(shared, &mut holder, |runner, holder| {
                    runner.heartbeat(holder, true);
                    runner.give_back_revoked(holder);
                });
            }
            holder.end_wait();
            shared.board.sleep_until_change(pause, STOPPING);
        }
    }
}

/// Calls `work` for the leases of each runner. A panic, which is ours, the driver's or a key's, must not end the leases
/// of all.
fn for_all_leases<C: QueueConnection>(
    shared: &PollerShared<C>,
    holder: &mut SessionHolder<C>,
    mut work: impl FnMut(&dyn Runner<C>, &mut SessionHolder<C>),
) {
    for runner in &shared.runners {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(&**runner, holder))) {
            std::mem::forget(panic);
            shared.log.warn(runner.info().entity, "extending the leases panicked");
            holder.close();
        }
    }
}
