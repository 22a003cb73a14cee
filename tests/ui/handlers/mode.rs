//! Handlers of another mode than the entity's.

mod call_without_apply {
    use diesel::prelude::*;
    use diesel::r2d2::{ConnectionManager, Pool};
    use queueable::{Lease, Queueable};

    diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }

    #[derive(Queryable, Selectable, Queueable)]
    #[queue(lease = "60s")]
    struct Payment {
        id: i64,
        amount_cents: i64,
    }

    fn uses() {
        let pool = Pool::new(ConnectionManager::<SqliteConnection>::new(":memory:")).unwrap();
        Payment::poller(pool, |_: &Payment, _: &Lease| Ok(()));
    }
}

mod closure_for_an_entity_with_a_lease {
    use diesel::prelude::*;
    use diesel::r2d2::{ConnectionManager, Pool};
    use queueable::{Message, Outcome, Queueable};

    diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }

    #[derive(Queryable, Selectable, Queueable)]
    #[queue(lease = "60s")]
    struct Payment {
        id: i64,
        amount_cents: i64,
    }

    fn uses() {
        let pool = Pool::new(ConnectionManager::<SqliteConnection>::new(":memory:")).unwrap();
        Payment::poller(pool, |_: &Payment, _: &mut Message<'_, SqliteConnection>| Ok(Outcome::Done));
    }
}

mod handler_for_an_entity_with_a_lease {
    use diesel::prelude::*;
    use diesel::r2d2::{ConnectionManager, Pool};
    use queueable::{HandlerResult, Message, Outcome, Queueable};

    diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }

    #[derive(Queryable, Selectable, Queueable)]
    #[queue(lease = "60s")]
    struct Payment {
        id: i64,
        amount_cents: i64,
    }

    fn book(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult {
        Ok(Outcome::Done)
    }

    fn uses() {
        let pool = Pool::new(ConnectionManager::<SqliteConnection>::new(":memory:")).unwrap();
        Payment::poller(pool, book);
    }
}

mod two_closures_for_an_entity_without_lease {
    use diesel::prelude::*;
    use diesel::r2d2::{ConnectionManager, Pool};
    use queueable::{Lease, Message, Outcome, Queueable};

    diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }

    #[derive(Queryable, Selectable, Queueable)]
    struct Payment {
        id: i64,
        amount_cents: i64,
    }

    fn uses() {
        let pool = Pool::new(ConnectionManager::<SqliteConnection>::new(":memory:")).unwrap();
        let call = |_: &Payment, _: &Lease| Ok(());
        let apply = |_: &Payment, _: &(), _: &mut Message<'_, SqliteConnection>| Ok(Outcome::Done);
        Payment::poller(pool, (call, apply));
    }
}

mod lease_handler_for_an_entity_without_lease {
    use diesel::prelude::*;
    use diesel::r2d2::{ConnectionManager, Pool};
    use queueable::{Failure, HandlerResult, Lease, LeaseHandler, Message, Outcome, Queueable};

    diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }

    #[derive(Queryable, Selectable, Queueable)]
    struct Payment {
        id: i64,
        amount_cents: i64,
    }

    struct Charge;

    impl LeaseHandler<Payment, SqliteConnection> for Charge {
        type Answer = ();

        fn call(&self, _: &Payment, _: &Lease) -> Result<(), Failure> {
            Ok(())
        }

        fn apply(&self, _: &Payment, _: &(), _: &mut Message<'_, SqliteConnection>) -> HandlerResult {
            Ok(Outcome::Done)
        }
    }

    fn uses() {
        let pool = Pool::new(ConnectionManager::<SqliteConnection>::new(":memory:")).unwrap();
        Payment::poller(pool, Charge);
    }
}

mod lease_handler_for_an_entity_with_groups {
    use diesel::prelude::*;
    use diesel::r2d2::{ConnectionManager, Pool};
    use queueable::{Failure, HandlerResult, Lease, LeaseHandler, Message, Outcome, Queueable};

    diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }

    #[derive(Queryable, Selectable, Queueable)]
    #[queue(group = 50)]
    struct Payment {
        id: i64,
        amount_cents: i64,
    }

    struct Charge;

    impl LeaseHandler<Payment, SqliteConnection> for Charge {
        type Answer = ();

        fn call(&self, _: &Payment, _: &Lease) -> Result<(), Failure> {
            Ok(())
        }

        fn apply(&self, _: &Payment, _: &(), _: &mut Message<'_, SqliteConnection>) -> HandlerResult {
            Ok(Outcome::Done)
        }
    }

    fn uses() {
        let pool = Pool::new(ConnectionManager::<SqliteConnection>::new(":memory:")).unwrap();
        Payment::poller(pool, Charge);
    }
}

fn main() {}
