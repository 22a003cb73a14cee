//! How many messages share a transaction, above all where the entity leaves it to the queue: `group = auto`.

use std::sync::mpsc;
use std::time::Duration;

use diesel::prelude::*;
use queueable::bounds::{HandlerFor, QueueOn};
use queueable::{Event, Failure, HandlerResult, Message, Outcome, Queueable};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, payments};
use crate::suite::events::listener;
use crate::suite::group::entity;

entity!(Auto, auto_queue, group = auto);
entity!(AutoOptimistic, auto_optimistic_queue, group(auto, optimistic));
entity!(Fifty, fifty_queue, group = 50);
entity!(FiftyOptimistic, fifty_optimistic_queue, group(50, optimistic));

/// A time that is longer than the messages of a group may take together.
const SLOW: i64 = 60;

/// Handles a message whose amount is the milliseconds that it takes.
fn take_time(Payment { amount_cents, .. }: Payment) -> HandlerResult {
    let (_nobody, wait) = mpsc::channel::<()>();
    // Nobody ever sends.
    let _ = wait.recv_timeout(Duration::from_millis(amount_cents.unsigned_abs()));
    if amount_cents < 0 { Err(Failure::retry("no")) } else { Ok(Outcome::Done) }
}

/// Processes payments with one worker. Returns what became of them, in its order.
fn events<Q: QueueOn<Conn>>(
    amounts: impl IntoIterator<Item = i64>,
    handler: impl HandlerFor<Q, Conn> + 'static,
) -> Vec<Event> {
    let bank = Bank::new();
    bank.enqueue(amounts);
    let (listener, heard) = listener();
    Q::poller(bank.pool(1), handler).workers(1).on_event(listener).run_until_idle().unwrap();
    heard.iter().filter(|event| event.attempt().is_some()).collect()
}

/// Returns how many messages began before the first of them was committed, again and again.
fn sizes(events: &[Event]) -> Vec<usize> {
    let begun: Vec<_> = events.iter().map(|event| matches!(event, Event::Begun(_))).collect();
    begun.chunk_by(|one, other| one == other).filter(|events| events[0]).map(<[_]>::len).collect()
}

/// The sizes of an entity's groups.
macro_rules! sizes_of {
    ($entity:ident, $amounts:expr) => {
        sizes(&events::<$entity>($amounts, |row: &$entity, _: &mut Message<'_, Conn>| take_time(row.payment())))
    };
}

#[test]
fn the_first_of_a_few_messages_is_committed_before_the_second_begins() {
    assert_eq!(sizes_of!(Auto, [0; 3])[0], 1);
    assert_eq!(sizes_of!(AutoOptimistic, [0; 3])[0], 1);
}

#[test]
fn a_backlog_of_quick_messages_is_committed_in_groups() {
    for sizes in [sizes_of!(Auto, [0; 400]), sizes_of!(AutoOptimistic, [0; 400])] {
        assert_eq!(sizes.iter().sum::<usize>(), 400);
        // A machine that is busy with other work makes any message slow, but hardly all of them.
        assert!(sizes.iter().any(|size| *size >= 4), "{sizes:?}");
    }
}

#[test]
fn slow_messages_are_committed_one_by_one_unless_the_entity_asks_for_groups() {
    assert_eq!(sizes_of!(Auto, [SLOW; 5]), [1; 5]);
    assert_eq!(sizes_of!(AutoOptimistic, [SLOW; 5]), [1; 5]);
    assert_eq!(sizes_of!(Fifty, [SLOW; 5]), [1, 2, 2]);
    assert_eq!(sizes_of!(FiftyOptimistic, [SLOW; 5]), [1, 2, 2]);
}

#[test]
fn a_message_that_is_unexpectedly_slow_is_the_last_of_its_group() {
    let amounts = || (0..40).map(|number| if number == 31 { SLOW } else { 0 });
    for sizes in [sizes_of!(Auto, amounts()), sizes_of!(AutoOptimistic, amounts())] {
        let ends = sizes.iter().scan(0, |messages, size| {
            *messages += size;
            Some(*messages)
        });
        assert!(ends.clone().any(|end| end == 32), "{sizes:?}");
        assert_eq!(ends.last(), Some(40));
    }
}

#[test]
fn a_message_of_a_group_begins_when_its_handler_is_called() {
    // After a panic the worker closes the group, here after the second of eight.
    let amounts = (0..15).map(|number| if number == 8 { 7 } else { 0 });
    let events = events::<Fifty>(amounts, |row: &Fifty, _: &mut Message<'_, Conn>| {
        assert_ne!(row.amount_cents, 7, "seven is odd");
        Ok(Outcome::Done)
    });
    assert!(!events.iter().any(|event| matches!(event, Event::Interrupted(_))), "{events:?}");
    assert_eq!(sizes(&events).iter().sum::<usize>(), 15);
}

#[test]
fn groups_go_on_after_messages_that_had_to_run_alone() {
    let amounts = (0..1000).map(|number| if number == 200 { -1 } else { 0 });
    let events =
        events::<FiftyOptimistic>(amounts, |row: &FiftyOptimistic, _: &mut Message<'_, Conn>| take_time(row.payment()));
    let failed = events.iter().position(|event| matches!(event, Event::WillRetry(_))).expect("one message fails");
    let later = sizes(&events[failed..]);
    assert!(later.iter().any(|size| *size >= 8), "{later:?}");
}
