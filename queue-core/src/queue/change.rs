//! The calls that change or remove all rows of a selection at once, and what the audit says of a call.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use diesel::result::QueryResult;

use super::operation::{self, Operation};
use super::queue::{QueueRows, Selection};
use super::read::{BackendOf, ChangesRows, ReadsRows};
use crate::audit::Record;
use crate::backend::{ErrorClass, QueueConnection, execute};
use crate::control::name_of;
use crate::entity::{Entity, HasPriority, QueueTable, jittered};
use crate::error::Error;
use crate::poller::wake;
use crate::row::Status;
use crate::statement::{Change, Condition, StateCondition, change_all, filter_text, remove_all, set_priority};

impl<Q: Entity, F: Selection> QueueRows<Q, F> {
    /// Makes rows due at once: pending rows, and `FAILED` ones, whose tries start anew. It leaves alone finished and
    /// skipped rows, rows that are not queued, and rows that a worker holds under a lease.
    ///
    /// # Errors
    ///
    /// [`Error::Held`] and [`Error::Database`], as all changing calls. Nothing is changed then.
    pub fn retry_now<C: ChangesRows<Q, F>>(&self, connection: &mut C) -> Result<usize, Error> {
        self.change(connection, "retry_now", &operation::retry_now())
    }

    /// Moves the next attempt of pending rows to a given time, later or earlier. It leaves alone rows that a worker
    /// holds under a lease. A row whose lease has ended is `ERROR` afterwards.
    ///
    /// # Errors
    ///
    /// As [`retry_now`](QueueRows::retry_now).
    pub fn postpone_until<C: ChangesRows<Q, F>>(
        &self,
        connection: &mut C,
        time: DateTime<Utc>,
    ) -> Result<usize, Error> {
        self.change(connection, format_args!("postpone_until {time}"), &operation::postpone_until(time.into()))
    }

    /// Stops pending rows: they are not processed until [`restart`](QueueRows::restart). They keep their status and tries,
    /// with one exception: a finished row that the application's own SQL has made due becomes `NOT_ATTEMPTED`, as it is
    /// enqueued anew. If a worker holds a row under a lease, its attempt runs to its end, and the row is not retried; a
    /// row of an exclusive entity is left alone instead. A row without a failure gets the text `queueable: stopped`,
    /// so that it can be told from one that was never enqueued.
    ///
    /// # Errors
    ///
    /// As [`retry_now`](QueueRows::retry_now).
    pub fn stop<C: ChangesRows<Q, F>>(&self, connection: &mut C) -> Result<usize, Error> {
        self.change(connection, "stop", &operation::stop(&Q::Queue::OPTIONS))
    }

    /// Makes stopped rows due. Rows that were never enqueued, and finished ones, are left alone. A row that was stopped
    /// while a worker held it under a lease may still be running. It becomes due one lease later, and stays with its
    /// worker if that is alive.
    ///
    /// # Errors
    ///
    /// As [`retry_now`](QueueRows::retry_now).
    pub fn restart<C: ChangesRows<Q, F>>(&self, connection: &mut C) -> Result<usize, Error> {
        self.change(connection, "restart", &operation::restart(Q::SETTINGS.lease, &Q::Queue::OPTIONS))
    }

    /// Enqueues finished rows again, those with `SUCCESS` and those that have `FAILED`: the status becomes
    /// `NOT_ATTEMPTED`, the tries start anew, and a row with stages begins with the first one. Skipped rows are left alone.
    ///
    /// This begins a new occasion, with a new [idempotency key](crate::Message::idempotency_key), if the entity counts
    /// occasions: `#[queue(occasion)]`. Otherwise the row keeps its key, because the five columns do not tell it from a
    /// row that is retried.
    ///
    /// # Errors
    ///
    /// As [`retry_now`](QueueRows::retry_now).
    pub fn rerun<C: ChangesRows<Q, F>>(&self, connection: &mut C) -> Result<usize, Error> {
        self.change(connection, "rerun", &operation::rerun(&Q::Queue::OPTIONS))
    }

    /// Marks rows as not to be processed: they become `SKIPPED`. A worker that holds a row under a lease loses it, and
    /// the answer of its call is not written; a row of an exclusive entity is left alone instead. Rows with `SUCCESS`
    /// are left alone, unless they are pending, for example for the next run on their schedule. Rows that were never
    /// enqueued are skipped too, which keeps them out of later bulk operations.
    ///
    /// # Errors
    ///
    /// As [`retry_now`](QueueRows::retry_now).
    pub fn skip<C: ChangesRows<Q, F>>(&self, connection: &mut C) -> Result<usize, Error> {
        self.change(connection, "skip", &operation::skip(&Q::Queue::OPTIONS))
    }

    /// Makes rows due that were attempted so many times before their last attempt, so that the next attempt has its number again.
    /// Rows that a worker holds are left alone. It is for attempts that are rolled back.
    #[doc(hidden)]
    pub fn attempt_again<C: ReadsRows<Q, F>>(&self, connection: &mut C, tries: i32) -> Result<usize, Error> {
        self.change(connection, "attempt_again", &operation::attempt_again(tries))
    }

    /// Deletes the rows themselves, whatever their state. Only a row of an exclusive entity that a worker holds under a
    /// lease is left alone.
    ///
    /// # Errors
    ///
    /// As [`retry_now`](QueueRows::retry_now).
    pub fn delete<C: ChangesRows<Q, F>>(&self, connection: &mut C) -> Result<usize, Error> {
        let operation = operation::delete(&Q::Queue::OPTIONS);
        let record = &mut self.record(connection, "delete", "", false)?;
        self.each_kind(connection, &operation, record, |connection, condition, _, _| {
            execute(connection, &remove_all(condition))
        })
    }

