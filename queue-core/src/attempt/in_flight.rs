//! How many calls of an entity run beside the workers, and when there is something to do for a worker.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The counts of calls that run beside the workers. The board of the poller reads them.
pub(crate) struct InFlight {
    /// How many calls have a place.
    pub(crate) most: usize,
    /// How many places are taken: by calls whose future exists or whose row is not settled, and by a claim.
    taken: AtomicUsize,
    /// Whether a worker claims rows. The others write answers meanwhile, so that the next claim finds more places: a claim
    /// for each place that becomes free would cost as much as the answer.
    is_claiming: AtomicBool,
    /// How many rows were begun and not taken by a worker that settles them.
    unsettled: AtomicUsize,
    /// How many of these wait for such a worker.
    answered: AtomicUsize,
    /// Tells the poller's workers that there may be something to do.
    wakes: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl InFlight {
    /// Counts calls that have this many places.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        let (taken, is_claiming, unsettled, answered) = Default::default();
        Arc::new(InFlight { most, taken, is_claiming, unsettled, answered, wakes: OnceLock::new() })
    }

    /// Sets what tells the workers that there may be something to do.
    pub(crate) fn wakes(&self, wakes: impl Fn() + Send + Sync + 'static) {
        // A runner belongs to one poller.
        let _ = self.wakes.set(Box::new(wakes));
    }

    /// Tells the workers that there may be something to do.
    pub(crate) fn wake(&self) {
        if let Some(wakes) = self.wakes.get() {
            wakes();
        }
    }

    /// Notes how many rows were begun and are not settled, and how many of these wait for a worker.
    pub(crate) fn count(&self, unsettled: usize, answered: usize) {
        self.unsettled.store(unsettled, Ordering::SeqCst);
        self.answered.store(answered, Ordering::SeqCst);
    }

    /// Returns how many rows were begun and not taken by a worker that settles them.
    pub(crate) fn unsettled(&self) -> usize {
        self.unsettled.load(Ordering::SeqCst)
    }

    /// Tells whether a row waits for a worker that settles it.
    pub(crate) fn has_answers(&self) -> bool {
        self.answered.load(Ordering::SeqCst) > 0
    }

    /// Tells whether a worker may claim rows for free places.
    pub(crate) fn has_room(&self) -> bool {
        self.taken.load(Ordering::SeqCst) < self.most && !self.is_claiming.load(Ordering::SeqCst)
    }

    /// Tells whether so many places are free that a claim should go before the answers that wait: a quarter of all.
    /// Otherwise few calls would run while many answers are written.
    pub(crate) fn has_much_room(&self) -> bool {
        let free = self.most.saturating_sub(self.taken.load(Ordering::SeqCst));
        free >= self.most.div_ceil(4)
    }

    /// Takes free places for a claim, if no other worker claims: as many as the largest power of two that is not above
    /// their number, nor above `most`.
    pub(crate) fn reserve(self: &Arc<Self>, most: usize) -> Option<Reserved> {
        if self.is_claiming.swap(true, Ordering::SeqCst) {
            return None;
        }
        let mut claim = Reserved { in_flight: self.clone(), places: 0 };
        let places = |taken: usize| match self.most.saturating_sub(taken).min(most) {
            0 => None,
            free => Some(1 << free.ilog2()),
        };
        let take = |taken| Some(taken + places(taken)?);
        let before = self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).ok()?;
        claim.places = places(before)?;
        Some(claim)
    }
}

/// Places for calls that a claim may find. Those that are left are free again when it is dropped.
pub(crate) struct Reserved {
    in_flight: Arc<InFlight>,
    /// How many places are left.
    pub(crate) places: usize,
}

impl Reserved {
    /// Takes one of the places for a call.
    pub(crate) fn take(&mut self) -> Option<CallPlace> {
        self.places = self.places.checked_sub(1)?;
        Some(CallPlace(self.in_flight.clone()))
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.in_flight.taken.fetch_sub(self.places, Ordering::SeqCst);
        self.in_flight.is_claiming.store(false, Ordering::SeqCst);
        if self.in_flight.has_room() {
            self.in_flight.wake();
        }
    }
}

/// The place of one call. It is free again when this is dropped.
pub(crate) struct CallPlace(Arc<InFlight>);

impl Drop for CallPlace {
    fn drop(&mut self) {
        let was_full = self.0.taken.fetch_sub(1, Ordering::SeqCst) >= self.0.most;
        if was_full {
            self.0.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_reserves_a_power_of_two_and_a_place_is_free_once_its_call_has_gone() {
        let in_flight = InFlight::new(100);
        let claim = || {
            let mut reserved = in_flight.reserve(256)?;
            assert!(!in_flight.has_room() && in_flight.reserve(1).is_none(), "one worker claims at a time");
            Some(std::iter::from_fn(|| reserved.take()).collect::<Vec<_>>())
        };
        let mut first = claim().expect("all are free");
        assert_eq!(first.len(), 64);
        first.truncate(1);
        assert!(in_flight.has_room() && in_flight.has_much_room());
        let rest: Vec<_> = std::iter::from_fn(claim).collect();
        assert_eq!(rest.iter().map(Vec::len).collect::<Vec<_>>(), [64, 32, 2, 1]);
        assert!(!in_flight.has_room() && !in_flight.has_much_room());
        drop(first);
        assert!(in_flight.has_room() && !in_flight.has_much_room());
        drop((in_flight.reserve(1), rest));
        assert_eq!(claim().map(|places| places.len()), Some(64), "what a claim does not take is free again");
    }

    #[test]
    fn the_workers_hear_when_a_place_is_free_after_none_was() {
        let in_flight = InFlight::new(1);
        let heard = Arc::new(AtomicUsize::new(0));
        let hears = heard.clone();
        in_flight.wakes(move || {
            hears.fetch_add(1, Ordering::SeqCst);
        });
        drop(in_flight.reserve(1));
        assert_eq!(heard.load(Ordering::SeqCst), 1);
    }
}
