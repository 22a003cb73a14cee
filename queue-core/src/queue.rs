//! Operations on a queue's rows, picked by domain filters.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::expression::NonAggregate;
use diesel::query_dsl::methods::{ExecuteDsl, LoadQuery};
use diesel::result::QueryResult;
use diesel::sql_types::BoolOrNullableBool;
use diesel::{AppearsOnTable, Expression, RunQueryDsl, Selectable};

use crate::backend::{AsQueueConnection, ErrorClass, QueueConnection};
use crate::column::QueueState;
use crate::entity::{QueueTable, Queueable};
use crate::error::Error;
use crate::report::StatusCounts;
use crate::selection::{AllFilters, Chosen, EveryRow, Filtered, Selection};
use crate::statement::{
    And, Change, ChangeAll, Condition, Count, CountByStatus, ErrorText, Load, Next, RemoveAll, StateCondition,
};
use crate::status::Status;
use crate::wake;

/// How long an operation waits for rows that others hold.
const DEFAULT_WAIT: Duration = Duration::from_secs(5);

/// The text that marks a row which was stopped before any attempt failed. It tells such a row from one that was never
/// enqueued, which [`Queue::resume`] must leave alone.
const STOPPED: &str = "stopped";

/// The pending rows that no worker holds under a lease: its end must not come earlier because an operator wants the row to
/// run now.
const PENDING_AND_FREE: [StateCondition; 2] = [StateCondition::Pending, StateCondition::NotLeased];

/// The rows of a queue that an operation concerns.
///
/// It begins with [`Queueable::queue`]. Conditions add up; then comes the operation, which says how many rows it read or
/// changed. Calls that change rows want a domain filter, or the word [`all_rows`](Queue::all_rows):
///
/// ```
/// # use diesel::prelude::*;
/// # use diesel::connection::SimpleConnection;
/// # use diesel_migrations::MigrationHarness;
/// # use queueable::{Migrations, Queueable};
/// # diesel::table! { payments (id) { id -> BigInt, company_id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64, company_id: i64 }
/// # let mut connection = SqliteConnection::establish(":memory:")?;
/// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, company_id BIGINT NOT NULL)")?;
/// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
/// let company = Payment::queue().filter(payments::company_id.eq(3345));
/// let failed = company.clone().failed().count(&mut connection)?;
/// let retried = company.failed().retry_now(&mut connection)?;
/// assert_eq!(failed as usize, retried);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// ```compile_fail
/// # use diesel::prelude::*;
/// # use queueable::Queueable;
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// # fn example(connection: &mut SqliteConnection) {
/// Payment::queue().failed().retry_now(connection); // neither a filter nor `all_rows()`
/// # }
/// ```
///
/// A changing call waits for rows that a worker holds, because they may be about to fail, but no longer than
/// [`wait`](Queue::wait) allows; then it changes nothing and answers [`Error::Held`]. It runs in a transaction of its own,
/// or in the caller's.
#[must_use = "nothing happens before an operation is called"]
pub struct Queue<Q, F> {
    selection: F,
    states: Vec<StateCondition>,
    wait: Duration,
    entity: PhantomData<fn() -> Q>,
}

impl<Q, F: Clone> Clone for Queue<Q, F> {
    fn clone(&self) -> Self {
        Queue { selection: self.selection.clone(), states: self.states.clone(), wait: self.wait, entity: PhantomData }
    }
}

impl<Q, F> fmt::Debug for Queue<Q, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("states", &self.states).field("wait", &self.wait).finish_non_exhaustive()
    }
}

impl<Q: Queueable> Queue<Q, AllFilters> {
    pub(crate) fn new() -> Self {
        Queue { selection: AllFilters, states: Vec::new(), wait: DEFAULT_WAIT, entity: PhantomData }
    }

    /// Picks the rows for which a condition holds: any Diesel expression on the table, boxed or not, over domain and
    /// queue columns.
    pub fn filter<E>(self, filter: E) -> Queue<Q, Filtered<E>>
    where
        E: AppearsOnTable<<Q::Queue as QueueTable>::Table> + NonAggregate,
        <E as Expression>::SqlType: BoolOrNullableBool,
    {
        self.with(|AllFilters| Filtered(filter))
    }

