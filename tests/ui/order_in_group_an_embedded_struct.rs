use diesel::prelude::*;
use queueable::Queueable;

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }

#[derive(Queryable, Selectable)]
#[diesel(table_name = payments)]
struct Amount {
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[queue(group = 50, order_in_group = amount_cents)]
struct Payment {
    id: i64,
    #[diesel(embed)]
    amount: Amount,
}

fn main() {
    // The rest of the user's code is not accused.
    let _ = payments::table.filter(payment_queue::try_count.gt(1)).select(Payment::queue_state());
}
