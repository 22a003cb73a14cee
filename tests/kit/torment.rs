//! Torment: ten right handlers pass, ten planted mistakes are found, and each story names the place.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use diesel::connection::{Connection, SimpleConnection};
use diesel::prelude::*;
use queueable::bounds::HandlerFor;
use queueable::testing::{self, AttemptEnd, TestQueue, TormentReport};
use queueable::{AsyncCalls, CallFuture, Error, Failure, HandlerResult, Lease, Message, Outcome, Queueable};

use super::shop::{Document, Email, Payment, Shop, charge, documents, emails, ledger, payments};
use crate::db::Conn;

/// A mail server: it sends what it is given, and under a key only once.
#[derive(Default)]
struct Server {
    sent: Mutex<Vec<String>>,
    keys: Mutex<BTreeSet<String>>,
}

impl Server {
    fn send(&self, mail: impl Into<String>) {
        self.sent.lock().unwrap().push(mail.into());
        testing::step("the e-mail was sent");
    }

    fn send_once(&self, key: &str, mail: impl Into<String>) {
        if self.keys.lock().unwrap().insert(key.to_owned()) {
            self.send(mail);
        }
    }

    /// Answers an error under a key that it knows.
    fn send_or_refuse(&self, key: &str, mail: impl Into<String>) -> Result<(), Failure> {
        if self.keys.lock().unwrap().contains(key) {
            return Err(std::io::Error::other("this key is used").into());
        }
        self.send_once(key, mail);
        Ok(())
    }

    fn clear(&self) {
        self.sent.lock().unwrap().clear();
        self.keys.lock().unwrap().clear();
    }

    fn sent(&self) -> Vec<String> {
        self.sent.lock().unwrap().clone()
    }
}

fn book(payment: &Payment, message: &mut Message<'_, Conn>) -> QueryResult<usize> {
    diesel::insert_into(ledger::table)
        .values((ledger::payment_id.eq(payment.id), ledger::amount_cents.eq(payment.amount_cents)))
        .execute(message.connection())
}

fn torment_payment(handler: &impl HandlerFor<Payment, Conn>, server: &Server) -> TormentReport {
    let mut shop = Shop::open();
    let id = shop.enqueue(7, 100);
    let report = testing::torment::<Payment>(id)
        .outside(|| server.clear(), || server.sent())
        .run(&mut shop.connection, handler)
        .unwrap();
    // The connection is as it was before: the row is due, and nothing was done.
    assert!(shop.booked().is_empty());
    assert_eq!(Payment::queue().due().count(&mut shop.connection).unwrap(), 1);
    report
}

fn torment_document(handler: &impl HandlerFor<Document, Conn>, server: &Server) -> TormentReport {
    let mut shop = Shop::open();
    let document = (documents::title.eq("invoice"), Document::due_now());
    diesel::insert_into(documents::table).values(document).execute(&mut shop.connection).unwrap();
    let id = documents::table.select(diesel::dsl::max(documents::id)).get_result::<Option<i64>>(&mut shop.connection);
    testing::torment::<Document>(id.unwrap().unwrap())
        .outside(|| server.clear(), || server.sent())
        .run(&mut shop.connection, handler)
        .unwrap()
}

fn torment_emails(handler: &impl HandlerFor<Email, Conn>, server: &Server) -> TormentReport {
    let mut shop = Shop::open();
    for number in [1, 2] {
        let email = (emails::payment_id.eq(number), Email::due_now());
        diesel::insert_into(emails::table).values(email).execute(&mut shop.connection).unwrap();
    }
    let ids: Vec<i64> = emails::table.order(emails::id).select(emails::id).load(&mut shop.connection).unwrap();
    testing::torment::<Email>(ids[0])
        .and(ids[1])
        .outside(|| server.clear(), || server.sent())
        .run(&mut shop.connection, handler)
        .unwrap()
}

fn apply(document: &Document, title: &String, message: &mut Message<'_, Conn>) -> HandlerResult {
    diesel::update(documents::table.find(document.id)).set(documents::title.eq(title)).execute(message.connection())?;
    Ok(Outcome::Done)
}

