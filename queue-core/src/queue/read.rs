//! Counts and loads the rows of a selection; and the bounds that say on which connections Diesel can do so.

use std::collections::BTreeMap;
use std::fmt;

use diesel::Connection;
use diesel::expression::Expression;
use diesel::query_builder::QueryFragment;
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Text};
use serde::{Deserialize, Serialize};

use super::queue::{Chosen, QueueRows, Selection};
use crate::backend::{AsQueueConnection, DatabaseText, Loads, Statement, load};
use crate::entity::{Entity, IsKey, SelectedIn, StoredIn};
use crate::error::Error;
use crate::row::{QueueState, Status};
use crate::statement::{
    Claim, Condition, ErrorExampleRow, ErrorExampleRowType, ErrorTextRow, ErrorTextRowType, FinishedRow,
    FinishedRowType, KeyRow, KeyRowType, LoadedRowType, PageFrom, SampleRow, SampleRowType, StateCondition, count,
    count_by_status, load_rows, read_page, sample,
};

/// The number of rows of each status.
///
/// ```
/// # use queueable::report::StatusCounts;
/// # use queueable::Status;
/// let counts: StatusCounts = serde_json::from_str(r#"{"SUCCESS": 3, "FAILED": 1, "unknown": 0}"#).unwrap();
/// assert_eq!(counts.of(Status::Success), 3);
/// assert_eq!(counts.total(), 4);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusCounts {
    #[serde(flatten)]
    pub(crate) known: BTreeMap<Status, i64>,
    /// Rows whose status is not one of the queue's.
    #[serde(default)]
    pub unknown: i64,
}

impl StatusCounts {
    /// Returns how many rows have this status.
    pub fn of(&self, status: Status) -> i64 {
        self.known.get(&status).copied().unwrap_or(0)
    }

    /// Returns how many rows there are in all.
    pub fn total(&self) -> i64 {
        self.known.values().sum::<i64>() + self.unknown
    }
}

impl fmt::Display for StatusCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for status in Status::ALL {
            let rows = self.of(status);
            if rows > 0 {
                writeln!(f, "{status:<14}{rows:>10}")?;
            }
        }
        if self.unknown > 0 {
            writeln!(f, "{:<14}{:>10}", "unknown", self.unknown)?;
        }
        Ok(())
    }
}

impl<Q: Entity, F: Selection> QueueRows<Q, F> {
    /// Counts the rows.
    ///
    /// # Errors
    ///
    /// [`Error::Database`], as all reading calls.
    pub fn count<C: ReadsRows<Q, F>>(&self, connection: &mut C) -> Result<i64, Error> {
        Ok(self.read_count(connection, &[])?)
    }

    /// Counts the rows of each status.
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    pub fn counts_by_status<C: ReadsRows<Q, F>>(&self, connection: &mut C) -> Result<StatusCounts, Error> {
        let mut counts = StatusCounts::default();
        let statement = count_by_status(C::condition(self, &self.terms.states));
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
    pub fn load<C: LoadsRows<Q, F>>(&self, connection: &mut C) -> Result<Vec<(Q, QueueState)>, Error> {
        Ok(connection.load_rows(C::condition(self, &self.terms.states), None)?)
    }

    /// Loads at most `limit` of the rows.
    ///
    /// # Errors
    ///
    /// [`Error::Database`], also if one of the rows cannot be decoded.
    pub fn load_some<C>(&self, connection: &mut C, limit: u32) -> Result<Vec<(Q, QueueState)>, Error>
    where
        C: LoadsRows<Q, F>,
    {
        Ok(connection.load_rows(C::condition(self, &self.terms.states), Some(limit.into()))?)
    }

    pub(super) fn read_count<C>(&self, connection: &mut C, states: &[StateCondition]) -> QueryResult<i64>
    where
        C: ReadsRows<Q, F>,
    {
        let states = self.states_and(states);
        let counts = load::<BigInt, i64, _>(connection.as_queue_connection(), &count(C::condition(self, &states)))?;
        Ok(counts.into_iter().sum())
    }
}

/// A connection on which the rows of the entity `Q` that a filter picks can be counted. It is implemented wherever Diesel
/// can run the statements. `F` is the filter's type, as in [`QueueRows`].
///
/// The connection implements it, and not the rows: at a call, the compiler does not know the connection's type at first,
/// and leaves a bound on the connection alone until it does.
#[diagnostic::on_unimplemented(
    message = "these rows of the queue cannot be read or changed on `{Self}`",
    note = "a queue works on `PgConnection`, `MysqlConnection` and `SqliteConnection`, alone or from a pool, and the filter's values can be \
            stored there",
    note = "generic code names this bound: `C: ReadsRows<Q, F>`"
)]
pub trait ReadsRows<Q, F>:
    AsQueueConnection<
    Connection: Loads<FinishedRowType, FinishedRow> + Loads<ErrorTextRowType, ErrorTextRow> + Loads<Text, DatabaseText>,
