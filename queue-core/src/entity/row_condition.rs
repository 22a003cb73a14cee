//! A condition on the rows of a table.

use diesel::AppearsOnTable;
use diesel::expression::NonAggregate;
use diesel::sql_types::BoolOrNullableBool;

/// A condition on the rows of the table `T`: any Diesel expression of a boolean type, boxed or not, over the domain's
/// and the queue's columns of this table.
///
/// Every such expression implements it. There is nothing to implement by hand.
///
/// ```
/// # use diesel::prelude::*;
/// use queueable::bounds::{AllFilters, Filtered, RowCondition};
/// use queueable::{Queue, Queueable};
///
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// fn stuck<E: RowCondition<payments::table>>(condition: E) -> Queue<Payment, Filtered<E>> {
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
