//! The rows of one entity that a trigger keeps as they are, although their new state was committed.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

use crate::row::{QueueState, RowKey};
use crate::sync::Mutex;

/// How many rows are remembered. Kept rows beyond that number run again and again.
const KEPT_ROWS_REMEMBERED: usize = 16_384;

/// The rows of one entity that this process wrote lately. It finds those that a trigger keeps as they are: the database reports
/// that they were written, and the trigger has restored their old values.
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
    rows: HashMap<ClaimedAs, WrittenRow, BuildHasherDefault<Hashed>>,
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

/// Takes a hash as it is.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a claimed row is one number")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

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
