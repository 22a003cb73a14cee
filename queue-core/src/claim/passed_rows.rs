//! The rows of one entity that this process leaves alone for a while: those whose attempts were interrupted, those whose
//! state cannot be written at all, and those that a trigger keeps as they are.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::entity::jittered;
use crate::row::{QueueState, RowKey};
use crate::sync::{Mutex, at_end};

/// How long a row waits after its first interruption. Every further one doubles it, up to [`LONGEST_BACKOFF`].
const FIRST_BACKOFF: Duration = Duration::from_millis(100);

const LONGEST_BACKOFF: Duration = Duration::from_secs(60);

/// How many rows are remembered.
const BACKOFFS_REMEMBERED: usize = 10_000;

/// How many rows a claim passes over by their keys. Beyond that, the row that was set aside last waits with its worker.
const MOST_PASSED_OVER: usize = 50;

/// The paused rows, by the text of their keys.
pub(crate) struct RowBackoff<K> {
    rows: Mutex<HashMap<Arc<str>, Backoff<K>>>,
    /// The rows whose attempts are being concluded: unlocked, and still due.
    concluded: Mutex<Vec<RowKey<K>>>,
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

impl<K: Clone> RowBackoff<K> {
    pub(crate) fn new() -> Self {
        RowBackoff { rows: Mutex::default(), concluded: Mutex::default() }
    }

    /// Returns how long a row waits after this interruption, which the caller writes on the row. Also returns how many
    /// interruptions of the same kind the row has had in sequence: by a full disk, or by something else.
    pub(crate) fn pause(&self, key: &RowKey<K>, disk_is_full: bool) -> (Duration, u32) {
        self.extend(key, false, disk_is_full)
    }

    /// Passes over a row that stays due because nothing can be written on it, so that its neighbours run.
    pub(crate) fn skip_for_a_while(&self, key: &RowKey<K>) {
        self.extend(key, true, false);
    }

    /// Passes over a row until the value is dropped. The worker writes the rest of its attempt in transactions of their
    /// own, and between them another worker would run the row's handler again.
    pub(crate) fn while_concluded(&self, key: &RowKey<K>) -> impl Drop {
        self.concluded.lock().push(key.clone());
        at_end(move || {
            let mut concluded = self.concluded.lock();
            if let Some(place) = concluded.iter().position(|other| other == key) {
                concluded.swap_remove(place);
            }
        })
    }

    /// Removes the keys of rows whose attempts are being concluded.
    pub(crate) fn without_concluded(&self, keys: Vec<RowKey<K>>) -> Vec<RowKey<K>> {
        let concluded = self.concluded.lock();
        if concluded.is_empty() {
            return keys;
        }
        keys.into_iter().filter(|key| !concluded.contains(key)).collect()
    }

    /// Forgets a row whose state was written.
    pub(crate) fn end(&self, key: &RowKey<K>) {
        let mut rows = self.rows.lock();
        if !rows.is_empty() {
            rows.remove(key.text());
        }
    }

    /// Returns the rows that a claim passes over now.
    pub(crate) fn passed_over(&self) -> Vec<RowKey<K>> {
        let mut passed_over = self.concluded.lock().clone();
        let rows = self.rows.lock();
        if !rows.is_empty() {
            let now = Instant::now();
            let skip_for_a_while = rows.values().filter(|pause| pause.skip_for_a_while && pause.until > now);
            passed_over.extend(skip_for_a_while.map(|pause| pause.key.clone()));
        }
        passed_over.truncate(MOST_PASSED_OVER);
        passed_over
    }

    /// Tells whether any row waits for its next attempt.
    pub(crate) fn any(&self) -> bool {
        let now = Instant::now();
        self.rows.lock().values().any(|pause| pause.until > now)
    }

