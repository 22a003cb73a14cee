//! Queue columns as Diesel expressions, and the expression for all of them at once, `QueueState`; which columns can be a
//! key, and by which rows can be scheduled.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::expression::{AsExpression, TypedExpressionType};
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::query_source::{AppearsInFromClause, Once};
use diesel::result::QueryResult;
use diesel::sql_types::{self, BigInt, Integer, Nullable, SingleValue, SqlType, Text};
use diesel::{AppearsOnTable, Column, Expression, ExpressionMethods, SelectableExpression, Table};

use super::entity::QueueTable;
use crate::row::{LaneValues, TimestampUtc, ValueKind};

/// Returns the name of a column.
pub(crate) fn name_of_column<S: Column>(_: S) -> &'static str {
    S::NAME
}

/// A queue column of the table of `T`. `K` says which one.
///
/// It is an ordinary Diesel column: it works in `filter`, `order`, `select`, `set`, `values`, `returning`, `group_by`,
/// boxed queries, joins and aliases. It is defined here, so the user's `table!` stays as it is. If `schema.rs` lists the
/// queue columns too, as after `diesel print-schema`, both spellings work side by side. Only a `GROUP BY` of the queue
/// columns of two entities, or of expressions, needs them there. In the generated module each constant has a type of the
/// same name, for `select_expression` and for signatures:
///
/// ```
/// use diesel::connection::SimpleConnection;
/// use diesel::dsl::count_star;
/// use diesel::prelude::*;
/// use diesel_migrations::MigrationHarness;
/// use queueable::{Migrations, QueueState, Queueable, Status};
///
/// diesel::table! { companies (id) { id -> BigInt, name -> Text, } }
/// diesel::table! { payments (id) { id -> BigInt, company_id -> BigInt, } }
/// diesel::joinable!(payments -> companies (company_id));
/// diesel::allow_tables_to_appear_in_same_query!(companies, payments);
///
/// #[derive(Queryable, Selectable, Queueable)]
/// struct Payment { id: i64, company_id: i64 }
///
/// // A row of a list in the application, with the queue's state.
/// #[derive(Queryable, Selectable)]
/// #[diesel(table_name = payments)]
/// struct Listed {
///     id: i64,
///     #[diesel(select_expression = payment_queue::queue_state)]
///     state: QueueState,
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// # let connection = &mut SqliteConnection::establish(":memory:")?;
/// # connection.batch_execute("CREATE TABLE companies (id INTEGER PRIMARY KEY NOT NULL, name TEXT NOT NULL);
/// #     CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, company_id BIGINT NOT NULL);
/// #     INSERT INTO companies VALUES (1, 'Acme'), (2, 'Idle')")?;
/// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
/// # diesel::insert_into(payments::table).values((payments::company_id.eq(1), Payment::due_now())).execute(connection)?;
/// let listed: Vec<Listed> = payments::table.select(Listed::as_select()).load(connection)?;
/// assert_eq!(listed[0].state.status, Status::NotAttempted);
///
/// let per_company: Vec<(String, Option<Status>)> = companies::table
///     .left_join(payments::table)
///     .select((companies::name, payment_queue::status.nullable()))
///     .order(companies::id)
///     .load(connection)?;
/// assert_eq!(per_company, [("Acme".to_owned(), Some(Status::NotAttempted)), ("Idle".to_owned(), None)]);
///
/// let counts: Vec<(i64, Status, i64)> = payments::table
///     .group_by((payments::company_id, payment_queue::status))
///     .select((payments::company_id, payment_queue::status, count_star()))
///     .load(connection)?;
/// assert_eq!(counts, [(1, Status::NotAttempted, 1)]);
/// # Ok(()) }
/// ```
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

