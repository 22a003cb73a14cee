//! Prefetched keys: the state of a row before it is locked decides nothing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use chrono::Utc;
use diesel::prelude::*;
use queueable::columns::Instant;
use queueable::{Message, Outcome, Status};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, book, payment_queue, payments};

#[test]
fn a_row_that_was_changed_after_its_key_was_read_is_left_as_it_is() {
    let bank = Bank::new();
    let ids = bank.enqueue(1..=20);
    let left_out = [10, 11, 12, 13, 14].map(|place: usize| ids[place]);
    let [succeeded, skipped, stopped, postponed, deleted] = left_out;
    let handled = AtomicUsize::new(0);
    let later = Utc::now() + Duration::from_secs(3600);
    let tally = bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
        // Two rows are settled. The keys of the others are prefetched, if the backend does so.
        if handled.fetch_add(1, Ordering::Relaxed) == 2 {
            let connection = message.connection();
            let never = payment_queue::next_attempt_time.eq(None::<Instant>);
            let row = |id| diesel::update(payments::table.find(id));
            row(succeeded).set((payment_queue::status.eq(Status::Success), never)).execute(connection)?;
            row(skipped).set((payment_queue::status.eq(Status::Skipped), never)).execute(connection)?;
            row(stopped).set(never).execute(connection)?;
            row(postponed).set(payment_queue::next_attempt_time.eq(Some(Instant::from(later)))).execute(connection)?;
            diesel::delete(payments::table.find(deleted)).execute(connection)?;
        }
        book(payment, message)
    });
    assert_eq!((tally.succeeded, tally.retried, tally.failed), (15, 0, 0));
    let others: Vec<i64> = ids.into_iter().filter(|id| !left_out.contains(id)).collect();
    assert_eq!(bank.booked(), others);
}

#[test]
fn a_backlog_is_worked_in_the_order_of_its_due_times() {
    let bank = Bank::new();
    let ids = bank.enqueue(0..300);
    let start = Utc::now() - Duration::from_secs(3600);
    let mut connection = bank.connect();
    connection
        .transaction(|connection| {
            for (place, id) in ids.iter().enumerate() {
                // In the reverse order of their keys.
                let due = start - Duration::from_secs(u64::try_from(place).unwrap_or_default());
                diesel::update(payments::table.find(id))
                    .set(payment_queue::next_attempt_time.eq(Some(Instant::from(due))))
                    .execute(connection)?;
            }
            QueryResult::Ok(())
        })
        .unwrap();
    let (done, order) = mpsc::channel();
    let done = Mutex::new(done);
    let handler = move |payment: &Payment, _: &mut Message<'_, Conn>| {
        done.lock().unwrap().send(payment.id)?;
        Ok(Outcome::Done)
    };
    let tally = bank.run(handler);
    assert_eq!(tally.succeeded, 300);
    assert_eq!(order.try_iter().collect::<Vec<_>>(), ids.into_iter().rev().collect::<Vec<_>>());
}
