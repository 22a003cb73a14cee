//! Prefetched rows: a worker that processes a message reads, without a lock, the rows that have been due longest, and
//! the SQL text that settles a message locks the next of them. So a message costs its handler's round trips, one more,
//! and a share of a read.
//!
//! A prefetched row counts only if the lock finds it as it was read: the same version of it, still due and free. A row
//! that was changed meanwhile costs a round trip and nothing else. These rows never decide whether anything is due. A
//! runner without work, and one whose rows are held by others, makes the plain claim, and now and then so does a worker
//! that could not lock its row. If messages come so slowly that a round trip does not matter, nothing is prefetched:
//! the same rows would be read again and again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use diesel::result::{Error as DieselError, QueryResult};

use crate::backend::QueueConnection;
use crate::entity::Key;
use crate::handler::PanicSafeDrop;
use crate::row::{Instant as Due, RowKey, literal};
use crate::statement::{Claimed, ErasedQueue, RowVersion, Scope};
use crate::sync::{Mutex, OneAtATime, ThreadMark, at_end};

/// How long prefetched keys and rows are kept. A row that becomes due, or is enqueued with an earlier time, waits behind
/// them for that long.
pub(super) const PREFETCHED_KEPT: Duration = Duration::from_millis(250);

/// How many rows are read: as many as the workers take in [`ROWS_AHEAD`].
const ROWS_READ: [u32; 2] = [16, 128];

const ROWS_AHEAD: Duration = Duration::from_millis(25);

/// Rows are prefetched only if the workers take at least this many in that time.
const ROWS_WORTH: f64 = 2.0;

/// The longest expected time of a read of the larger number: large rows are read in small numbers.
const LONGEST_READING_OF_ROWS: Duration = Duration::from_millis(50);

/// How many of the rows that were read lately may belong to others: this many, because the workers of this process
/// claim some while they are read, and one for each [`ROW_HITS_PER_MISS`] that could be locked. If there are more, other
/// processes claim the same rows, and nothing is prefetched for a while: each miss costs a round trip.
const ROW_MISSES: u32 = 32;

const ROW_HITS_PER_MISS: u32 = 4;

const ROWS_CROWDED: Duration = Duration::from_secs(1);

/// How long no rows are prefetched after an error. If a row cannot be read, the plain claim reports it later.
const ROWS_REFUSED: Duration = Duration::from_secs(60);

/// How many keys are remembered as taken.
const TAKEN_REMEMBERED: usize = 10_000;

/// The rows that a runner has prefetched.
pub(crate) struct PrefetchedRows<K> {
    state: Mutex<State<K>>,
}

struct State<K> {
    rows: Prefetched<ReadRow<K>>,
    appetite: Appetite,
    /// The number of rows left at which they are read again: as many as the workers take meanwhile.
    few: usize,
    /// Counts the events that make a read that is still running useless.
    age: u64,
    contention: Contention,
    /// Until when nothing is prefetched.
    refused: Option<Instant>,
    /// The rows that are being processed, by the threads that process them.
    at_work: HashMap<ThreadId, (Arc<str>, ThreadMark)>,
}

/// What is known of other processes at the same rows.
#[derive(Default)]
struct Contention {
    /// How many rows could be locked, of those that were read lately.
    hits: u32,
    misses: u32,
    /// When a worker last claimed because it could not lock its row.
    gave_way: Option<Instant>,
}

/// A read: how many rows, when it began, and its age.
struct Read {
    number: u32,
    age: u64,
    begun: Instant,
}

/// Decides how many rows are worth reading.
#[derive(Default)]
struct Appetite {
    /// Whether they are read however slowly messages come: for tests.
    at_once: bool,
    last_taken: Option<Instant>,
    /// The time between two messages that are taken, smoothed.
    pace: Option<Duration>,
    /// How long a read takes for each of its rows when nothing slows it down.
    took: Option<Duration>,
}

/// A prefetched row.
pub(crate) struct ReadRow<K> {
    pub(crate) row: PanicSafeDrop<Claimed<K>>,
    key: Arc<str>,
    /// The text that locks it: its key and the version that was read, as literals.
    lock: String,
}

impl<K: Key> PrefetchedRows<K> {
    /// No rows yet. `at_once`: they are read ahead from the first message on, however slowly messages come.
    pub(crate) fn new(at_once: bool) -> Self {
        let state = State {
            rows: Prefetched::none(),
            appetite: Appetite { at_once, ..Appetite::default() },
            few: 0,
            age: 0,
            contention: Contention::default(),
            refused: None,
            at_work: HashMap::new(),
        };
        PrefetchedRows { state: Mutex::new(state) }
    }

    /// Notes that a worker is about to process a row that the plain claim has found.
    pub(crate) fn note_begin(&self, key: &RowKey<K>) {
        let mut state = self.state.lock();
        // It may be a prefetched row.
        state.rows.waiting.retain(|row| row.key != *key.text());
        state.note_work(key.text().clone());
    }