/// A column without a name is one that the entity does not ask for. Code that names it does not compile.
macro_rules! column_kinds {
    ($($(#[$doc:meta])* $kind:ident: $sql_type:ty = $name:expr,)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub enum $kind {}

        impl<T: QueueTable> ColumnKind<T> for $kind {
            type SqlType = $sql_type;
            const NAME: &'static str = match $name {
                Some(name) => name,
                None => panic!("the entity does not ask for this column"),
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

column_kinds! {
    /// Names the column `status`.
    StatusText: Text = Some(T::COLUMNS.status),
    /// Names the column `next_attempt_time`.
    NextAttemptTime: Nullable<TimestampUtc> = Some(T::COLUMNS.next_attempt_time),
    /// Names the column `try_count`.
    TryCount: Integer = Some(T::COLUMNS.try_count),
    /// Names the column `last_attempt_time`.
    LastAttemptTime: Nullable<TimestampUtc> = Some(T::COLUMNS.last_attempt_time),
    /// Names the column `last_attempt_error_message`.
    LastAttemptErrorMessage: Nullable<Text> = Some(T::COLUMNS.last_attempt_error_message),
    /// Names the column `priority`: lower first.
    Priority: Integer = T::OPTIONS.priority,
    /// Names the column `stage`.
    StageText: Text = of!(T::OPTIONS.stages, column),
    /// Names the column `period`: the seconds from run to run.
    Period: Nullable<BigInt> = of!(T::OPTIONS.periodic, period),
    /// Names the column `cron`.
    Cron: Nullable<Text> = of!(T::OPTIONS.periodic, cron),
    /// Names the column `time_zone`.
    TimeZone: Nullable<Text> = of!(T::OPTIONS.periodic, time_zone),
    /// Names the column `scheduled_time`.
    ScheduledTime: Nullable<TimestampUtc> = of!(T::OPTIONS.periodic, scheduled_time),
    /// Names the column `change_count`.
    ChangeCount: BigInt = of!(T::OPTIONS.rerun_on_change, change_count),
    /// Names the column `occasion`.
    Occasion: BigInt = T::OPTIONS.occasion,
    /// Names the column `traceparent`.
    TraceParent: Nullable<Text> = T::OPTIONS.traceparent,
    /// Names the column `created_time`.
    CreatedTime: Nullable<TimestampUtc> = T::OPTIONS.timestamps.created,
    /// Names the column `updated_time`.
    UpdatedTime: Nullable<TimestampUtc> = T::OPTIONS.timestamps.updated,
    /// Names the column `begin_time`.
    BeginTime: Nullable<TimestampUtc> = T::OPTIONS.timestamps.begin,
    /// Names the column `end_time`.
    EndTime: Nullable<TimestampUtc> = T::OPTIONS.timestamps.end,
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

/// A queue column can be selected from whatever the table's own key can be selected from: from joins, from aliases, and
/// after an outer join only as `.nullable()`.
impl<T, K, QS> SelectableExpression<QS> for QueueColumn<T, K>
where
    T: QueueTable,
    K: ColumnKind<T>,
    Self: AppearsOnTable<QS>,
    T: SelectableFrom<QS>,
{
}

/// A queue whose table's key can be selected from `QS`.
#[diagnostic::on_unimplemented(
    message = "a queue column cannot be selected from here",
    label = "cannot select this queue column",
    note = "after an outer join select it as `.nullable()`, and load an `Option`"
)]
pub trait SelectableFrom<QS> {}

#[diagnostic::do_not_recommend]
impl<T: QueueTable<Table: Table<PrimaryKey: SelectableExpression<QS>>>, QS> SelectableFrom<QS> for T {}

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

/// A column that Diesel can compare with values of type `T`: every column and type for which that is so. It belongs to
/// the column, and the value's expression `E` is a parameter, because the compiler would otherwise report the first
/// bound of `AsExpression` that fails.
#[diagnostic::on_unimplemented(
    message = "a key of type `{T}` cannot be compared with its column `{Self}`",
    label = "no value for the key's column",
    note = "compare it with the column's type in `table!`; https://docs.diesel.rs/2.3.x/diesel/sql_types/index.html has the Rust types \
            of each SQL type",
    note = "a type of your own derives `AsExpression` and `FromSqlRow`, with `#[diesel(sql_type = ..)]`, and implements `ToSql` and \
            `FromSql`"
)]
#[doc(hidden)]
pub trait KeyColumn<T> {
    /// The condition `column = value`.
    type IsKey;

    /// The condition `column > value`.
    type IsAfter;

    /// The condition `column >= value`.
    type IsFrom;

    fn is_key(value: T) -> Self::IsKey;

    fn is_after(value: T) -> Self::IsAfter;

    fn is_from(value: T) -> Self::IsFrom;
}

#[diagnostic::do_not_recommend]
impl<K, T, S, E> KeyColumn<T> for K
where
    K: Default + ExpressionMethods + Expression<SqlType = S>,
    S: SqlType + TypedExpressionType,
    T: AsExpression<S, Expression = E>,
    E: Expression<SqlType = S>,
{
    type IsKey = diesel::dsl::Eq<K, E>;

    type IsAfter = diesel::dsl::Gt<K, E>;

    type IsFrom = diesel::dsl::GtEq<K, E>;

    fn is_key(value: T) -> Self::IsKey {
        K::default().eq(value.as_expression())
    }

    fn is_after(value: T) -> Self::IsAfter {
        K::default().gt(value.as_expression())
    }

    fn is_from(value: T) -> Self::IsFrom {
        K::default().ge(value.as_expression())
    }
}

/// The SQL type of a column by which rows are scheduled, with `serial_by`, `at_most(.., by = ..)` or `fair_by`: an
/// integer, a text, bytes or a UUID, also `Nullable`.
#[diagnostic::on_unimplemented(
    message = "rows cannot be scheduled or counted by a column of type `{Self}`",
    label = "no column for this",
    note = "`serial_by`, `at_most`, `fair_by` and `report_index` take columns of the types `SmallInt`, `Integer`, `BigInt`, `Unsigned`, \
            `Text`, `Binary` and, on PostgreSQL, `Uuid`, also `Nullable`",
    note = "other types have equal values with different texts: a generated column of one of these types can stand for it"
)]
#[doc(hidden)]
pub trait LaneType {
    /// Its values. Most types are integers.
    const VALUES: LaneValues;
}

