//! A key of PostgreSQL's type `character(n)`, which pads texts with spaces: Diesel reads them with the spaces, and finds nothing
//! by them.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Error, Message, Migrations, Outcome, Poller, Queueable, Status};

use crate::db::{Conn, Database};

diesel::table! { coupons (code) { code -> Bpchar, } }

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = coupons, primary_key(code))]
#[queue(retry = fixed("1h"), timeout = "30s")]
struct Coupon {
    code: String,
}

/// Makes a table with these pending rows.
fn database_with(codes: &[&str]) -> Database {
    database_of("CHARACTER(6)", codes)
}

fn database_of(sql_type: &str, codes: &[&str]) -> Database {
    let database = Database::new();
    let mut connection = database.connect();
    connection
        .batch_execute(&format!(
            "CREATE DOMAIN codes AS CHARACTER(6); CREATE DOMAIN coupon_codes AS codes CHECK (VALUE <> '');
             CREATE TABLE coupons (code {sql_type} PRIMARY KEY)"
        ))
        .unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Coupon>()).unwrap();
    enqueue(&mut connection, codes);
    database
}

fn enqueue(connection: &mut Conn, codes: &[&str]) {
    let rows: Vec<_> = codes.iter().map(|code| (coupons::code.eq(*code), Coupon::due_now())).collect();
    diesel::insert_into(coupons::table).values(rows).execute(connection).unwrap();
}

fn poller(database: &Database) -> Poller<Conn> {
    let handler = |coupon: &Coupon, _: &mut Message<'_, Conn>| {
        assert!(!coupon.code.is_empty());
        Ok(Outcome::Done)
    };
    Coupon::poller(database.pool(3), handler).workers(1)
}

#[test]
fn texts_as_long_as_their_type_are_keys_like_any_other() {
    let database = database_with(&["SUMMER", "WINTER"]);
    let tally = poller(&database).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.interrupted), (2, 0), "{tally:?}");
}

#[test]
fn a_start_with_shorter_texts_is_refused_with_the_mend() {
    for sql_type in ["CHARACTER(6)", "coupon_codes"] {
        let database = database_of(sql_type, &["SUMMER", "MAY"]);
        let Err(Error::Unsafe(findings)) = poller(&database).run_until_idle() else { panic!("it has started") };
        let [finding] = findings.as_slice() else { panic!("{findings:?}") };
        assert!(finding.problem.contains("the key column `code` has the type character(6)"), "{finding:?}");
        database.connect().batch_execute(&finding.mend).unwrap();
        let tally = poller(&database).run_until_idle().unwrap();
        assert_eq!((tally.succeeded, tally.interrupted), (2, 0), "{tally:?}");
    }
}

#[test]
fn a_shorter_text_that_comes_later_fails_with_the_reason() {
    let database = database_with(&[]);
    let mut connection = database.connect();
    let handle = poller(&database).start().unwrap();
    enqueue(&mut connection, &["MAY", "SUMMER"]);
    let is_done =
        |connection: &mut Conn| Coupon::queue().counts_by_status(connection).unwrap().of(Status::Success) == 1;
    while !is_done(&mut connection) {
        std::thread::yield_now();
    }
    handle.shutdown(std::time::Duration::from_secs(30));
    let (status, text): (Status, Option<String>) = coupons::table
        .find("MAY")
        .select((coupon_queue::status, coupon_queue::last_attempt_error_message))
        .get_result(&mut connection)
        .unwrap();
    assert_eq!(status, Status::Failed);
    assert!(
        text.as_ref().is_some_and(|text| text.starts_with("no statement finds the row by its primary key `MAY`")),
        "{text:?}"
    );
}
