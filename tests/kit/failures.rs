//! Failures on demand.

use std::panic::{AssertUnwindSafe, catch_unwind};

use diesel::prelude::*;
use queueable::testing::{AttemptEnd, Fault, TestQueue, fail_next};
use queueable::{Failure, Lease, Message, Outcome, QueueState, Queueable, Status};

use super::shop::{Document, Email, Payment, Shop, charge, documents, emails, payments};
use crate::db::Conn;

/// Each fault, the end of its attempt, the status of its row, and a part of its error.
const FAULTS: [(Fault, AttemptEnd, Status, &str); 10] = [
    (Fault::Error("no answer"), AttemptEnd::WillRetry, Status::Error, "no answer"),
    (Fault::Fatal("no such card"), AttemptEnd::GaveUp, Status::Failed, "no such card"),
    (Fault::With(|| Failure::fatal("unknown")), AttemptEnd::GaveUp, Status::Failed, "unknown"),
    (Fault::Panic("out of range"), AttemptEnd::WillRetry, Status::Error, "the handler panicked: out of range"),
    (Fault::Conflict, AttemptEnd::Interrupted, Status::NotAttempted, "a conflict"),
    (Fault::LostConnection, AttemptEnd::Interrupted, Status::NotAttempted, "a lost connection"),
    (Fault::Timeout, AttemptEnd::WillRetry, Status::Error, "timeout"),
    (Fault::CommitRefused, AttemptEnd::WillRetry, Status::Error, "a refused commit"),
    (Fault::CommitLost, AttemptEnd::Interrupted, Status::NotAttempted, "a lost connection"),
    (Fault::AnswerLost, AttemptEnd::Succeeded, Status::Success, ""),
];

fn state_of(shop: &mut Shop, id: i64) -> QueueState {
    payments::table.find(id).select(Payment::queue_state()).get_result(&mut shop.connection).unwrap()
}

#[test]
fn each_fault_ends_an_attempt_as_in_production_and_the_next_one_is_sound() {
    let mut shop = Shop::open();
    each_fault_ends_as_in_production(&mut shop);
}

#[test]
fn faults_end_attempts_alike_where_each_is_committed() {
    let mut shop = Shop::committing();
    each_fault_ends_as_in_production(&mut shop);
}

fn each_fault_ends_as_in_production(shop: &mut Shop) {
    for (fault, end, status, error) in FAULTS {
        let (id, next) = (shop.enqueue(1, 1), shop.enqueue(1, 2));
        let booked = shop.booked().len();
        let failing = fail_next(fault).only(move |payment: &Payment| payment.id == id);
        let attempted = Payment::attempt(&mut shop.connection, &charge, &id).unwrap();
        failing.assert_hit();
        let attempt = &attempted.attempt;
        assert_eq!(attempt.end, end, "{fault}: {attempt}");
        assert!(attempt.error.as_deref().unwrap_or_default().contains(error), "{fault}: {attempt}");
        let sound = Payment::attempt(&mut shop.connection, &charge, &next).unwrap();
        assert_eq!(sound.attempt.end, AttemptEnd::Succeeded, "{fault}: {sound}");
        let state = state_of(shop, id);
        assert_eq!(state.status, status, "{fault}");
        assert_eq!(state.try_count, i32::from(end != AttemptEnd::Interrupted), "{fault}");
        // What the handler wrote stands only where the commit is known to have happened.
        let stands = usize::from(end == AttemptEnd::Succeeded);
        assert_eq!(shop.booked().len(), booked + 1 + stands, "{fault}");
    }
}

#[test]
fn faults_under_a_lease_happen_in_the_call_or_in_the_application_of_its_answer() {
    let cases = [
        (Fault::Error("no paper"), AttemptEnd::WillRetry, "no paper"),
        (Fault::Panic("out of ink"), AttemptEnd::WillRetry, "out of ink"),
        (Fault::Timeout, AttemptEnd::WillRetry, "timeout"),
        (Fault::LostLease, AttemptEnd::LeaseLost, ""),
        (Fault::CommitRefused, AttemptEnd::WillRetry, "a refused commit"),
        // The worker applies the same answer again.
        (Fault::Conflict, AttemptEnd::Succeeded, ""),
        (Fault::LostConnection, AttemptEnd::Succeeded, ""),
        (Fault::AnswerLost, AttemptEnd::Succeeded, ""),
    ];
    let mut shop = Shop::open();
    let render = (
        |document: &Document, _: &Lease| Ok(document.title.to_uppercase()),
        |document: &Document, answer: &String, message: &mut Message<'_, Conn>| {
            let is_done = diesel::update(documents::table.find(document.id)).set(documents::title.eq(answer));
            is_done.execute(message.connection())?;
            Ok(Outcome::Done)
        },
    );
    for (fault, end, error) in cases {
        let document = (documents::title.eq("an invoice"), Document::due_now());
        diesel::insert_into(documents::table).values(document).execute(&mut shop.connection).unwrap();
        let key = Document::queue().due().keys(&mut shop.connection).unwrap().remove(0);
        let failing = fail_next(fault);
        let attempted = Document::attempt(&mut shop.connection, &render, &key).unwrap();
        failing.assert_hit();
        assert_eq!(attempted.attempt.end, end, "{fault}: {attempted}");
        assert!(attempted.attempt.error.as_deref().unwrap_or_default().contains(error), "{fault}: {attempted}");
        let title = attempted.after.unwrap().0.title;
        assert_eq!(title == "AN INVOICE", end == AttemptEnd::Succeeded, "{fault}: {title}");
    }
}

