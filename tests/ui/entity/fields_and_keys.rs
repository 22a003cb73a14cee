//! Types of fields and keys.

mod fields_of_another_type {
    use diesel::prelude::*;
    use queueable::Queueable;

    diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, note -> Nullable<Text>, payee -> Text, } }

    #[derive(Queryable, Selectable, Queueable)]
    struct Payment {
        id: i64,
        amount_cents: String,
        note: String,
    }

    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    struct Borrowed<'a> {
        id: i64,
        payee: &'a str,
    }

    // The first is read as another type, the others are as the columns.
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    struct Right<'a> {
        #[diesel(deserialize_as = i64)]
        amount_cents: Cents,
        id: i64,
        note: Option<String>,
        payee: std::borrow::Cow<'a, str>,
    }

    struct Cents(i64);

    impl From<i64> for Cents {
        fn from(cents: i64) -> Self {
            Cents(cents)
        }
    }

    fn uses() {}
}

mod keys_that_do_not_fit {
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

    fn uses() {}
}

fn main() {}
