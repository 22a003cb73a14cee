//! Ageing: a row that has been due for long does not wait for ever behind those that come first.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use diesel::prelude::*;
use queue_core::internals::statement::Claim;
use queueable::{ClaimStyle, Lease, Message, Outcome, Queueable};

use super::{Backend, bank_of, entity, sql};
use crate::db::Conn;
use crate::suite::bank::{Bank, payments};
use crate::suite::keyed::erased;

entity!(Urgent, urgent_queue, priority(age = "1h"));
entity!(Called, called_queue, priority(age = "1h"), lease = "60s");
entity!(Starving, starving_queue, priority);

/// A row of priority 1 that has been due for long, and one of priority 0 that is due now.
const OLD_AND_URGENT: &str = "
    INSERT INTO payments (company_id, amount_cents, priority, next_attempt_time) VALUES (1, 1, 1, '2026-01-01 00:00:00.000');
    INSERT INTO payments (company_id, amount_cents, priority, next_attempt_time) VALUES (1, 0, 0, '2026-01-01 00:00:01.000')";

/// In how many turns the old row should be claimed, while the urgent one is queued again in each. By chance, one of
/// 10^23 runs would take more.
const TURNS: u32 = 400;

fn again(amount: i64, old_ran: &AtomicBool, turns: &AtomicU32) -> Outcome {
    if amount == 1 {
        old_ran.store(true, Ordering::Relaxed);
    }
    let turns = turns.fetch_add(1, Ordering::Relaxed) + 1;
    if amount == 1 || turns >= TURNS || old_ran.load(Ordering::Relaxed) {
        return Outcome::Done;
    }
    Outcome::again_in(Duration::ZERO)
}

#[test]
fn a_row_due_for_longer_than_the_age_is_claimed_from_a_stream_of_urgent_ones() {
    let bank = bank_of::<Urgent>();
    sql(&bank, OLD_AND_URGENT);
    let (old_ran, turns): (&'static AtomicBool, &'static AtomicU32) =
        (Box::leak(Box::default()), Box::leak(Box::default()));
    let handler = move |row: &Urgent, _: &mut Message<'_, Conn>| Ok(again(row.amount_cents, old_ran, turns));
    let tally = Urgent::poller(bank.pool(1), handler).workers(1).run_until_idle().unwrap();
    assert_eq!(tally.succeeded, 2);
    assert!(turns.load(Ordering::Relaxed) < TURNS, "the old row has waited for the end of the stream");
}

#[test]
fn leases_are_aged_in_both_styles() {
    for style in [ClaimStyle::Auto, ClaimStyle::UpdateThenSelect] {
        let bank = bank_of::<Called>();
        sql(&bank, OLD_AND_URGENT);
        let (old_ran, turns): (&'static AtomicBool, &'static AtomicU32) =
            (Box::leak(Box::default()), Box::leak(Box::default()));
        let handler = (
            |_: &Called, _: &Lease| Ok(()),
            move |row: &Called, _: &(), _: &mut Message<'_, Conn>| Ok(again(row.amount_cents, old_ran, turns)),
        );
        let poller = Called::poller(bank.pool(1), handler).workers(1).claim_batch(1).claim_style(style);
        poller.run_until_idle().unwrap();
        assert!(turns.load(Ordering::Relaxed) < TURNS, "{style:?}: the old row has waited for the end of the stream");
    }
}

/// The warning that the option gives.
#[test]
fn without_an_age_a_row_waits_for_as_long_as_others_come_first() {
    let bank = bank_of::<Starving>();
    sql(&bank, OLD_AND_URGENT);
    let (old_ran, turns): (&'static AtomicBool, &'static AtomicU32) =
        (Box::leak(Box::default()), Box::leak(Box::default()));
    let handler = move |row: &Starving, _: &mut Message<'_, Conn>| Ok(again(row.amount_cents, old_ran, turns));
    Starving::poller(bank.pool(1), handler).workers(1).run_until_idle().unwrap();
    assert_eq!(turns.load(Ordering::Relaxed), TURNS + 1);
}

#[test]
fn an_aged_claim_takes_the_row_that_is_due_longest_and_none_that_is_not_due_for_so_long() {
    let bank = bank_of::<Urgent>();
    sql(
        &bank,
        "INSERT INTO payments (company_id, amount_cents, priority, next_attempt_time) VALUES
             (1, 1, 0, '2026-01-01 00:00:02.000'), (1, 2, 9, '2026-01-01 00:00:01.000'),
             (1, 3, 5, '2026-01-01 00:00:03.000')",
    );
    let id = payments::table.filter(payments::amount_cents.eq(2)).select(payments::id);
    let id: i64 = id.first(&mut bank.connect()).unwrap();
    let claim = |bank: &Bank, age| -> Vec<i64> {
        let claim = Claim::<Backend>::new::<Urgent>().some(1, Vec::new()).aged(age);
        let rows = (erased::<Urgent>().load_claimed)(&mut bank.connect(), &claim).unwrap();
        rows.into_iter().map(|row| row.0).collect()
    };
    assert_eq!(claim(&bank, Duration::from_secs(3600)), [id]);
    assert_eq!(claim(&bank, Duration::from_secs(50 * 365 * 24 * 3600)), [0; 0]);
}