    /// Says that a changing call means every row that the other conditions leave.
    pub fn all_rows(self) -> Queue<Q, EveryRow> {
        self.with(|AllFilters| EveryRow)
    }
}

impl<Q: Queueable, A> Queue<Q, Filtered<A>> {
    /// Picks the rows for which this condition holds too.
    pub fn filter<E>(self, filter: E) -> Queue<Q, Filtered<And<A, E>>>
    where
        E: AppearsOnTable<<Q::Queue as QueueTable>::Table> + NonAggregate,
        <E as Expression>::SqlType: BoolOrNullableBool,
    {
        self.with(|Filtered(first)| Filtered(And(first, filter)))
    }
}

impl<Q: Queueable, F> Queue<Q, F> {
    /// Rows whose status is `FAILED`: the queue gave up on them.
    pub fn failed(self) -> Self {
        self.and(StateCondition::In(&[Status::Failed]))
    }

    /// Rows with a next attempt time, due or scheduled.
    pub fn pending(self) -> Self {
        self.and(StateCondition::Pending)
    }

    /// Rows whose next attempt time has come, by the database's clock.
    pub fn due(self) -> Self {
        self.and(StateCondition::Due)
    }

    /// Rows whose next attempt time lies in the future.
    pub fn scheduled(self) -> Self {
        self.and(StateCondition::Scheduled)
    }

    /// Rows whose work has ended: `SUCCESS`, `FAILED` or `SKIPPED`, and no next attempt time.
    pub fn finished(self) -> Self {
        self.and(StateCondition::In(&[Status::Success, Status::Failed, Status::Skipped]))
            .and(StateCondition::NotPending)
    }

    /// Sets how long a changing call waits for rows that others hold. The default is 5 seconds. MySQL counts whole
    /// seconds.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    fn and(mut self, state: StateCondition) -> Self {
        self.states.push(state);
        self
    }

    fn with<G>(self, select: impl FnOnce(F) -> G) -> Queue<Q, G> {
        Queue { selection: select(self.selection), states: self.states, wait: self.wait, entity: PhantomData }
    }
}

impl<Q: Queueable, F: Selection> Queue<Q, F> {
    /// Counts the rows.
    ///
    /// # Errors
    ///
    /// [`Error::Database`], as all reading calls.
    pub fn count<C: AsQueueConnection>(&self, connection: &mut C) -> Result<i64, Error>
    where
        Self: ReadOn<C::Connection>,
    {
        Ok(self.read_count(connection.as_queue_connection())?)
    }

    /// Counts the rows of each status.
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    pub fn counts_by_status<C: AsQueueConnection>(&self, connection: &mut C) -> Result<StatusCounts, Error>
    where
        Self: ReadOn<C::Connection>,
    {
        let mut counts = StatusCounts::default();
        for (status, rows) in self.read_statuses(connection.as_queue_connection())? {
            match status.parse() {
                Ok(status) => _ = counts.known.insert(status, rows),
                Err(_) => counts.unknown += rows,
            }
        }
        Ok(counts)
    }

    /// Loads the rows, each with its queue state, in the order of the primary key.
    ///
    /// # Errors
    ///
    /// [`Error::Database`], also when one of the rows cannot be decoded.
    pub fn load<C: AsQueueConnection>(&self, connection: &mut C) -> Result<Vec<(Q, QueueState)>, Error>
    where
        Self: LoadOn<C::Connection, Entity = Q>,
    {
        Ok(self.read_rows(connection.as_queue_connection(), None)?)
    }

    /// Loads at most `limit` of the rows.
    ///
    /// # Errors
    ///
    /// [`Error::Database`], also when one of the rows cannot be decoded.
    pub fn load_some<C: AsQueueConnection>(&self, connection: &mut C, limit: u32) -> Result<Vec<(Q, QueueState)>, Error>
    where
        Self: LoadOn<C::Connection, Entity = Q>,
    {
        Ok(self.read_rows(connection.as_queue_connection(), Some(limit.into()))?)
    }
}