/// Checks that the end and an effect of the first story are these.
fn assert_found(report: &TormentReport, end: &str, effect: &str) {
    let Some(story) = &report.story else { panic!("nothing was found: {report}") };
    assert_eq!(story.end, end, "{report}");
    assert!(report.to_string().contains(effect), "{report}");
}

const PAYMENT: &str = "payments (id";

#[test]
fn a_handler_that_writes_only_in_its_transaction_is_right() {
    let report = torment_payment(&charge, &Server::default());
    report.assert_ok();
    // Every point was passed, in this order.
    let shown = report.ends.iter().map(|end| end.split(" (payment_id").next().unwrap());
    insta::assert_snapshot!(shown.collect::<Vec<_>>().join("\n"), @r"
    killed after the row was claimed and before the handler began
    killed after the handler began and before `INSERT INTO ledger
    deadlock at `INSERT INTO ledger
    killed after the handler returned and before the row's new state was written
    timed out after the handler returned
    killed after the row's new state was written and before the commit
    killed after the commit, whose answer was lost
    ");
}

#[test]
fn a_handler_that_enqueues_the_e_mail_in_its_transaction_is_right() {
    let handler = |payment: &Payment, message: &mut Message<'_, Conn>| -> HandlerResult {
        let email = (emails::payment_id.eq(payment.id), Email::due_now());
        diesel::insert_into(emails::table).values(email).execute(message.connection())?;
        Ok(Outcome::Done)
    };
    torment_payment(&handler, &Server::default()).assert_ok();
}

#[test]
fn a_handler_that_sends_under_the_idempotency_key_is_right() {
    let server = Server::default();
    let handler = |payment: &Payment, message: &mut Message<'_, Conn>| -> HandlerResult {
        book(payment, message)?;
        server.send_once(message.idempotency_key(), "receipt");
        book(payment, message)?;
        Ok(Outcome::Done)
    };
    torment_payment(&handler, &server).assert_ok();
}

#[test]
fn a_handler_with_a_transaction_of_its_own_inside_is_right() {
    let handler = |payment: &Payment, message: &mut Message<'_, Conn>| -> HandlerResult {
        message.connection().transaction(|connection| {
            let amount = (ledger::payment_id.eq(payment.id), ledger::amount_cents.eq(1));
            diesel::insert_into(ledger::table).values(amount).execute(connection)?;
            diesel::update(payments::table.find(payment.id)).set(payments::amount_cents.eq(0)).execute(connection)
        })?;
        Ok(Outcome::Done)
    };
    torment_payment(&handler, &Server::default()).assert_ok();
}

#[test]
fn a_handler_that_counts_up_from_what_the_database_holds_is_right() {
    let handler = |payment: &Payment, message: &mut Message<'_, Conn>| -> HandlerResult {
        diesel::update(payments::table.find(payment.id))
            .set(payments::amount_cents.eq(payments::amount_cents + 1))
            .execute(message.connection())?;
        Ok(Outcome::Done)
    };
    torment_payment(&handler, &Server::default()).assert_ok();
}

#[test]
fn a_handler_that_runs_again_later_is_right_for_one_occasion() {
    let handler = |payment: &Payment, message: &mut Message<'_, Conn>| -> HandlerResult {
        book(payment, message)?;
        Ok(Outcome::again_in(Duration::from_secs(60)))
    };
    torment_payment(&handler, &Server::default()).assert_ok();
}

#[test]
fn a_handler_whose_first_attempt_fails_is_right() {
    let server = Server::default();
    let handler = |payment: &Payment, message: &mut Message<'_, Conn>| -> HandlerResult {
        book(payment, message)?;
        match message.try_number() {
            1 => Err(std::io::Error::other("the bank is closed").into()),
            _ => Ok(Outcome::Done),
        }
    };
    torment_payment(&handler, &server).assert_ok();
}

#[test]
fn a_call_under_the_key_of_its_lease_is_right() {
    let server = Server::default();
    let call = |document: &Document, lease: &Lease| -> Result<String, Failure> {
        server.send_once(lease.idempotency_key(), "print it");
        Ok(document.title.to_uppercase())
    };
    let report = torment_document(&(call, apply), &server);
    report.assert_ok();
    let lost = "killed, or its lease lost, after the call returned and before the answer was being applied";
    assert!(report.ends.iter().any(|end| end == lost), "{report}");
}

