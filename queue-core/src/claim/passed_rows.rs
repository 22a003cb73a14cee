//! The rows of one entity that this process passes over, or may have to: those whose attempts were interrupted, those on which
//! the database refuses to write, and those that a trigger keeps as they are although their new state was committed.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::refused_state::{RefusedState, Step, Turns, pause_after};
use crate::entity::jittered;
use crate::row::{Lane, Options, QueueState, RowKey};
use crate::sync::{HeldByThread, HeldByThreads, Mutex};

/// How long a row waits after its first interruption. Every further one doubles it, up to [`LONGEST_BACKOFF`].
const FIRST_BACKOFF: Duration = Duration::from_millis(100);

const LONGEST_BACKOFF: Duration = Duration::from_secs(60);

/// How many interrupted rows are remembered.
const BACKOFFS_REMEMBERED: usize = 10_000;

/// How many rows a claim passes over by their keys. Beyond that, the row that was set aside last waits with its worker.
const MOST_PASSED_OVER: usize = 50;

/// How many written rows are remembered. Kept rows beyond that number run again and again.
const WRITTEN_ROWS_REMEMBERED: usize = 16_384;

/// The rows of one entity that this process passes over, or may have to.
///
/// # Refused rows
///
/// The database refuses to write on them, because of a constraint that old rows violate, or a trigger. Nothing can be written on
/// such a row, so it stays due and first in line, whatever happens. This process remembers it and tries it again after pauses
/// that grow to an hour. Its neighbours must not pay for that, however many such rows there are: a claim that named them all
/// would take longer the more they are. So claims begin behind them, at a floor. A survey finds the rows below the floor: it
/// reads the keys of the rows that have been due longest. The more refused rows there are, the longer a survey takes, and the
/// less often it is made. It is also made less often if it finds rows that cannot be tried.
///
/// A row that no worker has tried yet may be refused as well, and next to many refused rows it probably is. So a claim
/// that meets another refused row behind the floor leaps ahead, twice as far each time. The rows in between are tried
/// after the others: while there is other work, they take a small part of the time.
///
/// # Kept rows
///
/// The database reports that such a row was written, and a trigger has restored its old values. Nothing shows this when the
/// worker writes the row's new state. The row is due again as it was claimed, and first in line. So this process remembers each
/// row that it wrote for a while, by the state in which it was claimed. A worker that claims a row in the same state again
/// suspects it. A state contains the times at which the row was due and attempted, so a row that was enqueued anew is mostly in
/// another state. But an application may write a fixed time, and SQLite's times are milliseconds, within which a row may pass
/// through several stages. So the worker first tries to settle a suspected row, or checks its lease, before it leaves the row
/// alone.
pub(crate) struct PassedRows<K> {
    hasher: RandomState,
    /// The rows whose attempts are being concluded: unlocked, and still due.
    concluded: HeldByThreads<RowKey<K>>,
    known: Mutex<Known<K>>,
}

struct Known<K> {
    /// The interrupted rows, by the text of their keys.
    backoffs: HashMap<Arc<str>, Backoff<K>>,
    refused: RefusedState<K>,
    written: HashMap<ClaimedAs, WrittenRow>,
    /// The written rows, the oldest first.
    order: VecDeque<ClaimedAs>,
}

struct Backoff<K> {
    key: RowKey<K>,
    times: u32,
    /// How many of them a full disk caused.
    times_with_full_disk: u32,
    until: Instant,
    /// Whether the row itself does not show the pause: it is due, and the claim has to pass over it.
    skip_for_a_while: bool,
}

struct WrittenRow {
    /// Whether it was written after it last came back.
    is_written: bool,
    /// How often it came back.
    times: u32,
}

/// A row in the state in which it was claimed, as a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ClaimedAs(u64);

impl<K: Clone> PassedRows<K> {
    /// Knows nothing yet of the rows of an entity with these options.
    pub(super) fn of(options: &Options) -> Self {
        let known = Known {
            backoffs: HashMap::new(),
            refused: RefusedState::new(Turns::of(options), Instant::now()),
            written: HashMap::new(),
            order: VecDeque::new(),
        };
        PassedRows { hasher: RandomState::new(), concluded: HeldByThreads::default(), known: Mutex::new(known) }
    }

