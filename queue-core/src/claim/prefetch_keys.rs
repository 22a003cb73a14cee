//! Prefetched keys: one worker of a runner reads, without a lock, the keys of the rows that have been due longest, and
//! each worker locks one of the rows by its key.
//!
//! A claim that walks the index passes every row that others hold and, on InnoDB, every entry that was removed and not
//! yet purged; more workers make more of them. A lock by the key touches one row. The keys prove nothing by themselves:
//! the claim checks the row again, under its lock, so a key that is out of date costs a round trip and nothing else.
//!
//! These keys never decide whether anything is due, or whether a row is free. A runner without work, and one whose keys
//! are held by others, makes the plain claim, which reads keys of its own and finds the rows behind them (`by_key.rs`).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, PoisonError};
use std::time::{Duration, Instant};

use diesel::result::QueryResult;

use super::by_key::{claim_by_key, free_what_was_passed, in_order};
use crate::backend::QueueConnection;
use crate::entity::Key;
use crate::row::{Instant as Due, RowKey};
use crate::statement::{Claimed, ErasedQueue, Scope};
use crate::sync::{Mutex, at_end};

/// How long keys are kept. A row that becomes due, or is enqueued with an earlier time, waits behind them for that
/// long.
const KEPT: Duration = Duration::from_millis(250);

/// How many keys are read: as many as the workers have lately used in [`AHEAD`].
const SIZES: [u32; 3] = [16, 64, 256];

const AHEAD: Duration = Duration::from_millis(50);

/// How long a worker waits for the keys that another one is reading. It has a transaction open, and the other worker
/// may have lost its connection.
const PATIENCE: Duration = Duration::from_millis(20);

/// How many keys in a row may belong to others before the rest is dropped and read again, and then before the plain
/// claim looks for free rows.
const MISSES: u32 = 2;

/// The keys that a runner has prefetched.
pub(crate) struct PrefetchedKeys<K> {
    state: Mutex<State<K>>,
    arrived: Condvar,
}

struct State<K> {
    keys: VecDeque<RowKey<K>>,
    /// The earliest due time in the search for these keys.
    floor: Option<Due>,
    /// Whether the last claim found a row, so that there may be more.
    has_more: bool,
    is_read: bool,
    read: Instant,
    /// How many keys were taken since.
    taken: u32,
    /// When the keys were taken that are not read again for a while: their rows are being processed, or held by others.
    busy: HashMap<Arc<str>, Instant>,
    /// Whether the workers have met another process since the last read.
    met: bool,
}

/// What a worker does next.
enum Step<K> {
    Lock(Vec<RowKey<K>>),
    Read(u32),
    /// Claims without the prefetched keys.
    Claim,
}

impl<K: Key> PrefetchedKeys<K> {
    pub(crate) fn new() -> Self {
        let state = State {
            keys: VecDeque::new(),
            floor: None,
            has_more: false,
            is_read: false,
            read: Instant::now(),
            taken: 0,
            busy: HashMap::new(),
            met: false,
        };
        PrefetchedKeys { state: Mutex::new(state), arrived: Condvar::new() }
    }

    /// Locks and reads up to `limit` of the free rows that have been due longest, as [`super::claim_some`] does, except
    /// for rows that have become due since the keys were read.
    pub(crate) fn claim_some<C: QueueConnection>(
        &self,
        queue: &ErasedQueue<K, C>,
        connection: &mut C,
        limit: u32,
        scope: Scope<'_, K>,
    ) -> QueryResult<Vec<Claimed<K>>> {
        let (mut has_read, mut misses) = (false, 0);
        loop {
            match self.step(limit, &scope, has_read) {
                Step::Claim => break,
                Step::Read(number) => {
                    has_read = true;
                    let _reading = at_end(|| {
                        self.state.lock().is_read = false;
                        self.arrived.notify_all();
                    });
                    let keys = queue.due_keys(connection, number, scope.floor())?;
                    if keys.is_empty() {
                        self.forget();
                        scope.claim_floor.inspect(|claim_floor| claim_floor.is_answered());
                        return Ok(Vec::new());
                    }
                    self.state.lock().arrive(keys, scope.floor(), !scope.keeps_to_mark());
                }
                Step::Lock(keys) => {
                    let claimed = in_order(queue.claim_keys(connection, &keys, limit, scope)?, &keys);
                    if claimed.len() < keys.len() {
                        self.state.lock().met = true;
                    }
                    if !claimed.is_empty() {
                        return Ok(claimed);
                    }
                    misses += 1;
                    free_what_was_passed(connection)?;
                    if misses % MISSES == 0 {
                        self.state.lock().keys.clear();
                        if has_read {
                            break;
                        }
                    }
                }
            }
        }
        let claimed = claim_by_key(queue, connection, limit, scope, free_what_was_passed)?;
        match claimed.as_slice() {
            [] => self.forget(),
            claimed => self.warm(claimed.iter().map(|row| &row.key)),
        }
        Ok(claimed)
    }