impl<Q: Queueable, F: Chosen> Queue<Q, F> {
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
        let now = Change { next: Some(Next::In(Duration::ZERO)), ..Change::default() };
        let anew = Change { status: Some(Status::NotAttempted), try_count: Some(0), ..now.clone() };
        let failed = [StateCondition::In(&[Status::Failed]), StateCondition::NotPending];
        self.change_in_turn(connection.as_queue_connection(), &[(&PENDING_AND_FREE, now), (&failed, anew)])
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
        let change = Change { next: Some(Next::At(time.into())), ..Change::default() };
        self.change_in_turn(connection.as_queue_connection(), &[(&PENDING_AND_FREE, change)])
    }

    /// Stops pending rows: they are not processed until [`resume`](Queue::resume). Their status and tries stay. A row that a
    /// worker holds under a lease is worked to the end of the attempt, and not retried. A row
    /// without a failure gets the text `stopped`, so that it can be told from one that was never enqueued.
    ///
    /// # Errors
    ///
    /// As [`retry_now`](Queue::retry_now).
    pub fn stop<C: AsQueueConnection>(&self, connection: &mut C) -> Result<usize, Error>
    where
        Self: ChangeOn<C::Connection>,
    {
        let stop = Change { next: Some(Next::Never), ..Change::default() };
        let mark = Change { error: ErrorText::Set(STOPPED.to_owned()), ..stop.clone() };
        let unmarked = [StateCondition::Pending, StateCondition::WithoutErrorText];
        self.change_in_turn(connection.as_queue_connection(), &[(&unmarked, mark), (&[StateCondition::Pending], stop)])
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
        let change = Change { next: Some(Next::In(Duration::ZERO)), ..Change::default() };
        let after_the_lease = Change { next: Some(Next::In(Q::SETTINGS.lease)), ..Change::default() };
        let stopped = |status| [StateCondition::NotPending, StateCondition::WithErrorText, StateCondition::In(status)];
        // A row that waits for the next run on its schedule has the status of the last one.
        let waiting: &[_] = match Q::Queue::OPTIONS.periodic {
            Some(_) => &[Status::NotAttempted, Status::Error, Status::Success],
            None => &[Status::NotAttempted, Status::Error],
        };
        let free = stopped(waiting);
        let leased = stopped(&[Status::InProgress]);
        self.change_in_turn(connection.as_queue_connection(), &[(&free, change), (&leased, after_the_lease)])
    }

    /// Enqueues finished rows again, those with `SUCCESS` and those that have `FAILED`: the status becomes
    /// `NOT_ATTEMPTED` and the tries start anew. Skipped rows are left alone. A row that is sent again keeps its
    /// [idempotency key](crate::Message::idempotency_key).
    ///
    /// # Errors
    ///
    /// As [`retry_now`](Queue::retry_now).
    pub fn resend<C: AsQueueConnection>(&self, connection: &mut C) -> Result<usize, Error>
    where
        Self: ChangeOn<C::Connection>,
    {
        let change = Change {
            status: Some(Status::NotAttempted),
            next: Some(Next::In(Duration::ZERO)),
            try_count: Some(0),
            ..Change::default()
        };
        self.change_in_turn(
            connection.as_queue_connection(),
            &[(&[StateCondition::In(&[Status::Success, Status::Failed])], change)],
        )
    }

    /// Says that rows are not to be processed: they become `SKIPPED`. A row that a worker holds under a lease is taken from
    /// it, and what its call answers is not written. Rows with `SUCCESS` are left alone; rows that were
    /// never enqueued are skipped too, which keeps them out of later bulk operations.
    ///
    /// # Errors
    ///
    /// As [`retry_now`](Queue::retry_now).
    pub fn skip<C: AsQueueConnection>(&self, connection: &mut C) -> Result<usize, Error>
    where
        Self: ChangeOn<C::Connection>,
    {
        let change = Change { status: Some(Status::Skipped), next: Some(Next::Never), ..Change::default() };
        self.change_in_turn(
            connection.as_queue_connection(),
            &[(&[StateCondition::NotIn(&[Status::Success, Status::Skipped])], change)],
        )
    }

    /// Deletes the rows themselves, whatever their state.
    ///
    /// # Errors
    ///
    /// As [`retry_now`](Queue::retry_now).
    pub fn delete<C: AsQueueConnection>(&self, connection: &mut C) -> Result<usize, Error>
    where
        Self: ChangeOn<C::Connection>,
    {
        told::<C::Connection, _>(
            connection.as_queue_connection().with_lock_wait(self.wait, |connection, _| self.remove_rows(connection)),
        )
    }

    /// Changes the rows in one transaction: those in each of the states, in turn. The sets do not overlap, because each
    /// change takes its rows out of the states that follow.
    fn change_in_turn<C: QueueConnection>(
        &self,
        connection: &mut C,
        changes: &[(&[StateCondition], Change)],
    ) -> Result<usize, Error>
    where
        Self: ChangeOn<C>,
    {
        let rows = told::<C, _>(connection.with_lock_wait(self.wait, |connection, alone| {
            changes
                .iter()
                .try_fold(0, |rows, (states, change)| Ok(rows + self.change_rows(connection, states, change, alone)?))
        }))?;
        wake::announce::<Q::Queue>();
        Ok(rows)
    }
}

