use diesel::prelude::*;
use queueable::Queueable;

diesel::table! { payments (id) { id -> BigInt, weight -> Double, } }

#[derive(Queryable, Selectable, Queueable)]
#[queue(group = 50, order_in_group = weight)]
struct Payment {
    id: i64,
    weight: f64,
}

fn main() {
    // The rest of the user's code is not accused.
    let _ = payments::table.filter(payment_queue::try_count.gt(1)).select(Payment::queue_state());
}
