//! How many rows the next claim under a lease may take: as many as the workers begin almost at once.

use std::time::{Duration, Instant};

use crate::entity::Settings;
use crate::sync::Mutex;

/// The time in which the workers should begin all rows of one claim. It is a few claims long. A row that waits here is
/// no later than if each row were claimed alone, and another process would hardly have come to it.
pub(super) const AT_ONCE: Duration = Duration::from_millis(5);

/// How many rows one claim takes at most, and how many answers of calls that the workers make share a transaction. With more
/// rows there is little left to share.
pub(super) const MOST: u32 = 64;

/// The wait of a claimed row after which the next claim takes one row. It is a hundredth of the lease if that is
/// shorter.
const TOO_LONG: Duration = Duration::from_millis(100);

/// With fewer tries than this, a row is not claimed before a worker begins it. A killed process costs each row that it
/// has claimed a try, and no row should fail for good without a call.
const FEW_TRIES: u32 = 10;

/// The size of an entity's claims. Unless the settings give it, it is one while little is due or messages are slow, and
/// it doubles while claims come back full.
#[derive(Debug)]
pub(crate) struct ClaimSize {
    /// The size that the settings give.
    asked: Option<u32>,
    fixed: Option<u32>,
    too_long: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    size: u32,
    /// How many messages are being processed.
    at_work: u32,
    /// How long a message takes its worker. The value follows slow messages at once, and quick ones little by little.
    turn: Option<Duration>,
}

impl ClaimSize {
    /// Takes the size from the settings, if they give one. Otherwise rows with few tries are claimed one by one.
    pub(crate) fn of(fixed: Option<u32>, settings: Settings) -> Self {
        let has_few_tries = settings.max_tries < FEW_TRIES;
        ClaimSize { asked: fixed, ..ClaimSize::new(fixed.or_else(|| has_few_tries.then_some(1)), settings.lease) }
    }

    fn new(fixed: Option<u32>, lease: Duration) -> Self {
        let state = Mutex::new(State { size: 1, at_work: 0, turn: None });
        ClaimSize { asked: fixed, fixed, too_long: TOO_LONG.min(lease / 100), state }
    }

    /// Tells whether the size follows the number of due rows.
    pub(crate) fn is_free(&self) -> bool {
        self.fixed.is_none()
    }

    /// Returns the size that the settings give, if they give one.
    pub(crate) fn asked(&self) -> Option<u32> {
        self.asked
    }

    /// Returns how many rows to claim now.
    pub(crate) fn next(&self) -> u32 {
        self.fixed.unwrap_or_else(|| {
            let state = self.state.lock();
            // Powers of two: each size is a statement of its own, which every session keeps.
            1 << state.size.min(state.begun_at_once()).max(1).ilog2()
        })
    }

    /// Notes that a claim of at most `of` rows has brought this many.
    pub(crate) fn note_claim(&self, of: u32, rows: usize) {
        let rows = u32::try_from(rows).unwrap_or(u32::MAX);
        self.state.lock().size = if rows >= of { of.saturating_mul(2).min(MOST) } else { rows.max(1) };
    }

    /// Notes how long a claimed row has waited for a worker.
    pub(crate) fn note_wait(&self, wait: Duration) {
        if wait > self.too_long {
            let mut state = self.state.lock();
            state.size = 1;
            state.turn = state.turn.max(Some(wait));
        }
    }

    /// Notes that a worker begins a message, until the returned value is dropped.
    pub(crate) fn begin(&self) -> AtWork<'_> {
        self.state.lock().at_work += 1;
        AtWork { size: self, begun: Instant::now() }
    }
}

impl State {
    /// Returns how many rows the busy workers and the worker that asks can begin within [`AT_ONCE`].
    fn begun_at_once(&self) -> u32 {
        let Some(turn) = self.turn else { return 1 };
        let rows = (AT_ONCE * (self.at_work + 1)).as_nanos() / turn.as_nanos().max(1);
        u32::try_from(rows).unwrap_or(MOST).clamp(1, MOST)
    }

    fn note_turn(&mut self, took: Duration) {
        self.turn = Some(self.turn.map_or(took, |turn| took.max(turn - turn.saturating_sub(took) / 8)));
    }
}

/// A message that is being processed.
#[derive(Debug)]
pub(crate) struct AtWork<'a> {
    size: &'a ClaimSize,
    begun: Instant,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let mut state = self.size.state.lock();
        state.at_work -= 1;
        state.note_turn(self.begun.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(60);

    fn with_turns_of(turn: Duration) -> ClaimSize {
        let size = ClaimSize::new(None, LEASE);
        size.state.lock().note_turn(turn);
        size
    }

    /// Makes claims that come back full, and returns their sizes.
    fn grow(size: &ClaimSize, claims: usize) -> Vec<u32> {
        let claim = |_| {
            let of = size.next();
            size.note_claim(of, of as usize);
            of
        };
        (0..claims).map(claim).collect()
    }

    #[test]
    fn a_claim_doubles_while_it_comes_back_full_and_messages_are_quick() {
        let quick = with_turns_of(Duration::from_micros(100));
        assert_eq!(grow(&quick, 8), [1, 2, 4, 8, 16, 32, 32, 32]);
        quick.note_claim(32, 3);
        assert_eq!(quick.next(), 2);
        quick.note_claim(2, 0);
        assert_eq!(quick.next(), 1);
        assert_eq!(grow(&with_turns_of(Duration::from_millis(2)), 3), [1, 2, 2]);
        assert_eq!(grow(&ClaimSize::new(Some(32), LEASE), 2), [32, 32]);
    }

    #[test]
    fn a_claim_takes_one_row_where_messages_take_their_time_or_nothing_is_known_of_them() {
        assert_eq!(grow(&ClaimSize::new(None, LEASE), 3), [1, 1, 1]);
        assert_eq!(grow(&with_turns_of(Duration::from_secs(1)), 3), [1, 1, 1]);
        let mixed = with_turns_of(Duration::from_micros(100));
        grow(&mixed, 5);
        mixed.state.lock().note_turn(Duration::from_secs(1));
        assert_eq!(grow(&mixed, 3), [1, 1, 1]);
    }

    #[test]
    fn a_row_with_few_tries_is_claimed_alone_unless_somebody_says_otherwise() {
        let few = Settings { max_tries: FEW_TRIES - 1, ..Settings::DEFAULT };
        assert!(!ClaimSize::of(None, few).is_free());
        assert_eq!((ClaimSize::of(None, few).next(), ClaimSize::of(Some(8), few).next()), (1, 8));
        assert!(ClaimSize::of(None, Settings::DEFAULT).is_free());
    }

    #[test]
    fn the_more_workers_are_here_the_more_rows_are_begun_at_once() {
        let size = with_turns_of(Duration::from_millis(2));
        let others = [size.begin(), size.begin(), size.begin()];
        assert_eq!(grow(&size, 5), [1, 2, 4, 8, 8]);
        drop(others);
        assert_eq!(size.state.lock().at_work, 0);
    }

    #[test]
    fn a_row_that_has_waited_too_long_ends_the_growth() {
        let size = with_turns_of(Duration::from_micros(100));
        grow(&size, 5);
        size.note_wait(Duration::from_millis(99));
        assert_eq!(size.next(), 32);
        size.note_wait(Duration::from_millis(101));
        assert_eq!(grow(&size, 3), [1, 1, 1]);
    }
}
