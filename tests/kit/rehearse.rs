//! Rehearsals: handlers on due rows, and nothing remains.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queueable::testing::{AttemptEnd, TestQueue};
use queueable::{Error, Failure, Lease, Message, Outcome, Queueable};

use super::attempt::Approved;
use super::shop::{Document, Email, Payment, Shop, charge, documents, emails, ledger, payments};
use crate::db::Conn;

/// Charges without looking at the amount, and notes the fee.
fn new_charge(payment: &Payment, message: &mut Message<'_, Conn>) -> queueable::HandlerResult {
    let cents = [payment.amount_cents, if payment.amount_cents > 500 { 30 } else { 0 }];
    for cents in cents.into_iter().filter(|cents| *cents != 0) {
        diesel::insert_into(ledger::table)
            .values((ledger::payment_id.eq(payment.id), ledger::amount_cents.eq(cents)))
            .execute(message.connection())?;
    }
    Ok(Outcome::Done)
}

#[test]
fn two_handlers_are_compared_row_by_row_and_nothing_remains() {
    let mut shop = Shop::open();
    compare_two(&mut shop);
}

#[test]
fn a_rehearsal_outside_of_a_transaction_commits_nothing() {
    let mut shop = Shop::committing();
    compare_two(&mut shop);
    // No transaction is left open either.
    shop.connection.begin_test_transaction().unwrap();
}

fn compare_two(shop: &mut Shop) {
    let [alike, declined, large] = [shop.enqueue(1, 100), shop.enqueue(2, -5), shop.enqueue(3, 1000)];
    let rows: Vec<Payment> = payments::table.order(payments::id).load(&mut shop.connection).unwrap();
    let rehearsed = Payment::rehearse(&mut shop.connection, Payment::queue(), 100)
        .and_then(|rehearsal| rehearsal.with("today", &charge)?.with("new build", &new_charge))
        .unwrap()
        .report();
    let differing: Vec<_> = rehearsed.differing().map(|row| row.key.clone()).collect();
    assert_eq!(differing, [declined.to_string(), large.to_string()], "{rehearsed}");
    let [_, second, third] = &*rehearsed.rows else { panic!("{rehearsed}") };
    let ends: Vec<_> = second.runs.iter().map(|run| run.attempt.as_ref().unwrap().end).collect();
    assert_eq!(ends, [AttemptEnd::WillRetry, AttemptEnd::Succeeded]);
    let in_ledger: Vec<_> = third.runs.iter().map(|run| run.writes_by_table()["ledger"]).collect();
    assert_eq!(in_ledger, [1, 2]);
    let text = rehearsed.to_string();
    assert!(text.contains("Payment: 3 due rows rehearsed and rolled back, 2 of them treated differently"), "{text}");
    assert!(text.contains("card declined") && text.contains("2 in ledger") && text.contains("1000"), "{text}");
    assert!(!text.contains(&format!("Payment {alike}, today")), "{text}");
    // All is as it was.
    assert_eq!(shop.booked(), [0i64; 0]);
    assert_eq!(payments::table.order(payments::id).load(&mut shop.connection), Ok(rows));
    assert_eq!(Payment::queue().due().keys(&mut shop.connection).unwrap(), [alike, declined, large]);
}

#[test]
fn a_rehearsal_takes_the_rows_of_a_filter_and_no_more_than_it_may() {
    let mut shop = Shop::open();
    let ids = [shop.enqueue(1, 1), shop.enqueue(3345, 2), shop.enqueue(3345, 3), shop.enqueue(3345, 4)];
    let rows = Payment::queue().filter(payments::company_id.eq(3345));
    let rehearsal = Payment::rehearse(&mut shop.connection, rows, 2).unwrap();
    let rehearsed = rehearsal.with("today", &charge).unwrap().report();
    let keys: Vec<_> = rehearsed.rows.iter().map(|row| row.key.clone()).collect();
    assert_eq!(keys, [ids[1].to_string(), ids[2].to_string()]);
    assert_eq!(rehearsed.differing().count(), 0);
}

