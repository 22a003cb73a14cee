//! Operations on a queue's rows, picked by domain filters.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use crate::audit::Author;
use crate::entity::{Entity, HasKeep, QueueTable, RowCondition};
use crate::row::Status;
use crate::statement::{And, StateCondition};

/// How long an operation waits for rows that others have locked.
const DEFAULT_WAIT: Duration = Duration::from_secs(5);

/// How many rows an operation that works in batches takes in one transaction.
const DEFAULT_BATCH: u32 = 1_000;

/// The rows of a queue that an operation applies to.
///
/// It begins with [`Queueable::queue`](crate::Queueable::queue). Conditions add up. The operation comes last, and
/// returns how many rows it read or changed. Calls that change rows need a domain filter, or an explicit
/// [`all_rows`](QueueRows::all_rows):
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
/// longer than [`wait`](QueueRows::wait) allows; then it changes nothing and returns [`Error::Held`](crate::Error::Held). It
/// runs in a transaction of its own, or in the caller's.
#[must_use = "nothing happens before an operation is called"]
pub struct QueueRows<Q, F> {
    pub(crate) selection: F,
    pub(crate) terms: Terms,
    pub(crate) entity: PhantomData<fn() -> Q>,
}

/// The states of the rows that an operation takes, and how it takes them.
#[derive(Clone)]
pub(crate) struct Terms {
    pub(crate) states: Vec<StateCondition>,
    pub(crate) wait: Duration,
    pub(crate) batch: u32,
    /// Who asks for a change.
    pub(crate) author: Option<Author>,
}

impl<Q, F: Clone> Clone for QueueRows<Q, F> {
    fn clone(&self) -> Self {
        QueueRows { selection: self.selection.clone(), terms: self.terms.clone(), entity: PhantomData }
    }
}

impl<Q, F> fmt::Debug for QueueRows<Q, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Terms { states, wait, .. } = &self.terms;
        f.debug_struct("QueueRows").field("states", states).field("wait", wait).finish_non_exhaustive()
    }
}

impl<Q: Entity> QueueRows<Q, AllFilters> {
    pub(crate) fn new() -> Self {
        let terms = Terms { states: Vec::new(), wait: DEFAULT_WAIT, batch: DEFAULT_BATCH, author: None };
        QueueRows { selection: AllFilters, terms, entity: PhantomData }
    }

    /// Picks the rows for which a condition holds: any Diesel expression on the table, boxed or not, over domain and
    /// queue columns.
    pub fn filter<E>(self, filter: E) -> QueueRows<Q, Filtered<E>>
    where
        E: RowCondition<<Q::Queue as QueueTable>::Table>,
    {
        self.with(|AllFilters| Filtered(filter))
    }

    /// Makes a changing call apply to every row that the other conditions leave.
    pub fn all_rows(self) -> QueueRows<Q, EveryRow> {
        self.with(|AllFilters| EveryRow)
    }
}

impl<Q: Entity, A> QueueRows<Q, Filtered<A>> {
    /// Picks the rows for which this condition holds too.
    pub fn filter<E>(self, filter: E) -> QueueRows<Q, Filtered<And<A, E>>>
    where
        E: RowCondition<<Q::Queue as QueueTable>::Table>,
    {
        self.with(|Filtered(first)| Filtered(And(first, filter)))
    }
}

impl<Q: Entity, F> QueueRows<Q, F> {
    /// Picks rows whose status is `FAILED`: the queue gave up on them.
    pub fn failed(self) -> Self {
        self.and(StateCondition::Reported(&[Status::Failed]))
    }

    /// Picks rows whose status is `SKIPPED`: a handler or an operator decided that there is nothing to do.
    pub fn skipped(self) -> Self {
        self.and(StateCondition::Reported(&[Status::Skipped]))
    }

    /// Picks rows that a worker holds under a lease. Outside lease mode only a row lock shows that a row is being processed,
    /// so no row is picked.
    pub fn running(self) -> Self {
        self.and(StateCondition::In(&[Status::InProgress])).and(StateCondition::Scheduled)
    }

    /// Picks rows whose last recorded attempt ended within this time, by the database's clock: at most 100 years.
    pub fn attempted_within(self, time: Duration) -> Self {
        self.and(StateCondition::AttemptedWithin(time))
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

    /// Picks the rows that `#[queue(keep(..))]` keeps no longer, by the database's clock: those that the upkeep of the pollers
    /// removes. It says what would be removed now, without removing it.
    ///
    /// No index has them, so this reads the whole table.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::connection::SimpleConnection;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::{Migrations, Queueable, Status};
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// #[derive(Queryable, Selectable, Queueable)]
    /// #[queue(keep(success = "30d", failed = "1y"))]
    /// struct Payment { id: i64 }
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL)")?;
    /// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
    ///
    /// # connection.batch_execute("INSERT INTO payments (status, last_attempt_time) VALUES ('SUCCESS', '2001-02-03 04:05:06.000')")?;
    /// let expired = Payment::queue().expired().counts_by_status(&mut connection)?;
    /// assert_eq!((expired.of(Status::Success), expired.of(Status::Failed)), (1, 0));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn expired(self) -> Self
    where
        Q::Queue: HasKeep,
    {
        self.and(StateCondition::Expired)
    }

