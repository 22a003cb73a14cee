//! Replaces a worker whose handler is past its timeout and may never return.

use std::sync::Arc;

use super::shared::{PollerShared, spawn};
use super::worker::Worker;
use crate::attempt::Slot;
use crate::backend::{LockSql, QueueConnection, SessionHolder};
use crate::crash::GATE;
use crate::row::failure_text;

/// Records the failure of a handler whose session was ended, and starts another worker in its place.
///
/// This happens at once, and not when the handler returns. If its row stayed due and its handler never returned, the
/// row would take every worker, one after the other.
pub(crate) fn replace_stuck<C: QueueConnection>(
    shared: &Arc<PollerShared<C>>,
    holder: &mut SessionHolder<C>,
    slot: &Arc<Slot>,
) {
    // If no session can be ended from outside, the handler keeps the only write lock, and nobody can do anything.
    if (C::Backend::ONE_WRITER && !slot.is_leased()) || shared.board.is_stopping() {
        return;
    }
    let watches = slot.watches();
    let Some((runner, row)) = slot.give_up() else { return };
    GATE.is_stuck(slot.gate_number());
    let turn = shared.runners[runner].give_up(holder, slot, row);
    shared.board.give_up_turn(runner, turn);
    // If nothing was recorded, as for the messages of a group, the attempt has ended without a result.
    watches.iter().for_each(|watch| watch.is_interrupted("the handler is past its timeout"));
    let (stuck, most) = (shared.board.stuck(), shared.settings.max_stuck_workers.unwrap_or(shared.settings.workers));
    watches.iter().for_each(|watch| watch.is_stuck(stuck, stuck <= most));
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
