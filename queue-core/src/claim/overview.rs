//! A look at the due rows, once a second, for queues with an order or with stages: whether few rows are due, and which stage has
//! the oldest one.
//!
//! The due time is the last column in the index of an order. A claim along it passes over every row that comes first by the
//! order and is not due yet: scheduled ones, and those that wait for a retry. There may be a million. If few rows are due, a
//! claim finds them by the index of due times, and sorts them. If many are, it mostly meets one of them soon along the index of
//! the order. If it does not, because the due rows come last, the keys of the first ones are sorted together, for the claims of a
//! quarter of a second.
//!
//! A poller that serves several stages, or leaves out those that are paused, passes over the due rows of the others. If there
//! are many, it claims in one stage after the other, along the index of stages; if its rows have an order, it reads the keys of the
//! next ones together too.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use diesel::result::QueryResult;

use crate::backend::{QueueConnection, SessionHolder};
use crate::entity::Key;
use crate::error::Error;
use crate::row::RowKey;
use crate::statement::{ErasedQueue, Scope};
use crate::sync::Mutex;

/// How many due rows are few. To sort so many takes a claim about as long as to pass over a thousand rows: a millisecond on
/// SQLite, a few on MariaDB.
const FEW: u32 = 1_000;

/// How many due rows are sorted if no due row is among the first so many as are [`FEW`], by the order. PostgreSQL is told that no
/// more are due than it sorts.
const MANY: u32 = 100_000;

/// How many keys are sorted together: at least as many as a process claims in the time for which they are used.
const SORTED: u32 = 512;

/// How long they are used. A row that becomes due, or is enqueued, meanwhile is claimed later than its place says.
const SORTED_FOR: Duration = Duration::from_millis(250);

/// How many of them others may hold.
const MOST_MISSED: usize = 64;

/// How many due rows of other stages a claim may pass over.
const PASSED: u32 = 100;

/// How long a look tells what is due.
const TELLS_FOR: Duration = Duration::from_secs(1);

/// What is due.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    /// Whether the due rows are sorted, of an entity whose rows have an order.
    pub(super) sorts: bool,
    /// Whether a claim passes over so many rows that the keys of the next ones are read for several claims at a time.
    pub(super) shares: bool,
    /// The stages in which rows are claimed, if not in all.
    pub(super) stages: Option<Vec<&'static str>>,
    /// Whether they are claimed in one stage after the other, that of the oldest row first.
    pub(super) apart: bool,
}

/// What the workers of this process have seen.
#[derive(Default)]
pub(super) struct Overview(Mutex<Option<(Seen, Instant)>>);

