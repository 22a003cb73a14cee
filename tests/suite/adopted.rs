//! A table as applications have them: keys of a newtype and of an enum, borrowed text, names that differ between the
//! struct, the code and the database, and a primary key that only the code declares.

use std::borrow::Cow;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::expression::AsExpression;
use diesel::prelude::*;
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::Text;
use diesel_migrations::MigrationHarness;
use queueable::{Explanation, Failure, HandlerResult, Lease, Message, Migrations, Outcome, Queueable, Status};

use crate::db::{BIGINT, Conn, Database, TEXT, quote};
use crate::suite::keys::AccountNumber;

type Backend = <Conn as diesel::Connection>::Backend;

diesel::table! {
    #[sql_name = "Parcel Post"]
    parcels (number, kind) {
        #[sql_name = "Parcel No."]
        number -> BigInt,
        #[sql_name = "type"]
        kind -> Text,
        #[sql_name = "Sent To"]
        address -> Text,
    }
}

diesel::table! {
    receivers (name) {
        name -> Text,
        phone -> Text,
    }
}

diesel::allow_tables_to_appear_in_same_query!(parcels, receivers);

/// An enum that is stored as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, AsExpression, FromSqlRow)]
#[diesel(sql_type = Text)]
enum Kind {
    Letter,
    Express,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Kind::Letter => "letter",
            Kind::Express => "express",
        }
    }
}

impl ToSql<Text, Backend> for Kind
where
    str: ToSql<Text, Backend>,
{
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Backend>) -> serialize::Result {
        <str as ToSql<Text, Backend>>::to_sql(self.as_str(), out)
    }
}

impl FromSql<Text, Backend> for Kind
where
    String: FromSql<Text, Backend>,
{
    fn from_sql(bytes: <Backend as diesel::backend::Backend>::RawValue<'_>) -> deserialize::Result<Self> {
        match <String as FromSql<Text, Backend>>::from_sql(bytes)?.as_str() {
            "letter" => Ok(Kind::Letter),
            "express" => Ok(Kind::Express),
            other => Err(format!("no kind of parcel: {other}").into()),
        }
    }
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = parcels, primary_key(number, kind))]
#[queue(max_tries = 1, timeout = "30s")]
struct Parcel {
    number: AccountNumber,
    kind: Kind,
    #[diesel(column_name = address)]
    sent_to: Cow<'static, str>,
    /// A claim reads no other table, except in a subselect.
    #[diesel(select_expression =
        receivers::table.filter(receivers::name.eq(parcels::address)).select(receivers::phone).single_value())]
    phone: Option<String>,
}

/// The same rows, announced to their receivers by a call.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = parcels, primary_key(number, kind))]
#[queue(prefix = "call_", lease = "60s", max_tries = 1)]
struct ParcelCall {
    number: AccountNumber,
    kind: Kind,
    address: Cow<'static, str>,
    #[diesel(select_expression =
        receivers::table.filter(receivers::name.eq(parcels::address)).select(receivers::phone).single_value())]
    phone: Option<String>,
}

fn deliver(parcel: &Parcel, message: &mut Message<'_, Conn>) -> HandlerResult {
    let is_first = message.idempotency_key().ends_with(&format!(":{},{}", parcel.number.0, parcel.kind.as_str()));
    assert!(is_first, "{}", message.idempotency_key());
    match parcel.phone {
        None => Err(Failure::fatal("nobody lives there")),
        Some(_) => Ok(Outcome::Done),
    }
}

fn call(parcel: &ParcelCall, _: &Lease) -> Result<String, Failure> {
    match &parcel.phone {
        None => Err(Failure::fatal("no such number")),
        Some(phone) => Ok(format!("called {phone} about {}", parcel.number.0)),
    }
}

fn apply(parcel: &ParcelCall, answer: &String, message: &mut Message<'_, Conn>) -> HandlerResult {
    let row = parcels::table.find((parcel.number, parcel.kind));
    diesel::update(row).set(parcels::address.eq(answer)).execute(message.connection())?;
    Ok(Outcome::Done)
}

