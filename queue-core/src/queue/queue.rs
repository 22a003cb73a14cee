//! Operations on a queue's rows, picked by domain filters.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use diesel::Connection;
use diesel::expression::Expression;
use diesel::query_builder::QueryFragment;
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Text};

use super::counts::StatusCounts;
use super::selection::{AllFilters, EveryRow, Filtered, Selection};
use crate::backend::{AsQueueConnection, Loads, QueueConnection, Statement, load};
use crate::entity::{Entity, QueueTable, RowCondition, SelectedIn, StoredIn};
use crate::error::Error;
use crate::row::{QueueState, Status};
use crate::statement::{
    And, Condition, Count, CountByStatus, CountRow, CountRowType, ErrorTextRow, ErrorTextRowType, FinishedRow,
    FinishedRowType, KeyRow, KeyRowType, Load, LoadedRowType, PendingRow, PendingRowType, SampleRow, SampleRowType,
    StateCondition,
};

/// How long an operation waits for rows that others have locked.
const DEFAULT_WAIT: Duration = Duration::from_secs(5);

/// How many rows an operation that works in batches takes in one transaction.
const DEFAULT_BATCH: u32 = 1_000;

/// The rows of a queue that an operation applies to.
///
/// It begins with [`Queueable::queue`](crate::Queueable::queue). Conditions add up. The operation comes last, and
/// returns how many rows it read or changed. Calls that change rows need a domain filter, or an explicit
/// [`all_rows`](Queue::all_rows):
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
/// Calls that need no keys change rows whose keys cannot be decoded like all others. Calls that work in batches pass
/// over such rows, and log how many there are.
///
/// A changing call waits for rows that a worker has locked, because their attempts may be about to fail. It waits no
/// longer than [`wait`](Queue::wait) allows; then it changes nothing and returns [`Error::Held`]. It runs in a
/// transaction of its own, or in the caller's.
#[must_use = "nothing happens before an operation is called"]
pub struct Queue<Q, F> {
    pub(crate) selection: F,
    pub(crate) states: Vec<StateCondition>,
    pub(crate) wait: Duration,
    pub(crate) batch: u32,
    pub(crate) entity: PhantomData<fn() -> Q>,
}

impl<Q, F: Clone> Clone for Queue<Q, F> {
    fn clone(&self) -> Self {
        Queue {
            selection: self.selection.clone(),
            states: self.states.clone(),
            wait: self.wait,
            batch: self.batch,
            entity: PhantomData,
        }
    }
}

impl<Q, F> fmt::Debug for Queue<Q, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("states", &self.states).field("wait", &self.wait).finish_non_exhaustive()
    }
}

impl<Q: Entity> Queue<Q, AllFilters> {
    pub(crate) fn new() -> Self {
        Queue {
            selection: AllFilters,
            states: Vec::new(),
            wait: DEFAULT_WAIT,
            batch: DEFAULT_BATCH,
            entity: PhantomData,
        }
    }

    /// Picks the rows for which a condition holds: any Diesel expression on the table, boxed or not, over domain and
    /// queue columns.
    pub fn filter<E>(self, filter: E) -> Queue<Q, Filtered<E>>
    where
        E: RowCondition<<Q::Queue as QueueTable>::Table>,
    {
        self.with(|AllFilters| Filtered(filter))
    }

    /// Makes a changing call apply to every row that the other conditions leave.
    pub fn all_rows(self) -> Queue<Q, EveryRow> {
        self.with(|AllFilters| EveryRow)
    }
}

impl<Q: Entity, A> Queue<Q, Filtered<A>> {
    /// Picks the rows for which this condition holds too.
    pub fn filter<E>(self, filter: E) -> Queue<Q, Filtered<And<A, E>>>
    where
        E: RowCondition<<Q::Queue as QueueTable>::Table>,
    {
        self.with(|Filtered(first)| Filtered(And(first, filter)))
    }
}

impl<Q: Entity, F> Queue<Q, F> {
    /// Picks rows whose status is `FAILED`: the queue gave up on them.
    pub fn failed(self) -> Self {
        self.and(StateCondition::In(&[Status::Failed]))
    }

    /// Picks rows with a next attempt time, due or scheduled.
    pub fn pending(self) -> Self {
        self.and(StateCondition::Pending)
    }

    /// Picks rows whose next attempt time has come, by the database's clock.
    pub fn due(self) -> Self {
        self.and(StateCondition::Due)
    }

    /// Picks rows whose next attempt time lies in the future.
    pub fn scheduled(self) -> Self {
        self.and(StateCondition::Scheduled)
    }