    fn extend(&self, key: &RowKey<K>, skip_for_a_while: bool, disk_is_full: bool) -> (Duration, u32) {
        let mut rows = self.rows.lock();
        if rows.len() >= BACKOFFS_REMEMBERED {
            rows.clear();
        }
        let new =
            || Backoff { key: key.clone(), times: 0, times_with_full_disk: 0, until: Instant::now(), skip_for_a_while };
        let pause = rows.entry(key.text().clone()).or_insert_with(new);
        let delay = FIRST_BACKOFF.saturating_mul(1 << pause.times.min(16)).min(LONGEST_BACKOFF);
        let delay = jittered(delay, 1.0, fastrand::f64());
        pause.times = pause.times.saturating_add(1);
        pause.times_with_full_disk = pause.times_with_full_disk.saturating_add(u32::from(disk_is_full));
        pause.skip_for_a_while = skip_for_a_while;
        // The database counts the pause from the time of the write, which is a little later.
        pause.until = Instant::now() + delay + Duration::from_secs(1);
        (delay, if disk_is_full { pause.times_with_full_disk } else { pause.times - pause.times_with_full_disk })
    }
}

/// How many rows are remembered. Kept rows beyond that number run again and again.
const KEPT_ROWS_REMEMBERED: usize = 16_384;

/// The rows of one entity that this process wrote lately.
///
/// Rows that a trigger keeps as they are although the database reports that they were written: the trigger restores the
/// old values.
///
/// Nothing shows this when the worker writes the row's new state. The row is due again as it was claimed, and first in
/// line. So this process remembers each row that it wrote for a while, by the state in which it was claimed. A worker
/// that claims a row in the same state again suspects it. A state contains the times at which the row was due and
/// attempted, so a row that was enqueued anew is mostly in another state. But an application may write a fixed time,
/// and SQLite's times are milliseconds, within which a row may pass through several stages. So the worker first tries
/// to settle a suspected row, or checks its lease, before it leaves the row alone.
#[derive(Default)]
pub(crate) struct KeptRows {
    hasher: RandomState,
    written: Mutex<Written>,
}

#[derive(Default)]
struct Written {
    rows: HashMap<ClaimedAs, WrittenRow>,
    /// The oldest first.
    order: VecDeque<ClaimedAs>,
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

impl KeptRows {
    /// Returns the hash of the row with this key as it was claimed.
    pub(crate) fn claimed_as<K>(&self, key: &RowKey<K>, state: &QueueState) -> ClaimedAs {
        let QueueState { status, next_attempt_time, try_count, last_attempt_time, .. } = state;
        ClaimedAs(self.hasher.hash_one((key.text(), status, next_attempt_time, try_count, last_attempt_time)))
    }

    /// Notes that the new state of a row that was claimed in this one is committed: its attempt has ended, or it is
    /// under a lease. Returns how often the row has come back, because another worker may know more by now.
    pub(crate) fn record_written(&self, claimed: ClaimedAs) -> u32 {
        let mut written = self.written.lock();
        if let Some(row) = written.rows.get_mut(&claimed) {
            row.is_written = true;
            return row.times;
        }
        if written.order.len() >= KEPT_ROWS_REMEMBERED
            && let Some(oldest) = written.order.pop_front()
        {
            written.rows.remove(&oldest);
        }
        written.order.push_back(claimed);
        written.rows.insert(claimed, WrittenRow { is_written: true, times: 0 });
        0
    }

    /// Tells whether a claimed row has come back as it was.
    pub(crate) fn has_returned(&self, claimed: ClaimedAs) -> bool {
        self.written.lock().rows.get(&claimed).is_some_and(|row| row.is_written)
    }

    /// Returns, for a row that has come back, how often it had done so before. Its next attempt is made all the same,
    /// because the trigger may be gone by then.
    pub(crate) fn take_returned(&self, claimed: ClaimedAs) -> Option<u32> {
        let mut written = self.written.lock();
        let row = written.rows.get_mut(&claimed).filter(|row| row.is_written)?;
        row.is_written = false;
        row.times = row.times.saturating_add(1);
        Some(row.times - 1)
    }

