//! One worker: a thread with its own session that takes turns on hot lanes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::shared::{Crew, Leave, Presence};
use super::wake::Bell;
use crate::attempt::{Slot, Turn};
use crate::backend::{Link, QueueConnection};
use crate::crash::exclusive_run as alone;
use crate::entity::{Retry, RetryPolicy, jittered};

/// How a worker backs off from a database in trouble: from 50 milliseconds to 2 seconds, so that it is back within
/// seconds of the database.
const BACKOFF: Retry = Retry::exponential(Duration::from_millis(50)).max(Duration::from_secs(2));

/// A worker before it starts.
pub(crate) struct Worker<C: QueueConnection> {
    crew: Arc<Crew<C>>,
    bell: Arc<Bell>,
    slot: Arc<Slot>,
}

impl<C: QueueConnection> Worker<C> {
    pub(crate) fn new(crew: Arc<Crew<C>>, bell: Arc<Bell>) -> Self {
        let slot = crew.new_slot();
        Worker { crew, bell, slot }
    }

    /// Takes turns until the poller stops, or another thread has taken this one's place.
    pub(crate) fn run(self) {
        let crew = &*self.crew;
        // Before the link, so that it outlives it: a thread that has left holds no session.
        let _presence = Presence(crew);
        let mut link = crew.link();
        let mut troubles = 0;
        while let Some(leave) = self.next_turn(&mut link) {
            let mut turn = self.take_turn(&mut link, leave.lane, false);
            while turn == Turn::Suspect {
                turn = self.take_turn(&mut link, leave.lane, true);
            }
            troubles = if turn == Turn::Trouble { troubles + 1 } else { 0 };
            let cooled = crew.end_turn(leave, turn);
            if cooled {
                // The scout looks when the next row is due.
                self.bell.cooled(leave.lane);
            }
            if self.slot.is_replaced() {
                break;
            }
            if troubles > 0 {
                let delay = BACKOFF.delay(troubles).unwrap_or_default();
                crew.pause(jittered(delay, 1.0, fastrand::f64()));
            }
        }
        crew.remove_slot(&self.slot);
    }

    /// Waits for a turn, in no transaction: the next one may have begun with the end of the last message.
    fn next_turn(&self, link: &mut Link<C>) -> Option<Leave> {
        let at_once = self.crew.find_work();
        if at_once.is_some() {
            return at_once;
        }
        link.rest();
        self.crew.wait_for_work()
    }

    /// Takes one turn on a lane, alone in the process if that is asked for.
    fn take_turn(&self, link: &mut Link<C>, lane: usize, alone: bool) -> Turn {
        let (crew, slot) = (&*self.crew, &*self.slot);
        // In this order: whoever waits to write is inside already.
        // A call under a lease may take long, and a crash in it is told by the lease's end: nobody waits for it to be alone.
        let _inside = if crew.lanes[lane].recorded_as().is_some() {
            if alone::has_to_wait(alone) {
                link.rest();
            }
            let Some(place) = alone::enter(alone, || crew.is_stopping()) else { return Turn::Idle };
            slot.recorder().set_company(place.company());
            slot.set_place(place.number());
            Some((crew.turn_to_write(), place))
        } else {
            None
        };
        // Rows that a lease's claim has brought already are given back.
        if crew.is_stopping() || (!crew.gates[lane].is_open() && !crew.lanes[lane].has_more_claimed()) {
            return Turn::Idle;
        }
        link.stay(!alone && crew.is_only_work(lane));
        let claimed = || {
            crew.found_work(lane);
            !crew.is_stopping() && crew.gates[lane].is_open()
        };
        let turn = catch_unwind(AssertUnwindSafe(|| crew.lanes[lane].turn(link, slot, &crew.noise, &claimed)));
        turn.unwrap_or_else(|panic| {
            // The handler's panics are caught closer to it; this is ours or the driver's. The thread lives on.
            std::mem::forget(panic);
            crew.noise.warn(crew.lanes[lane].entity(), "an attempt panicked outside its handler");
            let given_up = slot.leave();
            link.close();
            if given_up { Turn::GivenUp } else { Turn::Trouble }
        })
    }
}