#[test]
fn a_call_that_only_computes_is_right() {
    let call = |document: &Document, _: &Lease| -> Result<String, Failure> { Ok(document.title.to_uppercase()) };
    torment_document(&(call, apply), &Server::default()).assert_ok();
}

#[test]
fn async_calls_are_right_if_their_receiver_knows_the_key() {
    let (server, runtime) = (Arc::new(Server::default()), tokio::runtime::Runtime::new().unwrap());
    let calls = server.clone();
    let call = move |document: &Document, lease: &Lease| -> Result<String, Failure> {
        calls.send_once(lease.idempotency_key(), "print it");
        Ok(document.title.to_uppercase())
    };
    let handler = AsyncCalls::of(
        move |document: &Document, lease: &Lease| -> CallFuture<'_, String> {
            let answer = call(document, lease);
            Box::pin(async move { answer })
        },
        apply,
    );
    let report = torment_document(&handler.runtime(runtime.handle().clone()), &server);
    report.assert_ok();
    assert!(report.ends.iter().any(|end| end.starts_with("deadlock at `UPDATE documents")), "{report}");
}

#[test]
fn a_group_of_handlers_that_write_in_their_transaction_is_right() {
    let handler = |email: &Email, message: &mut Message<'_, Conn>| -> HandlerResult {
        let entry = (ledger::payment_id.eq(email.payment_id), ledger::amount_cents.eq(0));
        diesel::insert_into(ledger::table).values(entry).execute(message.connection())?;
        Ok(Outcome::Done)
    };
    torment_emails(&handler, &Server::default()).assert_ok();
}

#[test]
fn an_e_mail_that_is_sent_in_the_transaction_is_sent_twice() {
    let server = Server::default();
    let handler = |payment: &Payment, message: &mut Message<'_, Conn>| -> HandlerResult {
        book(payment, message)?;
        server.send("receipt");
        Ok(Outcome::Done)
    };
    let report = torment_payment(&handler, &server);
    let end = "killed after the e-mail was sent and before the handler returned";
    assert_found(&report, end, "outside twice instead of once: \"receipt\"");
    assert!(report.to_string().contains("send `message.idempotency_key()` with it"), "{report}");
}

#[test]
fn an_e_mail_under_a_key_of_the_attempt_is_sent_twice() {
    let server = Server::default();
    let handler = |payment: &Payment, message: &mut Message<'_, Conn>| -> HandlerResult {
        server.send_once(&format!("{} {}", payment.id, message.try_number()), "receipt");
        book(payment, message)?;
        Ok(Outcome::Done)
    };
    let report = torment_payment(&handler, &server);
    // A killed attempt counts no try, so the key is the same there; one that took too long counts one.
    assert_found(&report, "timed out after the handler returned", "outside twice instead of once: \"receipt\"");
}

#[test]
fn a_mark_in_memory_makes_the_next_attempt_skip_what_was_rolled_back() {
    let (server, booked) = (Server::default(), Mutex::new(BTreeSet::new()));
    let handler = |payment: &Payment, message: &mut Message<'_, Conn>| -> HandlerResult {
        if booked.lock().unwrap().insert(payment.id) {
            book(payment, message)?;
        }
        Ok(Outcome::Done)
    };
    let mut shop = Shop::open();
    let id = shop.enqueue(7, 100);
    let clear = || {
        booked.lock().unwrap().clear();
        server.clear();
    };
    let torment = testing::torment::<Payment>(id).outside(clear, || server.sent()).tables(["ledger"]);
    let report = torment.run(&mut shop.connection, &handler).unwrap();
    let statement = "INSERT INTO ledger (payment_id, amount_cents) VALUES";
    let story = report.story.as_ref().unwrap();
    assert!(story.end.starts_with(&format!("killed after the handler began and before `{statement}")), "{report}");
    let effect = format!("missing in the database: ledger (payment_id {id}, amount_cents 100)");
    assert!(report.to_string().contains(&effect), "{report}");
}

