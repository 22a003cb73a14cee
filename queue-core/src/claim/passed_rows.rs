//! The rows of one entity that this process leaves alone for a while: those whose attempts were interrupted, and those on which
//! the database refuses to write.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::result::QueryResult;

use super::refused_state::{Lookout, Refusal, RefusedState, Step, Turns, pause_after};
use crate::backend::{QueueConnection, SessionHolder};
use crate::entity::{Key, jittered};
use crate::error::Error;
use crate::row::{Instant as Due, Lane, RowKey};
use crate::statement::{ClaimedRow, ErasedQueue, Scope};
use crate::sync::{Mutex, ThreadMark, at_end};

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
    concluded: Mutex<Vec<(RowKey<K>, ThreadMark)>>,
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

    /// Passes over a row that others change while it is attempted, from the second time on. Otherwise it would keep the
    /// other rows from their turn.
    pub(crate) fn note_overtaken(&self, key: &RowKey<K>) {
        let is_known = self.rows.lock().contains_key(key.text());
        match is_known {
            true => self.skip_for_a_while(key),
            false => drop(entry(&mut self.rows.lock(), key)),
        }
    }

    /// Passes over a row until the value is dropped. The worker writes the rest of its attempt in transactions of their
    /// own, and between them another worker would run the row's handler again.
    pub(crate) fn while_concluded(&self, key: &RowKey<K>) -> impl Drop {
        let entry = (key.clone(), ThreadMark::current());
        self.concluded.lock().push(entry.clone());
        at_end(move || {
            let mut concluded = self.concluded.lock();
            if let Some(place) = concluded.iter().position(|other| *other == entry) {
                concluded.swap_remove(place);
            }
        })
    }

    /// Removes the keys of rows whose attempts are being concluded.
    pub(crate) fn without_concluded(&self, keys: Vec<RowKey<K>>) -> Vec<RowKey<K>> {
        let concluded = self.being_concluded();
        if concluded.is_empty() {
            return keys;
        }
        keys.into_iter().filter(|key| !concluded.contains(key)).collect()
    }

    /// Returns the rows whose attempts are being concluded, by threads that are still at work.
    fn being_concluded(&self) -> Vec<RowKey<K>> {
        let mut concluded = self.concluded.lock();
        concluded.retain(|(_, thread)| !thread.is_given_up());
        concluded.iter().map(|(key, _)| key.clone()).collect()
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
        let mut passed_over = self.being_concluded();
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
        let pause = entry(&mut rows, key);
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
}

/// Returns the pause of a row, which is over if it is a new one.
fn entry<'a, K: Clone>(rows: &'a mut HashMap<Arc<str>, Backoff<K>>, key: &RowKey<K>) -> &'a mut Backoff<K> {
    if rows.len() >= BACKOFFS_REMEMBERED {
        rows.clear();
    }
    rows.entry(key.text().clone()).or_insert_with(|| Backoff {
        key: key.clone(),
        times: 0,
        times_with_full_disk: 0,
        until: Instant::now(),
        skip_for_a_while: false,
    })
}

/// The rows of one entity on which the database refuses to write, because of a constraint that old rows violate, or a
/// trigger.
///
/// Nothing can be written on such a row, so it stays due and first in line, whatever happens. This process remembers it
/// and tries it again after pauses that grow to an hour. Its neighbours must not pay for that, however many such rows
/// there are: a claim that named them all would take longer the more they are. So claims begin behind them, at a floor.
/// A survey finds the rows below the floor: it reads the keys of the rows that have been due longest. The more refused
/// rows there are, the longer a survey takes, and the less often it is made.
///
/// A row that no worker has tried yet may be refused as well, and next to many refused rows it probably is. So a claim
/// that meets another refused row behind the floor leaps ahead, twice as far each time. The rows in between are tried
/// after the others: while there is other work, they take a small part of the time.
pub(crate) struct RefusedRows<K: Key, C: QueueConnection> {
    queue: &'static ErasedQueue<K, C>,
    state: Mutex<RefusedState<K>>,
}

impl<K: Key, C: QueueConnection> RefusedRows<K, C> {
    pub(crate) fn new(queue: &'static ErasedQueue<K, C>) -> Self {
        let turns = match queue.sql.options.order {
            _ if queue.sql.options.exclusive => Turns::OneByOne,
            Some(_) => Turns::InOrder,
            None => Turns::ByDueTime,
        };
        RefusedRows { queue, state: Mutex::new(RefusedState::new(turns, Instant::now())) }
    }

    /// Tells whether the database has refused to write on any row.
    pub(crate) fn are_any(&self) -> bool {
        self.number() > 0
    }

    /// Returns on how many rows the database has refused to write.
    pub(super) fn number(&self) -> usize {
        self.state.lock().rows.len()
    }

    /// Notes that the database has refused to write on this row, which was due at that time, and has done so at least
    /// `times` times before. `lane`: the name of its lane, if rows of a lane keep their order.
    pub(crate) fn refuse(&self, key: &RowKey<K>, due: Option<Due>, lane: Option<Arc<str>>, times: u32) -> Refusal {
        self.state.lock().refuse(key, (due, lane), times, Instant::now())
    }

