//! Operations on a queue's rows, picked by domain filters.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use diesel::expression::Expression;
use diesel::query_builder::QueryFragment;
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Text};

use super::counts::StatusCounts;
use super::selection::{AllFilters, EveryRow, Filtered, Selection};
use crate::backend::{AsQueueConnection, Loads, QueueBackend, QueueConnection, load};
use crate::entity::{Entity, QueueTable, RowCondition, SelectedIn, StoredIn};
use crate::error::Error;
use crate::row::{QueueState, Status};
use crate::statement::{And, Condition, Count, CountByStatus, Load, LoadedRowType, StateCondition};

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
        self.on(self.selection.clone())
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

    /// Returns the condition that picks the selection's rows in these states.
    pub(crate) fn condition<'a, DB>(&'a self, states: &'a [StateCondition]) -> Condition<'a, DB>
    where
        Q: StoredIn<DB>,
        F: Selection<Filter: QueryFragment<DB>>,
        DB: QueueBackend,
    {
        Condition::new(Q::SQL, self.selection.filter().map(|filter| filter as _), states)
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

impl<Q, F> Queue<Q, F> {
    pub(crate) fn selection(&self) -> &F {
        &self.selection
    }

    pub(crate) fn states(&self) -> &[StateCondition] {
        &self.states
    }

    /// Applies the same settings to other rows.
    pub(crate) fn on<G>(&self, selection: G) -> Queue<Q, G> {
        Queue { selection, states: self.states.clone(), wait: self.wait, batch: self.batch, entity: PhantomData }
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
    /// [`Error::Database`], also if one of the rows cannot be decoded.
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
    /// [`Error::Database`], also if one of the rows cannot be decoded.
    pub fn load_some<C: AsQueueConnection>(&self, connection: &mut C, limit: u32) -> Result<Vec<(Q, QueueState)>, Error>
    where
        Self: LoadOn<C::Connection, Entity = Q>,
    {
        Ok(self.read_rows(connection.as_queue_connection(), Some(limit.into()))?)
    }
}

/// Reads a selection's numbers on one kind of connection. It is implemented wherever Diesel can run the statements.
#[diagnostic::on_unimplemented(
    message = "these rows of the queue cannot be read on `{C}`",
    note = "a queue works on `PgConnection`, `MysqlConnection` and `SqliteConnection`, alone or from a pool, and the filter's values can be \
            stored there",
    note = "generic code names this bound: `Queue<Q, F>: ReadOn<C>`"
)]
pub trait ReadOn<C> {
    #[doc(hidden)]
    fn read_count(&self, connection: &mut C, states: &[StateCondition]) -> QueryResult<i64>;
    #[doc(hidden)]
    fn read_statuses(&self, connection: &mut C) -> QueryResult<Vec<(String, i64)>>;
}

/// Loads a selection's rows on one kind of connection. It is implemented wherever Diesel can run the statement.
#[diagnostic::on_unimplemented(
    message = "these rows of the queue cannot be loaded on `{C}`",
    note = "a queue works on `PgConnection`, `MysqlConnection` and `SqliteConnection`, alone or from a pool, the filter's values can be \
            stored there, and every field can be read from it",
    note = "generic code names this bound: `Queue<Q, F>: LoadOn<C>`"
)]
pub trait LoadOn<C> {
    /// The entity.
    type Entity;
    #[doc(hidden)]
    fn read_rows(&self, connection: &mut C, limit: Option<i64>) -> QueryResult<Vec<(Self::Entity, QueueState)>>;
}

#[diagnostic::do_not_recommend]
impl<Q, F, C> ReadOn<C> for Queue<Q, F>
where
    Q: StoredIn<C::Backend>,
    F: Selection<Filter: QueryFragment<C::Backend>>,
    C: QueueConnection,
{
    fn read_count(&self, connection: &mut C, states: &[StateCondition]) -> QueryResult<i64> {
        let states = self.states_and(states);
        let counts = load::<BigInt, i64, _>(connection, &Count(self.condition(&states)))?;
        Ok(counts.into_iter().sum())
    }

    fn read_statuses(&self, connection: &mut C) -> QueryResult<Vec<(String, i64)>> {
        load::<(Text, BigInt), _, _>(connection, &CountByStatus(self.condition(&self.states)))
    }
}

#[diagnostic::do_not_recommend]
impl<Q, F, C> LoadOn<C> for Queue<Q, F>
where
    Q: SelectedIn<C::Backend, SelectExpression: Expression>,
    F: Selection<Filter: QueryFragment<C::Backend>>,
    C: QueueConnection + Loads<LoadedRowType<Q, C>, (Q, QueueState)>,
{
    type Entity = Q;

    fn read_rows(&self, connection: &mut C, limit: Option<i64>) -> QueryResult<Vec<(Q, QueueState)>> {
        load::<LoadedRowType<Q, C>, _, _>(connection, &Load::new::<Q>(self.condition(&self.states), limit))
    }
}