    /// Sets how long a changing call waits for rows that others have locked. The default is 5 seconds. MySQL counts
    /// whole seconds.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.terms.wait = wait;
        self
    }

    /// Sets how many rows a call that works in batches takes in one transaction, 1 to 5,000. The default is 1,000.
    pub fn batch(mut self, rows: u32) -> Self {
        self.terms.batch = rows;
        self
    }

    /// Says who asks for a change, in 1 to 255 characters, and why, in 1 to 1,000: the changing call then leaves a row in the
    /// [audit](fn@crate::audit), in the same transaction. Without it no call does.
    ///
    /// The row says the time by the database's clock, the author and the reason, the queue, the call with its argument, the
    /// conditions, and how many rows were changed; also if there were none. A call that works in batches writes how many it has
    /// changed so far with each batch, so the number is true even if the process is killed. In the caller's transaction
    /// the row is a part of that transaction. Reports and dry runs leave no row.
    ///
    /// The account needs INSERT on `queueable_audit`. A call that works in batches also uses UPDATE of `row_count`; without
    /// this right it leaves a row for each batch.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::connection::SimpleConnection;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::{Migrations, Queueable};
    /// # use queueable::control::Audit;
    /// # diesel::table! { payments (id) { id -> BigInt, company_id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64, company_id: i64 }
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, company_id BIGINT NOT NULL)")?;
    /// connection.run_pending_migrations(Migrations::new().entity::<Payment>().audit())?;
    /// let company = Payment::queue().filter(payments::company_id.eq(3345));
    /// company.failed().by("ops@example.org", "ticket 812").retry_now(&mut connection)?;
    /// let page = queueable::control::audit(&mut connection, &Audit::new())?;
    /// assert_eq!((page.rows[0].action.as_str(), page.rows[0].rows), ("retry_now", 0));
    /// # assert_eq!(page.rows[0].filter, "(`payments`.`company_id` = 3345); status FAILED");
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Of the changing call, before anything is changed: [`Error::Control`](crate::Error::Control) if there is no
    /// [table of the audit](crate::Migrations::audit) or the account may not write it, and
    /// [`Error::Setting`](crate::Error::Setting) for a name or a reason that is empty, too long, or not in one line.
    pub fn by(mut self, by: impl Into<String>, reason: impl Into<String>) -> Self {
        self.terms.author = Some(Author { by: by.into(), reason: reason.into() });
        self
    }

    fn and(mut self, state: StateCondition) -> Self {
        self.terms.states.push(state);
        self
    }

    /// Tells whether a filter picks the rows.
    pub(crate) fn has_filter(&self) -> bool
    where
        F: Selection,
    {
        self.selection.filter().is_some()
    }

    /// Returns the conditions on the rows' state, together with more of them.
    pub(crate) fn states_and(&self, states: &[StateCondition]) -> Vec<StateCondition> {
        self.terms.states.iter().chain(states).copied().collect()
    }

    fn with<G>(self, select: impl FnOnce(F) -> G) -> QueueRows<Q, G> {
        QueueRows { selection: select(self.selection), terms: self.terms, entity: PhantomData }
    }
}

/// The rows that a domain filter picks.
pub trait Selection {
    /// The filter's type.
    type Filter;

    /// Returns the filter, if there is one.
    fn filter(&self) -> Option<&Self::Filter> {
        None
    }
}

/// A selection that the caller has chosen explicitly: a filter, or all rows.
#[diagnostic::on_unimplemented(
    message = "this call changes rows, and nothing says which",
    label = "this call needs a filter, or `.all_rows()`",
    note = "add `.filter(..)` with a condition on the table, or say `.all_rows()`"
)]
pub trait Chosen: Selection {}

/// No domain filter yet: enough for reading, too little for changing.
#[derive(Debug, Clone, Copy)]
pub struct AllFilters;

/// All rows, chosen explicitly.
#[derive(Debug, Clone, Copy)]
pub struct EveryRow;

/// The rows that a filter picks.
#[derive(Debug, Clone, Copy)]
pub struct Filtered<E>(pub(crate) E);

/// Stands in for a filter's type if there is no filter.
pub type NoFilter = And<(), ()>;

impl Selection for AllFilters {
    type Filter = NoFilter;
}

impl Selection for EveryRow {
    type Filter = NoFilter;
}

impl<E> Selection for Filtered<E> {
    type Filter = E;

    fn filter(&self) -> Option<&E> {
        Some(&self.0)
    }
}

impl Chosen for EveryRow {}

impl<E> Chosen for Filtered<E> {}
