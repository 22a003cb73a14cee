//! Handlers of another entity or connection, and connections without bounds.

mod handlers_of_another_entity {
    use diesel::prelude::*;
    use diesel::r2d2::{ConnectionManager, Pool};
    use queueable::{HandlerResult, Message, Outcome, Queueable};

    diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }
    diesel::table! { invoices (id) { id -> BigInt, total -> BigInt, } }

    #[derive(Queryable, Selectable, Queueable)]
    struct Payment {
        id: i64,
        amount_cents: i64,
    }

    #[derive(Queryable, Selectable, Queueable)]
    struct Invoice {
        id: i64,
        total: i64,
    }

    struct Book;

    impl queueable::Handler<Invoice, SqliteConnection> for Book {
        fn handle(&self, _: &Invoice, _: &mut Message<'_, SqliteConnection>) -> HandlerResult {
            Ok(Outcome::Done)
        }
    }

    fn book(_: &Invoice, _: &mut Message<'_, SqliteConnection>) -> HandlerResult {
        Ok(Outcome::Done)
    }

    fn uses() {
        let pool = Pool::new(ConnectionManager::<SqliteConnection>::new(":memory:")).unwrap();
        let _ = Payment::poller(pool.clone(), Book);
        let _ = Payment::poller(pool.clone(), book);
        let _ = Payment::poller(pool, |_: &Invoice, _: &mut Message<'_, SqliteConnection>| Ok(Outcome::Done));
    }
}

mod handler_of_another_connection {
    use diesel::prelude::*;
    use diesel::r2d2::{ConnectionManager, Pool};
    use queueable::{HandlerResult, Message, Outcome, Queueable};

    diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }

    #[derive(Queryable, Selectable, Queueable)]
    struct Payment {
        id: i64,
        amount_cents: i64,
    }

    struct OtherConnection;
    struct Book;

    impl queueable::Handler<Payment, OtherConnection> for Book {
        fn handle(&self, _: &Payment, _: &mut Message<'_, OtherConnection>) -> HandlerResult {
            Ok(Outcome::Done)
        }
    }

    fn uses() {
        let pool = Pool::new(ConnectionManager::<SqliteConnection>::new(":memory:")).unwrap();
        Payment::poller(pool, Book);
    }
}

mod connections_without_bounds {
    use diesel::prelude::*;
    use diesel::r2d2::{ConnectionManager, Pool};
    use queueable::{Message, Outcome, Queueable};

    diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }

    #[derive(Queryable, Selectable, Queueable)]
    struct Payment {
        id: i64,
        amount_cents: i64,
    }

    fn serve<C: diesel::r2d2::R2D2Connection + 'static>(pool: Pool<ConnectionManager<C>>) {
        let _ = Payment::poller(pool, |_: &Payment, _: &mut Message<'_, C>| Ok(Outcome::Done));
    }

    fn count<C: diesel::Connection>(connection: &mut C) {
        let _ = Payment::queue().count(connection);
    }

    fn uses() {}
}

fn main() {}