macro_rules! lane_types {
    ($($type:ty = $kind:ident,)*) => {
        $(#[diagnostic::do_not_recommend]
        impl LaneType for $type {
            const VALUES: LaneValues = LaneValues { kind: ValueKind::$kind, nullable: false };
        })*
    };
}

lane_types! {
    sql_types::SmallInt = Integer,
    sql_types::Integer = Integer,
    sql_types::BigInt = Integer,
    sql_types::Text = Text,
    sql_types::Binary = Binary,
}

#[cfg(feature = "_mysql")]
mod mysql {
    use diesel::sql_types::{BigInt, Integer, SmallInt, TinyInt, Unsigned};

    use super::{LaneType, LaneValues, ValueKind};

    lane_types! {
        TinyInt = Integer,
        Unsigned<TinyInt> = Integer,
        Unsigned<SmallInt> = Integer,
        Unsigned<Integer> = Integer,
        Unsigned<BigInt> = Integer,
    }
}

#[cfg(feature = "_postgres")]
mod postgres {
    use diesel::sql_types::Uuid;

    use super::{LaneType, LaneValues, ValueKind};

    lane_types! {
        Uuid = Uuid,
    }
}

#[diagnostic::do_not_recommend]
impl<T: LaneType + diesel::sql_types::SqlType<IsNull = diesel::sql_types::is_nullable::NotNull>> LaneType
    for sql_types::Nullable<T>
{
    const VALUES: LaneValues = LaneValues { nullable: true, ..T::VALUES };
}

/// The SQL type of a column of an order. Whether its values are texts or bytes is a constant of its own for those, and one of
/// [`OtherOrderType`] for all others.
#[doc(hidden)]
pub struct OrderType<ST>(PhantomData<ST>);

/// See [`OrderType`].
#[doc(hidden)]
pub trait OtherOrderType {
    /// Whether the values may be too long for an index.
    const IS_LONG: bool = false;
}

impl<ST> OtherOrderType for OrderType<ST> {}

const _: () = {
    macro_rules! long {
        ($($sql_type:ty),*) => {
            $(impl OrderType<$sql_type> {
                /// Whether the values may be too long for an index.
                #[doc(hidden)]
                pub const IS_LONG: bool = true;
            })*
        };
    }

    long!(
        sql_types::Text,
        sql_types::Binary,
        sql_types::Nullable<sql_types::Text>,
        sql_types::Nullable<sql_types::Binary>
    );
};
