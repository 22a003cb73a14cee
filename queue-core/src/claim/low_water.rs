//! How far the claims of one entity have come, so that they need not walk over rows that were settled long ago.
//!
//! While a session holds an old snapshot, the database keeps the index entries of settled rows, all of them at the end
//! at which a claim begins. Only then do claims begin at a mark that follows the claimed rows. Full probes find the
//! rows below the mark: the scout makes one a second, and one claim follows each probe that found something. So a row
//! that is due earlier than the mark waits for the next full probe, and no longer.

use std::cell::Cell;
use std::time::{self, Duration};

use diesel::result::QueryResult;

use crate::backend::{Dialect, QueueConnection};
use crate::row::{Instant, Options};
use crate::statement::ClaimFloor;
use crate::sync::Mutex;

/// A full probe that takes less than this is not questioned. A quick one walks over a few thousand entries at most, and
/// is no slower than a connection may be.
const SLOW_PROBE: Duration = Duration::from_millis(1);

/// The mark is worth it if a full probe takes so many times as long as a probe from the mark.
const MARK_WORTH: u32 = 3;

/// How often a probe from the mark that seems slow too is repeated at most: the machine may have been busy.
const PROBE_REPEATS: u32 = 3;

/// How long the scout waits after a full probe before the next. That is one query a second beside thousands of claims.
/// A row below the mark waits for it, so the pause does not grow with the time of the last probe: a table lock of a
/// second would delay the next probe by minutes.
pub(crate) const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// The mark lags behind the claims by one to two times this. Rows are committed a little later than their due times,
/// and in another order. The lag is longer than most transactions that enqueue, and short compared with what piles up.
const MARK_LAG: Duration = Duration::from_millis(25);

/// How far the claims of one entity have come in one process. All times are due times that the database has returned.
#[derive(Debug)]
pub struct LowWater {
    applies: bool,
    at_once: bool,
    level: Mutex<Level>,
}

#[derive(Debug)]
struct Level {
    /// The due time of the last claimed row, and its values one and two lags ago.
    reached: Option<Instant>,
    before: Option<Instant>,
    mark: Option<Instant>,
    moved: time::Instant,
    /// Whether claims begin at the mark.
    in_use: bool,
    /// Whether a full probe has found a row that may be below the mark.
    probe_below: bool,
    /// How long the last probe from the mark took. The value shrinks little by little, so that it is measured again.
    usual: Duration,
    /// The earliest time of the next full probe, while the mark is in use.
    next_full_probe: time::Instant,
}

/// The answer of a probe from this due time on: how long it is until the next row is due.
type DueIn = QueryResult<Option<Duration>>;

impl LowWater {
    /// Makes a mark for the claims of a queue. It is used only if they walk along the due times and nothing else makes rows
    /// claimable. An order of the entity's own walks along another index; a condition may become true for any row at
    /// any time; SQLite keeps no entries of settled rows. `at_once`: it is used from the first claim on and without a lag,
    /// however quick a full probe is.
    pub fn of<C: QueueConnection>(options: &Options, at_once: bool) -> Self {
        let applies = !C::Backend::ONE_WRITER && options.due_time_alone_decides();
        let at_once = at_once && applies;
        let now = time::Instant::now();
        let level = Level {
            reached: None,
            before: None,
            mark: None,
            moved: now,
            in_use: at_once,
            probe_below: false,
            usual: Duration::ZERO,
            next_full_probe: now,
        };
        LowWater { applies, at_once, level: Mutex::new(level) }
    }

