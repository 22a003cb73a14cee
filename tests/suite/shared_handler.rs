//! One handler for several pollers, and handlers that are chosen at run time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use diesel::prelude::*;
use queueable::{Failure, Group, Handler, HandlerResult, Lease, LeaseHandler, Message, Outcome, Queueable};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, book, ledger};
use crate::suite::group::Grouped;
use crate::suite::lease::{Charge, apply};

/// Books payments, and counts the messages that came alone and those that came in groups.
#[derive(Default)]
struct Counting {
    alone: AtomicU32,
    grouped: AtomicU32,
}

impl Handler<Payment, Conn> for Counting {
    fn handle(&self, payment: &Payment, message: &mut Message<'_, Conn>) -> HandlerResult {
        self.alone.fetch_add(1, Ordering::Relaxed);
        book(payment, message)
    }
}

impl Handler<Grouped, Conn> for Counting {
    fn handle(&self, payment: &Grouped, message: &mut Message<'_, Conn>) -> HandlerResult {
        self.alone.fetch_add(1, Ordering::Relaxed);
        book(&payment.payment(), message)
    }

    fn handle_group(&self, payments: &[Grouped], group: &mut Group<'_, Conn>) -> Option<Vec<HandlerResult>> {
        self.grouped.fetch_add(payments.len() as u32, Ordering::Relaxed);
        let rows = payments.iter().map(Grouped::payment);
        let rows: Vec<_> = rows
            .map(|payment| (ledger::payment_id.eq(payment.id), ledger::amount_cents.eq(payment.amount_cents)))
            .collect();
        diesel::insert_into(ledger::table).values(rows).execute(group.connection()).unwrap();
        Some(payments.iter().map(|_| Ok(Outcome::Done)).collect())
    }
}

impl LeaseHandler<Charge, Conn> for Counting {
    type Answer = i64;

    fn call(&self, charge: &Charge, _: &Lease) -> Result<i64, Failure> {
        self.alone.fetch_add(1, Ordering::Relaxed);
        Ok(charge.amount_cents)
    }

    fn apply(&self, charge: &Charge, receipt: &i64, message: &mut Message<'_, Conn>) -> HandlerResult {
        apply(charge, receipt, message)
    }
}

#[test]
fn several_pollers_share_a_handler() {
    let bank = Bank::new();
    let handler = Arc::new(Counting::default());
    for _ in 0..2 {
        bank.enqueue([10, 20]);
        assert_eq!(bank.run(handler.clone()).succeeded, 2);
    }
    assert_eq!(handler.alone.load(Ordering::Relaxed), 4);

    // Whatever the mode, nothing of the handler is lost behind the pointer.
    bank.enqueue([10, 20, 30]);
    let grouped: Arc<dyn Handler<Grouped, Conn>> = handler.clone();
    assert_eq!(Grouped::poller(bank.pool(1), grouped).workers(1).run_until_idle().unwrap().succeeded, 3);
    assert!(handler.grouped.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_handler_may_be_chosen_at_run_time() {
    let bank = Bank::new();
    for refuses in [false, true] {
        let handler: Box<dyn Handler<Payment, Conn>> = match refuses {
            true => Box::new(|_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Skip)),
            false => Box::new(Counting::default()),
        };
        bank.enqueue([10]);
        let tally = bank.run(handler);
        assert_eq!((tally.succeeded, tally.skipped), if refuses { (0, 1) } else { (1, 0) });
    }
}

#[test]
fn a_lease_handler_may_be_shared_too() {
    let bank = Bank::new();
    let handler = Arc::new(Counting::default());
    let chosen: Box<dyn LeaseHandler<Charge, Conn, Answer = i64>> = Box::new(handler.clone());
    for run in 1..=2 {
        bank.enqueue([10]);
        let poller = match run {
            1 => Charge::poller(bank.pool(1), handler.clone()),
            _ => Charge::poller(bank.pool(1), Arc::new(Counting::default())),
        };
        assert_eq!(poller.workers(1).run_until_idle().unwrap().succeeded, 1);
    }
    bank.enqueue([10]);
    assert_eq!(Charge::poller(bank.pool(1), chosen).workers(1).run_until_idle().unwrap().succeeded, 1);
    assert_eq!(handler.alone.load(Ordering::Relaxed), 2);
}