    /// Picks rows whose work has ended: `SUCCESS`, `FAILED` or `SKIPPED`, and no next attempt time.
    pub fn finished(self) -> Self {
        self.and(StateCondition::In(&[Status::Success, Status::Failed, Status::Skipped]))
            .and(StateCondition::NotPending)
    }

    /// Sets how long a changing call waits for rows that others have locked. The default is 5 seconds. MySQL counts
    /// whole seconds.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Sets how many rows a call that works in batches takes in one transaction, 1 to 5,000. The default is 1,000.
    pub fn batch(mut self, rows: u32) -> Self {
        self.batch = rows;
        self
    }

    fn and(mut self, state: StateCondition) -> Self {
        self.states.push(state);
        self
    }

    /// Returns the conditions on the rows' state, together with more of them.
    pub(crate) fn states_and(&self, states: &[StateCondition]) -> Vec<StateCondition> {
        self.states.iter().chain(states).copied().collect()
    }

    fn with<G>(self, select: impl FnOnce(F) -> G) -> Queue<Q, G> {
        Queue {
            selection: select(self.selection),
            states: self.states,
            wait: self.wait,
            batch: self.batch,
            entity: PhantomData,
        }
    }
}

impl<Q: Entity, F: Selection> Queue<Q, F> {
    /// Counts the rows.
    ///
    /// # Errors
    ///
    /// [`Error::Database`], as all reading calls.
    pub fn count<C: AsQueueConnection>(&self, connection: &mut C) -> Result<i64, Error>
    where
        Self: ReadOn<C::Connection>,
    {
        Ok(self.read_count(connection.as_queue_connection(), &[])?)
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
        let statement = CountByStatus(self.condition(&self.states));
        for (status, rows) in load::<(Text, BigInt), (String, i64), _>(connection.as_queue_connection(), &statement)? {
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
    /// [`Error::Database`], also if one of the rows cannot be decoded.
    pub fn load<C: AsQueueConnection>(&self, connection: &mut C) -> Result<Vec<(Q, QueueState)>, Error>
    where
        Self: LoadOn<C::Connection, Entity = Q>,
    {
        self.read_rows(connection.as_queue_connection(), None)
    }

    /// Loads at most `limit` of the rows.
    ///
    /// # Errors
    ///
    /// [`Error::Database`], also if one of the rows cannot be decoded.
    pub fn load_some<C: AsQueueConnection>(&self, connection: &mut C, limit: u32) -> Result<Vec<(Q, QueueState)>, Error>
    where
        Self: LoadOn<C::Connection, Entity = Q>,
    {
        self.read_rows(connection.as_queue_connection(), Some(limit.into()))
    }

    pub(super) fn read_count<C: QueueConnection>(
        &self,
        connection: &mut C,
        states: &[StateCondition],
    ) -> QueryResult<i64>
    where
        Self: ReadOn<C>,
    {
        let states = self.states_and(states);
        Ok(load::<BigInt, i64, _>(connection, &Count(self.condition(&states)))?.into_iter().sum())
    }

    fn read_rows<C: QueueConnection>(
        &self,
        connection: &mut C,
        limit: Option<i64>,
    ) -> Result<Vec<LoadedOf<Self, C>>, Error>
    where
        Self: LoadOn<C>,
    {
        let statement = Load::new::<EntityOf<Self, C>>(self.condition(&self.states), limit);
        Ok(Self::load_rows(connection, &statement)?)
    }
}

/// Counts and changes a selection's rows on one kind of connection. It is implemented wherever Diesel can run the
/// statements.
#[diagnostic::on_unimplemented(
    message = "these rows of the queue cannot be read or changed on `{C}`",
    note = "a queue works on `PgConnection`, `MysqlConnection` and `SqliteConnection`, alone or from a pool, and the filter's values can be \
            stored there",
    note = "generic code names this bound: `Queue<Q, F>: ReadOn<C>`"
)]
pub trait ReadOn<C: QueueConnection> {
    /// Returns the condition that picks the selection's rows in these states.
    #[doc(hidden)]
    fn condition<'a>(&'a self, states: &'a [StateCondition]) -> Condition<'a, C::Backend>;
    #[doc(hidden)]
    fn load_pending(connection: &mut C, pending: &dyn Statement<C::Backend>) -> QueryResult<Vec<PendingRow>>;
    #[doc(hidden)]
    fn load_counts(connection: &mut C, counts: &dyn Statement<C::Backend>) -> QueryResult<Vec<CountRow>>;
    #[doc(hidden)]
    fn load_finished(connection: &mut C, finished: &dyn Statement<C::Backend>) -> QueryResult<Vec<FinishedRow>>;
}

