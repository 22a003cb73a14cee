//! Queue columns as Diesel expressions, and the expression for all of them at once, `QueueState`.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::expression::{IsContainedInGroupBy, ValidGrouping, is_aggregate};
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::query_source::{AppearsInFromClause, Once};
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Integer, Nullable, SingleValue, SqlType, Text};
use diesel::{AppearsOnTable, Column, Expression, SelectableExpression};

use super::table::QueueTable;
use crate::row::TimestampUtc;

/// A queue column of the table of `T`. `K` says which one.
///
/// It is an ordinary Diesel column: it works in `filter`, `order`, `select`, `set`, `values`, `returning`, `group_by`,
/// boxed queries, and the filter of a joined query. It is defined here, so the user's `table!` stays as it is. To
/// *select* one from a join, or to group by it together with a column of the domain, list the queue columns in
/// `schema.rs` too (`diesel print-schema` does): only `table!` writes those impls. Both spellings work side by side.
///
/// On SQLite, `returning` needs diesel's feature `returning_clauses_for_sqlite_3_35`, as for any other column.
pub struct QueueColumn<T, K>(PhantomData<fn() -> (T, K)>);

impl<T, K> QueueColumn<T, K> {
    /// Makes the column. The derive writes one constant for each.
    #[expect(clippy::new_without_default, reason = "a column is a constant, not a value with a default")]
    pub const fn new() -> Self {
        QueueColumn(PhantomData)
    }
}

impl<T, K> Clone for QueueColumn<T, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, K> Copy for QueueColumn<T, K> {}

impl<T: QueueTable, K: ColumnKind<T>> std::fmt::Debug for QueueColumn<T, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(K::NAME)
    }
}

/// Says which queue column it is: its SQL type, and its name on the table of `T`.
pub trait ColumnKind<T>: 'static {
    /// The column's SQL type.
    type SqlType: SqlType + SingleValue + diesel::expression::TypedExpressionType + 'static;

    /// The column's name.
    const NAME: &'static str;
}

macro_rules! column_kinds {
    ($($(#[$doc:meta])* $kind:ident: $sql_type:ty = $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub enum $kind {}

        impl<T: QueueTable> ColumnKind<T> for $kind {
            type SqlType = $sql_type;
            const NAME: &'static str = T::COLUMNS.$name;
        }
    )*};
}

column_kinds! {
    /// Names the column `status`.
    StatusText: Text = status,
    /// Names the column `next_attempt_time`.
    NextAttemptTime: Nullable<TimestampUtc> = next_attempt_time,
    /// Names the column `try_count`.
    TryCount: Integer = try_count,
    /// Names the column `last_attempt_time`.
    LastAttemptTime: Nullable<TimestampUtc> = last_attempt_time,
    /// Names the column `last_attempt_error_message`.
    LastAttemptErrorMessage: Nullable<Text> = last_attempt_error_message,
}

/// The columns that a table has only if its entity asks for them. Elsewhere they have no name, and code that names one
/// does not compile.
macro_rules! optional_column_kinds {
    ($($(#[$doc:meta])* $kind:ident: $sql_type:ty = |$options:ident| $name:expr,)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub enum $kind {}

        impl<T: QueueTable> ColumnKind<T> for $kind {
            type SqlType = $sql_type;
            const NAME: &'static str = {
                let $options = T::OPTIONS;
                match $name {
                    Some(name) => name,
                    None => panic!("the entity does not ask for this column"),
                }
            };
        }
    )*};
}

/// `Option::map` in constants.
macro_rules! of {
    ($option:expr, $field:ident) => {
        match $option {
            Some(value) => Some(value.$field),
            None => None,
        }
    };
}

optional_column_kinds! {
    /// Names the column `priority`: lower first.
    Priority: Integer = |options| options.priority,
    /// Names the column `stage`.
    StageText: Text = |options| of!(options.stages, column),
    /// Names the column `period`: the seconds from run to run.
    Period: Nullable<BigInt> = |options| of!(options.periodic, period),
    /// Names the column `cron`.
    Cron: Nullable<Text> = |options| of!(options.periodic, cron),
    /// Names the column `time_zone`.
    TimeZone: Nullable<Text> = |options| of!(options.periodic, time_zone),
    /// Names the column `scheduled_time`.
    ScheduledTime: Nullable<TimestampUtc> = |options| of!(options.periodic, scheduled_time),
    /// Names the column `change_count`.
    ChangeCount: BigInt = |options| of!(options.rerun_on_change, change_count),
    /// Names the column `occasion`.
    Occasion: BigInt = |options| options.occasion,
    /// Names the column `created_time`.
    CreatedTime: Nullable<TimestampUtc> = |options| options.timestamps.created,
    /// Names the column `updated_time`.
    UpdatedTime: Nullable<TimestampUtc> = |options| options.timestamps.updated,
    /// Names the column `begin_time`.
    BeginTime: Nullable<TimestampUtc> = |options| options.timestamps.begin,
    /// Names the column `end_time`.
    EndTime: Nullable<TimestampUtc> = |options| options.timestamps.end,
}

impl<T: QueueTable, K: ColumnKind<T>> Expression for QueueColumn<T, K> {
    type SqlType = K::SqlType;
}

impl<T: QueueTable, K: ColumnKind<T>> Column for QueueColumn<T, K> {
    type Table = T::Table;

    const NAME: &'static str = K::NAME;
}

impl<T: 'static, K: 'static> QueryId for QueueColumn<T, K> {
    type QueryId = QueueColumn<T, K>;
}

impl<T, K, DB> QueryFragment<DB> for QueueColumn<T, K>
where
    T: QueueTable,
    K: ColumnKind<T>,
    DB: Backend,
    T::Table: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        // SQLite's RETURNING takes no table name; diesel signals it by this method.
        if !out.should_skip_from() {
            T::TABLE.walk_ast(out.reborrow())?;
            out.push_sql(".");
        }
        out.push_identifier(K::NAME)
    }
}

impl<T, K, QS> AppearsOnTable<QS> for QueueColumn<T, K>
where
    T: QueueTable,
    K: ColumnKind<T>,
    QS: AppearsInFromClause<T::Table, Count = Once>,
{
}

impl<T, K> SelectableExpression<T::Table> for QueueColumn<T, K>
where
    T: QueueTable,
    K: ColumnKind<T>,
    Self: AppearsOnTable<T::Table>,
{
}

impl<T, K> ValidGrouping<()> for QueueColumn<T, K> {
    type IsAggregate = is_aggregate::No;
}

impl<T, K, GB> ValidGrouping<GB> for QueueColumn<T, K>
where
    GB: IsContainedInGroupBy<QueueColumn<T, K>, Output = diesel::expression::is_contained_in_group_by::Yes>,
{
    type IsAggregate = is_aggregate::Yes;
}

impl<T, K> IsContainedInGroupBy<QueueColumn<T, K>> for QueueColumn<T, K> {
    type Output = diesel::expression::is_contained_in_group_by::Yes;
}

/// The expression that selects a [`QueueState`](crate::QueueState).
pub type QueueStateColumns<T> = (
    QueueColumn<T, StatusText>,
    QueueColumn<T, NextAttemptTime>,
    QueueColumn<T, TryCount>,
    QueueColumn<T, LastAttemptTime>,
    QueueColumn<T, LastAttemptErrorMessage>,
);

pub(crate) const fn queue_state<T>() -> QueueStateColumns<T> {
    (QueueColumn::new(), QueueColumn::new(), QueueColumn::new(), QueueColumn::new(), QueueColumn::new())
}