#[test]
fn a_count_in_memory_is_not_undone() {
    let (server, total) = (Server::default(), AtomicI64::new(0));
    let handler = |payment: &Payment, message: &mut Message<'_, Conn>| -> HandlerResult {
        let total = total.fetch_add(payment.amount_cents, Ordering::Relaxed) + payment.amount_cents;
        diesel::update(payments::table.find(payment.id))
            .set(payments::company_id.eq(total))
            .execute(message.connection())?;
        Ok(Outcome::Done)
    };
    let mut shop = Shop::open();
    let id = shop.enqueue(7, 100);
    let torment = testing::torment::<Payment>(id).outside(|| total.store(0, Ordering::Relaxed), || server.sent());
    let report = torment.run(&mut shop.connection, &handler).unwrap();
    assert!(report.to_string().contains(&format!("in the database and not expected: {PAYMENT} {id}, company_id 200")));
}

#[test]
fn a_write_through_another_connection_is_not_undone() {
    let other = RefCell::new(SqliteConnection::establish(":memory:").unwrap());
    other.borrow_mut().batch_execute("CREATE TABLE audit (payment BIGINT)").unwrap();
    let other = Mutex::new(other.into_inner());
    let handler = |payment: &Payment, message: &mut Message<'_, Conn>| -> HandlerResult {
        let audit = format!("INSERT INTO audit VALUES ({})", payment.amount_cents);
        other.lock().unwrap().batch_execute(&audit)?;
        book(payment, message)?;
        Ok(Outcome::Done)
    };
    let mut shop = Shop::open();
    let id = shop.enqueue(7, 100);
    let audited = || {
        let payment = diesel::dsl::sql::<diesel::sql_types::BigInt>("SELECT payment FROM audit");
        payment.load::<i64>(&mut *other.lock().unwrap()).unwrap()
    };
    let report = testing::torment::<Payment>(id)
        .outside(|| other.lock().unwrap().batch_execute("DELETE FROM audit").unwrap(), audited)
        .run(&mut shop.connection, &handler)
        .unwrap();
    let story = report.story.as_ref().unwrap();
    assert_eq!((story.effects.len(), story.effects[0].times), (1, 2), "{report}");
    assert!(story.end.starts_with("killed after the handler began and before `INSERT INTO ledger"), "{report}");
}

#[test]
fn a_key_that_is_refused_the_second_time_leaves_the_row_failed() {
    let server = Server::default();
    let handler = |payment: &Payment, message: &mut Message<'_, Conn>| -> HandlerResult {
        server.send_or_refuse(message.idempotency_key(), "receipt")?;
        book(payment, message)?;
        Ok(Outcome::Done)
    };
    let report = torment_payment(&handler, &server);
    let end = "killed after the e-mail was sent and before `INSERT INTO ledger";
    let story = report.story.as_ref().unwrap();
    assert!(story.end.starts_with(end) && story.row.as_ref().unwrap().contains("this key is used"), "{report}");
    // The booking is missing, and the e-mail is not doubled.
    assert_eq!(story.effects.iter().filter(|effect| effect.is_outside).count(), 0, "{report}");
}

#[test]
fn a_call_without_a_key_is_made_twice_if_its_answer_is_lost() {
    let server = Server::default();
    let call = |document: &Document, _: &Lease| -> Result<String, Failure> {
        server.send("print it");
        Ok(document.title.to_uppercase())
    };
    let report = torment_document(&(call, apply), &server);
    let end = "killed after the e-mail was sent and before the call returned";
    assert_found(&report, end, "outside twice instead of once: \"print it\"");
    assert!(report.to_string().contains("send `lease.idempotency_key()` with it"), "{report}");
}

#[test]
fn an_e_mail_that_is_sent_while_an_answer_is_applied_is_sent_twice() {
    let server = Server::default();
    let call = |document: &Document, _: &Lease| -> Result<String, Failure> { Ok(document.title.to_uppercase()) };
    let apply = |document: &Document, title: &String, message: &mut Message<'_, Conn>| -> HandlerResult {
        server.send("printed");
        apply(document, title, message)
    };
    let report = torment_document(&(call, apply), &server);
    let story = report.story.as_ref().unwrap();
    let end = "killed after the e-mail was sent and before `UPDATE documents";
    assert!(story.end.starts_with(end), "{report}");
    assert_eq!((story.effects.len(), story.effects[0].times), (1, 2), "{report}");
}