>
{
    /// Returns the condition that picks the selection's rows in these states.
    #[doc(hidden)]
    fn condition<'a>(rows: &'a QueueRows<Q, F>, states: &'a [StateCondition]) -> Condition<'a, BackendOf<Self>>;
}

/// A connection that can change such rows, if the caller has chosen them.
#[diagnostic::on_unimplemented(
    message = "these rows of the queue cannot be read or changed on `{Self}`",
    note = "a queue works on `PgConnection`, `MysqlConnection` and `SqliteConnection`, alone or from a pool, and the filter's values can be \
            stored there",
    note = "generic code names this bound: `C: ChangesRows<Q, F>`"
)]
pub trait ChangesRows<Q, F>: ReadsRows<Q, F> {}

/// A connection that can also load such rows, and process them in batches.
#[diagnostic::on_unimplemented(
    message = "these rows of the queue cannot be loaded on `{Self}`",
    note = "a queue works on `PgConnection`, `MysqlConnection` and `SqliteConnection`, alone or from a pool, the filter's values can be \
            stored there, and every field can be read from it",
    note = "generic code names this bound: `C: LoadsRows<Q, F>`"
)]
pub trait LoadsRows<Q: Entity, F>: ReadsRows<Q, F> {
    #[doc(hidden)]
    fn load_rows(&mut self, rows: ConditionOn<'_, Self>, limit: Option<i64>) -> QueryResult<Vec<(Q, QueueState)>>;
    #[doc(hidden)]
    fn load_samples(&mut self, rows: ConditionOn<'_, Self>, limit: usize) -> QueryResult<Vec<SampleRow<Q>>>;
    #[doc(hidden)]
    fn load_page(
        &mut self,
        rows: ConditionOn<'_, Self>,
        from: PageFrom<BackendOf<Self>>,
        limit: usize,
    ) -> QueryResult<Vec<SampleRow<Q>>>;
    #[doc(hidden)]
    fn load_keys(connection: &mut Self::Connection, keys: &StatementOn<'_, Self>) -> QueryResult<Vec<KeyRow<Q::Key>>>;
    #[doc(hidden)]
    fn load_error_examples(&mut self, rows: &StatementOn<'_, Self>) -> QueryResult<Vec<ErrorExampleRow<Q::Key>>>;
    /// Returns the conditions that pick the rows with these keys.
    #[doc(hidden)]
    fn are_keys(keys: &[Q::Key]) -> Vec<IsKey<BackendOf<Self>>>;
    /// Returns the condition that picks the rows after this key.
    #[doc(hidden)]
    fn after(key: &Q::Key) -> IsKey<BackendOf<Self>>;
}

/// A connection that can change such rows in batches, if the caller has chosen them.
#[diagnostic::on_unimplemented(
    message = "these rows of the queue cannot be loaded on `{Self}`",
    note = "a queue works on `PgConnection`, `MysqlConnection` and `SqliteConnection`, alone or from a pool, the filter's values can be \
            stored there, and every field can be read from it",
    note = "generic code names this bound: `C: MovesRows<Q, F>`"
)]
pub trait MovesRows<Q: Entity, F>: LoadsRows<Q, F> {}

/// The database of a connection.
pub(super) type BackendOf<C> = <<C as AsQueueConnection>::Connection as Connection>::Backend;

type ConditionOn<'a, C> = Condition<'a, BackendOf<C>>;

type StatementOn<'a, C> = dyn Statement<BackendOf<C>> + 'a;

#[diagnostic::do_not_recommend]
impl<Q, F, C> ReadsRows<Q, F> for C
where
    Q: StoredIn<BackendOf<C>>,
    F: Selection<Filter: QueryFragment<BackendOf<C>>>,
    C: AsQueueConnection<
        Connection: Loads<FinishedRowType, FinishedRow>
                        + Loads<ErrorTextRowType, ErrorTextRow>
                        + Loads<Text, DatabaseText>,
    >,
{
    fn condition<'a>(rows: &'a QueueRows<Q, F>, states: &'a [StateCondition]) -> Condition<'a, BackendOf<C>> {
        Condition::new(Q::SQL, rows.selection.filter().map(|filter| filter as _), states)
    }
}

impl<Q, F: Chosen, C: ReadsRows<Q, F>> ChangesRows<Q, F> for C {}

#[diagnostic::do_not_recommend]
impl<Q, F, C> LoadsRows<Q, F> for C
where
    Q: SelectedIn<BackendOf<C>, SelectExpression: Expression>,
    C: ReadsRows<Q, F>,
    C::Connection: Loads<LoadedRowType<Q, C::Connection>, (Q, QueueState)>
        + Loads<SampleRowType<Q, C::Connection>, SampleRow<Q>>
        + Loads<KeyRowType<Q>, KeyRow<<Q as Entity>::Key>>
        + Loads<ErrorExampleRowType<Q>, ErrorExampleRow<<Q as Entity>::Key>>,
{
    fn load_rows(&mut self, rows: ConditionOn<'_, C>, limit: Option<i64>) -> QueryResult<Vec<(Q, QueueState)>> {
        let rows = load_rows::<Q, _>(rows, limit);
        load::<LoadedRowType<Q, C::Connection>, _, _>(self.as_queue_connection(), &rows)
    }

    fn load_samples(&mut self, rows: ConditionOn<'_, C>, limit: usize) -> QueryResult<Vec<SampleRow<Q>>> {
        let rows = sample(Claim::new::<Q>(), rows, limit);
        load::<SampleRowType<Q, C::Connection>, _, _>(self.as_queue_connection(), &rows)
    }

    fn load_page(
        &mut self,
        rows: ConditionOn<'_, C>,
        from: PageFrom<BackendOf<C>>,
        limit: usize,
    ) -> QueryResult<Vec<SampleRow<Q>>> {
        let rows = read_page(Claim::new::<Q>(), rows, from, limit);
        load::<SampleRowType<Q, C::Connection>, _, _>(self.as_queue_connection(), &rows)
    }

    fn load_keys(connection: &mut C::Connection, keys: &StatementOn<'_, C>) -> QueryResult<Vec<KeyRow<Q::Key>>> {
        load::<KeyRowType<Q>, _, _>(connection, keys)
    }

    fn load_error_examples(&mut self, rows: &StatementOn<'_, C>) -> QueryResult<Vec<ErrorExampleRow<Q::Key>>> {
        load::<ErrorExampleRowType<Q>, _, _>(self.as_queue_connection(), rows)
    }

    fn are_keys(keys: &[Q::Key]) -> Vec<IsKey<BackendOf<C>>> {
        Q::rows(keys)
    }

    fn after(key: &Q::Key) -> IsKey<BackendOf<C>> {
        Q::after(key)
    }
}

impl<Q: Entity, F: Chosen, C: LoadsRows<Q, F>> MovesRows<Q, F> for C {}