    /// Returns where the next claim begins; the value also takes the claim's result.
    pub fn claim_floor(&self) -> LowWaterFloor<'_> {
        let mut level = self.level.lock();
        let floor = level.floor();
        // One claim follows a full probe.
        let below = std::mem::take(&mut level.probe_below);
        LowWaterFloor {
            low_water: self,
            floor: floor.filter(|_| !below),
            behind_refused: None,
            below: Cell::new(below),
            keeps_to_mark: floor.is_some(),
            first: Cell::new(None),
            keeps: Cell::new(false),
        }
    }

    /// Lowers the mark, because a row that was claimed before is due again at this time.
    pub(crate) fn fall(&self, due: Instant) {
        self.level.lock().fall(due);
    }

    /// Probes how long it is until the next row is due. It probes from the mark while that is in use, unless the probe
    /// is to be `thorough` or it is time for a full one. Only a full probe can prove that nothing is due.
    pub fn probe_due(&self, thorough: bool, mut probe: impl FnMut(Option<Instant>) -> DueIn) -> DueIn {
        let until_full = self.level.lock().until_full_probe();
        let floor = self.level.lock().floor().filter(|_| !thorough && !until_full.is_zero());
        if let Some(floor) = floor {
            let due_in = probe(Some(floor))?;
            return Ok(Some(due_in.map_or(until_full, |due_in| due_in.min(until_full))));
        }
        let (due_in, full) = timed(|| probe(None))?;
        let is_worth_it = self.at_once || self.level.lock().is_suspicious(full) && self.is_worth_it(full, probe)?;
        let mut level = self.level.lock();
        level.in_use = is_worth_it;
        if is_worth_it {
            level.next_full_probe = time::Instant::now() + PROBE_INTERVAL;
            level.probe_below = due_in == Some(Duration::ZERO);
        }
        Ok(due_in)
    }

    /// Makes a full probe beside the workers, if it is time for one.
    pub(crate) fn probe(&self, probe: impl FnMut(Option<Instant>) -> DueIn) -> QueryResult<()> {
        if self.applies && self.level.lock().until_full_probe().is_zero() {
            self.probe_due(false, probe)?;
        }
        Ok(())
    }

    /// Tells whether a probe from the mark is much quicker than a full one.
    fn is_worth_it(&self, full: Duration, mut probe: impl FnMut(Option<Instant>) -> DueIn) -> QueryResult<bool> {
        let Some(mark) = self.level.lock().mark.filter(|_| self.applies) else { return Ok(false) };
        for _ in 0..PROBE_REPEATS {
            let (_, from_mark) = timed(|| probe(Some(mark)))?;
            self.level.lock().usual = from_mark;
            if from_mark * MARK_WORTH <= full {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn timed<T>(probe: impl FnOnce() -> QueryResult<T>) -> QueryResult<(T, Duration)> {
    let begun = time::Instant::now();
    probe().map(|seen| (seen, begun.elapsed()))
}

impl Level {
    fn floor(&self) -> Option<Instant> {
        self.mark.filter(|_| self.in_use)
    }

    fn until_full_probe(&self) -> Duration {
        match self.floor() {
            Some(_) => self.next_full_probe.saturating_duration_since(time::Instant::now()),
            None => Duration::ZERO,
        }
    }

    /// Tells whether a full probe took long enough to be compared with one from the mark. If every probe takes as long,
    /// because the database is far away, it does not compare each time.
    fn is_suspicious(&mut self, full: Duration) -> bool {
        let is_suspicious = self.in_use || full > SLOW_PROBE.max(self.usual * MARK_WORTH);
        self.usual -= self.usual / 16;
        is_suspicious
    }

    /// Raises the mark: nothing claimable is left from `floor` up to `last`.
    fn rise(&mut self, floor: Option<Instant>, last: Instant, lag: Duration) {
        if floor.is_some() && floor > self.mark {
            // The mark has fallen since that claim began, and the claim says nothing about rows below its own floor.
            return;
        }
        if floor.is_none() && self.mark.is_some_and(|mark| last < mark) {
            return self.fall(last);
        }
        self.reached = self.reached.max(Some(last));
        if lag.is_zero() {
            (self.mark, self.before) = (self.reached, self.reached);
        } else if self.moved.elapsed() >= lag {
            (self.mark, self.before, self.moved) = (self.before, self.reached, time::Instant::now());
        }
    }

    /// Lowers the mark: a claimable row that is due at this time may be left.
    fn fall(&mut self, first: Instant) {
        for time in [&mut self.reached, &mut self.before, &mut self.mark] {
            *time = time.map(|time| time.min(first));
        }
    }
}

/// One claim, from its beginning to the result of its rows. Unless they are [kept](LowWaterFloor::keep), the mark falls
/// back to the first of them, even if a panic ends the turn.
#[derive(Debug)]
pub struct LowWaterFloor<'a> {
    low_water: &'a LowWater,
    floor: Option<Instant>,
    /// The floor behind refused rows, if there is one.
    behind_refused: Option<Instant>,
    /// Whether this is the one claim that follows a full probe, and it has no result yet.
    below: Cell<bool>,
    keeps_to_mark: bool,
    first: Cell<Option<Instant>>,
    keeps: Cell<bool>,
}

impl LowWaterFloor<'_> {
    /// Moves the beginning of the claim to this time, which lies behind refused rows.
    pub(crate) fn from(mut self, floor: Option<Instant>) -> Self {
        (self.floor, self.behind_refused) = (floor.or(self.floor), floor);
        self
    }

    /// Tells whether this is the one claim that is to look below the mark.
    pub(crate) fn probes_below(&self) -> bool {
        self.below.get()
    }

    /// Leaves the look below the mark to the next claim.
    pub(crate) fn pass_on(&self) {
        if self.below.take() {
            self.low_water.level.lock().probe_below = true;
        }
    }

    /// Tells whether a claim, this one or the next, is to look below the mark before anything else.
    pub(crate) fn has_to_probe_below(&self) -> bool {
        self.below.get() || (self.keeps_to_mark && self.low_water.level.lock().probe_below)
    }

    /// Notes that none of the rows is due at its old time any more.
    pub fn keep(&self) {
        self.keeps.set(true);
    }
}

impl ClaimFloor for LowWaterFloor<'_> {
    fn floor(&self) -> Option<Instant> {
        self.floor
    }

    fn behind_refused(&self) -> Option<Instant> {
        self.behind_refused
    }

    fn keeps_to_mark(&self) -> bool {
        self.keeps_to_mark
    }

    fn note_answer(&self) {
        self.below.set(false);
    }

    fn note_claim(&self, first: Option<Instant>, last: Option<Instant>) {
        if self.low_water.applies
            && let (Some(first), Some(last)) = (first, last)
        {
            if let Some(undone) = self.first.replace(Some(first)) {
                self.low_water.level.lock().fall(undone);
            }
            let lag = if self.low_water.at_once { Duration::ZERO } else { MARK_LAG };
            self.low_water.level.lock().rise(self.floor, last, lag);
        }
    }
}

