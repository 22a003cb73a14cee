//! Draining: the worker's own turns, inside the transaction of a test.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queueable::testing::{self, AttemptEnd, TestQueue};
use queueable::{Error, Failure, Lease, Message, Outcome, QueueState, Queueable, Status};

use super::shop::{Document, Email, Payment, Shop, charge, documents, emails, payments};
use crate::db::{Conn, NAME};

#[test]
fn due_rows_are_worked_inside_the_transaction_and_nothing_is_committed() {
    let mut shop = Shop::open();
    let ids = [shop.enqueue(1, 100), shop.enqueue(1, 200), shop.enqueue(2, -1)];
    let drained = Payment::drain(&mut shop.connection, &charge).unwrap();
    assert_eq!((drained.succeeded(), drained.retried(), drained.attempts.len()), (2, 1, 3));
    let failed = drained.of(ids[2]).next().unwrap();
    assert_eq!((failed.end, failed.error.as_deref()), (AttemptEnd::WillRetry, Some("card declined")));
    // The handler's own writes are gone where it failed, and stand where it did not.
    assert_eq!(shop.booked(), ids[..2]);
    let state: QueueState =
        payments::table.find(ids[2]).select(Payment::queue_state()).get_result(&mut shop.connection).unwrap();
    assert_eq!((state.status, state.try_count), (Status::Error, 1));
    // The transaction of the test is open as before, and takes all of it back.
    shop.connection.batch_execute("ROLLBACK").unwrap();
    assert_eq!((Payment::queue().count(&mut shop.connection).unwrap(), shop.booked()), (0, Vec::new()));
}

#[test]
fn a_server_on_which_a_worker_has_ended_messages_at_once_commits_nothing_of_a_test() {
    // A worker's own session has found out by then what the server can do, and the process remembers it.
    let mut worked = Shop::committing();
    for _ in 0..3 {
        worked.enqueue(1, 100);
    }
    let drained = Payment::drain(&mut worked.connection, &charge).unwrap();
    assert_eq!(drained.succeeded(), 3, "{drained}");
    let mut shop = Shop::alone();
    shop.enqueue(1, 100);
    assert_eq!(Payment::drain(&mut shop.connection, &charge).unwrap().succeeded(), 1);
    shop.connection.batch_execute("ROLLBACK").unwrap();
    assert_eq!((Payment::queue().count(&mut shop.connection).unwrap(), shop.booked()), (0, Vec::new()));
}

#[test]
fn retries_come_after_their_backoff_without_waiting() {
    let mut shop = Shop::open();
    let id = shop.enqueue(1, -1);
    let before = testing::now(&mut shop.connection).unwrap();
    let drained = Payment::drain_until_idle(&mut shop.connection, &charge).unwrap();
    let ends: Vec<_> = drained.of(id).map(|attempt| attempt.end).collect();
    assert_eq!(ends, [AttemptEnd::WillRetry, AttemptEnd::WillRetry, AttemptEnd::GaveUp], "{drained}");
    let waited = testing::now(&mut shop.connection).unwrap() - before;
    assert!(waited >= testing::hours(2) && waited < testing::hours(3), "{waited}");
}

#[test]
fn groups_and_leases_are_worked_as_workers_do() {
    let mut shop = Shop::open();
    for number in 0..25 {
        let email = (emails::payment_id.eq(number), Email::due_now());
        diesel::insert_into(emails::table).values(email).execute(&mut shop.connection).unwrap();
        let document = (documents::title.eq(format!("number {number}")), Document::due_now());
        diesel::insert_into(documents::table).values(document).execute(&mut shop.connection).unwrap();
    }
    let send = |email: &Email, _: &mut Message<'_, Conn>| match email.payment_id {
        7 => Err(Failure::fatal(std::io::Error::other("no such address"))),
        _ => Ok(Outcome::Done),
    };
    let drained = Email::drain(&mut shop.connection, &send).unwrap();
    assert_eq!((drained.succeeded(), drained.failed()), (24, 1), "{drained}");
    let render = (
        |document: &Document, _: &Lease| match document.title.as_str() {
            "number 3" => Err(Failure::retry(std::io::Error::other("no paper"))),
            title => Ok(title.to_uppercase()),
        },
        |document: &Document, answer: &String, message: &mut Message<'_, Conn>| {
            diesel::update(documents::table.find(document.id))
                .set(documents::title.eq(answer))
                .execute(message.connection())?;
            Ok(Outcome::Done)
        },
    );
    let drained = Document::drain(&mut shop.connection, &render).unwrap();
    assert_eq!((drained.succeeded(), drained.retried()), (24, 1), "{drained}");
    let upper = documents::table.filter(documents::title.eq("NUMBER 24")).count().get_result(&mut shop.connection);
    assert_eq!(upper, Ok(1));
}

