//! The derive's check that a key's type fits its column.

use diesel::ExpressionMethods;
use diesel::expression::{AsExpression, Expression, TypedExpressionType};
use diesel::sql_types::SqlType;

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

    fn is_key(value: T) -> Self::IsKey;
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

    fn is_key(value: T) -> Self::IsKey {
        K::default().eq(value.as_expression())
    }
}
