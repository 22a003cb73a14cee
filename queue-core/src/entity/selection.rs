//! What is selected: the derive's checks of an entity, which are for their error messages and never run, and `GROUP BY` with
//! queue columns, alone and beside columns of the domain.
//!
//! Diesel asks each expression of a `SELECT` whether the `GROUP BY` contains it. `table!` answers for each pair of its
//! own columns. A queue column cannot: the domain's columns belong to another crate. So it looks through the list
//! itself, and knows a column of the domain by [`EqAll`], which only `table!` implements, for its columns.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::expression::is_contained_in_group_by::{IsAny, No, Yes};
use diesel::expression::{IsContainedInGroupBy, SqlLiteral, ValidGrouping, is_aggregate};
use diesel::sql_types::Bool;
use diesel::{Column, EqAll, Selectable, SelectableExpression};

use super::column::{
    BeginTime, ChangeCount, CreatedTime, Cron, EndTime, LastAttemptErrorMessage, LastAttemptTime, NextAttemptTime,
    Occasion, Period, Priority, QueueColumn, ScheduledTime, StageText, StatusText, TimeZone, TraceParent, TryCount,
    UpdatedTime,
};

/// An entity that can be selected: every [`Selectable`] is one.
#[diagnostic::on_unimplemented(
    message = "the queue cannot select `{Self}`, because it is not `Selectable`",
    label = "this entity is not `Selectable`",
    note = "add `#[derive(Selectable)]` beside `#[derive(Queryable, Queueable)]`"
)]
#[doc(hidden)]
pub trait SelectableEntity<DB> {}

#[diagnostic::do_not_recommend]
impl<T: Selectable<DB>, DB: Backend> SelectableEntity<DB> for T {}

/// Compiles for entities that are `Selectable`.
#[doc(hidden)]
pub const fn assert_selectable<T: SelectableEntity<DB>, DB>() {}

/// Returns what an entity selects.
#[doc(hidden)]
pub fn selection_of<T: Selectable<DB>, DB: Backend>() -> T::SelectExpression {
    T::construct_selection()
}

/// An expression that can be selected from the table alone, without a join.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be selected from `{T}` alone, and a claim reads no other table",
    label = "this needs a row of another table",
    note = "a claim locks and reads the row of the entity's table; load the other table's row in the handler, through \
            `message.connection()`",
    note = "an entity may select columns of its own table, SQL functions of them, and subselects"
)]
#[doc(hidden)]
pub trait SelectedFrom<T> {}

#[diagnostic::do_not_recommend]
impl<E: SelectableExpression<T>, T> SelectedFrom<T> for E {}

/// Compiles for expressions that can be selected from the table alone.
#[doc(hidden)]
pub fn assert_selected_from<T, E: SelectedFrom<T>>(_selected: &E) {}

/// Stands for what an embedded struct selects on the first of three backends that it is `Selectable` on. The derive's
/// code finds out by a method call: of the impls for references to references, the compiler takes the first that fits.
#[doc(hidden)]
pub struct Embedded<E, Pg, Mysql, Sqlite>(PhantomData<(E, Pg, Mysql, Sqlite)>);

impl<E, Pg, Mysql, Sqlite> Embedded<E, Pg, Mysql, Sqlite> {
    #[expect(clippy::new_without_default, reason = "it is for the derive alone")]
    pub fn new() -> Self {
        Embedded(PhantomData)
    }
}

#[doc(hidden)]
pub trait EmbeddedSelection {
    type Selection;

    fn embedded_selection(&self) -> Self::Selection;
}

macro_rules! selected_on {
    ($backend:ident: $reference:ty) => {
        impl<E: Selectable<$backend>, Pg, Mysql, Sqlite> EmbeddedSelection for $reference
        where
            $backend: Backend,
        {
            type Selection = E::SelectExpression;

            fn embedded_selection(&self) -> E::SelectExpression {
                E::construct_selection()
            }
        }
    };
}

selected_on!(Pg: &&&Embedded<E, Pg, Mysql, Sqlite>);
selected_on!(Mysql: &&Embedded<E, Pg, Mysql, Sqlite>);
selected_on!(Sqlite: &Embedded<E, Pg, Mysql, Sqlite>);