#[test]
fn only_rows_of_a_filter_are_worked() {
    let mut shop = Shop::open();
    let ids = [shop.enqueue(1, 100), shop.enqueue(3345, 200), shop.enqueue(3345, -1), shop.enqueue(2, 300)];
    let drained = Payment::drain_where(&mut shop.connection, &charge, payments::company_id.eq(3345)).unwrap();
    assert_eq!(
        drained.attempts.iter().map(|attempt| attempt.key.to_string()).collect::<Vec<_>>(),
        [ids[1].to_string(), ids[2].to_string()]
    );
    assert_eq!(Payment::queue().due().count(&mut shop.connection).unwrap(), 2);
    let one = Payment::drain_one(&mut shop.connection, &charge).unwrap();
    assert_eq!(one.attempts.len(), 1);
}

#[test]
fn rows_that_go_round_end_the_test_with_their_names() {
    let mut shop = Shop::open();
    let id = shop.enqueue(1, 100);
    let again = |_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::again_in(std::time::Duration::ZERO));
    let drain = testing::on(&mut shop.connection).serve::<Payment>(&again).unwrap();
    let error = drain.attempts_at_most(20).drain().unwrap_err().to_string();
    assert!(error.contains(&format!("1 rows were attempted, Payment {id} 21 times")), "{error}");
}

#[test]
fn a_drain_without_a_transaction_leaves_none_open() {
    let mut shop = Shop::committing();
    let ids = [shop.enqueue(1, 1), shop.enqueue(1, 2)];
    for id in ids {
        let drained = Payment::drain_one(&mut shop.connection, &charge).unwrap();
        assert_eq!(drained.of(id).next().unwrap().end, AttemptEnd::Succeeded);
    }
    shop.connection.begin_test_transaction().unwrap();
    assert_eq!(shop.booked(), ids);
}

#[test]
fn a_handler_that_ends_the_transaction_of_the_test_is_named_at_once() {
    // What it commits is no other test's.
    let mut shop = Shop::alone();
    let id = shop.enqueue(1, 100);
    let commit = |_: &Payment, message: &mut Message<'_, Conn>| {
        message.connection().batch_execute("COMMIT")?;
        Ok(Outcome::Done)
    };
    let error = Payment::drain(&mut shop.connection, &commit).unwrap_err();
    assert!(matches!(error, Error::Setting { setting: "the transaction of the test", .. }), "{error}");
    assert!(error.to_string().contains(&format!("Payment {id}")), "{error}");
}

#[test]
fn a_panic_and_a_swallowed_error_of_the_database_leave_the_transaction_usable() {
    let mut shop = Shop::open();
    let (panics, swallows) = (shop.enqueue(1, 1), shop.enqueue(1, 2));
    let handler = |payment: &Payment, message: &mut Message<'_, Conn>| {
        assert!(payment.amount_cents != 1, "one cent");
        let _ = message.connection().batch_execute("SELECT no_such_column FROM payments");
        Ok(Outcome::Done)
    };
    let drained = Payment::drain(&mut shop.connection, &handler).unwrap();
    assert_eq!(drained.of(panics).next().unwrap().end, AttemptEnd::WillRetry, "{drained}");
    let end = if NAME == "postgres" { AttemptEnd::WillRetry } else { AttemptEnd::Succeeded };
    assert_eq!(drained.of(swallows).next().unwrap().end, end, "{drained}");
    assert!(shop.enqueue(1, 3) > swallows);
}

