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

fn main() {}
