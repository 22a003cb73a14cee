//! The rows of one entity that this process leaves alone for a while: those whose attempts were interrupted, and those
//! whose state cannot be written at all.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::entity::jittered;
use crate::row::RowKey;
use crate::sync::{Mutex, at_end};

/// How long a row waits after its first interruption. Every further one doubles it, up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(100);

const LONGEST: Duration = Duration::from_secs(60);

/// How many rows are remembered.
const REMEMBERED: usize = 10_000;

/// How many rows a claim passes over by their keys. Beyond that, the row that was set aside last waits with its worker.
const PASSED_OVER: usize = 50;

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
        passed_over.truncate(PASSED_OVER);
        passed_over
    }

    /// Tells whether any row waits for its next attempt.
    pub(crate) fn any(&self) -> bool {
        let now = Instant::now();
        self.rows.lock().values().any(|pause| pause.until > now)
    }

    fn extend(&self, key: &RowKey<K>, skip_for_a_while: bool, disk_is_full: bool) -> (Duration, u32) {
        let mut rows = self.rows.lock();
        if rows.len() >= REMEMBERED {
            rows.clear();
        }
        let new =
            || Backoff { key: key.clone(), times: 0, times_with_full_disk: 0, until: Instant::now(), skip_for_a_while };
        let pause = rows.entry(key.text().clone()).or_insert_with(new);
        let delay = FIRST.saturating_mul(1 << pause.times.min(16)).min(LONGEST);
        let delay = jittered(delay, 1.0, fastrand::f64());
        pause.times = pause.times.saturating_add(1);
        pause.times_with_full_disk = pause.times_with_full_disk.saturating_add(u32::from(disk_is_full));
        pause.skip_for_a_while = skip_for_a_while;
        // The database counts the pause from the time of the write, which is a little later.
        pause.until = Instant::now() + delay + Duration::from_secs(1);
        (delay, if disk_is_full { pause.times_with_full_disk } else { pause.times - pause.times_with_full_disk })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!((FIRST..=FIRST * 2).contains(&first) && times == 1);
        assert!(backoff.any());
        assert_eq!(backoff.passed_over(), []);
        backoff.skip_for_a_while(&two);
        assert_eq!(backoff.passed_over(), std::slice::from_ref(&two));
        backoff.end(&two);
        assert_eq!(backoff.passed_over(), []);
        assert!((0..40).all(|_| backoff.pause(&one, false).0 <= LONGEST * 2));
        assert_eq!(backoff.pause(&one, false).1, 42);
        // Interruptions by a full disk are counted separately.
        assert_eq!(
            (backoff.pause(&one, true).1, backoff.pause(&one, false).1, backoff.pause(&one, true).1),
            (1, 43, 2)
        );
    }
}
