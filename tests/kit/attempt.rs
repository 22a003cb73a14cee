//! One attempt by hand, and messages without a row.

use std::cell::Cell;
use std::time::Duration;

use diesel::connection::{Instrumentation, InstrumentationEvent, set_default_instrumentation};
use diesel::prelude::*;
use queueable::testing::{self, AttemptEnd, TestQueue, hours};
use queueable::{Lease, Message, Outcome, QueueState, Queueable, Stage, Status};

use super::shop::{Document, Email, Payment, Shop, charge, documents, emails, payments};
use crate::db::Conn;

#[test]
fn an_attempt_by_hand_shows_the_row_before_and_after_and_the_sql_of_the_handler() {
    let mut shop = Shop::open();
    let (other, id) = (shop.enqueue(1, 1), shop.enqueue(1, 4711));
    let attempted = Payment::attempt_with_sql(&mut shop.connection, &charge, &id).unwrap();
    assert_eq!((attempted.attempt.end, attempted.was_made_due), (AttemptEnd::Succeeded, false));
    assert_eq!((attempted.before.0.amount_cents, attempted.before.1.status), (4711, Status::NotAttempted));
    let (payment, state) = attempted.after.clone().unwrap();
    assert_eq!((payment.id, state.status, state.try_count), (id, Status::Success, 1));
    let [insert] = &*attempted.statements else { panic!("{attempted}") };
    assert!(insert.sql.contains("4711") && insert.is_write(), "{insert}");
    assert_eq!(insert.written_table().as_deref(), Some("ledger"));
    // Exactly one attempt, on this row.
    assert_eq!(shop.booked(), [id]);
    assert_eq!(Payment::queue().due().keys(&mut shop.connection).unwrap(), [other]);
    let without_sql = Payment::attempt(&mut shop.connection, &charge, &other).unwrap();
    assert_eq!((without_sql.attempt.end, without_sql.statements.len()), (AttemptEnd::Succeeded, 0));
}

#[test]
fn statements_that_only_read_and_those_that_are_refused_are_told_from_writes() {
    let mut shop = Shop::open();
    let id = shop.enqueue(1, 1);
    let handler = |payment: &Payment, message: &mut Message<'_, Conn>| {
        payments::table.find(payment.id).select(payments::company_id).get_result::<i64>(message.connection())?;
        diesel::sql_query("UPDATE payments SET no_such_column = 1").execute(message.connection())?;
        Ok(Outcome::Done)
    };
    let attempted = Payment::attempt_with_sql(&mut shop.connection, &handler, &id).unwrap();
    assert_eq!(attempted.attempt.end, AttemptEnd::WillRetry);
    let [select, update] = &*attempted.statements else { panic!("{attempted}") };
    assert!(!select.is_write() && select.error.is_none(), "{select}");
    assert_eq!(update.written_table().as_deref(), Some("payments"));
    assert!(update.error.as_ref().unwrap().contains("no_such_column"), "{update}");
}

#[test]
fn a_row_that_waits_is_made_due_for_one_attempt_and_gets_its_next_time_from_it() {
    let mut shop = Shop::open();
    testing::freeze(&mut shop.connection).unwrap();
    let now = testing::now(&mut shop.connection).unwrap();
    let id = shop.enqueue(1, -1);
    diesel::update(payments::table.find(id))
        .set(Payment::due_in(Duration::from_secs(86_400)))
        .execute(&mut shop.connection)
        .unwrap();
    let attempted = Payment::attempt(&mut shop.connection, &charge, &id).unwrap();
    assert!(attempted.was_made_due);
    assert_eq!(attempted.before.1.next_attempt_time, Some(now + hours(24)));
    assert_eq!((attempted.attempt.end, attempted.attempt.next), (AttemptEnd::WillRetry, Some(now + hours(1))));
    assert_eq!(attempted.after.unwrap().1.next_attempt_time, Some(now + hours(1)));
    // Nor is its next try due, and it is the next one all the same.
    let attempted = Payment::attempt(&mut shop.connection, &charge, &id).unwrap();
    assert_eq!((attempted.attempt.try_number, attempted.was_made_due), (2, true));
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(claim_if = "payments::amount_cents.gt(0)", on_success = delete)]
pub(super) struct Approved {
    id: i64,
}

#[test]
fn what_keeps_a_row_from_an_attempt_is_said_in_words() {
    let mut shop = Shop::open();
    let [done, stopped, negative] = [shop.enqueue(1, 1), shop.enqueue(1, 2), shop.enqueue(1, -3)];
    Payment::attempt(&mut shop.connection, &charge, &done).unwrap();
    Payment::queue().filter(payments::id.eq(stopped)).stop(&mut shop.connection).unwrap();
    let mut why = |key| Payment::attempt(&mut shop.connection, &charge, &key).unwrap_err().to_string();
    assert!(why(done).contains(&format!("Payment {done}: succeeded at ")), "{}", why(done));
    assert!(why(stopped).contains(&format!("Payment {stopped}: stopped")), "{}", why(stopped));
    assert!(why(-77).contains("there is no Payment with the key -77"), "{}", why(-77));
    let handler = |_: &Approved, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let why = Approved::attempt(&mut shop.connection, &handler, &negative).unwrap_err().to_string();
    assert!(why.contains(&format!("Approved {negative}: its condition (`claim_if`) is not true")), "{why}");
    // A row that leaves its table has no state afterwards.
    let id = shop.enqueue(1, 5);
    let attempted = Approved::attempt(&mut shop.connection, &handler, &id).unwrap();
    assert_eq!((attempted.before.0.id, attempted.after.is_none()), (id, true));
}