    /// Notes that the row in this state has not come back: it has gone through other states.
    pub(crate) fn forget(&self, claimed: ClaimedAs) {
        let mut written = self.written.lock();
        if written.rows.remove(&claimed).is_some() {
            written.order.retain(|row| *row != claimed);
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use crate::row::Status;

    #[test]
    fn a_row_is_passed_over_while_its_attempt_is_concluded() {
        let backoff = RowBackoff::new();
        let (one, two) = (RowKey::new(1, "1"), RowKey::new(2, "2"));
        let concluded = backoff.while_concluded(&one);
        assert_eq!(backoff.passed_over(), std::slice::from_ref(&one));
        assert_eq!(backoff.without_concluded(vec![one.clone(), two.clone()]), [two]);
        assert!(!backoff.any());
        drop(concluded);
        assert_eq!(backoff.passed_over(), []);
    }

    #[test]
    fn only_a_row_that_was_set_aside_is_passed_over_until_its_state_is_written() {
        let backoff = RowBackoff::new();
        let (one, two) = (RowKey::new(1, "1"), RowKey::new(2, "2"));
        let (first, times) = backoff.pause(&one, false);
        assert!((FIRST_BACKOFF..=FIRST_BACKOFF * 2).contains(&first) && times == 1);
        assert!(backoff.any());
        assert_eq!(backoff.passed_over(), []);
        backoff.skip_for_a_while(&two);
        assert_eq!(backoff.passed_over(), std::slice::from_ref(&two));
        backoff.end(&two);
        assert_eq!(backoff.passed_over(), []);
        assert!((0..40).all(|_| backoff.pause(&one, false).0 <= LONGEST_BACKOFF * 2));
        assert_eq!(backoff.pause(&one, false).1, 42);
        // Interruptions by a full disk are counted separately.
        assert_eq!(
            (backoff.pause(&one, true).1, backoff.pause(&one, false).1, backoff.pause(&one, true).1),
            (1, 43, 2)
        );
    }

    fn due(second: i64) -> QueueState {
        QueueState { next_attempt_time: DateTime::from_timestamp(second, 0), ..STATE }
    }

    const STATE: QueueState = QueueState {
        status: Status::Error,
        next_attempt_time: None,
        try_count: 2,
        last_attempt_time: None,
        last_attempt_error_message: None,
    };

    #[test]
    fn a_row_has_returned_once_for_each_time_it_was_written() {
        let kept = KeptRows::default();
        let claimed = kept.claimed_as(&RowKey::new(1, "1"), &due(7));
        assert_eq!(kept.take_returned(claimed), None);
        for times in 0..3 {
            assert_eq!(kept.record_written(claimed), times);
            assert!(kept.has_returned(claimed));
            assert_eq!(kept.take_returned(claimed), Some(times));
            assert!(!kept.has_returned(claimed));
        }
    }

    #[test]
    fn a_row_that_has_gone_through_other_states_begins_anew() {
        let kept = KeptRows::default();
        let claimed = kept.claimed_as(&RowKey::new(1, "1"), &due(7));
        kept.record_written(claimed);
        assert_eq!(kept.take_returned(claimed), Some(0));
        kept.forget(claimed);
        assert_eq!((kept.record_written(claimed), kept.take_returned(claimed)), (0, Some(0)));
    }

    #[test]
    fn a_row_in_another_state_has_not_returned() {
        let (kept, one) = (KeptRows::default(), RowKey::new(1, "1"));
        kept.record_written(kept.claimed_as(&one, &due(7)));
        let is_another = |key, state| assert!(!kept.has_returned(kept.claimed_as(key, &state)), "{state:?}");
        is_another(&one, due(8));
        is_another(&one, QueueState { try_count: 3, ..due(7) });
        is_another(&one, QueueState { status: Status::NotAttempted, ..due(7) });
        is_another(&one, QueueState { last_attempt_time: DateTime::from_timestamp(7, 0), ..due(7) });
        is_another(&RowKey::new(2, "2"), due(7));
    }

    #[test]
    fn as_many_rows_are_remembered_as_there_is_room_for() {
        let kept = KeptRows::default();
        let claimed = |number: usize| kept.claimed_as(&RowKey::new(number, number.to_string()), &due(7));
        (0..=KEPT_ROWS_REMEMBERED).for_each(|number| assert_eq!(kept.record_written(claimed(number)), 0));
        assert!(!kept.has_returned(claimed(0)));
        assert!(kept.has_returned(claimed(1)));
        assert!(kept.has_returned(claimed(KEPT_ROWS_REMEMBERED)));
    }
}