    /// Returns the refused rows of a lane, which those behind them pass. `None`: there are more than `most`.
    pub(super) fn in_lane(&self, lane: &Lane, most: usize) -> Option<Vec<RowKey<K>>> {
        let state = self.state.lock();
        let refused = if state.rows.is_empty() { Vec::new() } else { state.in_lane(&lane.identity(), most + 1) };
        (refused.len() <= most).then_some(refused)
    }

    /// Returns how long a row waits that can record its own pause, after as many refusals of something else.
    pub(crate) fn pause_of(&self, key: &RowKey<K>) -> Duration {
        pause_after(self.state.lock().rows.get(key.text()).map_or(0, |row| row.times))
    }

    /// Returns a number of rows of which one is not refused, if there are so many.
    pub(super) fn more_than_all(&self) -> u32 {
        // Each number of rows is a statement of its own.
        u32::try_from((self.state.lock().rows.len() + 1).next_power_of_two()).unwrap_or(u32::MAX)
    }

    /// Tells whether this row is refused.
    pub(crate) fn contain(&self, key: &RowKey<K>) -> bool {
        self.state.lock().rows.contains_key(key.text())
    }

    /// Forgets rows that were written, or are no longer due.
    pub(crate) fn end<'k>(&self, keys: impl IntoIterator<Item = &'k RowKey<K>>) {
        let mut state = self.state.lock();
        // Every message that is settled asks this, and mostly no row is refused.
        if !state.rows.is_empty() {
            keys.into_iter().for_each(|key| state.end(key.text()));
        }
    }

    /// Decides which rows the next claim is for, of up to `limit` rows.
    pub(crate) fn look_out(
        &self,
        holder: &mut SessionHolder<C>,
        stages: Option<&[&'static str]>,
        limit: u32,
    ) -> Result<Lookout<K>, Error> {
        if !self.are_any() {
            return Ok(Lookout::From { floor: None, except: Vec::new(), is_new: false });
        }
        loop {
            let step = self.state.lock().next_step(limit, Instant::now());
            match step {
                Step::Survey(number) => {
                    let _surveying = at_end(|| self.state.lock().survey.running.end());
                    self.survey(holder.session()?, stages, number)?;
                }
                Step::Claim(lookout) => return Ok(lookout),
            }
        }
    }

    /// Makes the rows that a survey has found wait no longer, because there is nothing else to claim. Returns whether
    /// there are any.
    pub(crate) fn release_found(&self) -> bool {
        self.are_any() && self.state.lock().release_found(Instant::now())
    }

    /// Reads the keys of the rows that have been due longest, outside any transaction.
    fn survey(&self, connection: &mut C, stages: Option<&[&'static str]>, number: u32) -> QueryResult<()> {
        let begun = Instant::now();
        let present = self.queue.present(connection)?;
        let options = self.queue.sql.options;
        let keys = if options.due_time_alone_decides() && options.stages.is_none() {
            self.queue.due_keys(connection, number, None)?
        } else {
            let scope = Scope::<K> { stages, ..Scope::ALL };
            let claim = self.queue.claim_of(scope, number).locked(false);
            let rows: Vec<ClaimedRow<K>> = (self.queue.load_claimed)(connection, &claim)?;
            rows.into_iter().map(|row| self.queue.claimed_key(row)).collect()
        };
        self.state.lock().arrive(keys, number, present, begun);
        Ok(())
    }

    /// Probes how long it is until a row is due that is not refused, or until a refused one is to be tried again. A
    /// `thorough` probe looks for any due row; a refused one does not count. Only for a queue with refused rows.
    pub(crate) fn probe_due(
        &self,
        connection: &mut C,
        stages: Option<&[&'static str]>,
        thorough: bool,
    ) -> QueryResult<Option<Duration>> {
        if self.queue.sql.options.exclusive {
            let head = self.queue.head(connection, stages)?;
            let waits = head.and_then(|head| self.state.lock().waits(head.text(), Instant::now()));
            return match waits {
                Some(_) if thorough => Ok(None),
                Some(waits) => Ok(Some(waits)),
                None => self.queue.probe_due(connection, stages, None),
            };
        }
        let survey = self.state.lock().begin_survey(thorough, Instant::now());
        if let Some(number) = survey {
            let _surveying = at_end(|| self.state.lock().survey.running.end());
            self.survey(connection, stages, number)?;
        }
        let (until_known, from) = {
            let state = self.state.lock();
            if !state.found.waiting.is_empty() {
                return Ok(Some(Duration::ZERO));
            }
            if thorough {
                return Ok(if survey.is_some() && state.survey.is_all_refused { None } else { Some(Duration::ZERO) });
            }
            (state.until_known(Instant::now()), (!state.start.only_found).then_some(state.start.floor))
        };
        let due_in = match from {
            None => None,
            Some(floor) => self.queue.probe_due(connection, stages, floor)?,
        };
        Ok(Some(due_in.map_or(until_known, |due_in| due_in.min(until_known))))
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
    fn a_row_whose_thread_was_given_up_is_not_passed_over() {
        let (mut mark, backoff, one) = (ThreadMark::default(), RowBackoff::new(), RowKey::new(1, "1"));
        mark.enter();
        let concluded = backoff.while_concluded(&one);
        mark.give_up();
        assert_eq!(backoff.passed_over(), []);
        mark.enter();
        let again = backoff.while_concluded(&one);
        drop(concluded);
        assert_eq!(backoff.passed_over(), std::slice::from_ref(&one));
        drop(again);
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
}
