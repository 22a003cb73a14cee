//! Assertions: what passes, and what those that fail say.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::testing::*;
use queueable::{Failure, HandlerResult, Message, Migrations, Outcome, Queueable, Status};

use crate::db::{BIGINT, Conn, Database};

diesel::table! {
    invoices (company_id, number) {
        company_id -> BigInt,
        number -> BigInt,
        amount_cents -> BigInt,
    }
}

diesel::table! {
    notes (id) {
        id -> Nullable<BigInt>,
    }
}

#[derive(Debug, Clone, Queryable, Selectable, Queueable)]
#[diesel(table_name = invoices, primary_key(company_id, number))]
#[queue(retry = fixed("1h"), max_tries = 3, archive(success = invoices_done, failed = invoices_failed))]
struct Invoice {
    company_id: i64,
    number: i64,
    amount_cents: i64,
}

/// Its key may be null by the `table!`, as SQLite has it.
#[derive(Debug, Clone, Queryable, Selectable, Queueable)]
#[diesel(table_name = notes)]
#[queue(on_success = delete)]
struct Note {
    id: Option<i64>,
}

fn migrated() -> Database {
    let database = Database::new();
    let mut connection = database.connect();
    connection
        .batch_execute(&format!(
            "CREATE TABLE invoices (company_id {BIGINT} NOT NULL, number {BIGINT} NOT NULL, amount_cents {BIGINT} NOT NULL,
                 PRIMARY KEY (company_id, number));
             CREATE TABLE notes (id {BIGINT} NOT NULL PRIMARY KEY)"
        ))
        .expect("an empty database");
    let migrations = Migrations::new().entity::<Invoice>().entity::<Note>();
    connection.run_pending_migrations(migrations).expect("tables as the entities want them");
    database
}

/// A connection in a test transaction on a database of its own, because all tests insert the same keys, whose clock stands still on the second of January 2030 at three o'clock.
struct Office {
    connection: Conn,
    _database: Database,
}

impl Office {
    fn open() -> Self {
        let database = migrated();
        let mut connection = database.connect();
        connection.begin_test_transaction().expect("no transaction is open");
        freeze(&mut connection).unwrap();
        travel_to(&mut connection, three_o_clock()).unwrap();
        Office { connection, _database: database }
    }

    /// Enqueues an invoice that is due after so many minutes.
    fn invoice(&mut self, key: (i64, i64), amount_cents: i64, minutes: u64) {
        self.plain_invoice(key, amount_cents);
        diesel::update(invoices::table.find(key))
            .set(Invoice::due_in(Duration::from_secs(60 * minutes)))
            .execute(&mut self.connection)
            .unwrap();
    }

    /// Writes an invoice that nothing enqueues.
    fn plain_invoice(&mut self, (company, number): (i64, i64), amount_cents: i64) {
        let key = (invoices::company_id.eq(company), invoices::number.eq(number));
        diesel::insert_into(invoices::table)
            .values((key, invoices::amount_cents.eq(amount_cents)))
            .execute(&mut self.connection)
            .unwrap();
    }

    fn note(&mut self, id: i64) {
        let note = (notes::id.eq(id), Note::due_now());
        diesel::insert_into(notes::table).values(note).execute(&mut self.connection).unwrap();
    }
}

fn three_o_clock() -> DateTime<Utc> {
    "2030-01-02T03:00:00Z".parse().unwrap()
}

/// Fails for good if the amount is negative, and for now if it is 13.
fn send(invoice: &Invoice, _: &mut Message<'_, Conn>) -> HandlerResult {
    let Invoice { company_id, number, amount_cents } = invoice;
    match amount_cents {
        ..0 => Err(Failure::fatal(std::io::Error::other("card declined"))),
        13 => Err(std::io::Error::other(format!("the bank of {company_id} is closed, no {number}")).into()),
        _ => Ok(Outcome::Done),
    }
}

