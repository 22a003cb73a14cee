//! One gate for all attempts of this process, so that a suspect can run alone in it.
//!
//! There is not one for each poller: a crash ends all of them, and an attempt of another poller would be suspected too.

use std::collections::BTreeSet;
use std::sync::{Condvar, PoisonError};

use crate::sync::Mutex;

/// The gate of this process.
pub(crate) static GATE: ProcessGate = ProcessGate::new();

/// The attempts that are inside, and those that wait to be alone there.
pub(crate) struct ProcessGate {
    state: Mutex<GateState>,
    changed: Condvar,
}

struct GateState {
    inside: BTreeSet<u64>,
    alone: bool,
    /// How many wait to be alone. While one waits, no other message is let in, or it would wait for ever.
    waiting: usize,
    /// Handlers past their timeout that no worker waits for any more, although they still run.
    stuck: BTreeSet<u64>,
    /// Starts at 1: a worker that was never inside has the number 0.
    next: u64,
}

/// A worker's place inside, until it is dropped.
#[derive(Debug)]
pub(crate) struct RunPermit {
    /// The number by which a timeout reports this handler as stuck.
    pub(crate) number: u64,
    /// What else runs in the process.
    pub(crate) concurrency: Concurrency,
}

/// What runs in the process besides an attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Concurrency {
    /// Other attempts.
    #[default]
    Others,
    /// Only handlers that no worker waits for any more. A suspect need not wait for their end, but one of them may be
    /// the one that ends the process.
    Stuck,
    /// Nothing.
    Nobody,
}

impl GateState {
    /// Tells whether there is room for one more or, with `alone`, for one that runs alone.
    fn is_free(&self, alone: bool) -> bool {
        !self.alone && if alone { self.inside.is_empty() } else { self.waiting == 0 }
    }
}

impl Drop for RunPermit {
    fn drop(&mut self) {
        GATE.leave(self.number);
    }
}

impl ProcessGate {
    const fn new() -> Self {
        let state = GateState { inside: BTreeSet::new(), alone: false, waiting: 0, stuck: BTreeSet::new(), next: 1 };
        ProcessGate { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Enters the gate, alone if asked for. `None`: `gives_up` returned true while it waited.
    pub(crate) fn enter(&self, alone: bool, gives_up: impl Fn() -> bool) -> Option<RunPermit> {
        let mut state = self.state.lock();
        state.waiting += usize::from(alone);
        let free = |state: &GateState| state.is_free(alone);
        while !free(&state) && !gives_up() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= usize::from(alone);
        if !free(&state) && gives_up() {
            drop(state);
            self.changed.notify_all();
            return None;
        }
        let number = state.next;
        state.next += 1;
        state.inside.insert(number);
        state.alone = alone;
        let concurrency = match (alone, state.stuck.is_empty()) {
            (false, _) => Concurrency::Others,
            (true, false) => Concurrency::Stuck,
            (true, true) => Concurrency::Nobody,
        };
        Some(RunPermit { number, concurrency })
    }

    /// Tells whether entering now would mean waiting, so that the worker should not keep a transaction open.
    pub(crate) fn has_to_wait(&self, alone: bool) -> bool {
        !self.state.lock().is_free(alone)
    }

    /// Makes the waiting workers check again whether they give up.
    pub(crate) fn ask_again(&self) {
        drop(self.state.lock());
        self.changed.notify_all();
    }

    /// Reports that a handler is past its timeout: no worker waits for its end.
    pub(crate) fn note_stuck(&self, number: u64) {
        let mut state = self.state.lock();
        if state.inside.remove(&number) {
            state.alone = false;
            state.stuck.insert(number);
        }
        drop(state);
        self.changed.notify_all();
    }

    fn leave(&self, number: u64) {
        let mut state = self.state.lock();
        if !state.stuck.remove(&number) && state.inside.remove(&number) {
            state.alone = false;
        }
        let waited_for = state.waiting > 0 || state.inside.is_empty();
        drop(state);
        if waited_for {
            self.changed.notify_all();
        }
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
        let gate = &ProcessGate::new();
        let (first, second) =
            (gate.enter(false, NEVER).expect("nobody gives up"), gate.enter(false, NEVER).expect("nobody gives up"));
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            let waits = tell.clone();
            scope.spawn(move || {
                let permit = gate.enter(true, NEVER).expect("nobody gives up");
                waits.send(permit.concurrency).expect("the test waits");
                gate.leave(permit.number);
                std::mem::forget(permit);
            });
            while gate.state.lock().waiting == 0 {
                thread::yield_now();
            }
            assert!(gate.enter(false, || true).is_none(), "somebody waits to be alone");
            gate.leave(first.number);
            assert!(told.try_recv().is_err());
            gate.leave(second.number);
            assert_eq!(told.recv(), Ok(Concurrency::Nobody));
        });
        let after = gate.enter(false, NEVER).expect("nobody gives up");
        [first, second, after].into_iter().for_each(std::mem::forget);
    }

    #[test]
    fn nobody_waits_for_a_stuck_one_but_it_is_company() {
        let gate = &ProcessGate::new();
        let stuck = gate.enter(false, NEVER).expect("nobody gives up");
        gate.note_stuck(stuck.number);
        let suspect = gate.enter(true, NEVER).expect("nobody gives up");
        assert_eq!(suspect.concurrency, Concurrency::Stuck);
        gate.leave(stuck.number);
        assert!(gate.enter(false, || true).is_none(), "the suspect is inside");
        gate.leave(suspect.number);
        let alone = gate.enter(true, NEVER).expect("nobody gives up");
        assert_eq!(alone.concurrency, Concurrency::Nobody);
        [stuck, suspect, alone].into_iter().for_each(std::mem::forget);
    }
}
