//! Prefetched keys: one worker of a runner reads, without a lock, the keys of the rows that have been due longest, and
//! each worker locks one of the rows by its key.
//!
//! A claim that walks the index passes every row that others hold and, on InnoDB, every entry that was removed and not
//! yet purged; more workers make more of them. A lock by the key touches one row. The keys prove nothing by themselves:
//! the claim checks the row again, under its lock, so a key that is out of date costs a round trip and nothing else.
//!
//! These keys never decide whether anything is due, or whether a row is free. A runner without work, and one whose keys
//! are held by others, makes the plain claim, which reads keys of its own and finds the rows behind them (`candidates.rs`).

use std::collections::VecDeque;
use std::sync::{Condvar, PoisonError};
use std::time::{Duration, Instant};

use diesel::result::QueryResult;

use super::candidates::{check_passed, claim_by_key, free_what_was_passed, in_order};
use super::prefetch_rows::Prefetched;
use crate::backend::QueueConnection;
use crate::entity::Key;
use crate::row::{Instant as Due, RowKey};
use crate::statement::{Claimed, ErasedQueue, Scope};
use crate::sync::{Mutex, at_end};

/// How many keys are read: as many as the workers have lately used in [`KEYS_AHEAD`].
const KEYS_READ: [u32; 3] = [16, 64, 256];

/// How many keys are read at most, with those of the rows that are being processed. A guess: 64 workers with groups of 64.
const MOST_KEYS_READ: u32 = 4_096;

const KEYS_AHEAD: Duration = Duration::from_millis(50);

/// How long a worker waits for the keys that another one is reading. It has a transaction open, and the other worker
/// may have lost its connection.
const KEYS_PATIENCE: Duration = Duration::from_millis(20);

/// How many keys in a row may belong to others before the rest is dropped and read again, and then before the plain
/// claim looks for free rows.
const KEY_MISSES: u32 = 2;

/// The keys that a runner has prefetched.
pub(crate) struct PrefetchedKeys<K> {
    state: Mutex<State<K>>,
    arrived: Condvar,
}

