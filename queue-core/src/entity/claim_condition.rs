//! Conditions on the rows of a table, and the one that an entity adds to its claim.

use std::any::{Any, TypeId};
use std::fmt;
use std::marker::PhantomData;

use diesel::AppearsOnTable;
use diesel::backend::Backend;
use diesel::expression::NonAggregate;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;
use diesel::sql_types::BoolOrNullableBool;

use crate::error::refused;

/// The condition of `claim_if`, in the SQL of one backend.
pub struct ClaimCondition<DB: Backend>(Option<Box<dyn QueryFragment<DB>>>);

impl<DB: Backend> QueryFragment<DB> for ClaimCondition<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        match &self.0 {
            Some(condition) => condition.walk_ast(out),
            None => Err(refused("the condition in `claim_if` cannot be written in this database's SQL".to_owned())),
        }
    }
}

impl<DB: Backend> fmt::Debug for ClaimCondition<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClaimCondition")
    }
}

/// A condition that may become a [`ClaimCondition`], if the backend `DB` can write it. The derive's code finds out by a
/// method call: the compiler takes the impl for the value where the condition can be written, and the impl for its
/// reference elsewhere.
#[doc(hidden)]
pub struct ConditionFor<DB, E>(Option<E>, PhantomData<fn() -> DB>);

impl<DB, E> ConditionFor<DB, E> {
    pub fn new(condition: E) -> Self {
        ConditionFor(Some(condition), PhantomData)
    }
}

#[doc(hidden)]
pub trait TakeCondition {
    fn take_condition(&mut self) -> Option<Box<dyn Any>>;
}

impl<DB: Backend + 'static, E: QueryFragment<DB> + 'static> TakeCondition for ConditionFor<DB, E> {
    fn take_condition(&mut self) -> Option<Box<dyn Any>> {
        let condition = self.0.take()?;
        Some(Box::new(ClaimCondition::<DB>(Some(Box::new(condition)))))
    }
}

impl<DB, E> TakeCondition for &mut ConditionFor<DB, E> {
    fn take_condition(&mut self) -> Option<Box<dyn Any>> {
        None
    }
}

/// Takes a condition that was written for the backend `X`, if `X` is the backend that the surrounding generic code
/// calls `DB`.
#[doc(hidden)]
pub fn condition_on<DB: Backend + 'static, X: 'static>(
    take: impl FnOnce() -> Option<Box<dyn Any>>,
) -> Option<ClaimCondition<DB>> {
    if TypeId::of::<DB>() != TypeId::of::<X>() {
        return None;
    }
    let written = take().and_then(|condition| condition.downcast::<ClaimCondition<DB>>().ok());
    Some(written.map_or(ClaimCondition(None), |condition| *condition))
}

/// Compiles only for a condition on the table, whatever the database.
#[doc(hidden)]
pub fn assert_condition<T, E: RowCondition<T> + 'static>(_condition: &E) {}

/// Stands for a condition that no backend here can write. Its queries fail, so that a claim never leaves the condition
/// out.
#[doc(hidden)]
pub fn unwritable_condition<DB: Backend>() -> Option<ClaimCondition<DB>> {
    Some(ClaimCondition(None))
}

/// Writes a condition for the backend `$db`.
#[doc(hidden)]
#[macro_export]
macro_rules! claim_condition {
    ($db:ty, $condition:expr) => {{
        #[allow(unused_imports)]
        use $crate::TakeCondition as _;
        $crate::condition_on::<$db, $crate::backends::Pg>(|| {
            (&mut $crate::ConditionFor::<$crate::backends::Pg, _>::new($condition)).take_condition()
        })
        .or_else(|| {
            $crate::condition_on::<$db, $crate::backends::Mysql>(|| {
                (&mut $crate::ConditionFor::<$crate::backends::Mysql, _>::new($condition)).take_condition()
            })
        })
        .or_else(|| {
            $crate::condition_on::<$db, $crate::backends::Sqlite>(|| {
                (&mut $crate::ConditionFor::<$crate::backends::Sqlite, _>::new($condition)).take_condition()
            })
        })
        .or_else($crate::unwritable_condition)
    }};
}

/// A condition on the rows of the table `T`: any Diesel expression of a boolean type, boxed or not, over the domain's
/// and the queue's columns of this table.
///
/// Every such expression implements it. There is nothing to implement by hand.
///
/// ```
/// # use diesel::prelude::*;
/// use queueable::bounds::{AllFilters, Filtered, RowCondition};
/// use queueable::{QueueRows, Queueable};
///
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// fn stuck<E: RowCondition<payments::table>>(condition: E) -> QueueRows<Payment, Filtered<E>> {
///     Payment::queue().filter(condition).failed()
/// }
/// # let _ = stuck(payments::id.eq(1));
/// ```
#[diagnostic::on_unimplemented(
    message = "this is not a condition on the rows of `{T}`",
    label = "not a condition on this table",
    note = "a condition is a boolean expression over the columns of this one table and its queue columns, without aggregates: \
            `payments::company_id.eq(7)`, `payment_queue::try_count.gt(3)`",
    note = "a condition on another table goes into a subquery: \
            `payments::company_id.eq_any(companies::table.filter(..).select(companies::id))`"
)]
pub trait RowCondition<T> {}

#[diagnostic::do_not_recommend]
impl<T, E> RowCondition<T> for E where E: AppearsOnTable<T, SqlType: BoolOrNullableBool> + NonAggregate {}
