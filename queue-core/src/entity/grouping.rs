//! `GROUP BY` with queue columns, alone and beside columns of the domain.
//!
//! Diesel asks each expression of a `SELECT` whether the `GROUP BY` contains it. `table!` answers for each pair of its
//! own columns. A queue column cannot: the domain's columns belong to another crate. So it looks through the list
//! itself, and knows a column of the domain by [`EqAll`], which `table!` writes for its columns and nobody else does.

use diesel::expression::is_contained_in_group_by::{IsAny, No, Yes};
use diesel::expression::{IsContainedInGroupBy, ValidGrouping, is_aggregate};
use diesel::{Column, EqAll};

use super::column::{
    BeginTime, ChangeCount, CreatedTime, Cron, EndTime, LastAttemptErrorMessage, LastAttemptTime, NextAttemptTime,
    Occasion, Period, Priority, QueueColumn, ScheduledTime, StageText, StatusText, TimeZone, TryCount, UpdatedTime,
};

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
    ScheduledTime ChangeCount Occasion CreatedTime UpdatedTime BeginTime EndTime
}
