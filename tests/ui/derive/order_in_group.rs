//! `order_in_group`.

use diesel::prelude::*;
use queueable::Queueable;

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, status -> Text, } }

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = 50, order_in_group)]
struct OrderInGroupWithoutValue {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = 50, order_in_group = "amount_cents")]
struct OrderInGroupAsText {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = 50, order_in_group = (id, amount_cents))]
struct OrderInGroupOfTwoColumns {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = 50, order_in_group = id, order_in_group = amount_cents)]
struct OrderInGroupTwice {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(order_in_group = amount_cents)]
struct OrderInGroupWithoutGroup {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(lease = "60s", order_in_group = amount_cents)]
struct OrderInGroupUnderALease {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = 50, order_in_group = try_count)]
struct OrderInGroupAQueueColumn {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = 50, order_in_group = company_id)]
struct OrderInGroupAnUnknownColumn {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = payments)]
struct Amount {
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = 50, order_in_group = amount_cents)]
struct OrderInGroupAnEmbeddedStruct {
    id: i64,
    #[diesel(embed)]
    amount: Amount,
}

fn main() {
    // The rest of the user's code is not accused.
    let _ = (order_in_group_without_value_queue::try_count, OrderInGroupWithoutValue::queue_state());
    let _ = (order_in_group_as_text_queue::try_count, OrderInGroupAsText::queue_state());
    let _ = (order_in_group_of_two_columns_queue::try_count, OrderInGroupOfTwoColumns::queue_state());
    let _ = (order_in_group_twice_queue::try_count, OrderInGroupTwice::queue_state());
    let _ = (order_in_group_without_group_queue::try_count, OrderInGroupWithoutGroup::queue_state());
    let _ = (order_in_group_under_a_lease_queue::try_count, OrderInGroupUnderALease::queue_state());
    let _ = (order_in_group_a_queue_column_queue::try_count, OrderInGroupAQueueColumn::queue_state());
    let _ = (order_in_group_an_unknown_column_queue::try_count, OrderInGroupAnUnknownColumn::queue_state());
    let _ = (order_in_group_an_embedded_struct_queue::try_count, OrderInGroupAnEmbeddedStruct::queue_state());
}
