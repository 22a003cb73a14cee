//! One worker: a thread with its own session that takes turns for the runners that have work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::shared::{PollerShared, ThreadGuard, TurnPermit};
use super::wake::WakeSignal;
use crate::attempt::{Slot, Turn};
use crate::backend::{QueueConnection, SessionHolder};
use crate::crash::exclusive_run;
use crate::entity::{Retry, RetryPolicy, jittered};

/// How a worker backs off from a database in trouble: from 50 milliseconds to 2 seconds, so that it is back within
/// seconds of the database.
const BACKOFF: Retry = Retry::exponential(Duration::from_millis(50)).max(Duration::from_secs(2));

/// A worker before it starts.
pub(crate) struct Worker<C: QueueConnection> {
    shared: Arc<PollerShared<C>>,
    wake_signal: Arc<WakeSignal>,
    slot: Arc<Slot>,
}

impl<C: QueueConnection> Worker<C> {
    pub(crate) fn new(shared: Arc<PollerShared<C>>, wake_signal: Arc<WakeSignal>) -> Self {
        let slot = shared.new_slot();
        Worker { shared, wake_signal, slot }
    }

    /// Takes turns until the poller stops, or another thread has taken this one's place.
    pub(crate) fn run(self) {
        let shared = &*self.shared;
        // Before the session's holder, so that it outlives it: a thread that has left holds no session.
        let _thread_guard = ThreadGuard(shared);
        let mut holder = shared.session_holder();
        let mut troubles = 0;
        while let Some(permit) = self.next_turn(&mut holder) {
            let mut turn = self.take_turn(&mut holder, permit.runner, false);
            while turn == Turn::Suspect {
                turn = self.take_turn(&mut holder, permit.runner, true);
            }
            troubles = if turn == Turn::Trouble { troubles + 1 } else { 0 };
            let drained = shared.end_turn(permit, turn);
            if drained {
                // The scout probes when the next row is due.
                self.wake_signal.drained(permit.runner);
            }
            if self.slot.is_replaced() {
                break;
            }
            if troubles > 0 {
                let delay = BACKOFF.delay(troubles).unwrap_or_default();
                shared.pause(jittered(delay, 1.0, fastrand::f64()));
            }
        }
        shared.remove_slot(&self.slot);
    }

    /// Waits for a turn, in no transaction: the next one may have begun with the end of the last message.
    fn next_turn(&self, holder: &mut SessionHolder<C>) -> Option<TurnPermit> {
        let at_once = self.shared.find_work();
        if at_once.is_some() {
            return at_once;
        }
        holder.roll_back_idle();
        self.shared.wait_for_work()
    }

    /// Takes one turn for a runner, alone in the process if that is asked for.
    fn take_turn(&self, holder: &mut SessionHolder<C>, runner: usize, alone: bool) -> Turn {
        let (shared, slot) = (&*self.shared, &*self.slot);
        // In this order: whoever waits to write is inside already.
        // A call under a lease may take long, and the end of its lease shows a crash in it: nobody waits for it to be alone.
        let _inside = if shared.runners[runner].recorded_as().is_some() {
            if exclusive_run::has_to_wait(alone) {
                holder.roll_back_idle();
            }
            let Some(permit) = exclusive_run::enter(alone, || shared.is_stopping()) else { return Turn::Idle };
            slot.recorder().set_concurrency(permit.concurrency());
            slot.set_gate_number(permit.number());
            Some((shared.turn_to_write(), permit))
        } else {
            None
        };
        // Rows that a lease's claim has brought already are given back.
        if shared.is_stopping()
            || (!shared.window_gates[runner].is_open() && !shared.runners[runner].has_more_claimed())
        {
            return Turn::Idle;
        }
        holder.stay(!alone && shared.is_only_work(runner));
        let claimed = || {
            shared.found_work(runner);
            !shared.is_stopping() && shared.window_gates[runner].is_open()
        };
        let turn = catch_unwind(AssertUnwindSafe(|| shared.runners[runner].turn(holder, slot, &shared.log, &claimed)));
        turn.unwrap_or_else(|panic| {
            // The handler's panics are caught closer to it; this is ours or the driver's. The thread lives on.
            std::mem::forget(panic);
            shared.log.warn(shared.runners[runner].entity(), "an attempt panicked outside its handler");
            let given_up = slot.leave();
            holder.close();
            if given_up { Turn::GivenUp } else { Turn::Trouble }
        })
    }
}