    fn step(&self, limit: u32, scope: &Scope<'_, K>, has_read: bool) -> Step<K> {
        let mut state = self.state.lock();
        let deadline = Instant::now() + PATIENCE;
        loop {
            if !state.has_more {
                return Step::Claim;
            }
            if scope.floor() < state.floor {
                // The row that this claim looks for may be due earlier than all of them.
                state.keys.clear();
            }
            // A group takes as many keys as it can: the last few are read again together with the next.
            if has_read || state.has(limit) {
                let keys = state.take(limit, scope.except);
                if !keys.is_empty() {
                    return Step::Lock(keys);
                }
            }
            if !state.is_read {
                break;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Step::Claim;
            }
            state = self.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        // The keys just read are left out, or others were faster.
        if has_read {
            return Step::Claim;
        }
        state.is_read = true;
        Step::Read(state.appetite(limit))
    }

    /// Notes that the plain claim has found rows.
    fn warm<'k>(&self, keys: impl Iterator<Item = &'k RowKey<K>>) {
        let mut state = self.state.lock();
        state.has_more = true;
        keys.for_each(|key| state.is_busy(key.text().clone()));
    }

    /// Forgets everything: nothing is due, no row is free, or rows that were taken already are to run next.
    pub(crate) fn forget(&self) {
        let mut state = self.state.lock();
        // A read by another worker that is still running is out of date too.
        state.is_read = false;
        state.keys.clear();
        state.busy.clear();
        state.has_more = false;
    }
}

impl<K: Clone> State<K> {
    /// Tells whether `number` keys are available that are not out of date.
    fn has(&self, number: u32) -> bool {
        self.keys.len() >= number as usize && self.read.elapsed() <= KEPT
    }

    /// Takes `number` keys, but none of those that are left alone.
    fn take(&mut self, number: u32, except: &[RowKey<K>]) -> Vec<RowKey<K>> {
        let mut taken = Vec::new();
        while taken.len() < number as usize
            && let Some(key) = self.keys.pop_front()
        {
            self.taken += 1;
            if !except.contains(&key) {
                self.is_busy(key.text().clone());
                taken.push(key);
            }
        }
        taken
    }

    fn is_busy(&mut self, key: Arc<str>) {
        self.busy.insert(key, Instant::now());
    }

    /// Returns how many keys to read for workers that take up to `limit` each.
    fn appetite(&self, limit: u32) -> u32 {
        let wanted = f64::from(self.taken) * AHEAD.as_secs_f64() / self.read.elapsed().as_secs_f64().max(1e-6);
        let wanted = if limit == 1 { wanted } else { wanted.max(f64::from(limit) * 2.0) };
        let [.., most] = SIZES;
        if self.met {
            // The more keys there are, the less often the processes meet.
            return most;
        }
        SIZES.into_iter().find(|size| f64::from(*size) >= wanted).unwrap_or(most)
    }