    /// Decides which rows the next claim is for, of up to `limit` rows. Also returns rows that it passes over in any case.
    pub(super) fn next_step(&self, limit: u32) -> (Step<K>, Vec<RowKey<K>>) {
        let (concluded, known) = (self.concluded.all(), &mut *self.known.lock());
        // Every message comes here, and mostly no row is refused.
        let mut step = match known.refused.rows.is_empty() {
            true => Step::From { floor: None, except: Vec::new(), is_new: false },
            false => known.refused.next_step(limit, Instant::now()),
        };
        if let Step::Only(keys) = &mut step {
            // A survey also reads the keys of rows that another worker is about to find refused.
            keys.retain(|key| !concluded.contains(key));
        }
        (step, known.passed_over(concluded))
    }

    /// Returns the rows that a claim passes over in any case.
    pub(super) fn passed_over(&self) -> Vec<RowKey<K>> {
        let concluded = self.concluded.all();
        self.known.lock().passed_over(concluded)
    }

    /// Notes that a claim has looked at these rows since `begun` and could not try them: the queue or their lane has no free place,
    /// or the lane is held back.
    pub(super) fn put_off(&self, keys: &[RowKey<K>], begun: Instant) {
        self.with_refused(|refused| refused.put_off(keys, begun, Instant::now()));
    }

    /// Notes that the new state of a row is committed: it is no longer passed over.
    pub(crate) fn end(&self, key: &RowKey<K>) {
        self.known.lock().end(key, true);
    }

    /// Returns how long a row waits after this interruption, which the caller writes on the row. Also returns how many
    /// interruptions of the same kind the row has had in sequence: by a full disk, or by something else.
    pub(crate) fn pause(&self, key: &RowKey<K>, disk_is_full: bool) -> (Duration, u32) {
        self.known.lock().extend(key, false, disk_is_full)
    }

    /// Passes over a row that stays due because nothing can be written on it, so that its neighbours run.
    pub(crate) fn skip_for_a_while(&self, key: &RowKey<K>) {
        self.known.lock().extend(key, true, false);
    }

    /// Passes over a row that others change while it is attempted, from the second time on. Otherwise it would keep the
    /// other rows from their turn.
    pub(crate) fn note_overtaken(&self, key: &RowKey<K>) {
        let known = &mut *self.known.lock();
        match known.backoffs.contains_key(key.text()) {
            true => drop(known.extend(key, true, false)),
            false => drop(known.backoff(key)),
        }
    }

    /// Passes over a row until the value is dropped. The worker writes the rest of its attempt in transactions of their
    /// own, and between them another worker would run the row's handler again.
    pub(crate) fn while_concluded(&self, key: &RowKey<K>) -> HeldByThread<RowKey<K>> {
        self.concluded.hold_with_others(key.clone())
    }

    /// Tells whether any interrupted row waits for its next attempt.
    pub(crate) fn any_interrupted(&self) -> bool {
        let now = Instant::now();
        self.known.lock().backoffs.values().any(|pause| pause.until > now)
    }

    /// Returns the refused rows of a lane, which those behind them pass. `None`: there are more than `most`.
    pub(super) fn refused_in(&self, lane: &Lane, most: usize) -> Option<Vec<RowKey<K>>> {
        let refused = &self.known.lock().refused;
        let found = if refused.rows.is_empty() { Vec::new() } else { refused.in_lane(&lane.identity(), most + 1) };
        (found.len() <= most).then_some(found)
    }

    /// Returns how long a row waits that can record its own pause, after as many refusals of something else.
    pub(crate) fn refusal_pause(&self, key: &RowKey<K>) -> Duration {
        pause_after(self.known.lock().refused.rows.get(key.text()).map_or(0, |row| row.times))
    }

    /// Does this with what is known of the refused rows.
    pub(super) fn with_refused<R>(&self, act: impl FnOnce(&mut RefusedState<K>) -> R) -> R {
        act(&mut self.known.lock().refused)
    }

    /// Returns the hash of the row with this key as it was claimed.
    pub(crate) fn claimed_as(&self, key: &RowKey<K>, state: &QueueState) -> ClaimedAs {
        let QueueState { status, next_attempt_time, try_count, last_attempt_time, .. } = state;
        ClaimedAs(self.hasher.hash_one((key.text(), status, next_attempt_time, try_count, last_attempt_time)))
    }

