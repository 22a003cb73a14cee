//! The rows of one entity on which the database refuses to write, because of a constraint that old rows violate, or a
//! trigger.
//!
//! Nothing can be written on such a row, so it stays due and first in line, whatever happens. This process remembers it
//! and tries it again after pauses that grow to an hour. Its neighbours must not pay for that, however many such rows
//! there are: a claim that named them all would take longer the more they are. So claims begin behind them, at a floor.
//! A survey finds the rows below the floor: it reads the keys of the rows that have been due longest. The more refused
//! rows there are, the longer a survey takes, and the less often it is made.
//!
//! A row that no worker has tried yet may be refused as well, and next to many refused rows it probably is. So a claim
//! that meets another refused row behind the floor leaps ahead, twice as far each time. The rows in between are tried
//! after the others: while there is other work, they take a small part of the time.

use std::time::{Duration, Instant};

use diesel::result::QueryResult;

use super::refused_state::{Lookout, Refusal, RefusedState, Step, Turns, pause_after};
use crate::backend::{QueueConnection, SessionHolder};
use crate::entity::Key;
use crate::error::Error;
use crate::row::{Instant as Due, RowKey};
use crate::statement::{ClaimedRow, ErasedQueue, Scope};
use crate::sync::{Mutex, at_end};

/// The refused rows of one entity in one process.
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
        !self.state.lock().rows.is_empty()
    }

    /// Notes that the database has refused to write on this row, which was due at that time, and has done so at least
    /// `times` times before.
    pub(crate) fn refuse(&self, key: &RowKey<K>, due: Option<Due>, times: u32) -> Refusal {
        self.state.lock().refuse(key, due, times, Instant::now())
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
        keys.into_iter().for_each(|key| state.end(key.text()));
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
                    let _surveying = at_end(|| self.state.lock().survey.is_running = false);
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
            let _surveying = at_end(|| self.state.lock().survey.is_running = false);
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
