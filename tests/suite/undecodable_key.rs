//! A key that cannot be decoded: its row fails alone and with its name, whatever the mode, and all other rows are
//! processed.

use diesel::connection::SimpleConnection;
use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::expression::AsExpression;
use diesel::prelude::*;
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types;
use diesel_migrations::MigrationHarness;
use queueable::bounds::StoredIn;
use queueable::{ClaimStyle, Lease, Message, Migrations, Outcome, Poller, Queueable, Tally};

use crate::db::{BIGINT, Conn, Database, LONG_TEXT, NAME, TEXT};

type Backend = <Conn as diesel::Connection>::Backend;

diesel::table! { tickets (id) { id -> BigInt, amount -> BigInt, } }
diesel::table! { seats (hall, id) { hall -> Text, id -> BigInt, amount -> BigInt, } }

/// A number that is even.
#[derive(Debug, Clone, Copy, PartialEq, Eq, AsExpression, FromSqlRow)]
#[diesel(sql_type = sql_types::BigInt)]
pub(crate) struct Even(i64);

impl ToSql<sql_types::BigInt, Backend> for Even
where
    i64: ToSql<sql_types::BigInt, Backend>,
{
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Backend>) -> serialize::Result {
        <i64 as ToSql<sql_types::BigInt, Backend>>::to_sql(&self.0, out)
    }
}

impl FromSql<sql_types::BigInt, Backend> for Even
where
    i64: FromSql<sql_types::BigInt, Backend>,
{
    fn from_sql(bytes: <Backend as diesel::backend::Backend>::RawValue<'_>) -> deserialize::Result<Self> {
        match <i64 as FromSql<sql_types::BigInt, Backend>>::from_sql(bytes)? {
            13 => panic!("thirteen is no number"),
            odd if odd % 2 != 0 => Err(format!("{odd} is not even").into()),
            even => Ok(Even(even)),
        }
    }
}

macro_rules! entity {
    ($name:ident, $table:ident, $module:ident, [$($key:tt)*], $($settings:tt)*) => {
        #[derive(Debug, Queryable, Selectable, Queueable)]
        #[diesel(table_name = $table $($key)*)]
        #[queue(module = $module, retry = fixed("1h"), $($settings)*)]
        struct $name {
            #[allow(dead_code, reason = "nobody reads it but the queue")]
            id: Even,
            #[allow(dead_code, reason = "a column to be ordered by")]
            amount: i64,
        }
    };
}

macro_rules! seat {
    ($name:ident, $module:ident, $($settings:tt)*) => {
        #[derive(Debug, Queryable, Selectable, Queueable)]
        #[diesel(table_name = seats, primary_key(hall, id))]
        #[queue(module = $module, retry = fixed("1h"), $($settings)*)]
        #[allow(dead_code, reason = "nobody reads them but the queue")]
        struct $name {
            hall: String,
            id: Even,
            amount: i64,
        }
    };
}

entity!(Plain, tickets, plain_queue, [], timeout = "30s");
entity!(Grouped, tickets, grouped_queue, [], group = 10, timeout = "30s");
entity!(Leased, tickets, leased_queue, [], lease = "60s");
entity!(InTurn, tickets, in_turn_queue, [], exclusive, timeout = "30s");
entity!(LeasedInTurn, tickets, leased_in_turn_queue, [], exclusive, lease = "60s");
entity!(Ordered, tickets, ordered_queue, [], order_by = amount, timeout = "30s");
seat!(Seat, seat_queue, timeout = "30s");
seat!(GroupedSeat, grouped_seat_queue, group = 10, timeout = "30s");
seat!(LeasedSeat, leased_seat_queue, lease = "60s");

/// Makes forty due rows, numbered from 1. Every second one cannot be decoded.
fn database_of<Q>() -> Database
where
    Q: StoredIn<Backend> + 'static,
{
    let database = Database::new();
    let mut connection = database.connect();
    connection
        .batch_execute(&format!(
            "CREATE TABLE tickets (id {BIGINT} NOT NULL PRIMARY KEY, amount {BIGINT} NOT NULL);
             CREATE TABLE seats (hall {TEXT} NOT NULL, id {BIGINT} NOT NULL, amount {BIGINT} NOT NULL,
                 PRIMARY KEY (hall, id))"
        ))
        .unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Q>()).unwrap();
    for id in 1..=40 {
        let due = format!("'2026-01-01 00:00:{id:02}.000'");
        for (table, columns, values) in [("tickets", "", ""), ("seats", "hall, ", "'a''b', ")] {
            // One of the two tables may have no queue.
            let insert = format!(
                "INSERT INTO {table} ({columns}id, amount, next_attempt_time) VALUES ({values}{id}, {id}, {due})"
            );
            let _ = connection.batch_execute(&insert);
        }
    }
    database
}

#[derive(QueryableByName, Debug, PartialEq)]
struct Row {
    #[diesel(sql_type = sql_types::BigInt)]
    id: i64,
    #[diesel(sql_type = sql_types::BigInt)]
    amount: i64,
    #[diesel(sql_type = sql_types::Text)]
    status: String,
    #[diesel(sql_type = sql_types::BigInt)]
    pending: i64,
    #[diesel(sql_type = sql_types::Nullable<sql_types::Text>)]
    text: Option<String>,
}

fn rows(database: &Database, table: &str) -> Vec<Row> {
    let (integer, text) = if NAME == "mysql" { ("SIGNED", "CHAR") } else { (BIGINT, LONG_TEXT) };
    diesel::sql_query(format!(
        "SELECT id, amount, status, CAST(CASE WHEN next_attempt_time IS NULL THEN 0 ELSE 1 END AS {integer}) AS pending,
             CAST(last_attempt_error_message AS {text}) AS text FROM {table} ORDER BY id"
    ))
    .load(&mut database.connect())
    .unwrap()
}

