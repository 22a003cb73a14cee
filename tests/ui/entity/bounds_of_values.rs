//! Values whose type lacks a trait.

mod custom_that_is_no_policy {
    use diesel::prelude::*;
    use queueable::Queueable;

    diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, status -> Text, } }

    #[derive(Queryable, Selectable, Queueable)]
    #[queue(retry = custom(std::time::Duration::ZERO))]
    struct Payment {
        id: i64,
        amount_cents: i64,
    }

    fn uses() {
        // The rest of the user's code is not accused.
        let _ = payments::table.filter(payment_queue::try_count.gt(1)).select(Payment::queue_state());
    }
}

mod order_in_group_a_column_without_order {
    use diesel::prelude::*;
    use queueable::Queueable;

    diesel::table! { payments (id) { id -> BigInt, weight -> Double, } }

    #[derive(Queryable, Selectable, Queueable)]
    #[queue(group = 50, order_in_group = weight)]
    struct Payment {
        id: i64,
        weight: f64,
    }

    fn uses() {
        // The rest of the user's code is not accused.
        let _ = payments::table.filter(payment_queue::try_count.gt(1)).select(Payment::queue_state());
    }
}

fn main() {}
