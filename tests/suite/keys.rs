//! Keys of every type that Diesel can compare: a message is claimed, fails, and succeeds.

use std::collections::HashMap;
use std::sync::Mutex;

use diesel::connection::SimpleConnection;
use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::expression::AsExpression;
use diesel::prelude::*;
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types;
use diesel_migrations::MigrationHarness;
use queueable::{Failure, Message, Migrations, Outcome, QueueState, Queueable, Status};

use crate::db::{AUTO_KEY, BIGINT, BYTES, Conn, Database, NAME, TEXT};
use crate::suite::warnings::{keep_warnings, times_told};

type Backend = <Conn as diesel::Connection>::Backend;

diesel::table! { by_text (id) { id -> Text, amount -> BigInt, } }
diesel::table! { by_bytes (id) { id -> Binary, amount -> BigInt, } }
diesel::table! { by_number (id) { id -> BigInt, amount -> BigInt, } }
diesel::table! { by_both (company, number) { company -> Text, number -> BigInt, amount -> BigInt, } }

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = by_text)]
#[queue(timeout = "30s")]
struct ByText {
    id: String,
    amount: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = by_bytes)]
#[queue(timeout = "30s")]
struct ByBytes {
    id: Vec<u8>,
    amount: i64,
}

/// A key type of the application's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, AsExpression, FromSqlRow)]
#[diesel(sql_type = sql_types::BigInt)]
pub(crate) struct AccountNumber(pub(crate) i64);

impl ToSql<sql_types::BigInt, Backend> for AccountNumber
where
    i64: ToSql<sql_types::BigInt, Backend>,
{
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Backend>) -> serialize::Result {
        <i64 as ToSql<sql_types::BigInt, Backend>>::to_sql(&self.0, out)
    }
}

impl FromSql<sql_types::BigInt, Backend> for AccountNumber
where
    i64: FromSql<sql_types::BigInt, Backend>,
{
    fn from_sql(bytes: <Backend as diesel::backend::Backend>::RawValue<'_>) -> deserialize::Result<Self> {
        <i64 as FromSql<sql_types::BigInt, Backend>>::from_sql(bytes).map(AccountNumber)
    }
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = by_number)]
#[queue(timeout = "30s")]
struct ByNumber {
    id: AccountNumber,
    amount: i64,
}

/// The fields are not in the key's order of columns: the number comes before the company here.
#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = by_both, primary_key(company, number))]
#[queue(timeout = "30s")]
struct ByBoth {
    number: i64,
    company: String,
    amount: i64,
}

/// Enqueues three rows, lets the one with amount 2 fail once, and shows that each row was handled with its own key.
macro_rules! goes_through {
    ($entity:ident, $table:ident, $columns:expr, [$($values:expr),*], $key:expr) => {{
        let database = Database::new();
        let mut connection = database.connect();
        connection
            .batch_execute(&format!(concat!("CREATE TABLE ", stringify!($table), " (amount {} NOT NULL, {})"), BIGINT, $columns))
            .unwrap();
        connection.run_pending_migrations(Migrations::new().entity::<$entity>()).unwrap();
        $(diesel::insert_into($table::table).values(($values, $entity::due_now())).execute(&mut connection).unwrap();)*

        let seen = Mutex::new(HashMap::<String, Vec<i64>>::new());
        let seen: &'static Mutex<_> = Box::leak(Box::new(seen));
        let handler = move |entity: &$entity, message: &mut Message<'_, Conn>| {
            let key = message.idempotency_key().to_owned();
            seen.lock().unwrap().entry(key).or_default().push(entity.amount);
            let key: fn(&$entity) -> String = $key;
            assert!(message.idempotency_key().ends_with(&key(entity)), "{}", message.idempotency_key());
            if entity.amount == 2 && message.try_number() == 1 {
                return Err(Failure::retry_after(std::time::Duration::ZERO, "not yet"));
            }
            Ok(Outcome::Done)
        };
        let tally = $entity::poller(database.pool(3), handler).workers(1).run_until_idle().unwrap();
        assert_eq!((tally.succeeded, tally.retried, tally.interrupted), (3, 1, 0));

        let mut states: Vec<(i64, QueueState)> = $table::table
            .order($table::amount)
            .select(($table::amount, $entity::queue_state()))
            .load(&mut connection)
            .unwrap();
        let tries: Vec<_> = states.drain(..).map(|(_, state)| (state.status, state.try_count)).collect();
        assert_eq!(tries, [(Status::Success, 1), (Status::Success, 2), (Status::Success, 1)]);
        let seen = seen.lock().unwrap();
        let mut runs: Vec<_> = seen.values().cloned().collect();
        runs.sort();
        assert_eq!(runs, [vec![1], vec![2, 2], vec![3]], "{seen:?}");
    }};
}

