//! Async handlers in the test kit, through diesel-async.

use diesel::ExpressionMethods;
use diesel_async::RunQueryDsl;
use queueable::testing::{self, AttemptEnd, Fault, TestQueue, fail_next};
use queueable::{Async, HandlerResult, Message, Outcome, Queueable};

use crate::db::AsyncConn;
use crate::kit::shop::{Payment, Shop, ledger};

async fn charge(payment: &Payment, message: &mut Message<'_, AsyncConn>) -> HandlerResult {
    diesel::insert_into(ledger::table)
        .values((ledger::payment_id.eq(payment.id), ledger::amount_cents.eq(payment.amount_cents)))
        .execute(message.connection())
        .await?;
    match payment.amount_cents {
        ..0 => Err(std::io::Error::other("card declined").into()),
        _ => Ok(Outcome::Done),
    }
}

#[test]
fn an_async_handler_is_attempted_by_hand_and_shows_its_sql() {
    let mut shop = Shop::open();
    testing::travel(&mut shop.connection, testing::hours(1));
    let id = shop.enqueue(1, 4711);
    let attempted = Payment::attempt_with_sql(&mut shop.connection, &Async(charge), &id).unwrap();
    assert_eq!(attempted.attempt.end, AttemptEnd::Succeeded, "{attempted}");
    let [insert] = &*attempted.statements else { panic!("{attempted}") };
    assert!(insert.sql.contains("4711") && insert.is_write(), "{insert}");
    assert_eq!(shop.booked(), [id]);
}

#[test]
fn faults_meet_async_handlers_too() {
    for (fault, end) in [
        (Fault::LostConnection, AttemptEnd::Interrupted),
        (Fault::Timeout, AttemptEnd::WillRetry),
        (Fault::CommitRefused, AttemptEnd::WillRetry),
        (Fault::AnswerLost, AttemptEnd::Succeeded),
        (Fault::Panic("out of range"), AttemptEnd::WillRetry),
    ] {
        let mut shop = Shop::open();
        let id = shop.enqueue(1, 1);
        let failing = fail_next(fault);
        let attempted = Payment::attempt(&mut shop.connection, &Async(charge), &id).unwrap();
        failing.assert_hit();
        assert_eq!(attempted.attempt.end, end, "{fault}: {attempted}");
        assert_eq!(shop.booked().len(), usize::from(end == AttemptEnd::Succeeded), "{fault}");
    }
}

#[test]
fn async_handlers_are_rehearsed_and_rolled_back() {
    let mut shop = Shop::open();
    let [_, declined] = [shop.enqueue(1, 1), shop.enqueue(1, -2)];
    let lenient = async |_: &Payment, _: &mut Message<'_, AsyncConn>| Ok(Outcome::Done);
    let rehearsed = Payment::rehearse(&mut shop.connection, Payment::queue(), 10)
        .and_then(|rehearsal| rehearsal.with("today", &Async(charge))?.with("new build", &Async(lenient)))
        .unwrap()
        .report();
    assert_eq!(rehearsed.differing().count(), 2, "{rehearsed}");
    let row = rehearsed.rows.iter().find(|row| row.key == declined.to_string()).unwrap();
    assert_eq!(row.runs[0].attempt.as_ref().unwrap().error.as_deref(), Some("card declined"));
    assert_eq!(shop.booked(), [0i64; 0]);
    assert_eq!(Payment::queue().due().count(&mut shop.connection).unwrap(), 2);
}
