//! The primary key.

use diesel::prelude::*;
use queueable::Queueable;

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, status -> Text, } }

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
struct MissingPrimaryKey {
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[diesel(primary_key(id, number))]
struct UnknownPrimaryKey {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[diesel(primary_key())]
struct EmptyPrimaryKey {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[diesel(primary_key(id, id))]
struct RepeatedPrimaryKey {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = payments)]
struct Key {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
struct EmbeddedPrimaryKey {
    #[diesel(embed)]
    id: Key,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
struct PrimaryKeySelectedByAnExpression {
    #[diesel(select_expression = payments::amount_cents)]
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
struct PrimaryKeyWrittenAsAnotherType {
    #[diesel(serialize_as = i64)]
    id: Number,
    amount_cents: i64,
}

#[derive(diesel::deserialize::FromSqlRow)]
struct Number(i64);

fn main() {
    // The rest of the user's code is not accused.
    let _ = (missing_primary_key_queue::try_count, MissingPrimaryKey::queue_state());
    let _ = (unknown_primary_key_queue::try_count, UnknownPrimaryKey::queue_state());
    let _ = (empty_primary_key_queue::try_count, EmptyPrimaryKey::queue_state());
    let _ = (repeated_primary_key_queue::try_count, RepeatedPrimaryKey::queue_state());
    let _ = (embedded_primary_key_queue::try_count, EmbeddedPrimaryKey::queue_state());
    let _ = (primary_key_selected_by_an_expression_queue::try_count, PrimaryKeySelectedByAnExpression::queue_state());
    let _ = (primary_key_written_as_another_type_queue::try_count, PrimaryKeyWrittenAsAnotherType::queue_state());
}