/// Returns the message of an assertion that fails, with the same quotes on every database.
fn message(assertion: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(assertion)).expect_err("the assertion passes");
    panic.downcast::<String>().expect("a text").replace('`', "\"")
}

#[test]
fn rows_are_asserted_by_their_condition_their_number_and_their_time() {
    let mut office = Office::open();
    travel_back();
    for (key, hours) in [((3345, 1), 1), ((3345, 2), 3), ((7, 1), 3)] {
        office.invoice(key, 100, 60 * hours);
    }
    let connection = &mut office.connection;
    let in_three_hours = now(connection).unwrap() + hours(3);
    assert_enqueued!(connection, Invoice);
    assert_enqueued!(connection, Invoice,);
    assert_enqueued!(connection, Invoice, invoices::company_id.eq(3345));
    assert_enqueued!(connection, Invoice, invoices::company_id.eq(3345), times = 2,);
    assert_enqueued!(connection, Invoice, times = 3);
    assert_enqueued!(connection, Invoice, invoice_queue::try_count.eq(0), at = in_three_hours, times = 2);
    assert_enqueued!(connection, Invoice, invoices::number.eq(1).and(invoices::amount_cents.gt(99)), times = 2);
    assert_enqueued!(connection, Invoice, invoices::company_id.eq(3345), in = "1h", times = 1);
    assert_enqueued!(connection, Invoice, in = "50m".."1h 30m", times = 1);
    assert_enqueued!(connection, Invoice, in = hours(1)..=hours(3), times = 3);
    assert_enqueued!(connection, Invoice, in = Duration::from_secs(7200).., times = 2);
    assert_enqueued!(connection, Invoice, times = 1, in = .."2h");
    assert_enqueued!(connection, Invoice, in = ..=minutes(120), times = 1);
    assert_enqueued!(connection, Invoice, within = "2h", times = 1);
    assert_enqueued!(connection, Invoice, at = in_three_hours - minutes(20), within = minutes(30), times = 2);
    assert_enqueued!(&mut *connection, Invoice, at = std::time::SystemTime::from(in_three_hours));
    assert_enqueued!(connection, Invoice, invoices::company_id.eq(8), times = 0);
    refute_enqueued!(connection, Note);
    refute_enqueued!(connection, Invoice, invoices::company_id.eq(8));
    refute_enqueued!(connection, Invoice, invoices::company_id.eq(7), within = "2h");
    refute_enqueued!(connection, Invoice, at = in_three_hours - minutes(20));
    queueable::testing::refute_enqueued!(connection, Invoice, invoices::company_id.eq(7), in = "1h");
    travel(connection, hours(1));
    assert_enqueued!(connection, Invoice, invoices::company_id.eq(3345), in = "0s", times = 1);
    assert_enqueued!(connection, Invoice, invoices::company_id.eq(7), in = "2h");
}