    /// Notes that a worker is about to process a row that it has taken.
    pub(crate) fn note_begin_taken(&self, row: &ReadRow<K>) {
        self.state.lock().note_work(row.key.clone());
    }

    /// Notes that the worker has ended its turn, whatever the result for its row.
    pub(crate) fn note_end(&self) {
        self.state.lock().end_work();
    }

    /// Reads more rows, if few are left and the workers are quick enough. Workers that need a row meanwhile claim it.
    pub(crate) fn replenish<C: QueueConnection>(
        &self,
        queue: &ErasedQueue<K, C>,
        connection: &mut C,
        scope: Scope<'_, K>,
    ) -> QueryResult<()> {
        let Some((number, age)) = self.state.lock().wanted() else { return Ok(()) };
        let _reading = at_end(|| self.state.lock().rows.reading.end());
        let begun = Instant::now();
        match queue.prefetch_rows(connection, number, scope.floor()) {
            Ok(rows) => {
                let safe = rows.into_iter().map(|(row, version)| (PanicSafeDrop::new(row), version)).collect();
                self.state.lock().arrive(safe, Read { number, age, begun }, !scope.keeps_to_mark());
                Ok(())
            }
            Err(error) => {
                self.state.lock().refused = begun.checked_add(ROWS_REFUSED);
                // Only the database's own errors end the transaction.
                if matches!(error, DieselError::DeserializationError(_)) { Ok(()) } else { Err(error) }
            }
        }
    }

    /// Takes the next row, but none of those that are left alone.
    pub(crate) fn take(&self, except: &[RowKey<K>]) -> Option<ReadRow<K>> {
        let mut state = self.state.lock();
        if !state.rows.are_fresh() {
            state.rows.waiting.clear();
        }
        loop {
            let row = state.rows.waiting.pop_front()?;
            if !except.iter().any(|key| *key.text() == row.key) {
                state.rows.note_taken(row.key.clone());
                return Some(row);
            }
        }
    }

    /// Notes whether a row that was taken could be locked.
    pub(crate) fn note_answer(&self, is_locked: bool) {
        let mut state = self.state.lock();
        if is_locked {
            state.contention.hits += 1;
            return;
        }
        state.contention.misses += 1;
        state.rows.met_others = true;
        if state.contention.misses >= ROW_MISSES && state.contention.misses * ROW_HITS_PER_MISS > state.contention.hits
        {
            state.rows.waiting.clear();
            (state.contention.hits, state.contention.misses) = (0, 0);
            state.refused = Instant::now().checked_add(ROWS_CROWDED);
        }
    }

    /// Lets a worker that could not lock its row claim, if it returns `true`: the row may be one that changes all the
    /// time, and the claim finds it when it is free. Not every time, because the claim takes the rows that the other
    /// workers have prefetched.
    pub(crate) fn try_give_way(&self) -> bool {
        let mut state = self.state.lock();
        let gives_way = state.contention.gave_way.is_none_or(|last| last.elapsed() >= PREFETCHED_KEPT);
        if gives_way {
            state.contention.gave_way = Some(Instant::now());
        }
        gives_way
    }

    /// Forgets the rows: nothing is due, or the rows that are to run next may not be among them.
    pub(crate) fn forget(&self) {
        let mut state = self.state.lock();
        state.age += 1;
        state.rows.waiting.clear();
    }
}

impl<K: Key> State<K> {
    /// Returns how many rows to read now, if any, and the age of the read.
    fn wanted(&mut self) -> Option<(u32, u64)> {
        let is_enough = self.rows.waiting.len() > self.few && self.rows.are_fresh();
        if self.rows.reading.is_running() || is_enough || self.refused.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        let number = self.appetite.number(self.at_work.len(), self.rows.met_others)?;
        self.rows.reading.begin();
        self.few = number as usize / 4;
        Some((number, self.age))
    }

    /// Keeps the rows that were read, without those that are known to be taken.
    fn arrive(&mut self, rows: Vec<(PanicSafeDrop<Claimed<K>>, RowVersion)>, read: Read, shuffled: bool) {
        let now = Instant::now();
        self.appetite.note_read(rows.len(), now.saturating_duration_since(read.begun));
        (self.rows.read, self.contention.hits, self.contention.misses) =
            (read.begun, self.contention.hits / 2, self.contention.misses / 2);
        if read.age != self.age {
            return;
        }
        self.at_work.retain(|_, (_, thread)| !thread.is_given_up());
        let mut free = VecDeque::new();
        for (row, version) in rows {
            let key = row.key.text().clone();
            if self.rows.was_taken(&key) || self.at_work.values().any(|(other, _)| *other == key) {
                continue;
            }
            // It ends before a row that no SQL text can lock: the plain claim takes that one, when no other row is left.
            let Some(literal) = literal(&row.key) else { break };
            let lock = format!("{literal}, {}", version.literals());
            free.push_back(ReadRow { row, key, lock });
        }
        if free.len() * 4 < read.number as usize && !self.appetite.at_once {
            // The workers are as quick as the application enqueues: the next read would bring as few.
            self.refused = now.checked_add(ROWS_AHEAD);
        }
        self.rows.put(free, shuffled);
    }

