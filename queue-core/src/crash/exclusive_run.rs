//! One door for all attempts of this process, so that a suspect can be alone in it.
//!
//! Not for each poller: a crash ends all of them, and whoever ran beside a suspect would be suspected in its place.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::lock::unpoisoned;

static DOOR: Door = Door::new();

/// Who is inside, and who waits to be there alone.
struct Door {
    room: Mutex<Room>,
    changed: Condvar,
}

struct Room {
    inside: BTreeSet<u64>,
    alone: bool,
    /// How many wait to be alone. While one does, nobody else is let in, or it would wait for ever.
    waiting: usize,
    /// Handlers past their timeout that nobody waits for any more, although they still run.
    stuck: BTreeSet<u64>,
    /// From 1: a worker that was never inside has the number 0.
    next: u64,
}

/// A worker's place inside, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    number: u64,
    company: Company,
}

/// What runs in the process besides an attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Company {
    /// Other attempts.
    #[default]
    Others,
    /// Handlers only that nobody waits for any more. A suspect need not wait for their end, but they may be the ones
    /// that end the process.
    Stuck,
    /// Nothing.
    Nobody,
}

impl Room {
    /// Whether there is place for one more, or for one alone who has said that it waits.
    fn is_free(&self, alone: bool) -> bool {
        !self.alone && if alone { self.inside.is_empty() } else { self.waiting == 0 }
    }
}

impl Place {
    /// What runs in the process besides.
    pub(crate) fn company(&self) -> Company {
        self.company
    }

    /// The number by which others can say that this one is stuck.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        DOOR.leave(self.number);
    }
}

/// Goes in, alone if that is asked for. `None`: `gives_up` said so while it waited.
pub(crate) fn enter(alone: bool, gives_up: impl Fn() -> bool) -> Option<Place> {
    DOOR.enter(alone, gives_up)
}

/// Whether whoever goes in now has to wait, so that it had better keep no transaction open.
pub(crate) fn has_to_wait(alone: bool) -> bool {
    !DOOR.room().is_free(alone)
}

/// Says that a handler is past its timeout: nobody waits for its end.
pub(crate) fn is_stuck(number: u64) {
    DOOR.is_stuck(number);
}

/// Has those who wait ask again whether they give up.
pub(crate) fn ask_again() {
    drop(DOOR.room());
    DOOR.changed.notify_all();
}

impl Door {
    const fn new() -> Self {
        let room = Room { inside: BTreeSet::new(), alone: false, waiting: 0, stuck: BTreeSet::new(), next: 1 };
        Door { room: Mutex::new(room), changed: Condvar::new() }
    }

    fn enter(&self, alone: bool, gives_up: impl Fn() -> bool) -> Option<Place> {
        let mut room = self.room();
        room.waiting += usize::from(alone);
        let free = |room: &Room| room.is_free(alone);
        while !free(&room) && !gives_up() {
            room = self.changed.wait(room).unwrap_or_else(PoisonError::into_inner);
        }
        room.waiting -= usize::from(alone);
        if !free(&room) && gives_up() {
            drop(room);
            self.changed.notify_all();
            return None;
        }
        let number = room.next;
        room.next += 1;
        room.inside.insert(number);
        room.alone = alone;
        let company = match (alone, room.stuck.is_empty()) {
            (false, _) => Company::Others,
            (true, false) => Company::Stuck,
            (true, true) => Company::Nobody,
        };
        Some(Place { number, company })
    }

    fn is_stuck(&self, number: u64) {
        let mut room = self.room();
        if room.inside.remove(&number) {
            room.alone = false;
            room.stuck.insert(number);
        }
        drop(room);
        self.changed.notify_all();
    }

    fn leave(&self, number: u64) {
        let mut room = self.room();
        if !room.stuck.remove(&number) && room.inside.remove(&number) {
            room.alone = false;
        }
        let waited_for = room.waiting > 0 || room.inside.is_empty();
        drop(room);
        if waited_for {
            self.changed.notify_all();
        }
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        unpoisoned(self.room.lock())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    const NEVER: fn() -> bool = || false;

    #[test]
    fn whoever_wants_to_be_alone_waits_for_the_others_and_keeps_new_ones_out() {
        let door = &Door::new();
        let (first, second) =
            (door.enter(false, NEVER).expect("nobody gives up"), door.enter(false, NEVER).expect("nobody gives up"));
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            let waits = tell.clone();
            scope.spawn(move || {
                let place = door.enter(true, NEVER).expect("nobody gives up");
                waits.send(place.company()).expect("the test waits");
                door.leave(place.number);
                std::mem::forget(place);
            });
            while door.room().waiting == 0 {
                thread::yield_now();
            }
            assert!(door.enter(false, || true).is_none(), "somebody waits to be alone");
            door.leave(first.number);
            assert!(told.try_recv().is_err());
            door.leave(second.number);
            assert_eq!(told.recv(), Ok(Company::Nobody));
        });
        let after = door.enter(false, NEVER).expect("nobody gives up");
        [first, second, after].into_iter().for_each(std::mem::forget);
    }

    #[test]
    fn nobody_waits_for_a_stuck_one_but_it_is_company() {
        let door = &Door::new();
        let stuck = door.enter(false, NEVER).expect("nobody gives up");
        door.is_stuck(stuck.number);
        let suspect = door.enter(true, NEVER).expect("nobody gives up");
        assert_eq!(suspect.company(), Company::Stuck);
        door.leave(stuck.number);
        assert!(door.enter(false, || true).is_none(), "the suspect is inside");
        door.leave(suspect.number);
        let alone = door.enter(true, NEVER).expect("nobody gives up");
        assert_eq!(alone.company(), Company::Nobody);
        [stuck, suspect, alone].into_iter().for_each(std::mem::forget);
    }
}
