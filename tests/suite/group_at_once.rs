//! A handler for the whole group: it is called once for the group, or has no visible effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use diesel::prelude::*;
use queueable::bounds::HandlerFor;
use queueable::bounds::QueueOn;
use queueable::{Failure, Group, Handler, HandlerResult, Message, Outcome, Queueable, Status};

use super::group::{booked, entity, run};
use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, book, companies, ledger, payments};

entity!(Grouped, at_once_queue, group = 50);
entity!(Optimistic, optimistic_at_once_queue, group(50, optimistic));

/// Books a whole group by one statement, and then gives a prepared answer.
struct AtOnce {
    calls: Arc<AtomicU32>,
    alone: Arc<AtomicU32>,
    answer: fn(usize) -> Option<Vec<HandlerResult>>,
}

impl<Q: Clone + 'static> Handler<Q, Conn> for AtOnce
where
    Payment: From<Q>,
{
    fn handle(&self, entity: &Q, message: &mut Message<'_, Conn>) -> HandlerResult {
        self.alone.fetch_add(1, Ordering::Relaxed);
        book(&Payment::from(entity.clone()), message)
    }

    fn handle_group(&self, entities: &[Q], group: &mut Group<'_, Conn>) -> Option<Vec<HandlerResult>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        assert!(group.idempotency_key(entities.len() - 1).starts_with("payments.status:"));
        assert_eq!((group.try_number(0), group.queue_state(0).status), (1, Status::NotAttempted));
        let payments: Vec<_> = entities.iter().cloned().map(Payment::from).collect();
        let rows: Vec<_> = payments
            .iter()
            .map(|payment| (ledger::payment_id.eq(payment.id), ledger::amount_cents.eq(payment.amount_cents)))
            .collect();
        diesel::insert_into(ledger::table).values(rows).execute(group.connection()).unwrap();
        let sum: i64 = payments.iter().map(|payment| payment.amount_cents).sum();
        diesel::update(companies::table.find(1))
            .set(companies::balance_cents.eq(companies::balance_cents + sum))
            .execute(group.connection())
            .unwrap();
        (self.answer)(entities.len())
    }
}

impl From<Grouped> for Payment {
    fn from(grouped: Grouped) -> Self {
        grouped.payment()
    }
}

impl From<Optimistic> for Payment {
    fn from(optimistic: Optimistic) -> Self {
        optimistic.payment()
    }
}

/// Runs seven messages in groups of one, two and four. Returns how often the handler was asked for a group, and for one
/// message.
fn at_once<Q>(answer: fn(usize) -> Option<Vec<HandlerResult>>) -> (u32, u32)
where
    Q: QueueOn<Conn>,
    AtOnce: HandlerFor<Q, Conn>,
{
    let bank = Bank::new();
    let ids = bank.enqueue(1..=7);
    let (calls, alone) = (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
    let tally = run::<Q>(&bank, AtOnce { calls: calls.clone(), alone: alone.clone(), answer });
    assert_eq!((tally.succeeded, tally.interrupted), (7, 0));
    assert_eq!(booked(&bank), ids, "each once");
    assert_eq!(bank.balance(1), 28);
    assert!(ids.iter().all(|id| (bank.state(*id).status, bank.state(*id).try_count) == (Status::Success, 1)));
    (calls.load(Ordering::Relaxed), alone.load(Ordering::Relaxed))
}

fn done() -> HandlerResult {
    Ok(Outcome::Done)
}

#[test]
fn a_handler_for_the_whole_group_is_called_once_for_it() {
    let all_done = |messages| Some((0..messages).map(|_| done()).collect());
    assert_eq!(at_once::<Grouped>(all_done), (2, 1));
    assert_eq!(at_once::<Optimistic>(all_done), (2, 1));
}

#[test]
fn when_the_whole_group_cannot_be_handled_what_it_wrote_is_undone_and_each_message_is_handled_alone() {
    for answer in [
        (|_| None) as fn(usize) -> Option<Vec<HandlerResult>>,
        |_| Some(vec![done()]),
        |messages| Some((0..=messages).map(|_| done()).collect()),
        |messages| Some((1..messages).map(|_| done()).chain([Err(Failure::retry("one of them"))]).collect()),
        |_| panic!("in handle_group"),
    ] {
        assert_eq!(at_once::<Grouped>(answer), (2, 7));
        assert_eq!(at_once::<Optimistic>(answer), (2, 7));
    }
}
