//! A `MultiConnection`.

mod operations_on_a_multi_connection {
    use diesel::prelude::*;
    use queueable::Queueable;

    diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }

    #[derive(Queryable, Selectable, Queueable)]
    struct Payment {
        id: i64,
        amount_cents: i64,
    }

    #[derive(diesel::MultiConnection)]
    enum AnyConnection {
        Sqlite(SqliteConnection),
    }

    fn uses() {
        let connection = &mut AnyConnection::establish(":memory:").unwrap();
        let company = Payment::queue().filter(payments::amount_cents.gt(100));
        let _ = company.retry_now(connection);
        let _ = company.load(connection);
        let _ = Payment::explain(connection, &1);
    }
}

mod pool_of_a_multi_connection {
    use diesel::prelude::*;
    use diesel::r2d2::{ConnectionManager, Pool};
    use queueable::{HandlerResult, Message, Outcome, Queueable};

    diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }

    #[derive(Queryable, Selectable, Queueable)]
    struct Payment {
        id: i64,
        amount_cents: i64,
    }

    #[derive(diesel::MultiConnection)]
    enum AnyConnection {
        Sqlite(SqliteConnection),
    }

    fn book(_: &Payment, _: &mut Message<'_, AnyConnection>) -> HandlerResult {
        Ok(Outcome::Done)
    }

    fn uses() {
        let pool = Pool::new(ConnectionManager::<AnyConnection>::new(":memory:")).unwrap();
        let _ = Payment::poller(pool, book);
    }
}

mod migrations_of_a_multi_connection {
    use diesel::prelude::*;
    use diesel_migrations::MigrationHarness;
    use queueable::{Migrations, Queueable};

    diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }

    #[derive(Queryable, Selectable, Queueable)]
    struct Payment {
        id: i64,
        amount_cents: i64,
    }

    #[derive(diesel::MultiConnection)]
    enum AnyConnection {
        Sqlite(SqliteConnection),
    }

    fn uses() {
        let connection = &mut AnyConnection::establish(":memory:").unwrap();
        connection.run_pending_migrations(Migrations::new().entity::<Payment>()).unwrap();
    }
}

fn main() {}
