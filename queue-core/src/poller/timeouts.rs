//! Takes the transaction away from handlers that are past their timeout, and replaces workers whose handlers may never
//! return.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::shared::{PollerShared, spawn};
use super::worker::Worker;
use crate::attempt::Slot;
use crate::backend::{LockSql, QueueConnection, SessionHolder};
use crate::crash::GATE;
use crate::row::failure_text;

/// Takes the transaction away from handlers that are past their timeout, and drops calls that are.
pub(crate) fn enforce_timeouts<C: QueueConnection>(shared: &Arc<PollerShared<C>>, holder: &mut SessionHolder<C>) {
    let now = Instant::now();
    for runner in &shared.runners {
        let late = runner.calls().map_or(0, |calls| calls.abort_ended());
        if late > 0 {
            shared.log.warn(runner.info().entity, "calls are past their timeout and are dropped");
        }
    }
    for slot in shared.slots() {
        let Some((runner, session)) = slot.revoke_if_timed_out(now) else { continue };
        shared.warn(runner, "a handler is past its timeout and loses its transaction");
        if let Some(session) = session {
            match holder.session() {
                Ok(connection) => shared.end_session(connection, runner, session),
                Err(error) => {
                    let error = failure_text(&error, 500);
                    shared.warn(runner, &format!("a session cannot be ended: {error}"));
                }
            }
        }
        replace_stuck(shared, holder, &slot);
    }
}

/// Returns when a handler or a call may be past its timeout next.
pub(crate) fn next_timeout<C: QueueConnection>(shared: &PollerShared<C>) -> Instant {
    let deadlines = shared.slots().into_iter().filter_map(|slot| slot.deadline());
    let calls = shared.runners.iter().filter_map(|runner| runner.calls()?.next_deadline());
    // A worker that takes a row wakes nobody. While one may do so, the scout sleeps no longer than the shortest timeout, so
    // that it is late by one timeout at most. In a quiet poller nothing begins before the scout signals work.
    let timeouts = shared.runners.iter().map(|runner| runner.info().timeout);
    let interval = shared.settings.poll_interval;
    let longest = if shared.board.is_quiet() { interval } else { timeouts.fold(interval, Duration::min) };
    let latest = Instant::now() + longest;
    deadlines.chain(calls).min().unwrap_or(latest).min(latest)
}

/// Records the failure of a handler whose session was ended, and starts another worker in its place.
///
/// This happens at once, and not when the handler returns. If its row stayed due and its handler never returned, the
/// row would take every worker, one after the other.
fn replace_stuck<C: QueueConnection>(shared: &Arc<PollerShared<C>>, holder: &mut SessionHolder<C>, slot: &Arc<Slot>) {
    // If no session can be ended from outside, the handler keeps the only write lock, and nobody can do anything.
    if (C::Backend::ONE_WRITER && !slot.is_leased()) || shared.board.is_stopping() {
        return;
    }
    let watches = slot.watches();
    let Some((runner, row)) = slot.give_up() else { return };
    GATE.note_stuck(slot.gate_number());
    let turn = shared.runners[runner].give_up(holder, slot, row);
    shared.board.give_up_turn(runner, turn);
    // If nothing was recorded, as for the messages of a group, the attempt has ended without a result.
    watches.iter().for_each(|watch| watch.interrupt("the handler is past its timeout"));
    let (stuck, most) = (shared.board.stuck(), shared.settings.max_stuck_workers.unwrap_or(shared.settings.workers));
    watches.iter().for_each(|watch| watch.note_stuck(stuck, stuck <= most));
    if stuck > most {
        let text = format!("{stuck} handlers are stuck: the poller works with fewer threads until one returns");
        return shared.log.warn("poller", &text);
    }
    slot.replace();
    let worker = Worker::new(shared.clone());
    match spawn(shared, "queueable-substitute".to_owned(), move || worker.run(None)) {
        Ok(thread) => shared.keep_replacement(thread),
        Err(error) => shared.log.warn("poller", &failure_text(&error, 500)),
    }
}