    /// Keeps the keys that were read from `floor` on, without those that are known to be taken. If the claims use the
    /// low-water mark, the keys are not `shuffled`: the mark would follow the later rows, and leave the earlier ones
    /// below it.
    fn arrive(&mut self, keys: Vec<RowKey<K>>, floor: Option<Due>, shuffled: bool) {
        if !self.is_read {
            return;
        }
        self.busy.retain(|_, since| since.elapsed() < KEPT);
        self.keys = keys.into_iter().filter(|key| !self.busy.contains_key(key.text())).collect();
        self.floor = floor;
        if std::mem::take(&mut self.met) && shuffled && !self.keys.is_empty() {
            // Another process reads the same keys. From a random position on, the two meet now and then and not at
            // every key.
            let place = fastrand::usize(..self.keys.len());
            self.keys.rotate_left(place);
        }
        (self.read, self.taken) = (Instant::now(), 0);
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    fn warm() -> PrefetchedKeys<u32> {
        let ahead = PrefetchedKeys::new();
        ahead.warm(keys([1]).iter());
        ahead
    }

    fn read(ahead: &PrefetchedKeys<u32>, keys: impl IntoIterator<Item = u32>) {
        let mut state = ahead.state.lock();
        state.is_read = true;
        state.arrive(self::keys(keys), None, true);
        state.is_read = false;
    }

    fn keys(keys: impl IntoIterator<Item = u32>) -> Vec<RowKey<u32>> {
        keys.into_iter().map(|key| RowKey::new(key, key.to_string())).collect()
    }

    fn except(keys: &[RowKey<u32>]) -> Scope<'_, u32> {
        Scope { except: keys, ..Scope::ALL }
    }

    #[test]
    fn nothing_is_read_before_a_row_was_found_and_after_none_was() {
        let ahead = PrefetchedKeys::new();
        assert!(matches!(ahead.step(1, &except(&[]), false), Step::Claim));
        ahead.warm(keys([1]).iter());
        assert!(matches!(ahead.step(1, &except(&[]), false), Step::Read(16)));
        ahead.forget();
        assert!(matches!(ahead.step(1, &except(&[]), false), Step::Claim));
    }

    #[test]
    fn a_key_is_handed_out_once_and_not_read_again_at_once() {
        let ahead = warm();
        read(&ahead, 1..=4);
        assert!(matches!(ahead.step(1, &except(&keys([3])), false), Step::Lock(taken) if taken == keys([2])));
        assert!(matches!(ahead.step(1, &except(&keys([3])), false), Step::Lock(taken) if taken == keys([4])));
        read(&ahead, 1..=5);
        assert!(matches!(ahead.step(5, &except(&[]), true), Step::Lock(taken) if taken == keys([3, 5])));
        assert!(matches!(ahead.step(1, &except(&[]), true), Step::Claim));
    }

    #[test]
    fn keys_are_read_again_when_they_are_out_of_date_or_too_few_for_a_group() {
        let ahead = warm();
        read(&ahead, 2..=20);
        assert!(matches!(ahead.step(10, &except(&[]), false), Step::Lock(keys) if keys.len() == 10));
        assert!(matches!(ahead.step(10, &except(&[]), false), Step::Read(_)));
        ahead.state.lock().is_read = false;
        ahead.state.lock().read = Instant::now() - KEPT * 2;
        assert!(matches!(ahead.step(1, &except(&[]), false), Step::Read(_)));
    }

    #[test]
    fn keys_that_were_read_from_a_mark_on_are_not_for_a_claim_that_probes_below_it() {
        let ahead = warm();
        let floor = Some(Due::from(DateTime::UNIX_EPOCH));
        ahead.state.lock().is_read = true;
        ahead.state.lock().met = true;
        ahead.state.lock().arrive(keys(2..=20), floor, false);
        ahead.state.lock().is_read = false;
        // They are in their order, although the workers met another process.
        assert_eq!(ahead.state.lock().keys.front().map(|key| **key), Some(2));
        assert!(matches!(ahead.step(1, &Scope::ALL, false), Step::Read(_)));
    }

    #[test]
    fn keys_that_are_being_read_while_everything_is_forgotten_are_not_kept() {
        let ahead = warm();
        assert!(matches!(ahead.step(1, &except(&[]), false), Step::Read(_)));
        ahead.forget();
        ahead.state.lock().arrive(keys([2, 3]), None, true);
        assert!(ahead.state.lock().keys.is_empty());
    }
}
