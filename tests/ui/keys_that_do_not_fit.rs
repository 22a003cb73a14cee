use diesel::prelude::*;
use diesel::deserialize::FromSqlRow;
use diesel::expression::AsExpression;
use queueable::Queueable;

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
struct OfAnotherType {
    id: String,
}

#[derive(Debug, Clone, FromSqlRow)]
struct Number(i64);

impl<DB: diesel::backend::Backend> diesel::deserialize::FromSql<diesel::sql_types::BigInt, DB> for Number
where
    i64: diesel::deserialize::FromSql<diesel::sql_types::BigInt, DB>,
{
    fn from_sql(value: DB::RawValue<'_>) -> diesel::deserialize::Result<Self> {
        i64::from_sql(value).map(Number)
    }
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
struct NotComparable {
    id: Number,
}

#[derive(Debug, Clone, AsExpression)]
#[diesel(sql_type = diesel::sql_types::BigInt)]
struct Written(i64);

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
struct NotReadable {
    id: Written,
}

fn main() {}