#[test]
fn groups_and_leases_are_attempted_by_hand_too() {
    let mut shop = Shop::open();
    let email = (emails::payment_id.eq(7), Email::due_in(Duration::from_secs(60)));
    diesel::insert_into(emails::table).values(email).execute(&mut shop.connection).unwrap();
    let document = (documents::title.eq("an invoice"), Document::due_now());
    diesel::insert_into(documents::table).values(document).execute(&mut shop.connection).unwrap();
    let emails = Email::queue().pending().keys(&mut shop.connection).unwrap();
    let documents = Document::queue().due().keys(&mut shop.connection).unwrap();
    let send = |_: &Email, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let attempted = Email::attempt(&mut shop.connection, &send, &emails[0]).unwrap();
    assert_eq!((attempted.attempt.end, attempted.before.0.payment_id), (AttemptEnd::Succeeded, 7));
    assert_eq!((attempted.before.0.id, attempted.was_made_due), (emails[0], true));
    let render = (
        |document: &Document, _: &Lease| Ok(document.title.to_uppercase()),
        |document: &Document, answer: &String, message: &mut Message<'_, Conn>| {
            diesel::update(documents::table.find(document.id))
                .set(documents::title.eq(answer))
                .execute(message.connection())?;
            Ok(Outcome::Done)
        },
    );
    let attempted = Document::attempt_with_sql(&mut shop.connection, &render, &documents[0]).unwrap();
    assert_eq!(attempted.attempt.end, AttemptEnd::Succeeded);
    assert_eq!(attempted.after.as_ref().unwrap().0.title, "AN INVOICE");
    assert_eq!(attempted.statements.len(), 1, "{attempted}");
}

thread_local! {
    static LISTENS: Cell<bool> = const { Cell::new(false) };
    static QUERIES: Cell<usize> = const { Cell::new(0) };
}

/// What listens on the connections of one test.
struct OfThisTest;

impl Instrumentation for OfThisTest {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        if let InstrumentationEvent::FinishQuery { .. } = event {
            QUERIES.set(QUERIES.get() + 1);
        }
    }
}

#[test]
fn the_default_instrumentation_and_the_clock_outlive_the_recording_of_sql() {
    set_default_instrumentation(|| LISTENS.get().then(|| Box::new(OfThisTest) as Box<dyn Instrumentation>)).unwrap();
    LISTENS.set(true);
    let mut shop = Shop::open();
    let ids = [shop.enqueue(1, 1), shop.enqueue(1, 2)];
    QUERIES.set(0);
    Payment::attempt_with_sql(&mut shop.connection, &charge, &ids[0]).unwrap();
    // It has heard the attempt's own statements too.
    assert!(QUERIES.get() > 3, "{}", QUERIES.get());
    QUERIES.set(0);
    shop.booked();
    assert_eq!(QUERIES.get(), 1);
    let real = testing::now(&mut shop.connection).unwrap();
    testing::travel(&mut shop.connection, hours(3));
    let attempted = Payment::attempt_with_sql(&mut shop.connection, &charge, &ids[1]).unwrap();
    assert_eq!(attempted.statements.len(), 1, "{attempted}");
    assert!(attempted.after.unwrap().1.last_attempt_time.unwrap() >= real + hours(3) - testing::seconds(1));
    assert!(testing::now(&mut shop.connection).unwrap() - real >= hours(3) - testing::seconds(1));
    // The clock still ends with the transaction.
    type Manager = <Conn as Connection>::TransactionManager;
    <Manager as diesel::connection::TransactionManager<_>>::rollback_transaction(&mut shop.connection).unwrap();
    assert!(testing::now(&mut shop.connection).unwrap() - real < hours(1));
}

#[derive(Debug, Clone, Copy, PartialEq, Stage)]
enum Step {
    Draw,
    SendMail,
}

#[test]
fn a_handler_is_called_as_a_function_with_a_message_of_the_tests_own() {
    let mut shop = Shop::open();
    let payment = Payment { id: 7, company_id: 1, amount_cents: 100 };
    let outcome = charge(&payment, &mut testing::message().on(&mut shop.connection)).unwrap();
    assert!(matches!(outcome, Outcome::Done));
    assert_eq!(shop.booked(), [7]);
    let noon: chrono::DateTime<chrono::Utc> = "2030-01-02T12:00:00Z".parse().unwrap();
    let message = testing::message().try_number(4).idempotency_key("k").stage(Step::SendMail).scheduled_for(noon);
    let message = message.on(&mut shop.connection);
    assert_eq!((message.try_number(), message.idempotency_key()), (4, "k"));
    assert_eq!((message.stage::<Step>(), message.scheduled_for()), (Step::SendMail, Some(noon)));
    assert_ne!(message.stage::<Step>(), Step::Draw);
    let QueueState { status, try_count, .. } = message.queue_state();
    assert_eq!((*status, *try_count), (Status::Error, 3));
}

#[test]
fn a_call_gets_a_lease_of_the_tests_own() {
    let lease = testing::message().try_number(2).timeout(Duration::from_secs(40)).lease();
    assert_eq!((lease.try_number(), lease.lease_lost()), (2, false));
    assert_eq!((lease.queue_state().status, lease.queue_state().try_count), (Status::InProgress, 2));
    assert!(lease.remaining() <= Duration::from_secs(40) && lease.remaining() > Duration::ZERO);
    lease.extend(Duration::from_secs(3600)).unwrap();
    assert!(lease.remaining() > Duration::from_secs(40));
}