#[test]
fn a_key_may_be_text() {
    let row = |id: &'static str, amount: i64| (by_text::id.eq(id), by_text::amount.eq(amount));
    let id = format!("id {TEXT} PRIMARY KEY NOT NULL");
    goes_through!(ByText, by_text, id, [row("a'b\"ä\u{1f980}", 1), row("", 2), row("INV-7/2026", 3)], |row| {
        // Bytes other than printable ASCII are written as numbers.
        row.id.replace('ä', "%C3%A4").replace('\u{1f980}', "%F0%9F%A6%80")
    });
}

#[test]
fn a_key_may_be_bytes() {
    let row = |id: &'static [u8], amount: i64| (by_bytes::id.eq(id), by_bytes::amount.eq(amount));
    let id = format!("id {BYTES} PRIMARY KEY NOT NULL");
    goes_through!(ByBytes, by_bytes, id, [row(b"\0\xff", 1), row(b"'", 2), row(b"\x80", 3)], |row| {
        // MySQL does not tell bytes that are text apart from a text.
        match row.amount {
            2 if NAME == "mysql" => ":'".to_owned(),
            _ => row.id.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    });
}

#[test]
fn a_key_may_be_a_type_of_the_applications_own() {
    let row = |id: i64, amount: i64| (by_number::id.eq(AccountNumber(id)), by_number::amount.eq(amount));
    let id = format!("id {BIGINT} PRIMARY KEY NOT NULL");
    goes_through!(ByNumber, by_number, id, [row(i64::MIN, 1), row(0, 2), row(i64::MAX, 3)], |row| {
        format!(":{}", row.id.0)
    });
}

#[test]
fn a_key_may_have_several_columns() {
    let row = |company: &'static str, number: i64, amount: i64| {
        (by_both::company.eq(company), by_both::number.eq(number), by_both::amount.eq(amount))
    };
    let id = format!("company {TEXT} NOT NULL, number {BIGINT} NOT NULL, PRIMARY KEY (company, number)");
    goes_through!(ByBoth, by_both, id, [row("a", 1, 1), row("a", 2, 2), row("b", 1, 3)], |row| {
        format!(":{},{}", row.company, row.number)
    });
}

diesel::table! { unkeyed (id) { id -> BigInt, amount -> BigInt, } }

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = unkeyed)]
struct Unkeyed {
    #[allow(dead_code, reason = "no row is loaded")]
    id: i64,
}

diesel::table! { numbered (id) { id -> BigInt, } }

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = numbered)]
struct Numbered {
    #[allow(dead_code, reason = "no row is loaded")]
    id: i64,
}

#[test]
fn a_poller_warns_of_a_key_that_several_rows_may_have() {
    keep_warnings();
    let database = Database::new();
    let mut connection = database.connect();
    let table = format!("CREATE TABLE unkeyed (id {BIGINT} NOT NULL, amount {BIGINT} NOT NULL)");
    connection.batch_execute(&table).unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Unkeyed>()).unwrap();
    let warnings = || {
        let done = |_: &Unkeyed, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
        let texts = ["no unique index of", "unkeyed", "has only columns of the key (id)"];
        let before = times_told(&texts);
        Unkeyed::poller(database.pool(3), done).workers(1).run_until_idle().unwrap();
        times_told(&texts) - before
    };
    assert!(warnings() > 0);
    connection.batch_execute("CREATE UNIQUE INDEX wide ON unkeyed (id, amount)").unwrap();
    assert!(warnings() > 0, "two rows may have one id");
    connection.batch_execute("CREATE UNIQUE INDEX narrow ON unkeyed (id)").unwrap();
    assert_eq!(warnings(), 0);
    // A key that is the row's id has no index on SQLite.
    connection.batch_execute(&format!("CREATE TABLE numbered (id {AUTO_KEY} NOT NULL)")).unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Numbered>()).unwrap();
    let done = |_: &Numbered, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    Numbered::poller(database.pool(3), done).workers(1).run_until_idle().unwrap();
    assert_eq!(times_told(&["no unique index of", "numbered"]), 0);
}
