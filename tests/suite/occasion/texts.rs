//! A key consists of the database's text of the primary key, and of nothing that a program writes.

use std::fmt;
use std::sync::Mutex;

use diesel::connection::SimpleConnection;
use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::expression::AsExpression;
use diesel::prelude::*;
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::Text;
use diesel_migrations::MigrationHarness;
use queueable::{Lease, Message, Migrations, Outcome, Queueable};

use crate::db::{BIGINT, Conn, Database, TEXT};

type Backend = <Conn as diesel::Connection>::Backend;

diesel::table! { accounts (iban) { iban -> Text, } }
diesel::table! { bill_lines (company, number) { company -> Text, number -> Text, } }

/// A number that must not appear in a log.
#[derive(Clone, PartialEq, Eq, AsExpression, FromSqlRow)]
#[diesel(sql_type = Text)]
struct Iban(String);

impl fmt::Debug for Iban {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Iban(***)")
    }
}

impl ToSql<Text, Backend> for Iban
where
    str: ToSql<Text, Backend>,
{
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Backend>) -> serialize::Result {
        <str as ToSql<Text, Backend>>::to_sql(&self.0, out)
    }
}

impl FromSql<Text, Backend> for Iban
where
    String: FromSql<Text, Backend>,
{
    fn from_sql(bytes: <Backend as diesel::backend::Backend>::RawValue<'_>) -> deserialize::Result<Self> {
        <String as FromSql<Text, Backend>>::from_sql(bytes).map(Iban)
    }
}

macro_rules! accounts {
    ($($name:ident($($key:tt)*);)*) => {$(
        #[derive(Queryable, Selectable, Queueable)]
        #[diesel(table_name = accounts, primary_key(iban))]
        #[queue(retry = fixed("1h"), timeout = "30s", $($key)*)]
        struct $name {
            #[allow(dead_code, reason = "nobody but the queue reads it in all of them")]
            iban: Iban,
        }
    )*};
}

accounts! {
    Account();
    AccountInGroup(module = account_in_group_queue, group(10));
    AccountLeased(module = account_leased_queue, lease = "60s");
    Audit(prefix = "audit_");
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = bill_lines, primary_key(company, number))]
#[queue(timeout = "30s")]
#[expect(dead_code, reason = "nobody but the queue reads it")]
pub(super) struct Line {
    company: String,
    number: String,
}

fn accounts_of(ibans: &[&str]) -> Database {
    let database = Database::new();
    let mut connection = database.connect();
    connection.batch_execute(&format!("CREATE TABLE accounts (iban {TEXT} PRIMARY KEY NOT NULL)")).unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Account>().entity::<Audit>()).unwrap();
    for iban in ibans {
        let row = (accounts::iban.eq(iban), Account::due_now(), Audit::due_now());
        diesel::insert_into(accounts::table).values(row).execute(&mut connection).unwrap();
    }
    database
}

/// Processes the due rows, and returns the keys in their order.
macro_rules! keys {
    ($entity:ident on $database:expr) => {{
        let seen: &'static Mutex<Vec<String>> = Box::leak(Box::default());
        let handler = move |_: &$entity, message: &mut Message<'_, Conn>| {
            seen.lock().unwrap().push(message.idempotency_key().to_owned());
            Ok(Outcome::Done)
        };
        let tally = $entity::poller($database.pool(6), handler).workers(3).prefetch_at_once().run_until_idle().unwrap();
        assert_eq!((tally.interrupted, tally.lost, tally.retried), (0, 0, 0));
        let mut keys = seen.lock().unwrap().clone();
        keys.sort();
        keys
    }};
}

#[test]
fn a_key_whose_debug_masks_it_tells_its_rows_apart_in_every_mode() {
    let ibans = ["DE01", "DE02", "DE03", "DE04"];
    let expected = ibans.map(|iban| format!("accounts.status:{iban}"));
    assert_eq!(keys!(Account on accounts_of(&ibans)), expected);
    assert_eq!(keys!(AccountInGroup on accounts_of(&ibans)), expected);

    let database = accounts_of(&ibans);
    let seen: &'static Mutex<Vec<String>> = Box::leak(Box::default());
    let together = std::sync::Barrier::new(4);
    let call = move |account: &AccountLeased, lease: &Lease| {
        assert!(lease.idempotency_key().ends_with(&account.iban.0));
        seen.lock().unwrap().push(lease.idempotency_key().to_owned());
        // This process leases all four at the same time.
        together.wait();
        Ok(())
    };
    let apply = |_: &AccountLeased, (): &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let poller = AccountLeased::poller(database.pool(7), (call, apply)).workers(4).claim_batch(1);
    let tally = poller.run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.lost), (4, 0));
    let mut keys = seen.lock().unwrap().clone();
    keys.sort();
    assert_eq!(keys, expected);
}

#[test]
fn two_queues_on_one_table_have_keys_of_their_own() {
    let database = accounts_of(&["DE01"]);
    assert_eq!(keys!(Account on database), ["accounts.status:DE01"]);
    assert_eq!(keys!(Audit on database), ["accounts.audit_status:DE01"]);
}

#[test]
fn a_key_is_safe_to_send_whatever_the_primary_key_is() {
    let long = "x".repeat(250);
    let longer = "x".repeat(249) + "y";
    let ibans = ["a b", "a:b", "a,b", "a%b", "it's", "ä\u{1f980}\n", "0xff", "sha256-1", &long, &longer];
    let keys = keys!(Account on accounts_of(&ibans));
    assert!(keys.iter().all(|key| key.len() <= 255 && key.bytes().all(|byte| byte.is_ascii_graphic())), "{keys:?}");
    assert_eq!(
        keys,
        [
            "accounts.status:%30xff",
            "accounts.status:%73ha256-1",
            "accounts.status:%C3%A4%F0%9F%A6%80%0A",
            "accounts.status:a%20b",
            "accounts.status:a%25b",
            "accounts.status:a%2Cb",
            "accounts.status:a%3Ab",
            "accounts.status:it's",
            // `printf %s "$iban" | sha256sum`
            "accounts.status:sha256-086d4a1c293bde318dc1fec9a21b9d828ba7637bcbdc5cdb42662fd84b733e9f",
            "accounts.status:sha256-5e6715a67922eafe26e95af1ae1eaf9d216d51695a55df79a72ef024e942d351",
        ]
    );
}

#[test]
fn the_columns_of_a_key_cannot_be_taken_for_others() {
    let database = Database::new();
    let mut connection = database.connect();
    let columns = format!("company {TEXT} NOT NULL, number {TEXT} NOT NULL, weight {BIGINT}");
    connection.batch_execute(&format!("CREATE TABLE bill_lines ({columns}, PRIMARY KEY (company, number))")).unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Line>()).unwrap();
    for (company, number) in [("a,b", "c"), ("a", "b,c"), ("a%2Cb", "c"), ("", "a,b,c"), ("42", "7")] {
        let row = (bill_lines::company.eq(company), bill_lines::number.eq(number), Line::due_now());
        diesel::insert_into(bill_lines::table).values(row).execute(&mut connection).unwrap();
    }
    assert_eq!(
        keys!(Line on database),
        [
            "bill_lines.status:,a%2Cb%2Cc",
            "bill_lines.status:42,7",
            "bill_lines.status:a%252Cb,c",
            "bill_lines.status:a%2Cb,c",
            "bill_lines.status:a,b%2Cc",
        ]
    );
}
