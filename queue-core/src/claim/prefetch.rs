//! What prefetched keys and prefetched rows have in common, and the values that decide how many are read and how long they
//! count.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long prefetched keys and rows are kept. A row that becomes due, or is enqueued with an earlier time, waits behind
/// them for that long.
pub(super) const PREFETCHED_KEPT: Duration = Duration::from_millis(250);

/// How many keys are read: as many as the workers have lately used in [`KEYS_AHEAD`].
pub(super) const KEYS_READ: [u32; 3] = [16, 64, 256];

pub(super) const KEYS_AHEAD: Duration = Duration::from_millis(50);

/// How long a worker waits for the keys that another one is reading. It has a transaction open, and the other worker
/// may have lost its connection.
pub(super) const KEYS_PATIENCE: Duration = Duration::from_millis(20);

/// How many keys in a row may belong to others before the rest is dropped and read again, and then before the plain
/// claim looks for free rows.
pub(super) const KEY_MISSES: u32 = 2;

/// How many rows are read: as many as the workers take in [`ROWS_AHEAD`].
pub(super) const ROWS_READ: [u32; 2] = [16, 128];

pub(super) const ROWS_AHEAD: Duration = Duration::from_millis(25);

/// Rows are prefetched only if the workers take at least this many in that time.
pub(super) const ROWS_WORTH: f64 = 2.0;

/// The longest expected time of a read of the larger number: large rows are read in small numbers.
pub(super) const LONGEST_READING_OF_ROWS: Duration = Duration::from_millis(50);

/// How many of the rows that were read lately may belong to others: this many, because the workers of this process
/// claim some while they are read, and one for each [`ROW_HITS_PER_MISS`] that could be locked. If there are more, other
/// processes claim the same rows, and nothing is prefetched for a while: each miss costs a round trip.
pub(super) const ROW_MISSES: u32 = 32;

pub(super) const ROW_HITS_PER_MISS: u32 = 4;

pub(super) const ROWS_CROWDED: Duration = Duration::from_secs(1);

/// How long no rows are prefetched after an error. If a row cannot be read, the plain claim reports it later.
pub(super) const ROWS_REFUSED: Duration = Duration::from_secs(60);

/// How many keys are remembered as taken.
const TAKEN_REMEMBERED: usize = 10_000;

/// Keys or rows that were read ahead, and wait for a worker.
pub(super) struct Prefetched<T> {
    pub(super) waiting: VecDeque<T>,
    /// Whether a worker reads them at this moment.
    pub(super) is_read: bool,
    pub(super) read: Instant,
    /// The keys that were taken lately, and when: their rows are being processed, or held by others, and a read may have
    /// begun before that.
    taken: HashMap<Arc<str>, Instant>,
    /// Whether the workers have met another process since the last read.
    pub(super) met_others: bool,
}

impl<T> Prefetched<T> {
    pub(super) fn none() -> Self {
        Prefetched {
            waiting: VecDeque::new(),
            is_read: false,
            read: Instant::now(),
            taken: HashMap::new(),
            met_others: false,
        }
    }

    /// Tells whether they are not out of date.
    pub(super) fn are_fresh(&self) -> bool {
        self.read.elapsed() <= PREFETCHED_KEPT
    }

    /// Notes that a key is taken.
    pub(super) fn note_taken(&mut self, key: Arc<str>) {
        if self.taken.len() >= TAKEN_REMEMBERED {
            self.taken.clear();
        }
        self.taken.insert(key, Instant::now());
    }

    /// Tells whether a key was taken lately.
    pub(super) fn was_taken(&self, key: &Arc<str>) -> bool {
        self.taken.get(key).is_some_and(|since| since.elapsed() < PREFETCHED_KEPT)
    }

    /// Keeps what was read. If the claims use the low-water mark, it is not `shuffled`: the mark would follow the later rows,
    /// and leave the earlier ones below it.
    pub(super) fn put(&mut self, read: VecDeque<T>, shuffled: bool) {
        self.taken.retain(|_, since| since.elapsed() < PREFETCHED_KEPT);
        self.waiting = read;
        if std::mem::take(&mut self.met_others) && shuffled && !self.waiting.is_empty() {
            // Another process reads the same rows. From a random position on, the two meet now and then and not at
            // every row.
            let place = fastrand::usize(..self.waiting.len());
            self.waiting.rotate_left(place);
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.taken.clear();
    }
}