/// On no backend that is switched on here: the assertion then gets what can be selected from every table.
impl<E, Pg, Mysql, Sqlite> EmbeddedSelection for Embedded<E, Pg, Mysql, Sqlite> {
    type Selection = SqlLiteral<Bool>;

    fn embedded_selection(&self) -> SqlLiteral<Bool> {
        diesel::dsl::sql("TRUE")
    }
}

/// Compiles for an embedded struct that selects from the table alone.
#[doc(hidden)]
#[macro_export]
macro_rules! assert_embedded {
    ($embedded:ty, $table:ty) => {{
        use $crate::EmbeddedSelection as _;
        use $crate::backends::{Mysql, Pg, Sqlite};
        $crate::assert_selected_from::<$table, _>(
            &(&&&&$crate::Embedded::<$embedded, Pg, Mysql, Sqlite>::new()).embedded_selection(),
        );
    }};
}

impl<T, K> ValidGrouping<()> for QueueColumn<T, K> {
    type IsAggregate = is_aggregate::No;
}

impl<T, K, GB> ValidGrouping<GB> for QueueColumn<T, K>
where
    Self: GroupedBy<GB, Answer = Yes>,
{
    type IsAggregate = is_aggregate::Yes;
}

/// A column of the domain is not contained in `GROUP BY` a queue column.
impl<T, K, C: Column + EqAll<C>> IsContainedInGroupBy<C> for QueueColumn<T, K> {
    type Output = No;
}

/// A queue column. Says whether it is in the list after `GROUP BY`.
#[diagnostic::on_unimplemented(
    message = "a queue column is selected, but is not in the `GROUP BY`",
    label = "selects a queue column that `group_by` does not name",
    note = "add the column to `group_by`, or aggregate it, as in `max(payment_queue::try_count)`",
    note = "a `GROUP BY` of up to 8 columns of tables is understood; to group by an expression, or by the queue columns of two \
            entities, list the queue columns in `schema.rs`"
)]
pub trait GroupedBy<List> {
    /// `Yes` or `No`.
    type Answer;
}

/// One expression of such a list.
pub trait IsQueueColumn<T, K> {
    /// `Yes` or `No`.
    type Answer;
}

/// Says whether two kinds of columns are the same.
pub trait IsKind<K> {
    /// `Yes` or `No`.
    type Answer;
}

impl<T, K, Other: IsKind<K>> GroupedBy<QueueColumn<T, Other>> for QueueColumn<T, K> {
    type Answer = Other::Answer;
}

impl<T, K, Other: IsKind<K>> IsQueueColumn<T, K> for QueueColumn<T, Other> {
    type Answer = Other::Answer;
}

impl<T, K, C: Column + EqAll<C>> IsQueueColumn<T, K> for C {
    type Answer = No;
}

impl<T, K, A: IsQueueColumn<T, K>> GroupedBy<(A,)> for QueueColumn<T, K> {
    type Answer = A::Answer;
}

macro_rules! lists {
    ($($first:ident $($other:ident)*,)*) => {$(
        impl<T, K, $first, $($other),*> GroupedBy<($first, $($other,)*)> for QueueColumn<T, K>
        where
            $first: IsQueueColumn<T, K>,
            Self: GroupedBy<($($other,)*)>,
            $first::Answer: IsAny<<Self as GroupedBy<($($other,)*)>>::Answer>,
        {
            type Answer = <$first::Answer as IsAny<<Self as GroupedBy<($($other,)*)>>::Answer>>::Output;
        }
    )*};
}

lists! {
    A B,
    A B C,
    A B C D,
    A B C D E,
    A B C D E F,
    A B C D E F G,
    A B C D E F G H,
}

macro_rules! kinds {
    ($first:ident $($other:ident)*) => {
        impl IsKind<$first> for $first {
            type Answer = Yes;
        }
        $(
            impl IsKind<$first> for $other {
                type Answer = No;
            }
            impl IsKind<$other> for $first {
                type Answer = No;
            }
        )*
        kinds!($($other)*);
    };
    () => {};
}

kinds! {
    StatusText NextAttemptTime TryCount LastAttemptTime LastAttemptErrorMessage Priority StageText Period Cron TimeZone
    ScheduledTime ChangeCount Occasion CreatedTime UpdatedTime BeginTime EndTime TraceParent
}
