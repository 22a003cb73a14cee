//! The calls that change or remove the rows that a filter picks, at once.

use std::thread;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use diesel::query_builder::QueryFragment;
use diesel::result::QueryResult;

use super::operation::{self, Operation};
use super::queue::Queue;
use super::selection::{Chosen, Selection};
use crate::backend::{AsQueueConnection, ErrorClass, QueueConnection, execute};
use crate::entity::{Entity, QueueTable, TableIn, jittered};
use crate::error::Error;
use crate::poller::wake;
use crate::statement::{Change, ChangeAll, Condition, RemoveAll, StateCondition};

impl<Q: Entity, F: Chosen> Queue<Q, F> {
    /// Makes rows due at once: those that are pending, and those that have `FAILED`, whose tries start anew. Finished
    /// and skipped rows are left alone, and so are rows that are not queued, and those that a worker holds under a lease.
    ///
    /// # Errors
    ///
    /// [`Error::Held`] and [`Error::Database`], as all changing calls; nothing is changed then.
    pub fn retry_now<C: AsQueueConnection>(&self, connection: &mut C) -> Result<usize, Error>
    where
        Self: ChangeOn<C::Connection>,
    {
        self.change(connection, &operation::retry_now())
    }

    /// Moves the next attempt of pending rows to a given time, later or earlier. Rows that a worker holds under a lease are
    /// left alone.
    ///
    /// # Errors
    ///
    /// As [`retry_now`](Queue::retry_now).
    pub fn postpone_until<C: AsQueueConnection>(&self, connection: &mut C, time: DateTime<Utc>) -> Result<usize, Error>
    where
        Self: ChangeOn<C::Connection>,
    {
        self.change(connection, &operation::postpone_until(time.into()))
    }

    /// Stops pending rows: they are not processed until [`resume`](Queue::resume). Their status and tries stay, except those of
    /// a finished row that the application's own SQL has made due: it becomes `NOT_ATTEMPTED`, as it is enqueued anew. A row that a
    /// worker holds under a lease is worked to the end of the attempt, and not retried; of an exclusive entity it is left alone.
    /// A row without a failure gets the text `stopped`, so that it can be told from one that was never enqueued.
    ///
    /// # Errors
    ///
    /// As [`retry_now`](Queue::retry_now).
    pub fn stop<C: AsQueueConnection>(&self, connection: &mut C) -> Result<usize, Error>
    where
        Self: ChangeOn<C::Connection>,
    {
        self.change(connection, &operation::stop(&Q::Queue::OPTIONS))
    }

    /// Makes stopped rows due. Rows that were never enqueued, and finished ones, are left alone. A row that was stopped while
    /// a worker held it under a lease may be worked still: it becomes due one lease later, and stays with its worker if that
    /// lives.
    ///
    /// # Errors
    ///
    /// As [`retry_now`](Queue::retry_now).
    pub fn resume<C: AsQueueConnection>(&self, connection: &mut C) -> Result<usize, Error>
    where
        Self: ChangeOn<C::Connection>,
    {
        self.change(connection, &operation::resume(Q::SETTINGS.lease, &Q::Queue::OPTIONS))
    }

    /// Enqueues finished rows again, those with `SUCCESS` and those that have `FAILED`: the status becomes
    /// `NOT_ATTEMPTED`, the tries start anew, and a row with stages begins with the first one. Skipped rows are left alone.
    ///
    /// It begins a new occasion, with another [idempotency key](crate::Message::idempotency_key), where the entity counts them:
    /// `#[queue(occasion)]`. Elsewhere the row keeps its key, because the five columns do not tell it from one that is retried.
    ///
    /// # Errors
    ///
    /// As [`retry_now`](Queue::retry_now).
    pub fn rerun<C: AsQueueConnection>(&self, connection: &mut C) -> Result<usize, Error>
    where
        Self: ChangeOn<C::Connection>,
    {
        self.change(connection, &operation::rerun(&Q::Queue::OPTIONS))
    }

    /// Says that rows are not to be processed: they become `SKIPPED`. A row that a worker holds under a lease is taken from
    /// it, and what its call answers is not written; of an exclusive entity it is left alone. Rows with `SUCCESS` are left
    /// alone, unless they are pending, as for the next run on their schedule; rows that were never enqueued are skipped too,
    /// which keeps them out of later bulk operations.
    ///
    /// # Errors
    ///
    /// As [`retry_now`](Queue::retry_now).
    pub fn skip<C: AsQueueConnection>(&self, connection: &mut C) -> Result<usize, Error>
    where
        Self: ChangeOn<C::Connection>,
    {
        self.change(connection, &operation::skip(&Q::Queue::OPTIONS))
    }