impl Overview {
    /// Returns what is due in these stages, and looks if nobody has for a while.
    pub(super) fn look<K: Key, C: QueueConnection>(
        &self,
        queue: &ErasedQueue<K, C>,
        holder: &mut SessionHolder<C>,
        stages: Option<&[&'static str]>,
    ) -> Result<Seen, Error> {
        let options = queue.sql.options;
        let is_ordered = options.order.is_some() && !options.exclusive;
        if !is_ordered && (options.exclusive || stages.is_none_or(|stages| stages.len() < 2)) {
            return Ok(Seen { stages: stages.map(<[_]>::to_vec), ..Seen::default() });
        }
        let now = Instant::now();
        match &mut *self.0.lock() {
            Some((seen, until)) if seen.is_of(stages) => {
                if now < *until {
                    return Ok(seen.clone());
                }
                // The others go on with what was seen.
                *until = now + TELLS_FOR;
            }
            _ => {}
        }
        let mut seen = Seen { stages: stages.map(<[_]>::to_vec), ..Seen::default() };
        let session = holder.session()?;
        match &mut seen.stages {
            _ if is_ordered => {
                let (sorts, are_last) = sorts(queue, session, stages)?;
                let mut passes = || stages.map_or(Ok(false), |stages| passes_many(queue, session, stages));
                let is_ageless = options.order.is_some_and(|order| order.age.is_none());
                (seen.sorts, seen.shares) = (sorts, is_ageless && (are_last || passes()?));
            }
            Some(stages) if passes_many(queue, session, stages)? => {
                let ages: QueryResult<Vec<_>> =
                    stages.iter().map(|stage| Ok((queue.oldest_due(session, Some(&[*stage]))?, *stage))).collect();
                let mut ages = ages?;
                ages.sort_by_key(|(age, _)| Reverse(*age));
                *stages = ages.into_iter().map(|(_, stage)| stage).collect();
                seen.apart = true;
            }
            _ => {}
        }
        *self.0.lock() = Some((seen.clone(), Instant::now() + TELLS_FOR));
        Ok(seen)
    }
}

/// Tells whether the due rows of these stages are sorted, and whether there are many that come last.
fn sorts<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    stages: Option<&[&'static str]>,
) -> QueryResult<(bool, bool)> {
    let are_few = queue.number_due(connection, stages, FEW + 1)? <= FEW;
    let are_last = !are_few
        && !queue.any_due_among_first(connection, FEW)?
        && queue.number_due(connection, stages, MANY + 1)? <= MANY;
    Ok((are_few || are_last, are_last))
}

/// The keys of the next due rows by the entity's order, which the workers of this process share.
pub(super) struct SortedKeys<K>(Mutex<Sorted<K>>);

struct Sorted<K> {
    keys: VecDeque<RowKey<K>>,
    /// Until when these are the next ones. Without any, claims find rows by themselves until then.
    until: Option<Instant>,
    missed: usize,
}

impl<K> Default for SortedKeys<K> {
    fn default() -> Self {
        SortedKeys(Mutex::new(Sorted { keys: VecDeque::new(), until: None, missed: 0 }))
    }
}

impl<K: Key> SortedKeys<K> {
    /// Takes the keys of the next rows, up to `limit`. `None`: a claim has to find the rows by itself.
    pub(super) fn take<C: QueueConnection>(
        &self,
        queue: &ErasedQueue<K, C>,
        holder: &mut SessionHolder<C>,
        scope: Scope<'_, K>,
        limit: u32,
    ) -> Result<Option<Vec<RowKey<K>>>, Error> {
        if self.0.lock().until.is_none_or(|until| until < Instant::now()) {
            let keys = queue.next_keys(holder.session()?, scope, SORTED)?.into();
            *self.0.lock() = Sorted { keys, until: Some(Instant::now() + SORTED_FOR), missed: 0 };
        }
        let Sorted { keys, until, .. } = &mut *self.0.lock();
        let taken: Vec<_> = keys.drain(..keys.len().min(limit as usize)).collect();
        if taken.is_empty() {
            return Ok(None);
        }
        if keys.is_empty() {
            *until = None;
        }
        Ok(Some(taken))
    }

    /// Notes that a claim has found none of these rows. If others hold many of the next rows, claims find rows by themselves for a
    /// while.
    pub(super) fn note_found_none(&self, keys: &[RowKey<K>]) {
        let sorted = &mut *self.0.lock();
        sorted.missed += keys.len();
        if sorted.missed >= MOST_MISSED {
            *sorted = Sorted { keys: VecDeque::new(), until: Some(Instant::now() + SORTED_FOR), missed: 0 };
        }
    }
}

/// Tells whether many rows are due in other stages than these.
fn passes_many<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    stages: &[&'static str],
) -> QueryResult<bool> {
    let known = queue.sql.options.stages.map_or(&[][..], |stages| stages.names);
    let mut passed = 0;
    for other in known.iter().filter(|stage| !stages.contains(stage)) {
        passed += queue.number_due(connection, Some(&[*other]), PASSED + 1)?;
        if passed > PASSED {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Seen {
    /// Tells whether it was seen in these stages. Pauses change them.
    fn is_of(&self, stages: Option<&[&'static str]>) -> bool {
        match (&self.stages, stages) {
            (None, None) => true,
            (Some(of), Some(stages)) => of.len() == stages.len() && stages.iter().all(|stage| of.contains(stage)),
            _ => false,
        }
    }
}
