//! Entities that the queue cannot read.

mod not_queryable {
    use diesel::prelude::*;
    use diesel::r2d2::{ConnectionManager, Pool};
    use queueable::{HandlerResult, Message, Outcome, Queueable};

    diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }

    #[derive(Selectable, Queueable)]
    struct Payment {
        id: i64,
        amount_cents: i64,
    }

    fn book(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult {
        Ok(Outcome::Done)
    }

    fn uses() {
        let pool = Pool::new(ConnectionManager::<SqliteConnection>::new(":memory:")).unwrap();
        let _ = Payment::poller(pool, book);
    }
}

mod not_selectable {
    use diesel::prelude::*;
    use queueable::Queueable;

    diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, status -> Text, } }

    #[derive(Queryable, Queueable)]
    struct Payment {
        id: i64,
        amount_cents: i64,
    }

    fn uses() {
        // The rest of the user's code is not accused.
        let _ = payments::table.filter(payment_queue::try_count.gt(1)).select(Payment::queue_state());
    }
}

mod not_selectable_generic {
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

    fn uses() {}
}

fn main() {}
