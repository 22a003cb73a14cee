//! A key by which no statement finds its row, because its type in Rust reads another value than the column has: the row
//! fails alone and with its name, whatever the mode, and all other rows are processed.

use std::sync::atomic::{AtomicU32, Ordering};

use diesel::connection::SimpleConnection;
use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::expression::AsExpression;
use diesel::prelude::*;
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types;
use diesel_migrations::MigrationHarness;
use queueable::bounds::StoredIn;
use queueable::{ClaimStyle, Failure, Lease, Message, Migrations, Outcome, Poller, Queueable, Tally};

use crate::db::{BIGINT, Conn, Database, LONG_TEXT, NAME, TEXT};

type Backend = <Conn as diesel::Connection>::Backend;

diesel::table! { parcels (id) { id -> Text, weight -> BigInt, } }
diesel::table! { crates (hall, id) { hall -> Text, id -> Text, weight -> BigInt, } }

/// A text that loses its first character if that is a mark.
#[derive(Debug, Clone, PartialEq, Eq, AsExpression, FromSqlRow)]
#[diesel(sql_type = sql_types::Text)]
pub(crate) struct Unmarked(String);

impl ToSql<sql_types::Text, Backend> for Unmarked
where
    String: ToSql<sql_types::Text, Backend>,
{
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Backend>) -> serialize::Result {
        <String as ToSql<sql_types::Text, Backend>>::to_sql(&self.0, out)
    }
}

impl FromSql<sql_types::Text, Backend> for Unmarked
where
    String: FromSql<sql_types::Text, Backend>,
{
    fn from_sql(bytes: <Backend as diesel::backend::Backend>::RawValue<'_>) -> deserialize::Result<Self> {
        let text = <String as FromSql<sql_types::Text, Backend>>::from_sql(bytes)?;
        Ok(Unmarked(text.strip_prefix('#').unwrap_or(&text).to_owned()))
    }
}

macro_rules! parcel {
    ($name:ident, $module:ident, $($settings:tt)*) => {
        #[derive(Debug, Queryable, Selectable, Queueable)]
        #[diesel(table_name = parcels)]
        #[queue(module = $module, retry = fixed("1h"), $($settings)*)]
        #[allow(dead_code, reason = "nobody reads them but the queue")]
        struct $name {
            id: Unmarked,
            weight: i64,
        }
    };
}

macro_rules! crate_of {
    ($name:ident, $module:ident, $($settings:tt)*) => {
        #[derive(Debug, Queryable, Selectable, Queueable)]
        #[diesel(table_name = crates, primary_key(hall, id))]
        #[queue(module = $module, retry = fixed("1h"), $($settings)*)]
        #[allow(dead_code, reason = "nobody reads them but the queue")]
        struct $name {
            hall: String,
            id: Unmarked,
            weight: i64,
        }
    };
}

parcel!(Plain, plain_queue, timeout = "30s");
parcel!(Gone, gone_queue, on_success = delete, timeout = "30s");
parcel!(Grouped, grouped_queue, group = 10, timeout = "30s");
parcel!(AtOnce, at_once_queue, group(10, optimistic), timeout = "30s");
parcel!(Leased, leased_queue, lease = "60s");
parcel!(InTurn, in_turn_queue, exclusive, timeout = "30s");
parcel!(LeasedInTurn, leased_in_turn_queue, exclusive, lease = "60s");
parcel!(Ordered, ordered_queue, order_by = weight, timeout = "30s");
parcel!(LeasedInOrder, leased_in_order_queue, order_by = weight, lease = "60s");
crate_of!(Crate, crate_queue, timeout = "30s");
crate_of!(LeasedCrate, leased_crate_queue, lease = "60s");

/// Makes forty due rows, numbered from 1. Every second one has a mark, and nothing finds it by its key.
fn database_of<Q>() -> Database
where
    Q: StoredIn<Backend> + 'static,
{
    let database = Database::new();
    let mut connection = database.connect();
    connection
        .batch_execute(&format!(
            "CREATE TABLE parcels (id {TEXT} NOT NULL PRIMARY KEY, weight {BIGINT} NOT NULL);
             CREATE TABLE crates (hall {TEXT} NOT NULL, id {TEXT} NOT NULL, weight {BIGINT} NOT NULL,
                 PRIMARY KEY (hall, id))"
        ))
        .unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Q>()).unwrap();
    for number in 1..=40 {
        let (due, mark) = (format!("'2026-01-01 00:00:{number:02}.000'"), if number % 2 == 0 { "" } else { "#" });
        for (table, columns, values) in [("parcels", "", ""), ("crates", "hall, ", "'a''b', ")] {
            // One of the two tables may have no queue.
            let insert = format!(
                "INSERT INTO {table} ({columns}id, weight, next_attempt_time)
                 VALUES ({values}'{mark}P-{number}', {number}, {due})"
            );
            let _ = connection.batch_execute(&insert);
        }
    }
    database
}

