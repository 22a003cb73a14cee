//! What becomes of a worker whose handler is past its timeout and may never return.

use std::sync::Arc;

use super::shared::{Crew, spawn};
use super::wake::Bell;
use super::worker::Worker;
use crate::attempt::{Slot, Turn};
use crate::backend::{Link, QueueBackend, QueueConnection};
use crate::crash::exclusive_run as alone;
use crate::row::failure_text;

/// Records the failure of a handler whose session was ended, and starts another worker in its place.
///
/// At once, and not when the handler returns: a row that is due for as long as its handler never returns would take
/// every worker, one after the other.
pub(crate) fn substitute<C: QueueConnection>(
    crew: &Arc<Crew<C>>,
    bell: &Arc<Bell>,
    link: &mut Link<C>,
    slot: &Arc<Slot>,
) {
    // Where no session can be ended from outside, the handler keeps the only write lock: nobody can do anything.
    if (<C::Backend as QueueBackend>::ONE_WRITER && !slot.is_leased()) || crew.is_stopping() {
        return;
    }
    let Some(mut row) = slot.give_up() else { return };
    alone::is_stuck(slot.place());
    let mut ended = Turn::Interrupted;
    for lane in &crew.lanes {
        match lane.give_up(link, slot, &crew.noise, row) {
            Ok(turn) => {
                ended = turn;
                break;
            }
            Err(of_another_lane) => row = of_another_lane,
        }
    }
    crew.give_up_turn(ended);
    let (stuck, most) = (crew.stuck(), crew.settings.max_stuck_workers.unwrap_or(crew.settings.workers));
    if stuck > most {
        let text = format!("{stuck} handlers are stuck: the poller works with fewer threads until one returns");
        return crew.noise.warn("poller", &text);
    }
    slot.replace();
    let worker = Worker::new(crew.clone(), bell.clone());
    match spawn(crew, "queueable-substitute".to_owned(), move || worker.run()) {
        Ok(thread) => crew.keep_substitute(thread),
        Err(error) => crew.noise.warn("poller", &failure_text(&error, 500)),
    }
}