fn told<C: QueueConnection, T>(result: QueryResult<T>) -> Result<T, Error> {
    result.map_err(|error| match C::classify(&error) {
        ErrorClass::Conflict => Error::Held(error),
        _ => Error::Database(error),
    })
}

/// The reading operations of a selection on one kind of connection. It is implemented wherever Diesel can run them.
pub trait ReadOn<C> {
    #[doc(hidden)]
    fn read_count(&self, connection: &mut C) -> QueryResult<i64>;
    #[doc(hidden)]
    fn read_statuses(&self, connection: &mut C) -> QueryResult<Vec<(String, i64)>>;
}

/// The loading of a selection's rows on one kind of connection. It is implemented wherever Diesel can run it.
pub trait LoadOn<C> {
    /// The entity.
    type Entity;
    #[doc(hidden)]
    fn read_rows(&self, connection: &mut C, limit: Option<i64>) -> QueryResult<Vec<(Self::Entity, QueueState)>>;
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
    fn remove_rows(&self, connection: &mut C) -> QueryResult<usize>;
}

impl<Q, F, C> ReadOn<C> for Queue<Q, F>
where
    Q: Queueable,
    F: Selection,
    C: QueueConnection,
    for<'a> Count<'a, Q::Queue, F::Filter>: LoadQuery<'a, C, i64>,
    for<'a> CountByStatus<'a, Q::Queue, F::Filter>: LoadQuery<'a, C, (String, i64)>,
{
    fn read_count(&self, connection: &mut C) -> QueryResult<i64> {
        let counts: Vec<i64> = Count(Condition::new(self.selection.filter(), &self.states)).load(connection)?;
        Ok(counts.into_iter().sum())
    }

    fn read_statuses(&self, connection: &mut C) -> QueryResult<Vec<(String, i64)>> {
        CountByStatus(Condition::new(self.selection.filter(), &self.states)).load(connection)
    }
}

impl<Q, F, C> LoadOn<C> for Queue<Q, F>
where
    Q: Queueable + Selectable<C::Backend>,
    F: Selection,
    C: QueueConnection,
    for<'a> Load<'a, Q, F::Filter, C::Backend>: LoadQuery<'a, C, (Q, QueueState)>,
{
    type Entity = Q;

    fn read_rows(&self, connection: &mut C, limit: Option<i64>) -> QueryResult<Vec<(Q, QueueState)>> {
        Load::<Q, F::Filter, C::Backend>::new(Condition::new(self.selection.filter(), &self.states), limit)
            .load(connection)
    }
}

impl<Q, F, C> ChangeOn<C> for Queue<Q, F>
where
    Q: Queueable,
    F: Selection,
    C: QueueConnection,
    for<'a> ChangeAll<'a, Q::Queue, F::Filter>: ExecuteDsl<C>,
    for<'a> RemoveAll<'a, Q::Queue, F::Filter>: ExecuteDsl<C>,
{
    fn change_rows(
        &self,
        connection: &mut C,
        states: &[StateCondition],
        change: &Change,
        alone: bool,
    ) -> QueryResult<usize> {
        let states: Vec<_> = self.states.iter().chain(states).copied().collect();
        ExecuteDsl::execute(ChangeAll::new(Condition::new(self.selection.filter(), &states), change, alone), connection)
    }

    fn remove_rows(&self, connection: &mut C) -> QueryResult<usize> {
        ExecuteDsl::execute(RemoveAll(Condition::new(self.selection.filter(), &self.states)), connection)
    }
}