    /// Notes that the new state of a row that was claimed in this one is committed: its attempt has ended, or it is
    /// under a lease. Returns how often the row has come back, because another worker may know more by now.
    pub(crate) fn record_written(&self, claimed: ClaimedAs) -> u32 {
        self.known.lock().record_written(claimed)
    }

    /// Notes the same of a row that is settled, and forgets that it was passed over, unless it has come back before.
    pub(crate) fn note_settled(&self, key: &RowKey<K>, claimed: Option<ClaimedAs>) -> u32 {
        let known = &mut *self.known.lock();
        let times = claimed.map_or(0, |claimed| known.record_written(claimed));
        known.end(key, times == 0);
        times
    }

    /// Tells whether a claimed row has come back as it was.
    pub(crate) fn has_returned(&self, claimed: ClaimedAs) -> bool {
        self.known.lock().written.get(&claimed).is_some_and(|row| row.is_written)
    }

    /// Returns, for a row that has come back, how often it had done so before. Its next attempt is made all the same,
    /// because the trigger may be gone by then.
    pub(crate) fn take_returned(&self, claimed: ClaimedAs) -> Option<u32> {
        let known = &mut *self.known.lock();
        let row = known.written.get_mut(&claimed).filter(|row| row.is_written)?;
        row.is_written = false;
        row.times = row.times.saturating_add(1);
        Some(row.times - 1)
    }

    /// Notes that the row in this state has not come back: it has gone through other states.
    pub(crate) fn forget_written(&self, claimed: ClaimedAs) {
        let anew = WrittenRow { is_written: false, times: 0 };
        self.known.lock().written.entry(claimed).and_modify(|row| *row = anew);
    }
}

impl<K: Clone> Known<K> {
    fn end(&mut self, key: &RowKey<K>, is_written: bool) {
        if !self.backoffs.is_empty() {
            self.backoffs.remove(key.text());
        }
        if is_written && !self.refused.rows.is_empty() {
            self.refused.end(key.text());
        }
    }

    fn record_written(&mut self, claimed: ClaimedAs) -> u32 {
        if let Some(row) = self.written.get_mut(&claimed) {
            row.is_written = true;
            return row.times;
        }
        if self.order.len() >= WRITTEN_ROWS_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.written.remove(&oldest);
        }
        self.order.push_back(claimed);
        self.written.insert(claimed, WrittenRow { is_written: true, times: 0 });
        0
    }

    /// Returns these rows whose attempts are being concluded, and those that are set aside for a while.
    fn passed_over(&self, mut passed_over: Vec<RowKey<K>>) -> Vec<RowKey<K>> {
        if !self.backoffs.is_empty() {
            let now = Instant::now();
            let set_aside = self.backoffs.values().filter(|pause| pause.skip_for_a_while && pause.until > now);
            passed_over.extend(set_aside.map(|pause| pause.key.clone()));
        }
        passed_over.truncate(MOST_PASSED_OVER);
        passed_over
    }

    fn extend(&mut self, key: &RowKey<K>, skip_for_a_while: bool, disk_is_full: bool) -> (Duration, u32) {
        let pause = self.backoff(key);
        let delay = FIRST_BACKOFF.saturating_mul(1 << pause.times.min(16)).min(LONGEST_BACKOFF);
        let delay = jittered(delay, 1.0, fastrand::f64());
        pause.times = pause.times.saturating_add(1);
        pause.times_with_full_disk = pause.times_with_full_disk.saturating_add(u32::from(disk_is_full));
        pause.skip_for_a_while = skip_for_a_while;
        // The database counts the pause from the time of the write, which is a little later. On a busy machine the scout looks
        // for the row later still, and a run that ends when nothing is due must not have forgotten it by then.
        pause.until = Instant::now() + delay + Duration::from_secs(if skip_for_a_while { 1 } else { 5 });
        (delay, if disk_is_full { pause.times_with_full_disk } else { pause.times - pause.times_with_full_disk })
    }

    /// Returns the pause of a row, which is over if it is a new one.
    fn backoff(&mut self, key: &RowKey<K>) -> &mut Backoff<K> {
        if self.backoffs.len() >= BACKOFFS_REMEMBERED {
            self.backoffs.clear();
        }
        self.backoffs.entry(key.text().clone()).or_insert_with(|| Backoff {
            key: key.clone(),
            times: 0,
            times_with_full_disk: 0,
            until: Instant::now(),
            skip_for_a_while: false,
        })
    }
}

#[cfg(test)]
mod tests;