#[derive(QueryableByName, Debug, PartialEq)]
struct Row {
    #[diesel(sql_type = sql_types::Text)]
    id: String,
    #[diesel(sql_type = sql_types::BigInt)]
    weight: i64,
    #[diesel(sql_type = sql_types::Text)]
    status: String,
    #[diesel(sql_type = sql_types::BigInt)]
    pending: i64,
    #[diesel(sql_type = sql_types::Integer)]
    try_count: i32,
    #[diesel(sql_type = sql_types::Nullable<sql_types::Text>)]
    text: Option<String>,
}

fn rows(database: &Database, table: &str) -> Vec<Row> {
    let (integer, text) = if NAME == "mysql" { ("SIGNED", "CHAR") } else { (BIGINT, LONG_TEXT) };
    diesel::sql_query(format!(
        "SELECT id, weight, status, CAST(CASE WHEN next_attempt_time IS NULL THEN 0 ELSE 1 END AS {integer}) AS pending,
             try_count, CAST(last_attempt_error_message AS {text}) AS text FROM {table} ORDER BY weight"
    ))
    .load(&mut database.connect())
    .unwrap()
}

/// Shows that each row that is found by its key has succeeded, and each other has failed with a text of its own and without
/// a try. `calls`: how often the handler has run for one of those.
fn assert_worked(database: &Database, table: &str, tally: Tally, calls: u32) {
    for row in rows(database, table) {
        let expected = if row.id.starts_with('#') { ("FAILED", 0, 0) } else { ("SUCCESS", 0, 1) };
        assert_eq!((row.status.as_str(), row.pending, row.try_count), expected, "{row:?}, {tally:?}");
        if row.id.starts_with('#') {
            let text = row.text.unwrap_or_default();
            assert!(text.starts_with("no statement finds the row by its primary key"), "{text}");
            assert!(text.contains(&row.id), "{text}");
        }
    }
    assert_eq!((tally.succeeded, tally.failed, tally.retried), (20, 20, 0), "{tally:?}");
    // Two workers may run a row's handler once each before one of them finds out. And the handlers of a group that is undone
    // for one such row have run for the others too.
    assert!(calls <= 10 * 20, "the handler ran {calls} times for 20 rows that are not found by their keys");
}

macro_rules! works {
    ($entity:ident, $table:literal) => {{
        let database = database_of::<$entity>();
        let calls: &'static AtomicU32 = Box::leak(Box::default());
        let handler = |entity: &$entity, _: &mut Message<'_, Conn>| {
            calls.fetch_add(u32::from(entity.weight % 2 != 0), Ordering::Relaxed);
            Ok(Outcome::Done)
        };
        let tally = $entity::poller(database.pool(4), handler).workers(2).run_until_idle().unwrap();
        assert_worked(&database, $table, tally, calls.load(Ordering::Relaxed));
    }};
}

macro_rules! works_leased {
    ($entity:ident, $table:literal, $set:expr) => {{
        let database = database_of::<$entity>();
        let calls: &'static AtomicU32 = Box::leak(Box::default());
        let handler = (
            |entity: &$entity, _: &Lease| {
                calls.fetch_add(u32::from(entity.weight % 2 != 0), Ordering::Relaxed);
                Ok(())
            },
            |_: &$entity, (): &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done),
        );
        let set: fn(Poller<Conn>) -> Poller<Conn> = $set;
        let tally = set($entity::poller(database.pool(5), handler).workers(2)).run_until_idle().unwrap();
        assert_worked(&database, $table, tally, calls.load(Ordering::Relaxed));
    }};
}

#[test]
fn it_fails_alone_in_a_transaction_of_its_own() {
    works!(Plain, "parcels");
}

#[test]
fn it_fails_alone_in_a_group() {
    works!(Grouped, "parcels");
    works!(AtOnce, "parcels");
}