#[test]
fn what_is_written_in_an_assertion_may_use_the_connection() {
    fn company(connection: &mut Conn) -> i64 {
        invoices::table.select(invoices::company_id).get_result(connection).unwrap()
    }

    let mut office = Office::open();
    office.invoice((3345, 1), 100, 0);
    let connection = &mut office.connection;
    assert_enqueued!(connection, Invoice, invoices::company_id.eq(company(connection)), at = now(connection).unwrap());
    assert_next!(connection, Invoice, (company(connection), 1), at = now(connection).unwrap());
    Invoice::drain(connection, &|_: &Invoice, _: &mut Message<'_, Conn>| Ok(Outcome::Skip)).unwrap();
    assert_settled!(connection, Invoice, (company(connection), 1), Skipped);
}

#[test]
fn a_connection_of_a_pool_will_do() {
    let database = migrated();
    let pool = database.pool(1);
    let mut connection = pool.get().unwrap();
    connection.begin_test_transaction().unwrap();
    diesel::insert_into(notes::table).values((notes::id.eq(8), Note::due_now())).execute(&mut connection).unwrap();
    assert_enqueued!(&mut connection, Note, notes::id.eq(Some(8)), within = "0s");
    assert_next!(connection, Note, Some(8), within = "0s");
    assert_settled!(connection, Note, Some(8), NotAttempted);
    assert_nothing_due!(&mut connection, Invoice);
    let due = message(|| assert_nothing_due!(connection, Note));
    assert!(due.contains("\n  Note 8: NOT_ATTEMPTED, "), "{due}");
}

#[test]
fn a_row_that_nothing_enqueues_is_shown_beside_the_rows_that_come_next() {
    let mut office = Office::open();
    office.plain_invoice((3345, 1), 500);
    office.plain_invoice((3345, 2), 500);
    for number in 1..=5 {
        office.invoice((7, number), 100, 10 * number as u64);
    }
    let connection = &mut office.connection;
    let message = message(|| assert_enqueued!(connection, Invoice, invoices::company_id.eq(3345)));
    insta::assert_snapshot!(message, @r#"
    expected a pending row of Invoice with ("invoices"."company_id" = 3345)
    found none, at 2030-01-02 03:00:00.000 UTC by the clock of the test
    these match and are not pending:
      Invoice 3345,2: NOT_ATTEMPTED, no next attempt, company_id = 3345; explain: not queued
      Invoice 3345,1: NOT_ATTEMPTED, no next attempt, company_id = 3345; explain: not queued
    these are pending and come next:
      Invoice 7,1: NOT_ATTEMPTED, scheduled for 2030-01-02 03:10:00.000 UTC, in 10m, company_id = 7
      Invoice 7,2: NOT_ATTEMPTED, scheduled for 2030-01-02 03:20:00.000 UTC, in 20m, company_id = 7
      Invoice 7,3: NOT_ATTEMPTED, scheduled for 2030-01-02 03:30:00.000 UTC, in 30m, company_id = 7
    "#);
}

#[test]
fn rows_at_another_time_are_shown_the_nearest_first() {
    let mut office = Office::open();
    for number in 1..=7 {
        office.invoice((3345, number), 100, 10 * number as u64);
    }
    office.invoice((7, 1), 100, 40);
    let connection = &mut office.connection;
    let of_company = invoices::company_id.eq(3345);
    let of_range = message(|| assert_enqueued!(connection, Invoice, of_company, in = "34m".."36m"));
    insta::assert_snapshot!(of_range, @r#"
    expected a pending row of Invoice with ("invoices"."company_id" = 3345), due in 34m to 36m, give or take 1s
    found none, at 2030-01-02 03:00:00.000 UTC by the clock of the test
    these match all but the time, the nearest first:
      Invoice 3345,3: NOT_ATTEMPTED, scheduled for 2030-01-02 03:30:00.000 UTC, in 30m, company_id = 3345
      Invoice 3345,4: NOT_ATTEMPTED, scheduled for 2030-01-02 03:40:00.000 UTC, in 40m, company_id = 3345
      Invoice 3345,2: NOT_ATTEMPTED, scheduled for 2030-01-02 03:20:00.000 UTC, in 20m, company_id = 3345
      Invoice 3345,5: NOT_ATTEMPTED, scheduled for 2030-01-02 03:50:00.000 UTC, in 50m, company_id = 3345
      Invoice 3345,1: NOT_ATTEMPTED, scheduled for 2030-01-02 03:10:00.000 UTC, in 10m, company_id = 3345
      and 2 more
    "#);
    let at = message(|| assert_enqueued!(connection, Invoice, at = three_o_clock() - minutes(1), within = "1m 30s"));
    insta::assert_snapshot!(at.lines().take(4).collect::<Vec<_>>().join("\n"), @r#"
    expected a pending row of Invoice, due at 2030-01-02 02:59:00.000 UTC, give or take 1m 30s
    found none, at 2030-01-02 03:00:00.000 UTC by the clock of the test
    these match all but the time, the nearest first:
      Invoice 3345,1: NOT_ATTEMPTED, scheduled for 2030-01-02 03:10:00.000 UTC, in 10m
    "#);
    let within = message(|| assert_enqueued!(connection, Invoice, within = "500ms"));
    insta::assert_snapshot!(within.lines().next().unwrap(), @"expected a pending row of Invoice, due in 500ms or sooner");
}

#[test]
fn too_few_and_too_many_rows_are_shown() {
    let mut office = Office::open();
    for number in 1..=7 {
        office.invoice((3345, number), 100, 10 * number as u64);
    }
    let connection = &mut office.connection;
    let few = message(|| assert_enqueued!(connection, Invoice, in = "10m".."20m", times = 3));
    insta::assert_snapshot!(few, @r#"
    expected 3 pending rows of Invoice, due in 10m to 20m, give or take 1s
    found 2, at 2030-01-02 03:00:00.000 UTC by the clock of the test
    these:
      Invoice 3345,1: NOT_ATTEMPTED, scheduled for 2030-01-02 03:10:00.000 UTC, in 10m
      Invoice 3345,2: NOT_ATTEMPTED, scheduled for 2030-01-02 03:20:00.000 UTC, in 20m
    these match all but the time, the nearest first:
      Invoice 3345,3: NOT_ATTEMPTED, scheduled for 2030-01-02 03:30:00.000 UTC, in 30m
      Invoice 3345,4: NOT_ATTEMPTED, scheduled for 2030-01-02 03:40:00.000 UTC, in 40m
      Invoice 3345,5: NOT_ATTEMPTED, scheduled for 2030-01-02 03:50:00.000 UTC, in 50m
      and 2 more
    "#);
    let many = message(|| assert_enqueued!(connection, Invoice, times = 1));
    insta::assert_snapshot!(many, @r#"
    expected 1 pending row of Invoice
    found 7, at 2030-01-02 03:00:00.000 UTC by the clock of the test
    these:
      Invoice 3345,1: NOT_ATTEMPTED, scheduled for 2030-01-02 03:10:00.000 UTC, in 10m
      Invoice 3345,2: NOT_ATTEMPTED, scheduled for 2030-01-02 03:20:00.000 UTC, in 20m
      Invoice 3345,3: NOT_ATTEMPTED, scheduled for 2030-01-02 03:30:00.000 UTC, in 30m
      Invoice 3345,4: NOT_ATTEMPTED, scheduled for 2030-01-02 03:40:00.000 UTC, in 40m
      Invoice 3345,5: NOT_ATTEMPTED, scheduled for 2030-01-02 03:50:00.000 UTC, in 50m
      and 2 more
    "#);
    let one = message(|| refute_enqueued!(connection, Invoice, invoices::number.eq(7)));
    insta::assert_snapshot!(one, @r#"
    expected no pending row of Invoice with ("invoices"."number" = 7)
    found 1, at 2030-01-02 03:00:00.000 UTC by the clock of the test
    this one:
      Invoice 3345,7: NOT_ATTEMPTED, scheduled for 2030-01-02 04:10:00.000 UTC, in 1h 10m, number = 7
    "#);
    diesel::delete(invoices::table.filter(invoices::number.ne(7))).execute(connection).unwrap();
    diesel::update(invoices::table)
        .set(invoice_queue::next_attempt_time.eq(None::<DateTime<Utc>>))
        .execute(connection)
        .unwrap();
    let none = message(|| assert_enqueued!(connection, Invoice));
    insta::assert_snapshot!(none, @r#"
    expected a pending row of Invoice
    found none, at 2030-01-02 03:00:00.000 UTC by the clock of the test
    these match and are not pending:
      Invoice 3345,7: NOT_ATTEMPTED, no next attempt; explain: not queued
    "#);
}

#[test]
fn a_settled_row_is_compared_by_its_status_and_its_failure() {
    let mut office = Office::open();
    for (number, amount) in [(1, 100), (2, -1), (3, 13)] {
        office.invoice((3345, number), amount, 0);
    }
    let connection = &mut office.connection;
    Invoice::drain(connection, &send).unwrap();
    // The first two are in the archives.
    assert_settled!(connection, Invoice, (3345, 1), Success);
    assert_settled!(connection, Invoice, (3345, 2), Status::Failed, "declined");
    let (status, text) = (Status::Error, "closed".to_owned());
    assert_settled!(connection, Invoice, (3345, 3), status, text);
    assert_settled!(connection, Invoice, (3345, 3), queueable::Status::Error,);
    let other_text = message(|| assert_settled!(connection, Invoice, (3345, 3), Error, "card declined"));
    insta::assert_snapshot!(other_text, @r#"
    expected Invoice (3345, 3) to be ERROR with a failure that contains "card declined"
    found another state, at 2030-01-02 03:00:00.000 UTC by the clock of the test
    this is the row:
      Invoice 3345,3: ERROR after 1 try, scheduled for 2030-01-02 04:00:00.000 UTC, in 1h; last failure: the bank of 3345 is closed, no 3
    "#);
    let other_status = message(|| assert_settled!(connection, Invoice, (3345, 2), Success));
    insta::assert_snapshot!(other_status, @r#"
    expected Invoice (3345, 2) to be SUCCESS
    found another state, at 2030-01-02 03:00:00.000 UTC by the clock of the test
    this is the row:
      Invoice (3345, 2): FAILED after 1 try, no next attempt; explain: archived in invoices_failed; last failure: card declined
    "#);
    let missing = message(|| assert_settled!(connection, Invoice, (3345, 4), Failed));
    insta::assert_snapshot!(missing, @r#"
    expected Invoice (3345, 4) to be FAILED
    found no such row, at 2030-01-02 03:00:00.000 UTC by the clock of the test
    these rows have the highest keys:
      Invoice 3345,3: ERROR after 1 try, scheduled for 2030-01-02 04:00:00.000 UTC, in 1h; last failure: the bank of 3345 is closed, no 3
    "#);
}

#[test]
fn a_deleted_row_is_missing_and_the_message_says_why() {
    let mut office = Office::open();
    office.note(7);
    let connection = &mut office.connection;
    assert_enqueued!(connection, Note, notes::id.eq(Some(7)), in = "0s", times = 1);
    assert_next!(connection, Note, Some(7), within = "0s");
    let read = |note: &Note, _: &mut Message<'_, Conn>| {
        assert_eq!(note.id, Some(7));
        Ok(Outcome::Done)
    };
    Note::drain(connection, &read).unwrap();
    let deleted = message(|| assert_settled!(connection, Note, Some(7), Success));
    insta::assert_snapshot!(deleted, @r#"
    expected Note Some(7) to be SUCCESS
    found no such row (the queue deletes rows that succeed), at 2030-01-02 03:00:00.000 UTC by the clock of the test
    "#);
}

#[test]
fn the_next_attempt_is_compared_by_the_clock_of_the_test() {
    let mut office = Office::open();
    office.invoice((3345, 1), 13, 0);
    let connection = &mut office.connection;
    Invoice::drain(connection, &send).unwrap();
    assert_next!(connection, Invoice, (3345, 1), in = "30m".."90m");
    assert_next!(connection, Invoice, (3345, 1), at = three_o_clock() + hours(1));
    assert_next!(connection, Invoice, (3345, 1), within = "1h");
    let early = message(|| assert_next!(connection, Invoice, (3345, 1), in = "10s".."20s"));
    insta::assert_snapshot!(early, @r#"
    expected Invoice (3345, 1) to be pending, due in 10s to 20s, give or take 1s
    found another state, at 2030-01-02 03:00:00.000 UTC by the clock of the test
    this is the row:
      Invoice 3345,1: ERROR after 1 try, scheduled for 2030-01-02 04:00:00.000 UTC, in 1h; last failure: the bank of 3345 is closed, no 1
    "#);
    travel(connection, minutes(90));
    assert_next!(connection, Invoice, (3345, 1), within = "0s");
    let late = message(|| assert_next!(connection, Invoice, (3345, 1), in = "0s".."1h"));
    insta::assert_snapshot!(late, @r#"
    expected Invoice (3345, 1) to be pending, due in 0s to 1h, give or take 1s
    found another state, at 2030-01-02 04:30:00.000 UTC by the clock of the test
    this is the row:
      Invoice 3345,1: ERROR after 1 try, next attempt at 2030-01-02 04:00:00.000 UTC, 30m ago; explain: due; last failure: the bank of 3345 is closed, no 1
    "#);
    diesel::update(invoices::table).set(invoices::amount_cents.eq(1)).execute(connection).unwrap();
    Invoice::drain(connection, &send).unwrap();
    let done = message(|| assert_next!(connection, Invoice, (3345, 1), in = "0s".."1h"));
    insta::assert_snapshot!(done, @r#"
    expected Invoice (3345, 1) to be pending, due in 0s to 1h, give or take 1s
    found another state, at 2030-01-02 04:30:00.000 UTC by the clock of the test
    this is the row:
      Invoice (3345, 1): SUCCESS after 2 tries, no next attempt; explain: archived in invoices_done
    "#);
}

#[test]
fn due_rows_of_any_of_the_entities_are_shown() {
    let mut office = Office::open();
    assert_nothing_due!(&mut office.connection, Invoice, Note);
    office.note(7);
    office.invoice((3345, 1), 100, 10);
    office.invoice((3345, 2), 100, 20);
    let connection = &mut office.connection;
    assert_nothing_due!(connection, Invoice);
    travel(connection, minutes(20));
    let due = message(|| assert_nothing_due!(connection, Invoice, Note));
    insta::assert_snapshot!(due, @r#"
    expected no due row of Invoice
    found 2, at 2030-01-02 03:20:00.000 UTC by the clock of the test
    these:
      Invoice 3345,1: NOT_ATTEMPTED, next attempt at 2030-01-02 03:10:00.000 UTC, 10m ago; explain: due
      Invoice 3345,2: NOT_ATTEMPTED, next attempt at 2030-01-02 03:20:00.000 UTC, now; explain: due
    expected no due row of Note
    found 1, at 2030-01-02 03:20:00.000 UTC by the clock of the test
    this one:
      Note 7: NOT_ATTEMPTED, next attempt at 2030-01-02 03:00:00.000 UTC, 20m ago; explain: due
    "#);
}

#[test]
fn options_that_say_nothing_are_told() {
    let mut office = Office::open();
    let connection = &mut office.connection;
    let unknown = message(|| assert_enqueued!(connection, Invoice, within = "ten seconds"));
    insta::assert_snapshot!(unknown, @r#""ten seconds" is no length of time such as "10s" or "1h 30m": expected number at 0"#);
    let turned = message(|| assert_enqueued!(connection, Invoice, in = "20s".."10s"));
    insta::assert_snapshot!(turned, @"a range from 20s to 10s has no time in it: write the shorter one first");
    let both = message(|| refute_enqueued!(connection, Invoice, in = "20s", at = three_o_clock()));
    insta::assert_snapshot!(both, @r#""at" and "in" both say when a row is due: leave one out"#);
}

#[test]
fn a_database_that_cannot_be_read_fails_every_assertion() {
    let database = Database::new();
    let mut empty = database.connect();
    for told in [
        message(|| assert_enqueued!(&mut empty, Invoice)),
        message(|| refute_enqueued!(&mut empty, Invoice)),
        message(|| assert_settled!(&mut empty, Invoice, (1, 1), Success)),
        message(|| assert_next!(&mut empty, Invoice, (1, 1), within = "1h")),
        message(|| assert_nothing_due!(&mut empty, Invoice)),
    ] {
        assert!(told.starts_with("the rows cannot be read: ") && told.contains("invoices"), "{told}");
    }
}