/// Loads a selection's rows on one kind of connection, or processes them in batches. It is implemented wherever Diesel
/// can run the statements.
#[diagnostic::on_unimplemented(
    message = "these rows of the queue cannot be loaded on `{C}`",
    note = "a queue works on `PgConnection`, `MysqlConnection` and `SqliteConnection`, alone or from a pool, the filter's values can be \
            stored there, and every field can be read from it",
    note = "generic code names this bound: `Queue<Q, F>: LoadOn<C, Entity = Q>`"
)]
pub trait LoadOn<C: QueueConnection>: ReadOn<C> {
    /// The entity.
    type Entity: SelectedIn<C::Backend>;
    #[doc(hidden)]
    fn load_rows(connection: &mut C, rows: &dyn Statement<C::Backend>) -> QueryResult<Vec<(Self::Entity, QueueState)>>;
    #[doc(hidden)]
    fn load_samples(connection: &mut C, rows: &dyn Statement<C::Backend>) -> QueryResult<Vec<SampleRow<Self::Entity>>>;
    #[doc(hidden)]
    fn load_keys(connection: &mut C, keys: &dyn Statement<C::Backend>) -> QueryResult<Vec<KeyRow<KeyOf<Self, C>>>>;
    #[doc(hidden)]
    fn load_error_texts(
        connection: &mut C,
        texts: &dyn Statement<C::Backend>,
    ) -> QueryResult<Vec<ErrorTextRow<KeyOf<Self, C>>>>;
}

/// The database of a connection.
pub(super) type BackendOf<C> = <<C as AsQueueConnection>::Connection as Connection>::Backend;

/// The entity of a selection, as one whose rows can be loaded on `C`.
pub(super) type EntityOf<S, C> = <S as LoadOn<C>>::Entity;

/// A row that the selection loads.
type LoadedOf<S, C> = (EntityOf<S, C>, QueueState);

/// The primary key of a selection's entity.
pub(super) type KeyOf<S, C> = <EntityOf<S, C> as Entity>::Key;

#[diagnostic::do_not_recommend]
impl<Q, F, C> ReadOn<C> for Queue<Q, F>
where
    Q: StoredIn<C::Backend>,
    F: Selection<Filter: QueryFragment<C::Backend>>,
    C: QueueConnection
        + Loads<PendingRowType, PendingRow>
        + Loads<CountRowType, CountRow>
        + Loads<FinishedRowType, FinishedRow>,
{
    fn condition<'a>(&'a self, states: &'a [StateCondition]) -> Condition<'a, C::Backend> {
        Condition::new(Q::SQL, self.selection.filter().map(|filter| filter as _), states)
    }

    fn load_pending(connection: &mut C, pending: &dyn Statement<C::Backend>) -> QueryResult<Vec<PendingRow>> {
        load::<PendingRowType, _, _>(connection, pending)
    }

    fn load_counts(connection: &mut C, counts: &dyn Statement<C::Backend>) -> QueryResult<Vec<CountRow>> {
        load::<CountRowType, _, _>(connection, counts)
    }

    fn load_finished(connection: &mut C, finished: &dyn Statement<C::Backend>) -> QueryResult<Vec<FinishedRow>> {
        load::<FinishedRowType, _, _>(connection, finished)
    }
}

#[diagnostic::do_not_recommend]
impl<Q, F, C> LoadOn<C> for Queue<Q, F>
where
    Q: SelectedIn<C::Backend, SelectExpression: Expression>,
    C: QueueConnection
        + Loads<LoadedRowType<Q, C>, (Q, QueueState)>
        + Loads<SampleRowType<Q, C>, SampleRow<Q>>
        + Loads<KeyRowType<Q>, KeyRow<<Q as Entity>::Key>>
        + Loads<ErrorTextRowType<Q>, ErrorTextRow<<Q as Entity>::Key>>,
    Self: ReadOn<C>,
{
    type Entity = Q;

    fn load_rows(connection: &mut C, rows: &dyn Statement<C::Backend>) -> QueryResult<Vec<(Q, QueueState)>> {
        load::<LoadedRowType<Q, C>, _, _>(connection, rows)
    }

    fn load_samples(connection: &mut C, rows: &dyn Statement<C::Backend>) -> QueryResult<Vec<SampleRow<Q>>> {
        load::<SampleRowType<Q, C>, _, _>(connection, rows)
    }

    fn load_keys(connection: &mut C, keys: &dyn Statement<C::Backend>) -> QueryResult<Vec<KeyRow<Q::Key>>> {
        load::<KeyRowType<Q>, _, _>(connection, keys)
    }

    fn load_error_texts(
        connection: &mut C,
        texts: &dyn Statement<C::Backend>,
    ) -> QueryResult<Vec<ErrorTextRow<Q::Key>>> {
        load::<ErrorTextRowType<Q>, _, _>(connection, texts)
    }
}