impl Drop for LowWaterFloor<'_> {
    fn drop(&mut self) {
        if let (Some(first), false) = (self.first.get(), self.keeps.get()) {
            self.low_water.level.lock().fall(first);
        }
        // There was no session, or the claim failed.
        self.pass_on();
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    fn at(second: i64) -> Instant {
        Instant::from(DateTime::UNIX_EPOCH + chrono::TimeDelta::seconds(second))
    }

    fn level(mark: i64) -> Level {
        let now = time::Instant::now();
        Level {
            reached: Some(at(mark)),
            before: Some(at(mark)),
            mark: Some(at(mark)),
            moved: now,
            in_use: true,
            probe_below: false,
            usual: Duration::ZERO,
            next_full_probe: now,
        }
    }

    #[test]
    fn the_mark_follows_the_claims_two_lags_behind() {
        let mut level = level(10);
        let lag = Duration::from_nanos(1);
        for (claimed, mark) in [(11, 10), (12, 11), (13, 12)] {
            level.rise(Some(at(10)), at(claimed), lag);
            assert_eq!(level.mark, Some(at(mark)));
        }
        level.rise(Some(at(12)), at(20), Duration::from_secs(3600));
        assert_eq!((level.mark, level.reached), (Some(at(12)), Some(at(20))));
    }

    #[test]
    fn a_claim_that_began_above_a_mark_that_has_fallen_does_not_raise_it() {
        let mut level = level(10);
        level.fall(at(5));
        level.rise(Some(at(10)), at(11), Duration::ZERO);
        assert_eq!(level.mark, Some(at(5)));
        level.rise(Some(at(5)), at(11), Duration::ZERO);
        assert_eq!(level.mark, Some(at(11)));
    }

    #[test]
    fn a_claim_from_the_beginning_takes_the_mark_down_if_it_finds_a_row_there() {
        let mut level = level(10);
        level.rise(None, at(3), Duration::from_secs(3600));
        assert_eq!((level.mark, level.reached), (Some(at(3)), Some(at(3))));
        level.rise(None, at(4), Duration::from_secs(3600));
        assert_eq!((level.mark, level.reached), (Some(at(3)), Some(at(4))));
    }
}
