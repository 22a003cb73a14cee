//! A text that cannot be read, mostly in the column by which rows are scheduled: its row fails alone and with the reason,
//! whatever the mode, and all other rows are processed.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::bounds::StoredIn;
use queueable::{Lease, Message, Migrations, Outcome, Queueable, Status};

use crate::db::{AUTO_KEY, Conn, Database, NAME, TEXT};

type Backend = <Conn as diesel::Connection>::Backend;

diesel::table! { letters (id) { id -> BigInt, city -> Nullable<Text>, weight -> BigInt, } }

macro_rules! letter {
    ($name:ident, $module:ident, $($settings:tt)*) => {
        #[derive(Debug, Queryable, Selectable, Queueable)]
        #[diesel(table_name = letters)]
        #[queue(module = $module, retry = fixed("1h"), $($settings)*)]
        #[allow(dead_code, reason = "nobody reads them but the queue")]
        struct $name {
            id: i64,
            weight: i64,
        }
    };
}

letter!(Serial, serial_queue, serial_by = city, timeout = "30s");
letter!(Strict, strict_queue, serial_by(city, strict), timeout = "30s");
letter!(Fair, fair_queue, fair_by = city, timeout = "30s");
letter!(Pairs, pairs_queue, at_most(2, by = city), timeout = "30s");
letter!(Grouped, grouped_queue, fair_by = city, group = 10, timeout = "30s");
letter!(Ordered, ordered_queue, serial_by = city, order_by = weight, timeout = "30s");
letter!(Leased, leased_queue, serial_by = city, lease = "60s");

/// A letter with a text that nobody can read, in a queue in which it decides nothing.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = letters)]
#[queue(retry = fixed("1h"), max_tries = 1, timeout = "30s")]
#[allow(dead_code, reason = "nobody reads them but the queue")]
struct Addressed {
    id: i64,
    city: Option<String>,
}

/// The SQL of texts that no client can read, or that no text equals.
fn unreadable() -> [&'static str; 2] {
    match NAME {
        // Bytes that are no text, and the bytes of one.
        "sqlite" => ["x'FF41'", "x'4265726C696E'"],
        // A database without an encoding takes any bytes.
        _ => ["E'\\377A'", "E'\\303'"],
    }
}

/// Makes 40 due rows of five cities and of none, and others between them whose cities cannot be read.
fn database_of<Q>() -> Database
where
    Q: StoredIn<Backend> + 'static,
{
    let database = Database::new();
    let set = |sql: &str| database.connect().batch_execute(sql).unwrap();
    if NAME == "postgres" {
        set("UPDATE pg_database SET encoding = 0 WHERE datname = current_database()");
    }
    set(&format!("CREATE TABLE letters (id {AUTO_KEY} NOT NULL, city {TEXT}, weight BIGINT NOT NULL DEFAULT 0)"));
    database.connect().run_pending_migrations(Migrations::new().entity::<Q>()).unwrap();
    for row in 0..40 {
        let city = if row % 6 == 5 { "NULL".to_owned() } else { format!("'city {}'", row % 6) };
        let rows = std::iter::once(city.as_str()).chain((row % 8 == 2).then(unreadable).into_iter().flatten());
        for city in rows {
            set(&format!(
                "INSERT INTO letters (city, next_attempt_time) VALUES ({city}, '2026-01-01 00:00:{row:02}.000')"
            ));
        }
    }
    database
}

macro_rules! works {
    ($entity:ident, $module:ident, $handler:expr) => {{
        let database = database_of::<$entity>();
        let tally = $entity::poller(database.pool(5), $handler).workers(2).run_until_idle().unwrap();
        assert_eq!((tally.succeeded, tally.failed, tally.retried), (40, 10, 0), "{tally:?}");
        let texts = letters::table
            .filter($module::status.eq(Status::Failed))
            .select(($module::try_count, $module::last_attempt_error_message.assume_not_null()))
            .load::<(i32, String)>(&mut database.connect())
            .unwrap();
        assert_eq!(texts.len(), 10);
        for (tries, text) in texts {
            assert!(text.starts_with("cannot decode the column `city`, by which the rows are scheduled: "), "{text}");
            assert_eq!(tries, 0);
        }
    }};
    ($entity:ident, $module:ident) => {
        works!($entity, $module, |_: &$entity, _: &mut Message<'_, Conn>| Ok(Outcome::Done))
    };
}

#[test]
fn its_row_fails_alone_where_values_take_turns() {
    works!(Serial, serial_queue);
    works!(Fair, fair_queue);
    works!(Pairs, pairs_queue);
}

#[test]
fn its_row_fails_alone_where_rows_keep_a_strict_order() {
    works!(Strict, strict_queue);
    works!(Ordered, ordered_queue);
}

#[test]
fn its_row_fails_alone_in_a_group() {
    works!(Grouped, grouped_queue);
}

#[test]
fn its_row_fails_alone_under_a_lease() {
    let call = |_: &Leased, _: &Lease| Ok(());
    let apply = |_: &Leased, (): &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    works!(Leased, leased_queue, (call, apply));
}

#[test]
fn a_row_fails_alone_whose_text_cannot_be_read() {
    let database = database_of::<Addressed>();
    let handler = |_: &Addressed, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let tally = Addressed::poller(database.pool(5), handler).workers(2).run_until_idle().unwrap();
    // Diesel reads the bytes of a text as that text.
    let unreadable = if NAME == "sqlite" { 5 } else { 10 };
    assert_eq!((tally.succeeded, tally.failed), (50 - unreadable, unreadable), "{tally:?}");
}
