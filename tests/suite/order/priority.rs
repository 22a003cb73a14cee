//! The priority, changed while the queue is in use.

use std::sync::Arc;

use diesel::prelude::*;
use queueable::{Lease, Message, Outcome, Queueable, Status};

use super::{Seen, bank_of, entity, sql};
use crate::db::Conn;
use crate::suite::bank::{Bank, payments};

entity!(Urgent, urgent_queue, priority = "urgency");
entity!(Called, called_queue, priority, lease = "60s");

fn five(bank: &Bank) {
    sql(
        bank,
        "INSERT INTO payments (company_id, amount_cents, next_attempt_time) VALUES
             (1, 1, '2026-01-01 00:00:01.000'), (1, 2, '2026-01-01 00:00:02.000'), (2, 3, '2026-01-01 00:00:03.000'),
             (2, 4, '2026-01-01 00:00:04.000'), (2, 5, NULL)",
    );
}

#[test]
fn the_rows_of_a_filter_change_places_while_the_queue_is_worked() {
    let bank = Arc::new(bank_of::<Urgent>());
    five(&bank);
    let seen = Seen::default();
    let log = seen.clone();
    let others = bank.clone();
    let handler = move |row: &Urgent, _: &mut Message<'_, Conn>| {
        if log.all().is_empty() && crate::db::NAME != "sqlite" {
            // This happens while the handler runs, so its own row is not among those that change.
            let company = Urgent::queue().filter(payments::company_id.eq(2)).pending();
            assert_eq!(company.set_priority(&mut others.connect(), -1)?, 2);
        }
        log.push(row.amount_cents);
        Ok(Outcome::Done)
    };
    if crate::db::NAME == "sqlite" {
        let rest = Urgent::queue().filter(payments::amount_cents.ge(2)).pending();
        assert_eq!(rest.set_priority(&mut bank.connect(), 1).unwrap(), 3);
        let company = Urgent::queue().filter(payments::company_id.eq(2)).pending();
        assert_eq!(company.set_priority(&mut bank.connect(), 0).unwrap(), 2);
    }
    Urgent::poller(bank.pool(1), handler).workers(1).run_until_idle().unwrap();
    assert_eq!(seen.all(), [1, 3, 4, 2]);
}

#[test]
fn a_row_that_is_not_queued_bears_its_priority_when_it_is() {
    let bank = bank_of::<Urgent>();
    five(&bank);
    let mut connection = bank.connect();
    assert_eq!(Urgent::queue().filter(payments::amount_cents.eq(5)).set_priority(&mut connection, -5).unwrap(), 1);
    let urgency: i32 = payments::table
        .filter(payments::amount_cents.eq(5))
        .select(urgent_queue::priority)
        .first(&mut connection)
        .unwrap();
    assert_eq!(urgency, -5);
    let row = payments::table.filter(payments::amount_cents.eq(5)).select(Urgent::queue_state());
    let state: queueable::QueueState = row.first(&mut connection).unwrap();
    assert_eq!((state.status, state.next_attempt_time), (Status::NotAttempted, None), "nothing else has changed");
    diesel::update(payments::table.filter(payments::amount_cents.eq(5)))
        .set(Urgent::due_now())
        .execute(&mut connection)
        .unwrap();
    let seen = Seen::default();
    let log = seen.clone();
    let handler = move |row: &Urgent, _: &mut Message<'_, Conn>| {
        log.push(row.amount_cents);
        Ok(Outcome::Done)
    };
    Urgent::poller(bank.pool(1), handler).workers(1).run_until_idle().unwrap();
    assert_eq!(seen.all(), [5, 1, 2, 3, 4]);
    // Once for each of the five, whatever the result.
    assert_eq!(Urgent::queue().all_rows().set_priority(&mut connection, 3).unwrap(), 5);
}

#[test]
fn the_attempt_of_a_leased_row_goes_on_when_its_priority_changes() {
    let bank = Arc::new(bank_of::<Called>());
    five(&bank);
    let others = bank.clone();
    let handler = (
        move |row: &Called, _: &Lease| {
            let own = Called::queue().filter(payments::id.eq(row.id));
            assert_eq!(own.set_priority(&mut others.connect(), 9)?, 1);
            Ok(())
        },
        |_: &Called, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done),
    );
    let tally = Called::poller(bank.pool(1), handler).workers(1).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.lost), (4, 0));
}
