use diesel::prelude::*;
use queueable::Queueable;

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, status -> Text, } }

#[derive(Queryable, Queueable)]
struct Payment<'a, T>
where
    T: Copy,
{
    id: i64,
    amount_cents: std::borrow::Cow<'a, [T]>,
}

fn main() {}
