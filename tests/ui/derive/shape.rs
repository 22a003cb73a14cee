//! What the derive cannot turn into a queue.

use diesel::prelude::*;
use queueable::Queueable;

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, status -> Text, } }

#[derive(Queueable)]
enum Enum {
    Paid,
    Open,
}

#[derive(Queueable)]
union Union {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
struct TupleStruct(#[diesel(column_name = id)] i64, #[diesel(column_name = amount_cents)] i64);

#[derive(Queueable)]
struct UnitStruct;

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
struct AttributeOnAField {
    id: i64,
    #[queue(prefix = "a_")]
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue]
struct AttributeWithoutList {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = "payments")]
struct TableNameAsText {
    id: i64,
    amount_cents: i64,
}

fn main() {
    // The rest of the user's code is not accused.
    let _ = (tuple_struct_queue::try_count, TupleStruct::queue_state());
    let _ = (unit_struct_queue::try_count, UnitStruct::queue_state());
    let _ = (attribute_on_a_field_queue::try_count, AttributeOnAField::queue_state());
    let _ = (attribute_without_list_queue::try_count, AttributeWithoutList::queue_state());
    let _ = (table_name_as_text_queue::try_count, TableNameAsText::queue_state());
}
