//! One worker: a thread with its own session that takes turns on hot lanes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::backend::QueueConnection;
use crate::crew::{Crew, Presence};
use crate::lane::Turn;
use crate::retry::{Retry, RetryPolicy, jittered};
use crate::wake::Bell;

/// How a worker backs off from a database in trouble: from 50 milliseconds to 2 seconds, so that it is back within
/// seconds of the database.
const BACKOFF: Retry = Retry::exponential(Duration::from_millis(50)).max(Duration::from_secs(2));

/// A worker before it starts.
pub(crate) struct Worker<C: QueueConnection> {
    crew: Arc<Crew<C>>,
    bell: Arc<Bell>,
    number: usize,
}

impl<C: QueueConnection> Worker<C> {
    pub(crate) fn new(crew: Arc<Crew<C>>, bell: Arc<Bell>, number: usize) -> Self {
        Worker { crew, bell, number }
    }

    /// Takes turns until the poller stops.
    pub(crate) fn run(self) {
        let crew = &*self.crew;
        // Before the link, so that it outlives it: a thread that has left holds no session.
        let _presence = Presence(crew);
        let mut link = crew.link();
        let mut troubles = 0;
        while let Some(leave) = crew.wait_for_work() {
            let lane = &crew.lanes[leave.lane];
            let writing = if lane.writes_throughout() { crew.turn_to_write() } else { None };
            if crew.is_stopping() {
                crew.end_turn(leave, Turn::Idle);
                break;
            }
            let turn = catch_unwind(AssertUnwindSafe(|| {
                lane.turn(&mut link, &crew.slots[self.number], &crew.noise, &|| {
                    crew.found_work(leave.lane);
                    !crew.is_stopping()
                })
            }))
            .unwrap_or_else(|panic| {
                // The handler's panics are caught closer to it; this is ours or the driver's. The thread lives on.
                std::mem::forget(panic);
                crew.noise.warn(lane.entity(), "an attempt panicked outside its handler");
                crew.slots[self.number].leave();
                link.close();
                Turn::Trouble
            });
            drop(writing);
            troubles = if turn == Turn::Trouble { troubles + 1 } else { 0 };
            let cooled = crew.end_turn(leave, turn);
            if cooled {
                // The scout looks when the next row is due.
                self.bell.cooled(leave.lane);
            }
            if troubles > 0 {
                let delay = BACKOFF.delay(troubles).unwrap_or_default();
                crew.pause(jittered(delay, 1.0, fastrand::f64()));
            }
        }
    }
}