    /// Deletes the rows themselves, whatever their state. Only a row of an exclusive entity that a worker holds under a lease is
    /// left alone.
    ///
    /// # Errors
    ///
    /// As [`retry_now`](Queue::retry_now).
    pub fn delete<C: AsQueueConnection>(&self, connection: &mut C) -> Result<usize, Error>
    where
        Self: ChangeOn<C::Connection>,
    {
        let operation = operation::delete(&Q::Queue::OPTIONS);
        in_transaction(connection.as_queue_connection(), self.wait, |connection, _| {
            operation.0.iter().try_fold(0, |rows, (states, _)| Ok(rows + self.remove_rows(connection, states)?))
        })
    }

    /// Changes the rows in one transaction.
    pub(crate) fn change<C: AsQueueConnection>(
        &self,
        connection: &mut C,
        operation: &Operation<Change>,
    ) -> Result<usize, Error>
    where
        Self: ChangeOn<C::Connection>,
    {
        let connection = connection.as_queue_connection();
        let rows = in_transaction(connection, self.wait, |connection, alone| {
            let mut kinds = operation.0.iter();
            kinds.try_fold(0, |rows, (states, change)| Ok(rows + self.change_rows(connection, states, change, alone)?))
        })?;
        wake::announce::<Q::Queue>();
        Ok(rows)
    }
}

/// How often an operation is tried anew that lost against other transactions.
const TRIES: u32 = 5;

/// How long is waited before that; up to twice as long.
const PAUSE: Duration = Duration::from_millis(5);

/// Runs `change` in a transaction in which no statement waits longer than `wait` for a lock. One of its own is tried anew after
/// a conflict, as a deadlock with an attempt is, for as long as a lock may be waited for; what the caller has done in a
/// transaction nobody else can repeat.
pub(crate) fn in_transaction<C: QueueConnection, T>(
    connection: &mut C,
    wait: Duration,
    mut change: impl FnMut(&mut C, bool) -> QueryResult<T>,
) -> Result<T, Error> {
    let begun = Instant::now();
    for _ in 1..TRIES {
        let mut is_own = false;
        let changed = connection.with_lock_wait(wait.saturating_sub(begun.elapsed()), |connection, alone| {
            is_own = alone;
            change(connection, alone)
        });
        match changed {
            // Whoever has waited for a lock has done so for the whole time.
            Err(error) if is_own && C::classify(&error) == ErrorClass::Conflict && begun.elapsed() < wait => {
                thread::sleep(jittered(PAUSE, 1.0, fastrand::f64()));
            }
            changed => return held_on_conflict::<C, _>(changed),
        }
    }
    held_on_conflict::<C, _>(connection.with_lock_wait(wait.saturating_sub(begun.elapsed()), change))
}

pub(crate) fn held_on_conflict<C: QueueConnection, T>(result: QueryResult<T>) -> Result<T, Error> {
    result.map_err(|error| match C::classify(&error) {
        ErrorClass::Conflict => Error::Held(error),
        _ => Error::Database(error),
    })
}

/// The changing operations of a selection on one kind of connection. It is implemented wherever Diesel can run them.
pub trait ChangeOn<C> {
    #[doc(hidden)]
    fn change_rows(
        &self,
        connection: &mut C,
        states: &[StateCondition],
        change: &Change,
        alone: bool,
    ) -> QueryResult<usize>;
    #[doc(hidden)]
    fn remove_rows(&self, connection: &mut C, states: &[StateCondition]) -> QueryResult<usize>;
}

impl<Q, F, C> ChangeOn<C> for Queue<Q, F>
where
    Q: Entity<Queue: TableIn<C::Backend>>,
    F: Selection<Filter: QueryFragment<C::Backend>>,
    C: QueueConnection,
{
    fn change_rows(
        &self,
        connection: &mut C,
        states: &[StateCondition],
        change: &Change,
        alone: bool,
    ) -> QueryResult<usize> {
        let states = self.states_and(states);
        let condition = Condition::new(self.selection.filter(), &states);
        execute(connection, &ChangeAll::<Q::Queue, _>::new(condition, change, alone))
    }

    fn remove_rows(&self, connection: &mut C, states: &[StateCondition]) -> QueryResult<usize> {
        let states = self.states_and(states);
        let condition = Condition::new(self.selection.filter(), &states);
        execute(connection, &RemoveAll::<Q::Queue, _>(condition))
    }
}