/// Makes the table, without a primary key, and its queues.
fn post_office() -> (Database, Conn) {
    let database = Database::new();
    let mut connection = database.connect();
    let [table, number, kind, address] = ["Parcel Post", "Parcel No.", "type", "Sent To"].map(quote);
    connection
        .batch_execute(&format!(
            "CREATE TABLE {table} ({number} {BIGINT} NOT NULL, {kind} {TEXT} NOT NULL, {address} {TEXT} NOT NULL);
             CREATE TABLE receivers (name {TEXT} PRIMARY KEY NOT NULL, phone {TEXT} NOT NULL);
             INSERT INTO receivers VALUES ('Ada', '+44 1'), ('Grace', '+1 2')"
        ))
        .unwrap();
    let migrations = || Migrations::<Backend>::new().entity::<Parcel>().entity::<ParcelCall>();
    connection.run_pending_migrations(migrations()).unwrap();
    assert!(!connection.has_pending_migration(migrations()).unwrap());
    for (number, kind, address) in [(7, Kind::Letter, "Ada"), (7, Kind::Express, "nowhere"), (8, Kind::Letter, "Grace")]
    {
        let row = (parcels::number.eq(AccountNumber(number)), parcels::kind.eq(kind), parcels::address.eq(address));
        diesel::insert_into(parcels::table)
            .values((row, Parcel::due_now(), ParcelCall::due_in(Duration::from_secs(3600))))
            .execute(&mut connection)
            .unwrap();
    }
    (database, connection)
}

#[test]
fn a_table_of_newtypes_enums_and_other_names_goes_through_a_whole_life_in_transactions() {
    let (database, mut connection) = post_office();
    let run = || Parcel::poller(database.pool(3), deliver).workers(1).run_until_idle().unwrap();
    let tally = run();
    assert_eq!((tally.succeeded, tally.failed), (2, 1));

    let express = || Parcel::queue().filter(parcels::kind.eq(Kind::Express)).failed();
    let rows = express().load(&mut connection).unwrap();
    let [(parcel, state)] = &rows[..] else { panic!("one row has failed: {rows:?}") };
    assert_eq!((parcel.number, parcel.kind, &*parcel.sent_to), (AccountNumber(7), Kind::Express, "nowhere"));
    assert_eq!(
        (state.status, state.last_attempt_error_message.as_deref()),
        (Status::Failed, Some("nobody lives there"))
    );
    let why = Parcel::explain(&mut connection, &(AccountNumber(7), Kind::Express)).unwrap();
    assert!(matches!(why, Explanation::FailedForGood { .. }), "{why:?}");

    diesel::update(parcels::table.find((AccountNumber(7), Kind::Express)))
        .set(parcels::address.eq("Ada"))
        .execute(&mut connection)
        .unwrap();
    assert_eq!(express().retry_now(&mut connection).unwrap(), 1);
    assert_eq!(run().succeeded, 1);
    let done = Parcel::queue().filter(parcels::number.eq_any([AccountNumber(7), AccountNumber(8)])).finished();
    assert_eq!(done.count(&mut connection).unwrap(), 3);
}

#[test]
fn a_table_of_newtypes_enums_and_other_names_goes_through_a_whole_life_under_a_lease() {
    let (database, mut connection) = post_office();
    let run = || ParcelCall::poller(database.pool(4), (call, apply)).workers(1).run_until_idle().unwrap();
    assert_eq!(run().succeeded, 0, "nothing is due yet");
    let number = |number| parcels::number.eq(AccountNumber(number));
    assert_eq!(ParcelCall::queue().filter(number(7)).retry_now(&mut connection).unwrap(), 2);
    let tally = run();
    assert_eq!((tally.succeeded, tally.failed), (1, 1));
    assert_eq!(ParcelCall::queue().filter(number(8)).skip(&mut connection).unwrap(), 1);

    let rows: Vec<(ParcelCall, Status)> = parcels::table
        .order((parcels::number, parcels::kind))
        .select((ParcelCall::as_select(), parcel_call_queue::status))
        .load(&mut connection)
        .unwrap();
    let rows: Vec<_> = rows.iter().map(|(row, status)| (row.number.0, row.kind, &*row.address, *status)).collect();
    assert_eq!(
        rows,
        [
            (7, Kind::Express, "nowhere", Status::Failed),
            (7, Kind::Letter, "called +44 1 about 7", Status::Success),
            (8, Kind::Letter, "Grace", Status::Skipped)
        ]
    );
    let errors = ParcelCall::queue().errors(&mut connection).unwrap();
    assert_eq!(errors.groups[0].examples, [(AccountNumber(7), Kind::Express)]);
}
