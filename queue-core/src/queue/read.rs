//! Reads the rows of a selection: counts and loads them. The traits for what Diesel has to read on a connection.

use std::collections::BTreeMap;
use std::fmt;

use diesel::Connection;
use diesel::expression::Expression;
use diesel::query_builder::QueryFragment;
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Text};
use serde::{Deserialize, Serialize};

use super::queue::{QueueRows, Selection};
use crate::backend::{AsQueueConnection, Loads, QueueConnection, Statement, load};
use crate::entity::{Entity, SelectedIn, StoredIn};
use crate::error::Error;
use crate::row::{QueueState, Status};
use crate::statement::{
    Condition, CountRow, CountRowType, ErrorTextRow, ErrorTextRowType, FinishedRow, FinishedRowType, KeyRow,
    KeyRowType, LoadedRowType, PendingRow, PendingRowType, SampleRow, SampleRowType, StateCondition, count,
    count_by_status, load_rows,
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
        let statement = count_by_status(self.condition(&self.states));
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
        Ok(load::<BigInt, i64, _>(connection, &count(self.condition(&states)))?.into_iter().sum())
    }

    fn read_rows<C: QueueConnection>(
        &self,
        connection: &mut C,
        limit: Option<i64>,
    ) -> Result<Vec<LoadedOf<Self, C>>, Error>
    where
        Self: LoadOn<C>,
    {
        let statement = load_rows::<EntityOf<Self, C>, _>(self.condition(&self.states), limit);
        Ok(Self::load_rows(connection, &statement)?)
    }
}

/// Counts and changes a selection's rows on one kind of connection. It is implemented wherever Diesel can run the
/// statements.
#[diagnostic::on_unimplemented(
    message = "these rows of the queue cannot be read or changed on `{C}`",
    note = "a queue works on `PgConnection`, `MysqlConnection` and `SqliteConnection`, alone or from a pool, and the filter's values can be \
            stored there",
    note = "generic code names this bound: `QueueRows<Q, F>: ReadOn<C>`"
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
    note = "generic code names this bound: `QueueRows<Q, F>: LoadOn<C, Entity = Q>`"
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
impl<Q, F, C> ReadOn<C> for QueueRows<Q, F>
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
impl<Q, F, C> LoadOn<C> for QueueRows<Q, F>
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