/// Shows that each row with a sound key has succeeded, and each other has failed with a text of its own.
fn assert_worked(database: &Database, table: &str, tally: Tally) {
    for row in rows(database, table) {
        let expected = if row.id % 2 == 0 { "SUCCESS" } else { "FAILED" };
        assert_eq!((row.status.as_str(), row.pending), (expected, 0), "{row:?}, {tally:?}");
        if row.id % 2 != 0 {
            let text = row.text.unwrap_or_default();
            let why = if row.id == 13 { "thirteen is no number".to_owned() } else { format!("{} is not even", row.id) };
            assert!(text.contains(&why) && text.contains(&row.id.to_string()), "{text}");
            assert!(text.starts_with("cannot decode the primary key"), "{text}");
        }
    }
    assert_eq!((tally.succeeded, tally.failed, tally.retried), (20, 20, 0), "{tally:?}");
}

macro_rules! works {
    ($entity:ident, $table:literal) => {{
        let database = database_of::<$entity>();
        let handler = |_: &$entity, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
        let tally = $entity::poller(database.pool(4), handler).workers(2).run_until_idle().unwrap();
        assert_worked(&database, $table, tally);
    }};
}

macro_rules! works_leased {
    ($entity:ident, $table:literal, $set:expr) => {{
        let database = database_of::<$entity>();
        let handler = (
            |_: &$entity, lease: &Lease| Ok(lease.try_number()),
            |entity: &$entity, tries: &u32, message: &mut Message<'_, Conn>| {
                assert_eq!(*tries, 1, "a row was leased in vain");
                let apply = format!("UPDATE {} SET amount = amount + 1000 WHERE id = {}", $table, entity.id.0);
                message.connection().batch_execute(&apply)?;
                Ok(Outcome::Done)
            },
        );
        let set: fn(Poller<Conn>) -> Poller<Conn> = $set;
        let tally = set($entity::poller(database.pool(5), handler).workers(2)).run_until_idle().unwrap();
        assert_worked(&database, $table, tally);
        // A deadlock with a claim by an update may undo the transaction of an answer. The answer is applied again, and
        // takes effect once.
        for row in rows(&database, $table) {
            let applied = if row.id % 2 == 0 { 1000 } else { 0 };
            assert_eq!(row.amount, row.id + applied, "{row:?}");
        }
    }};
}

#[test]
fn it_fails_alone_in_a_transaction_of_its_own() {
    works!(Plain, "tickets");
}

#[test]
fn it_fails_alone_in_a_group() {
    works!(Grouped, "tickets");
}

#[test]
fn it_fails_alone_under_a_lease() {
    works_leased!(Leased, "tickets", |poller| poller);
}

#[test]
fn it_fails_alone_where_many_are_leased_at_once() {
    works_leased!(Leased, "tickets", |poller| poller.claim_batch(8));
}

#[test]
fn it_fails_alone_where_rows_are_leased_by_an_update() {
    works_leased!(Leased, "tickets", |poller| poller.claim_style(ClaimStyle::UpdateThenSelect).claim_batch(8));
}

#[test]
fn it_fails_alone_at_the_head_of_its_queue() {
    works!(InTurn, "tickets");
    works_leased!(LeasedInTurn, "tickets", |poller| poller);
}

#[test]
fn it_fails_alone_where_rows_have_an_order() {
    works!(Ordered, "tickets");
}

#[test]
fn a_key_of_several_columns_fails_alone() {
    works!(Seat, "seats");
    works!(GroupedSeat, "seats");
    works_leased!(LeasedSeat, "seats", |poller| poller.claim_batch(8));
}

#[test]
fn operations_and_reports_pass_over_it() {
    let database = database_of::<Plain>();
    let mut connection = database.connect();
    connection
        .batch_execute(
            "UPDATE tickets SET status = 'FAILED', next_attempt_time = NULL, last_attempt_time = '2026-01-01 00:00:00.000',
                 last_attempt_error_message = 'no route'",
        )
        .unwrap();
    let all = Plain::queue().all_rows();
    let report = Plain::queue().errors(&mut connection).unwrap();
    assert_eq!(report.groups[0].rows, 40);
    // All rows have the same text, and of the first three only the second has a key that can be decoded.
    assert_eq!(report.groups[0].examples.len(), 1);
    let preview = all.dry_run().retry_now(&mut connection).unwrap();
    assert_eq!((preview.rows, preview.some.len()), (40, 5));
    assert_eq!(
        preview.some.iter().map(|row| row.entity.is_some()).collect::<Vec<_>>(),
        [false, true, false, true, false]
    );
    // Without keys, one statement of the database processes all rows. By their keys, only the rows whose keys can be
    // decoded.
    assert_eq!(all.batch(7).purge(&mut connection, std::time::Duration::from_secs(1)).unwrap(), 20);
    assert_eq!(rows(&database, "tickets").len(), 20);
    assert_eq!(Plain::queue().all_rows().retry_now(&mut connection).unwrap(), 20);
}

#[test]
fn the_head_of_a_queue_is_behind_none_that_cannot_be_decoded_for_good() {
    let database = database_of::<InTurn>();
    let mut connection = database.connect();
    assert_eq!(InTurn::explain(&mut connection, &Even(2)).unwrap(), queueable::Explanation::BehindHead);
}