    /// Notes that the calling worker processes the row with this key.
    fn note_work(&mut self, key: Arc<str>) {
        self.end_work();
        self.at_work.insert(thread::current().id(), (key, ThreadMark::current()));
        self.appetite.note_taken(Instant::now());
    }

    /// Notes that the calling worker no longer processes its row.
    fn end_work(&mut self) {
        if let Some((key, _)) = self.at_work.remove(&thread::current().id()) {
            self.rows.note_taken(key);
        }
    }
}

impl Appetite {
    /// Returns how many rows to read, if any, when `at_work` rows are being processed. More if the workers have `met`
    /// another process: the more rows there are, the less often the two meet.
    fn number(&self, at_work: usize, met: bool) -> Option<u32> {
        let wanted = self.pace.map_or(0.0, |pace| ROWS_AHEAD.as_secs_f64() / pace.as_secs_f64().max(1e-6));
        if wanted < ROWS_WORTH && !self.at_once {
            return None;
        }
        let [small, large] = ROWS_READ;
        let is_quick = self.took.is_some_and(|took| took * large <= LONGEST_READING_OF_ROWS);
        // The rows that are being processed are read too.
        let is_large = wanted > f64::from(small) || at_work > small as usize / 2 || met;
        Some(if is_large && is_quick { large } else { small })
    }

    /// Notes that a message is taken. The pace follows quick messages at once, and slow ones soon.
    fn note_taken(&mut self, now: Instant) {
        if let Some(last) = self.last_taken.replace(now) {
            let gap = now.saturating_duration_since(last);
            self.pace = Some(self.pace.map_or(gap, |pace| (pace.min(gap * 4) + gap) / 2));
        }
    }

    /// Notes that a read of `rows` rows took this long. A read may be slow because the machine is busy, but it is never
    /// quick by chance.
    fn note_read(&mut self, rows: usize, took: Duration) {
        let took = took / u32::try_from(rows).unwrap_or(u32::MAX).max(1);
        self.took = Some(self.took.map_or(took, |usual| took.min(usual + usual / 8)));
    }
}

impl<K> ReadRow<K> {
    /// Returns the arguments of the text that locks it.
    pub(crate) fn lock(&self) -> &str {
        &self.lock
    }

    /// Returns when it is due, if that can be read.
    pub(crate) fn due(&self) -> Option<Due> {
        self.row.message.as_ref().ok().and_then(|(_, state)| state.next_attempt_time).map(Due::from)
    }
}

/// Keys or rows that were read ahead, and wait for a worker.
pub(super) struct Prefetched<T> {
    pub(super) waiting: VecDeque<T>,
    /// Whether a worker reads them at this moment.
    pub(super) reading: OneAtATime,
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
            reading: OneAtATime::default(),
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

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn at_pace(pauses: &[Duration]) -> Appetite {
        let mut appetite = Appetite::default();
        let mut now = Instant::now();
        appetite.note_taken(now);
        for pause in pauses {
            now += *pause;
            appetite.note_taken(now);
        }
        appetite
    }

    #[test]
    fn only_where_messages_come_quickly_rows_are_read_ahead() {
        assert_eq!(Appetite::default().number(0, false), None);
        assert_eq!(at_pace(&[]).number(0, false), None);
        assert_eq!(at_pace(&[MILLISECOND * 20; 10]).number(16, true), None);
        assert_eq!(at_pace(&[MILLISECOND * 10]).number(0, false), Some(16));
        assert_eq!(Appetite { at_once: true, ..Appetite::default() }.number(0, false), Some(16));
        // The second message ends the memory of a long idle time, and one slow message does not end a quick backlog.
        assert_eq!(at_pace(&[MILLISECOND * 100_000, MILLISECOND]).number(0, false), Some(16));
        assert_eq!(at_pace(&[MILLISECOND, MILLISECOND, MILLISECOND * 20]).number(0, false), Some(16));
    }

    #[test]
    fn many_rows_are_read_for_quick_workers_and_for_many_but_few_if_they_are_large() {
        let mut quick = at_pace(&[MILLISECOND; 10]);
        assert_eq!(quick.number(16, true), Some(16), "nobody knows yet how large they are");
        quick.note_read(16, MILLISECOND * 160);
        assert_eq!(quick.number(16, true), Some(16));
        quick.note_read(16, MILLISECOND);
        assert_eq!(quick.number(0, false), Some(128));
        let mut slower = at_pace(&[MILLISECOND * 5; 10]);
        slower.note_read(16, MILLISECOND);
        assert_eq!(
            (slower.number(0, false), slower.number(9, false), slower.number(0, true)),
            (Some(16), Some(128), Some(128))
        );
        // The machine was busy.
        quick.note_read(16, MILLISECOND * 160);
        assert_eq!(quick.number(0, false), Some(128));
    }
}