#[test]
fn an_answer_that_is_taken_out_when_it_is_applied_is_missing_after_a_deadlock() {
    let server = Server::default();
    let call = |document: &Document, _: &Lease| -> Result<Mutex<Option<String>>, Failure> {
        Ok(Mutex::new(Some(document.title.to_uppercase())))
    };
    let apply =
        |document: &Document, answer: &Mutex<Option<String>>, message: &mut Message<'_, Conn>| -> HandlerResult {
            let title = answer.lock().unwrap().take();
            match title {
                Some(title) => apply(document, &title, message),
                None => Ok(Outcome::Done),
            }
        };
    let report = torment_document(&(call, apply), &server);
    let story = report.story.as_ref().unwrap();
    assert!(story.end.starts_with("deadlock at `UPDATE documents"), "{report}");
    assert!(report.to_string().contains("missing in the database: documents (id"), "{report}");
}

#[test]
fn a_call_that_asks_before_it_acts_is_made_twice_by_two_workers() {
    let server = Server::default();
    let call = |document: &Document, _: &Lease| -> Result<String, Failure> {
        let is_sent = !server.sent().is_empty();
        testing::step("the server was asked");
        if !is_sent {
            server.send("print it");
        }
        Ok(document.title.to_uppercase())
    };
    let report = torment_document(&(call, apply), &server);
    // Every attempt after another is right.
    let end = "called a second time, by another worker, after the server was asked in the first call";
    assert_found(&report, end, "outside twice instead of once: \"print it\"");
}

#[test]
fn an_e_mail_of_a_group_is_sent_twice_if_a_neighbour_ends_the_process() {
    let server = Server::default();
    let handler = |email: &Email, _: &mut Message<'_, Conn>| -> HandlerResult {
        server.send(format!("mail {}", email.payment_id));
        Ok(Outcome::Done)
    };
    let report = torment_emails(&handler, &server);
    assert!(report.to_string().contains("outside twice instead of once: \"mail 1\""), "{report}");
}

#[test]
fn a_handler_that_fails_undisturbed_is_refused_with_its_error() {
    let mut shop = Shop::open();
    let id = shop.enqueue(7, -1);
    let error = testing::torment::<Payment>(id).run(&mut shop.connection, &charge).unwrap_err();
    assert!(error.to_string().contains("card declined"), "{error}");
    // The next test on the connection goes on as before.
    assert_eq!(Payment::drain(&mut shop.connection, &charge).unwrap().count(AttemptEnd::WillRetry), 1);
}

#[test]
fn effects_that_differ_by_themselves_are_refused() {
    let (mut shop, calls) = (Shop::open(), AtomicI64::new(0));
    let id = shop.enqueue(7, 100);
    let error = testing::torment::<Payment>(id)
        .outside(|| {}, || [calls.fetch_add(1, Ordering::Relaxed)])
        .run(&mut shop.connection, &charge)
        .unwrap_err();
    assert!(error.to_string().contains("other ones in a second run that nothing disturbed"), "{error}");
}

#[test]
fn a_handler_that_commits_is_named() {
    let mut shop = Shop::alone();
    let id = shop.enqueue(7, 100);
    let handler = |_: &Payment, message: &mut Message<'_, Conn>| -> HandlerResult {
        message.connection().batch_execute("COMMIT")?;
        Ok(Outcome::Done)
    };
    let error = testing::torment::<Payment>(id).run(&mut shop.connection, &handler).unwrap_err();
    assert!(matches!(error, Error::Setting { setting: "the transaction of the test", .. }), "{error}");
}

#[test]
fn the_clock_of_the_test_is_as_it_was() {
    let mut shop = Shop::open();
    let id = shop.enqueue(7, 100);
    testing::freeze(&mut shop.connection).unwrap();
    testing::travel(&mut shop.connection, testing::hours(5));
    let before = testing::now(&mut shop.connection).unwrap();
    testing::torment::<Payment>(id).run(&mut shop.connection, &charge).unwrap().assert_ok();
    assert_eq!(testing::now(&mut shop.connection).unwrap(), before);
}

#[test]
fn a_table_that_is_not_there_is_named() {
    let mut shop = Shop::open();
    let id = shop.enqueue(7, 100);
    let torment = testing::torment::<Payment>(id).tables(["legder"]);
    let error = torment.run(&mut shop.connection, &charge).unwrap_err();
    assert!(error.to_string().contains("there is no table legder to compare"), "{error}");
}