#[test]
fn a_row_that_no_worker_would_take_is_reported_with_the_reason() {
    let mut shop = Shop::open();
    let [positive, _] = [shop.enqueue(1, 1), shop.enqueue(1, -2)];
    let handler = |_: &Approved, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let rehearsal = Approved::rehearse(&mut shop.connection, Approved::queue(), 10).unwrap();
    let rehearsed = rehearsal.with("today", &handler).unwrap().report();
    assert_eq!(rehearsed.rows[0].key, positive.to_string());
    let run = &rehearsed.rows[1].runs[0];
    assert_eq!(run.kept.as_deref(), Some("its condition (`claim_if`) is not true"), "{rehearsed}");
    assert!(rehearsed.to_string().contains("not attempted: its condition"), "{rehearsed}");
    // The first row left its table in its attempt, and is back.
    assert_eq!(Approved::queue().due().count(&mut shop.connection).unwrap(), 2);
}

#[test]
fn groups_leases_and_panics_are_rehearsed_and_rolled_back() {
    let mut shop = Shop::open();
    for number in 0..3 {
        let email = (emails::payment_id.eq(number), Email::due_now());
        diesel::insert_into(emails::table).values(email).execute(&mut shop.connection).unwrap();
        let document = (documents::title.eq(format!("number {number}")), Document::due_now());
        diesel::insert_into(documents::table).values(document).execute(&mut shop.connection).unwrap();
    }
    let send = |email: &Email, _: &mut Message<'_, Conn>| {
        assert!(email.payment_id != 1, "number one");
        Ok(Outcome::Done)
    };
    let rehearsal = Email::rehearse(&mut shop.connection, Email::queue(), 10).unwrap();
    let rehearsed = rehearsal.with("send", &send).unwrap().report();
    let failed = rehearsed.rows.iter().filter(|row| row.runs[0].attempt.as_ref().unwrap().end == AttemptEnd::WillRetry);
    assert_eq!(failed.count(), 1, "{rehearsed}");
    let render = (
        |document: &Document, _: &Lease| match document.title.as_str() {
            "number 2" => Err(Failure::fatal(std::io::Error::other("no paper"))),
            title => Ok(title.to_uppercase()),
        },
        |document: &Document, answer: &String, message: &mut Message<'_, Conn>| {
            let change = diesel::update(documents::table.find(document.id)).set(documents::title.eq(answer));
            change.execute(message.connection())?;
            Ok(Outcome::Done)
        },
    );
    let rehearsal = Document::rehearse(&mut shop.connection, Document::queue(), 10).unwrap();
    let rehearsed = rehearsal.with("render", &render).unwrap().report();
    let ends: Vec<_> = rehearsed.rows.iter().map(|row| row.runs[0].attempt.as_ref().unwrap().end).collect();
    assert_eq!(ends, [AttemptEnd::Succeeded, AttemptEnd::Succeeded, AttemptEnd::GaveUp], "{rehearsed}");
    let upper = documents::table.filter(documents::title.like("NUMBER%")).select(documents::title);
    assert!(!upper.load::<String>(&mut shop.connection).unwrap().iter().any(|title| title.starts_with("NUMBER")));
    assert_eq!(Email::queue().due().count(&mut shop.connection).unwrap(), 3);
    assert_eq!(Document::queue().due().count(&mut shop.connection).unwrap(), 3);
}

#[test]
fn a_handler_that_commits_by_itself_is_named_at_once() {
    let mut shop = Shop::committing();
    let [first, second] = [shop.enqueue(1, 1), shop.enqueue(1, 2)];
    let commit = |payment: &Payment, message: &mut Message<'_, Conn>| {
        message.connection().batch_execute("COMMIT")?;
        charge(payment, message)
    };
    let rehearsal = Payment::rehearse(&mut shop.connection, Payment::queue(), 10).unwrap();
    let error = rehearsal.with("commits", &commit).unwrap_err();
    assert!(matches!(error, Error::Setting { setting: "the transaction of the test", .. }), "{error}");
    assert!(error.to_string().contains(&format!("Payment {first}")), "{error}");
    // The second row was not tried any more.
    assert!(!shop.booked().contains(&second));
}