struct State<K> {
    keys: Prefetched<RowKey<K>>,
    /// The earliest due time in the search for these keys.
    floor: Option<Due>,
    /// Whether the last claim found a row, so that there may be more.
    has_more: bool,
    /// How many keys were taken since the last read.
    taken: u32,
    /// How many keys of the last read were taken already: rows that are being processed still look due, and come first.
    passed: u32,
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
        let state = State { keys: Prefetched::none(), floor: None, has_more: false, taken: 0, passed: 0 };
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
                        self.state.lock().keys.reading.end();
                        self.arrived.notify_all();
                    });
                    let keys = queue.due_keys(connection, number, scope.floor())?;
                    if keys.is_empty() {
                        self.forget();
                        scope.claim_floor.inspect(|claim_floor| claim_floor.note_answer());
                        return Ok(Vec::new());
                    }
                    self.state.lock().arrive(keys, scope.floor(), !scope.keeps_to_mark());
                }
                Step::Lock(keys) => {
                    let claimed = self.claim_taken(queue, connection, &keys, limit, scope)?;
                    if !claimed.is_empty() {
                        return Ok(claimed);
                    }
                    misses += 1;
                    if misses % KEY_MISSES == 0 {
                        self.state.lock().keys.waiting.clear();
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

    /// Locks and reads those of the rows that are free, and keeps no lock if none is.
    fn claim_taken<C: QueueConnection>(
        &self,
        queue: &ErasedQueue<K, C>,
        connection: &mut C,
        keys: &[RowKey<K>],
        limit: u32,
        scope: Scope<'_, K>,
    ) -> QueryResult<Vec<Claimed<K>>> {
        let claimed = in_order(queue.claim_keys(connection, keys, limit, scope)?, keys);
        if claimed.len() < keys.len() {
            self.state.lock().keys.met_others = true;
        }
        if claimed.is_empty() {
            check_passed(queue, connection, &[()], keys)?;
            free_what_was_passed(connection)?;
        }
        Ok(claimed)
    }

    fn step(&self, limit: u32, scope: &Scope<'_, K>, has_read: bool) -> Step<K> {
        let mut state = self.state.lock();
        let deadline = Instant::now() + KEYS_PATIENCE;
        loop {
            if !state.has_more {
                return Step::Claim;
            }
            if scope.floor() < state.floor {
                // The row that this claim looks for may be due earlier than all of them.
                state.keys.waiting.clear();
            }
            // A group takes as many keys as it can: the last few are read again together with the next.
            if has_read || state.has(limit) {
                let keys = state.take(limit, scope.except);
                if !keys.is_empty() {
                    return Step::Lock(keys);
                }
            }
            if !state.keys.reading.is_running() {
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
        state.keys.reading.begin();
        Step::Read(state.appetite(limit))
    }

    /// Notes that the plain claim has found rows.
    fn warm<'k>(&self, keys: impl Iterator<Item = &'k RowKey<K>>) {
        let mut state = self.state.lock();
        state.has_more = true;
        keys.for_each(|key| state.keys.note_taken(key.text().clone()));
    }

    /// Forgets everything: nothing is due, no row is free, or rows that were taken already are to run next.
    pub(crate) fn forget(&self) {
        let mut state = self.state.lock();
        // A read by another worker that is still running is out of date too.
        state.keys.reading.end();
        state.keys.clear();
        state.has_more = false;
    }
}

impl<K: Clone> State<K> {
    /// Tells whether `number` keys are available that are not out of date.
    fn has(&self, number: u32) -> bool {
        self.keys.waiting.len() >= number as usize && self.keys.are_fresh()
    }

    /// Takes `number` keys, but none of those that are left alone.
    fn take(&mut self, number: u32, except: &[RowKey<K>]) -> Vec<RowKey<K>> {
        let mut taken = Vec::new();
        while taken.len() < number as usize
            && let Some(key) = self.keys.waiting.pop_front()
        {
            self.taken += 1;
            if !except.contains(&key) {
                self.keys.note_taken(key.text().clone());
                taken.push(key);
            }
        }
        taken
    }

    /// Returns how many keys to read for workers that take up to `limit` each.
    fn appetite(&self, limit: u32) -> u32 {
        let wanted =
            f64::from(self.taken) * KEYS_AHEAD.as_secs_f64() / self.keys.read.elapsed().as_secs_f64().max(1e-6);
        let wanted = if limit == 1 { wanted } else { wanted.max(f64::from(limit) * 2.0) };
        let [.., most] = KEYS_READ;
        let free = match self.keys.met_others {
            // The more keys there are, the less often the processes meet.
            true => most,
            false => KEYS_READ.into_iter().find(|size| f64::from(*size) >= wanted).unwrap_or(most),
        };
        free.saturating_add(self.passed).min(MOST_KEYS_READ)
    }

    /// Keeps the keys that were read from `floor` on, without those that are known to be taken.
    fn arrive(&mut self, keys: Vec<RowKey<K>>, floor: Option<Due>, shuffled: bool) {
        if !self.keys.reading.is_running() {
            return;
        }
        let read = keys.len();
        let free: VecDeque<_> = keys.into_iter().filter(|key| !self.keys.was_taken(key.text())).collect();
        self.passed = u32::try_from(read - free.len()).unwrap_or(u32::MAX);
        self.keys.put(free, shuffled);
        (self.floor, self.keys.read, self.taken) = (floor, Instant::now(), 0);
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::super::prefetch_rows::PREFETCHED_KEPT;
    use super::*;

    fn warm() -> PrefetchedKeys<u32> {
        let ahead = PrefetchedKeys::new();
        ahead.warm(keys([1]).iter());
        ahead
    }

    fn read(ahead: &PrefetchedKeys<u32>, keys: impl IntoIterator<Item = u32>) {
        let mut state = ahead.state.lock();
        state.keys.reading.begin();
        state.arrive(self::keys(keys), None, true);
        state.keys.reading.end();
        // However busy the machine is, they are fresh.
        state.keys.read = Instant::now() + PREFETCHED_KEPT * 100;
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
        ahead.state.lock().keys.reading.end();
        ahead.state.lock().keys.read = Instant::now() - PREFETCHED_KEPT * 2;
        assert!(matches!(ahead.step(1, &except(&[]), false), Step::Read(_)));
    }

    #[test]
    fn a_read_reaches_behind_the_rows_that_are_being_processed() {
        let ahead = warm();
        let reads_next = |read: Vec<RowKey<u32>>| {
            let mut state = ahead.state.lock();
            state.keys.reading.begin();
            state.arrive(read, None, true);
            state.keys.reading.end();
            state.keys.read = Instant::now() + PREFETCHED_KEPT * 100;
            state.taken = 1_000_000;
            state.appetite(50)
        };
        assert_eq!(reads_next(keys(2..=257)), 256);
        for _ in 0..5 {
            assert!(matches!(ahead.step(50, &except(&[]), false), Step::Lock(_)));
        }
        assert_eq!(reads_next(keys(2..=257)), 256 + 250);
        assert_eq!(reads_next(keys(2..=507)), 256 + 250);
        assert_eq!(reads_next(keys(252..=507)), 256, "those rows have ended");
    }

    #[test]
    fn keys_that_were_read_from_a_mark_on_are_not_for_a_claim_that_probes_below_it() {
        let ahead = warm();
        let floor = Some(Due::from(DateTime::UNIX_EPOCH));
        ahead.state.lock().keys.reading.begin();
        ahead.state.lock().keys.met_others = true;
        ahead.state.lock().arrive(keys(2..=20), floor, false);
        ahead.state.lock().keys.reading.end();
        // They are in their order, although the workers met another process.
        assert_eq!(ahead.state.lock().keys.waiting.front().map(|key| **key), Some(2));
        assert!(matches!(ahead.step(1, &Scope::ALL, false), Step::Read(_)));
    }

    #[test]
    fn keys_that_are_being_read_while_everything_is_forgotten_are_not_kept() {
        let ahead = warm();
        assert!(matches!(ahead.step(1, &except(&[]), false), Step::Read(_)));
        ahead.forget();
        ahead.state.lock().arrive(keys([2, 3]), None, true);
        assert!(ahead.state.lock().keys.waiting.is_empty());
    }
}
