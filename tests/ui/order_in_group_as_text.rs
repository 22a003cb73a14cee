use diesel::prelude::*;
use queueable::Queueable;

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, status -> Text, } }

#[derive(Queryable, Selectable, Queueable)]
#[queue(group = 50, order_in_group = "amount_cents")]
struct Payment {
    id: i64,
    amount_cents: i64,
}

fn main() {
    // The rest of the user's code is not accused.
    let _ = payments::table.filter(payment_queue::try_count.gt(1)).select(Payment::queue_state());
}