#[test]
fn a_thousand_rows_are_worked_in_one_transaction() {
    let mut shop = Shop::open();
    let rows: Vec<_> = (0..1_000)
        .map(|amount| ((payments::company_id.eq(1_i64), payments::amount_cents.eq(amount)), Payment::due_now()))
        .collect();
    for rows in rows.chunks(100) {
        diesel::insert_into(payments::table).values(rows.to_vec()).execute(&mut shop.connection).unwrap();
    }
    let drained = Payment::drain(&mut shop.connection, &charge).unwrap();
    assert_eq!((drained.succeeded(), shop.booked().len()), (1_000, 1_000));
}

#[test]
fn without_a_transaction_attempts_are_committed_and_the_clock_goes_on() {
    let database = super::shop::migrated();
    let mut connection = database.connect();
    let payment = (payments::company_id.eq(1_i64), payments::amount_cents.eq(-1_i64));
    diesel::insert_into(payments::table).values((payment, Payment::due_now())).execute(&mut connection).unwrap();
    testing::travel(&mut connection, testing::days(1));
    let drained = Payment::drain_until_idle(&mut connection, &charge).unwrap();
    assert_eq!((drained.retried(), drained.failed()), (2, 1), "{drained}");
    let failed = Payment::queue().failed().count(&mut database.connect()).unwrap();
    assert_eq!(failed, 1, "another connection sees it");
    let before = testing::now(&mut connection).unwrap();
    assert!((0..100_000).any(|_| testing::now(&mut connection).unwrap() > before));
    testing::travel_back();
}

#[test]
fn entities_are_worked_together() {
    let mut shop = Shop::open();
    shop.enqueue(1, 100);
    let send = |_: &Email, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let charges = |payment: &Payment, message: &mut Message<'_, Conn>| {
        let email = (emails::payment_id.eq(payment.id), Email::due_now());
        diesel::insert_into(emails::table).values(email).execute(message.connection())?;
        Ok(Outcome::Done)
    };
    let drain = testing::on(&mut shop.connection).serve::<Payment>(&charges).unwrap().serve::<Email>(&send).unwrap();
    let drained = drain.drain().unwrap();
    let told: Vec<_> = drained.attempts.iter().map(|attempt| (attempt.entity, attempt.enqueued.concat())).collect();
    assert_eq!(told, [("Payment", "Email".to_owned()), ("Email", String::new())], "{drained}");
    let email = emails::table.select(Email::as_select()).get_result(&mut shop.connection).unwrap();
    assert_eq!(drained.of(email.id).last().map(|attempt| attempt.entity), Some("Email"));
}

#[test]
fn a_drain_inside_a_handler_is_refused_in_words() {
    let mut shop = Shop::open();
    shop.enqueue(1, 200);
    let send = |_: &Email, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let nested = |_: &Payment, message: &mut Message<'_, Conn>| {
        Email::drain(message.connection(), &send)?;
        Ok(Outcome::Done)
    };
    let drained = Payment::drain(&mut shop.connection, &nested).unwrap();
    let error = drained.attempts[0].error.as_deref().unwrap_or_default();
    assert!(error.starts_with("a drain is begun for Email inside a handler"), "{error}");
}

#[test]
fn a_table_without_the_queues_columns_is_an_error_with_the_sql_that_mends_it() {
    let mut shop = Shop::open();
    let database = crate::db::Database::new();
    let mut connection = database.connect();
    connection.batch_execute("CREATE TABLE payments (id INT, company_id INT, amount_cents INT)").unwrap();
    let error = Payment::drain(&mut connection, &charge).unwrap_err();
    assert!(matches!(error, Error::Unsafe(_)), "{error}");
    assert!(error.to_string().contains("next_attempt_time"), "{error}");
    assert_eq!(Payment::drain(&mut shop.connection, &charge).unwrap().attempts, []);
}