    /// Sets the priority of rows: among the rows that are due, those with a lower number are claimed first. A new row
    /// has the priority 0; a negative one comes before it.
    ///
    /// Nothing else of the row changes. It applies to every row that the conditions pick, except skipped ones: finished
    /// rows and rows that are not queued keep the priority for a later enqueueing. As all changing calls, it waits for
    /// a row that a worker has locked. A row under a lease is changed, and its attempt goes on.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::connection::SimpleConnection;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::{Migrations, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, company_id -> BigInt, } }
    /// #[derive(Queryable, Selectable, Queueable)]
    /// #[queue(priority)]
    /// struct Payment { id: i64, company_id: i64 }
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, company_id BIGINT NOT NULL)")?;
    /// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
    ///
    /// // The rest of this company's payments had better wait.
    /// Payment::queue().filter(payments::company_id.eq(3345)).pending().set_priority(&mut connection, 10)?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`retry_now`](QueueRows::retry_now).
    pub fn set_priority<C: ChangesRows<Q, F>>(&self, connection: &mut C, priority: i32) -> Result<usize, Error>
    where
        Q::Queue: HasPriority,
    {
        let operation = operation::set_priority(priority);
        let record = &mut self.record(connection, format_args!("set_priority {priority}"), "", false)?;
        self.each_kind(connection, &operation, record, |connection, condition, priority, alone| {
            execute(connection, &set_priority(condition, *priority, alone))
        })
    }

    fn change<C: ReadsRows<Q, F>>(
        &self,
        connection: &mut C,
        action: impl Display,
        operation: &Operation<Change>,
    ) -> Result<usize, Error> {
        let record = &mut self.record(connection, action, "", false)?;
        let rows = self.each_kind(connection, operation, record, |connection, condition, change, alone| {
            execute(connection, &change_all(condition, change, alone))
        })?;
        wake::announce::<Q::Queue>();
        Ok(rows)
    }

    /// Runs a statement for each kind of rows, all of them in one transaction with the call's record, and returns how many rows
    /// they changed. `run` gets the condition that picks the rows, the kind's effect, and whether the transaction is its own.
    pub(super) fn each_kind<C: ReadsRows<Q, F>, E>(
        &self,
        connection: &mut C,
        operation: &Operation<E>,
        record: &mut Record,
        run: impl Fn(&mut C::Connection, Condition<'_, BackendOf<C>>, &E, bool) -> QueryResult<usize>,
    ) -> Result<usize, Error> {
        let rows = in_transaction(connection.as_queue_connection(), self.terms.wait, |connection, alone| {
            let rows = operation.0.iter().try_fold(0, |rows, (states, effect)| {
                let states = self.states_and(states);
                QueryResult::Ok(rows + run(connection, C::condition(self, &states), effect, alone)?)
            })?;
            record.write(connection, rows)?;
            Ok(rows)
        })?;
        record.committed(rows);
        Ok(rows)
    }
}

/// How often an operation is run in all, if it loses against other transactions.
const TRIES: u32 = 5;

/// The pause before the next try; up to twice as long at random.
const PAUSE: Duration = Duration::from_millis(5);

/// Runs `change` in a transaction in which no statement waits longer than `wait` for a lock. If the transaction is its
/// own, it tries again after a conflict, such as a deadlock with an attempt, until `wait` has passed. It does not
/// repeat the caller's transaction, because only the caller can repeat what else was done there.
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
            // A try that waited for a lock has used up the whole time.
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

impl<Q: Entity, F: Selection> QueueRows<Q, F> {
    /// Begins the record of a call, if it has an author. `action`: the call and its argument. `picked_by` says by what
    /// the rows were picked beside the filter; it may be empty.
    pub(super) fn record<C>(
        &self,
        connection: &mut C,
        action: impl Display,
        picked_by: &str,
        in_batches: bool,
    ) -> Result<Record, Error>
    where
        C: ReadsRows<Q, F>,
    {
        let Some(author) = &self.terms.author else { return Ok(Record::default()) };
        author.check()?;
        let condition = C::condition(self, &[]);
        let states = self.terms.states.iter().map(|state| words(*state));
        let picked_by = Some(picked_by.to_owned()).filter(|text| !text.is_empty());
        let filter = filter_text(condition.filter, states.chain(picked_by));
        let asked = (name_of(condition.queue)?, action.to_string(), filter);
        Record::begin(connection.as_queue_connection(), author, asked, self.terms.wait, in_batches)
    }

    /// Writes the record of a call that had no row to change.
    pub(super) fn close<C: ReadsRows<Q, F>>(&self, connection: &mut C, record: &Record) -> Result<(), Error> {
        if record.is_written() {
            return Ok(());
        }
        in_transaction(connection.as_queue_connection(), self.terms.wait, |connection, _| record.write(connection, 0))
    }
}

/// Says a condition as the operator does.
fn words(state: StateCondition) -> String {
    match state {
        StateCondition::In(statuses) | StateCondition::Reported(statuses) => {
            format!("status {}", statuses.iter().map(Status::to_string).collect::<Vec<_>>().join(" or "))
        }
        StateCondition::Pending => "pending".to_owned(),
        StateCondition::NotPending => "not pending".to_owned(),
        StateCondition::Due => "due".to_owned(),
        StateCondition::Scheduled => "scheduled".to_owned(),
        StateCondition::AttemptedWithin(time) => format!("attempted within {time:?}"),
        StateCondition::Expired => "expired".to_owned(),
        // No method of a queue's rows asks for the others.
        other => format!("{other:?}"),
    }
}