#[test]
fn a_group_whose_commit_is_lost_settles_each_row_once() {
    for fault in [Fault::CommitRefused, Fault::CommitLost, Fault::AnswerLost, Fault::LostConnection] {
        let mut shop = Shop::open();
        for number in 0..5 {
            let email = (emails::payment_id.eq(number), Email::due_now());
            diesel::insert_into(emails::table).values(email).execute(&mut shop.connection).unwrap();
        }
        let failing = fail_next(fault);
        let send = |_: &Email, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
        let drained = Email::drain_until_idle(&mut shop.connection, &send).unwrap();
        failing.assert_hit();
        let counts = Email::queue().all_rows().counts_by_status(&mut shop.connection).unwrap();
        assert_eq!(counts.of(Status::Success), 5, "{fault}: {drained}");
        assert_eq!(drained.succeeded(), 5, "{fault}: {drained}");
    }
}

#[test]
fn a_fault_happens_as_often_as_it_is_asked_for_and_ends_with_its_guard() {
    let mut shop = Shop::open();
    let id = shop.enqueue(1, 1);
    let failing = fail_next(Fault::Error("not yet")).times(2);
    let drained = Payment::drain_until_idle(&mut shop.connection, &charge).unwrap();
    assert_eq!((drained.retried(), drained.succeeded(), failing.hits()), (2, 1, 2), "{drained}");
    drop(failing);
    let id_of_another = shop.enqueue(1, 1);
    let failing = fail_next(Fault::Fatal("never")).always();
    drop(failing);
    assert_eq!(Payment::drain(&mut shop.connection, &charge).unwrap().succeeded(), 1);
    assert_eq!(shop.booked(), [id, id_of_another]);
}

#[test]
fn a_commit_that_is_lost_is_found_out_and_the_row_is_worked_once_more_or_never_again() {
    for (fault, ends) in [
        (Fault::CommitLost, &[AttemptEnd::Interrupted, AttemptEnd::Succeeded][..]),
        (Fault::AnswerLost, &[AttemptEnd::Succeeded]),
    ] {
        let mut shop = Shop::open();
        let id = shop.enqueue(1, 1);
        let failing = fail_next(fault);
        let drained = Payment::drain_until_idle(&mut shop.connection, &charge).unwrap();
        failing.assert_hit();
        assert_eq!(drained.of(id).map(|attempt| attempt.end).collect::<Vec<_>>(), ends, "{fault}: {drained}");
        assert_eq!(shop.booked(), [id], "{fault}");
    }
}

#[test]
fn the_sql_of_a_handler_that_panics_is_its_own_alone() {
    let mut shop = Shop::open();
    let ids = [shop.enqueue(1, 1), shop.enqueue(1, 2)];
    let failing = fail_next(Fault::Panic("afterwards"));
    let attempted = Payment::attempt_with_sql(&mut shop.connection, &charge, &ids[0]).unwrap();
    failing.assert_hit();
    assert_eq!(attempted.statements.len(), 1, "{attempted}");
    let panics = |payment: &Payment, message: &mut Message<'_, Conn>| {
        drop(charge(payment, message));
        panic!("by itself")
    };
    let attempted = Payment::attempt_with_sql(&mut shop.connection, &panics, &ids[1]).unwrap();
    assert_eq!(attempted.statements.len(), 1, "{attempted}");
    assert!(attempted.attempt.error.as_ref().unwrap().contains("by itself"), "{attempted}");
}

#[test]
fn a_fault_before_the_handler_leaves_nothing_of_it() {
    let mut shop = Shop::open();
    let id = shop.enqueue(1, 1);
    let handler = |_: &Payment, _: &mut Message<'_, Conn>| -> queueable::HandlerResult { unreachable!("called") };
    let failing = fail_next(Fault::Error("not begun")).before();
    let attempted = Payment::attempt_with_sql(&mut shop.connection, &handler, &id).unwrap();
    failing.assert_hit();
    assert_eq!(attempted.attempt.error.as_deref(), Some("not begun"));
    assert_eq!(attempted.statements, []);
}

#[test]
fn a_fault_that_never_happened_says_why() {
    let mut shop = Shop::open();
    let complaint = |failing: &queueable::testing::Failing| {
        let panic = catch_unwind(AssertUnwindSafe(|| failing.assert_hit())).unwrap_err();
        panic.downcast::<String>().map_or_else(|_| String::new(), |text| *text)
    };
    let failing = fail_next(Fault::Conflict);
    assert!(complaint(&failing).contains("no handler was called on this thread"), "{}", complaint(&failing));
    drop(failing);
    shop.enqueue(1, 1);
    let failing = fail_next(Fault::Conflict).only(|payment: &Payment| payment.company_id == 3345);
    Payment::drain(&mut shop.connection, &charge).unwrap();
    assert!(complaint(&failing).contains("1 calls of handlers, none for a Payment"), "{}", complaint(&failing));
    drop(failing);
    shop.enqueue(1, 1);
    let failing = fail_next(Fault::LostLease);
    Payment::drain(&mut shop.connection, &charge).unwrap();
    assert!(complaint(&failing).contains("none of a kind to which this can happen"), "{}", complaint(&failing));
}
