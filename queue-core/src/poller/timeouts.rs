//! The handlers' timeouts: who is past them loses its transaction, and its worker's place.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::shared::PollerShared;
use super::worker::Worker;
use crate::attempt::Slot;
use crate::backend::{Dialect, QueueConnection, SessionHolder};
use crate::crash::GATE;
use crate::row::failure_text;

/// Takes the transaction away from handlers that are past their timeout, and drops calls that are.
pub(super) fn enforce_timeouts<C: QueueConnection>(shared: &Arc<PollerShared<C>>, holder: &mut SessionHolder<C>) {
    let now = Instant::now();
    // Another scout, which the database has not answered since, may have begun to give an attempt up.
    let begun_by_another = |slot: &Slot| {
        if C::Backend::ONE_WRITER || slot.is_replaced() { None } else { slot.awaits_giving_up() }
    };
    for runner in &shared.runners {
        let late = runner.calls().map_or(0, |calls| calls.abort_ended());
        if late > 0 {
            shared.log.warn(runner.info().entity, "calls are past their timeout and are dropped");
        }
    }
    for slot in shared.slots() {
        let Some((runner, session)) = slot.revoke_by_scout_if_timed_out(now).or_else(|| begun_by_another(&slot)) else {
            if !shared.board.is_stopping() {
                substitute(shared, &slot);
            }
            continue;
        };
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
pub(super) fn next_timeout<C: QueueConnection>(shared: &PollerShared<C>) -> Instant {
    let deadlines = shared.slots().into_iter().filter_map(|slot| slot.deadline());
    let calls = shared.runners.iter().filter_map(|runner| runner.calls()?.next_deadline());
    // A worker that takes a row does not wake the scout. While a worker may do so, the scout sleeps no longer than the
    // shortest timeout, so that it is late by one timeout at most. In a quiet poller nothing begins before the scout
    // signals work.
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
    // If no session can be ended from outside, the handler keeps the only write lock, and another worker could not write.
    // A worker that was left behind has been replaced already.
    if (C::Backend::ONE_WRITER && !slot.is_leased()) || shared.board.is_stopping() || slot.is_replaced() {
        return;
    }
    let watches = slot.watches();
    let Some((runner, row)) = slot.give_up() else { return };
    GATE.note_stuck(slot.gate_number());
    shared.board.give_up_turn(runner);
    let turn = shared.runners[runner].give_up(holder, slot, row);
    shared.board.count(turn);
    // If nothing was recorded, as for the messages of a group, the attempt has ended without a result.
    watches.iter().for_each(|watch| watch.interrupt("the handler is past its timeout"));
    let (stuck, most) = (shared.board.stuck(), shared.settings.most_stuck());
    // Before the event, which says so.
    substitute(shared, slot);
    watches.iter().for_each(|watch| watch.note_stuck(stuck, stuck <= most));
    if stuck > most {
        let text = format!("{stuck} handlers are stuck: the poller works with fewer threads until one returns");
        shared.log.warn("poller", &text);
    }
}

/// Starts another worker in the place of one whose handler does not return, unless too many do not.
fn substitute<C: QueueConnection>(shared: &Arc<PollerShared<C>>, slot: &Slot) {
    if shared.board.stuck() > shared.settings.most_stuck() {
        return;
    }
    let substituted = slot.replace_stuck(|| {
        Worker::new(shared.clone(), shared.sessions.unknown()).spawn("queueable-substitute".to_owned(), None)
    });
    if let Err(error) = substituted {
        shared.log.warn("poller", &failure_text(&error, 500));
    }
}