#[test]
fn it_fails_alone_under_a_lease() {
    works_leased!(Leased, "parcels", |poller| poller);
    works_leased!(Leased, "parcels", |poller| poller.claim_batch(8));
    works_leased!(Leased, "parcels", |poller| poller.claim_style(ClaimStyle::UpdateThenSelect).claim_batch(8));
}

#[test]
fn it_fails_alone_at_the_head_of_its_queue() {
    works!(InTurn, "parcels");
    works_leased!(LeasedInTurn, "parcels", |poller| poller);
}

#[test]
fn it_fails_alone_where_rows_have_an_order() {
    works!(Ordered, "parcels");
    works_leased!(LeasedInOrder, "parcels", |poller| poller.claim_batch(8));
}

#[test]
fn a_key_of_several_columns_fails_alone() {
    works!(Crate, "crates");
    works_leased!(LeasedCrate, "crates", |poller| poller.claim_batch(8));
}

#[test]
fn a_row_whose_handler_removes_it_is_no_such_row() {
    let database = database_of::<Plain>();
    let mut connection = database.connect();
    connection.batch_execute("DELETE FROM parcels WHERE weight % 2 <> 0").unwrap();
    let handler = |entity: &Plain, message: &mut Message<'_, Conn>| {
        if entity.weight == 2 {
            let remove = format!("DELETE FROM parcels WHERE weight = {}", entity.weight);
            message.connection().batch_execute(&remove).map_err(Failure::retry)?;
        }
        Ok(Outcome::Done)
    };
    let tally = Plain::poller(database.pool(4), handler).workers(2).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.retried, tally.failed), (19, 1, 0), "{tally:?}");
    let row = rows(&database, "parcels").into_iter().find(|row| row.weight == 2).unwrap();
    assert!(row.text.unwrap().starts_with("the handler removed the row"), "{}", row.status);
}

/// Two rows whose keys differ in the table and are the same in Rust, and everything else of them is the same, too.
macro_rules! works_beside_a_twin {
    ($entity:ident, $handler:expr) => {
        works_beside_a_twin!($entity, $handler, "SUCCESS")
    };
    ($entity:ident, $handler:expr, $ended:literal) => {
        for due in ["next_attempt_time", "'2026-01-01 00:00:00.000'"] {
            let database = database_of::<$entity>();
            let mut connection = database.connect();
            connection
                .batch_execute(&format!(
                    "DELETE FROM parcels WHERE weight > 4; UPDATE parcels SET id = '#P-2' WHERE id = '#P-1';
                     UPDATE parcels SET next_attempt_time = {due}"
                ))
                .unwrap();
            let tally = $entity::poller(database.pool(5), $handler).workers(2).run_until_idle().unwrap();
            let ended: Vec<_> = rows(&database, "parcels").into_iter().map(|row| (row.id, row.status)).collect();
            let mut expected = vec![("#P-2", "FAILED"), ("P-2", "SUCCESS"), ("#P-3", "FAILED"), ("P-4", "SUCCESS")];
            expected.retain(|(_, status)| *status == "FAILED" || *status == $ended);
            let expected: Vec<_> =
                expected.into_iter().map(|(id, status)| (id.to_owned(), status.to_owned())).collect();
            assert_eq!(ended, expected, "{due}: {tally:?}");
            assert_eq!((tally.succeeded, tally.failed), (2, 2), "{due}: {tally:?}");
        }
    };
}

#[test]
fn a_row_whose_key_finds_another_row_fails_alone() {
    works_beside_a_twin!(Plain, |_: &Plain, _: &mut Message<'_, Conn>| Ok(Outcome::Done));
    works_beside_a_twin!(Gone, |_: &Gone, _: &mut Message<'_, Conn>| Ok(Outcome::Done), "deleted");
    works_beside_a_twin!(Grouped, |_: &Grouped, _: &mut Message<'_, Conn>| Ok(Outcome::Done));
    works_beside_a_twin!(AtOnce, |_: &AtOnce, _: &mut Message<'_, Conn>| Ok(Outcome::Done));
    works_beside_a_twin!(Ordered, |_: &Ordered, _: &mut Message<'_, Conn>| Ok(Outcome::Done));
}

#[test]
fn a_row_whose_key_finds_another_leased_row_fails_alone() {
    works_beside_a_twin!(
        Leased,
        (|_: &Leased, _: &Lease| Ok(()), |_: &Leased, (): &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done))
    );
}
