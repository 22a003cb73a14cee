//! Handlers that operate on other rows of their queue, or on their own: a group has the same result as single messages.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{TimeDelta, Utc};
use diesel::prelude::*;
use queueable::bounds::HandlerFor;
use queueable::bounds::QueueOn;
use queueable::{Failure, Group, Handler, HandlerResult, Message, Outcome, QueueState, Queueable, Status, Tally};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, book, payment_queue, payments};
use crate::suite::group::{booked, enqueue_group, entity};

entity!(Grouped, neighbours_queue, group = 50);
entity!(Optimistic, optimistic_neighbours_queue, group(50, optimistic));

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

/// The operation of the third of seven payments on another one.
type Meddle = fn(&mut Conn, &[i64]) -> QueryResult<()>;

/// Books each payment. The third one, in its first run, operates on another row.
#[derive(Clone)]
struct Meddler {
    ids: Vec<i64>,
    meddle: Meddle,
    /// Whether the handler is asked for the whole group.
    at_once: bool,
}

impl Meddler {
    fn work(&self, payment: &Payment, connection: &mut Conn) -> Result<(), Failure> {
        if payment.id == self.ids[2] {
            (self.meddle)(connection, &self.ids)?;
        }
        Ok(())
    }
}

impl<Q: Clone + 'static> Handler<Q, Conn> for Meddler
where
    Payment: From<Q>,
{
    fn handle(&self, entity: &Q, message: &mut Message<'_, Conn>) -> HandlerResult {
        let payment = Payment::from(entity.clone());
        self.work(&payment, message.connection())?;
        book(&payment, message)
    }

    fn handle_group(&self, entities: &[Q], group: &mut Group<'_, Conn>) -> Option<Vec<HandlerResult>> {
        use crate::suite::bank::ledger;
        if !self.at_once {
            return None;
        }
        let mut answers = Vec::new();
        for entity in entities {
            let payment = Payment::from(entity.clone());
            let row = (ledger::payment_id.eq(payment.id), ledger::amount_cents.eq(payment.amount_cents));
            let booked = diesel::insert_into(ledger::table).values(row).execute(group.connection());
            answers.push(match booked.map_err(Failure::from).and_then(|_| self.work(&payment, group.connection())) {
                Ok(()) => Ok(Outcome::Done),
                Err(failure) => Err(failure),
            });
        }
        Some(answers)
    }
}

fn run<Q>(bank: &Bank, meddler: Meddler) -> Tally
where
    Q: QueueOn<Conn>,
    Meddler: HandlerFor<Q, Conn>,
{
    Q::poller(bank.pool(1), meddler).workers(1).run_until_idle().unwrap()
}

/// Processes seven payments in each way, and returns the results: the states, and how often each was booked.
fn in_every_way(meddle: Meddle, check: impl Fn(&str, &[QueueState], &[usize])) {
    for (way, optimistic, at_once) in [
        ("one by one", None, false),
        ("in a group", Some(false), false),
        ("at once", Some(false), true),
        ("optimistic", Some(true), false),
        ("optimistic, at once", Some(true), true),
    ] {
        let bank = Bank::new();
        let ids = match optimistic {
            None => bank.enqueue(1..=7),
            Some(_) => enqueue_group(&bank, 8, 1..=7),
        };
        let meddler = Meddler { ids: ids.clone(), meddle, at_once };
        let tally = match optimistic {
            None => run::<Payment>(&bank, meddler),
            Some(false) => run::<Grouped>(&bank, meddler),
            Some(true) => run::<Optimistic>(&bank, meddler),
        };
        let mut times = HashMap::<i64, usize>::new();
        for id in booked(&bank) {
            *times.entry(id).or_default() += 1;
        }
        let states: Vec<_> = ids.iter().map(|id| bank.state(*id)).collect();
        let times: Vec<_> = ids.iter().map(|id| times.get(id).copied().unwrap_or(0)).collect();
        println!("{way}: {tally:?} {times:?}");
        check(way, &states, &times);
    }
}

fn enqueue_anew(connection: &mut Conn, id: i64) -> QueryResult<()> {
    diesel::update(payments::table.find(id)).set(Payment::due_now()).execute(connection).map(drop)
}

#[test]
fn a_row_that_a_later_neighbour_enqueues_anew_runs_again() {
    in_every_way(
        |connection, ids| enqueue_anew(connection, ids[1]),
        |way, states, times| {
            assert_eq!(times, [1, 2, 1, 1, 1, 1, 1], "{way}");
            assert!(states.iter().all(|state| state.status == Status::Success && state.next_attempt_time.is_none()));
        },
    );
}

#[test]
fn a_row_that_a_neighbour_makes_due_by_one_column_runs_again() {
    in_every_way(
        |connection, ids| {
            let row = payments::table.find(ids[1]);
            diesel::update(row)
                .set(payment_queue::next_attempt_time.eq(queueable::columns::Now))
                .execute(connection)
                .map(drop)
        },
        |way, _, times| assert_eq!(times, [1, 2, 1, 1, 1, 1, 1], "{way}"),
    );
}

#[test]
fn a_later_row_that_a_neighbour_stops_stays_stopped_and_has_no_effects() {
    in_every_way(
        |connection, ids| {
            assert_eq!(Payment::queue().filter(payments::id.eq(ids[4])).stop(connection).unwrap(), 1);
            Ok(())
        },
        |way, states, times| {
            assert_eq!(times, [1, 1, 1, 1, 0, 1, 1], "{way}");
            let QueueState { status, next_attempt_time, last_attempt_error_message, .. } = &states[4];
            assert_eq!((*status, *next_attempt_time), (Status::NotAttempted, None), "{way}");
            assert_eq!(last_attempt_error_message.as_deref(), Some("queueable: stopped"), "{way}");
        },
    );
}

#[test]
fn a_later_row_that_a_neighbour_postpones_waits() {
    in_every_way(
        |connection, ids| {
            let later = Utc::now() + TimeDelta::hours(3);
            assert_eq!(Payment::queue().filter(payments::id.eq(ids[4])).postpone_until(connection, later).unwrap(), 1);
            Ok(())
        },
        |way, states, times| {
            assert_eq!(times, [1, 1, 1, 1, 0, 1, 1], "{way}");
            let waits = states[4].next_attempt_time.unwrap() - Utc::now();
            assert!(waits > TimeDelta::hours(2), "{way}: {waits}");
            assert_eq!((states[4].status, states[4].try_count), (Status::NotAttempted, 0), "{way}");
        },
    );
}

#[test]
fn a_later_row_that_a_neighbour_retries_now_runs_once() {
    in_every_way(
        |connection, ids| {
            assert_eq!(Payment::queue().filter(payments::id.eq(ids[4])).retry_now(connection).unwrap(), 1);
            Ok(())
        },
        |way, states, times| {
            assert_eq!(times, [1; 7], "{way}");
            assert!(states.iter().all(|state| state.status == Status::Success), "{way}");
        },
    );
}

#[test]
fn a_later_row_that_a_neighbour_skips_is_skipped_and_has_no_effects() {
    in_every_way(
        |connection, ids| {
            assert_eq!(Payment::queue().filter(payments::id.eq(ids[4])).skip(connection).unwrap(), 1);
            Ok(())
        },
        |way, states, times| {
            assert_eq!(times, [1, 1, 1, 1, 0, 1, 1], "{way}");
            assert_eq!((states[4].status, states[4].next_attempt_time), (Status::Skipped, None), "{way}");
        },
    );
}

#[test]
fn an_operation_on_an_earlier_row_finds_it_finished() {
    let meddles: [Meddle; 4] = [
        |connection, ids| Payment::queue().filter(payments::id.eq(ids[1])).stop(connection).map(drop).map_err(refused),
        |connection, ids| Payment::queue().filter(payments::id.eq(ids[1])).skip(connection).map(drop).map_err(refused),
        |connection, ids| {
            let later = Utc::now() + TimeDelta::hours(3);
            Payment::queue()
                .filter(payments::id.eq(ids[1]))
                .postpone_until(connection, later)
                .map(drop)
                .map_err(refused)
        },
        |connection, ids| {
            Payment::queue().filter(payments::id.eq(ids[1])).retry_now(connection).map(drop).map_err(refused)
        },
    ];
    for meddle in meddles {
        in_every_way(meddle, |way, states, times| {
            assert_eq!(times, [1; 7], "{way}");
            assert!(states.iter().all(|state| state.status == Status::Success), "{way}");
        });
    }
}

fn refused(error: queueable::Error) -> diesel::result::Error {
    diesel::result::Error::QueryBuilderError(error.into())
}

#[test]
fn a_handler_that_makes_its_own_row_due_at_another_time_is_told_so() {
    let meddles: [Meddle; 3] = [
        |connection, ids| {
            let row = payments::table.find(ids[2]);
            diesel::update(row).set(Payment::due_in(Duration::from_secs(9000))).execute(connection).map(drop)
        },
        |connection, ids| enqueue_anew(connection, ids[2]),
        |connection, ids| {
            let never = payment_queue::next_attempt_time.eq(None::<queueable::columns::Instant>);
            diesel::update(payments::table.find(ids[2])).set(never).execute(connection).map(drop)
        },
    ];
    for meddle in meddles {
        in_every_way(meddle, |way, states, times| {
            assert_eq!(times, [1, 1, 0, 1, 1, 1, 1], "{way}");
            assert_eq!((states[2].status, states[2].try_count), (Status::Error, 1), "{way}");
            let text = states[2].last_attempt_error_message.as_deref().unwrap();
            assert!(text.contains("changed its queue columns"), "{way}: {text}");
        });
    }
}

/// Books payments. Every eighth one, from the fourth, changes the amount of the next one, and takes the one after that
/// from the queue.
#[derive(Clone)]
struct Taker {
    ids: Vec<i64>,
    at_once: bool,
    /// The calls, each with the amount that the handler has seen.
    calls: Arc<Mutex<Vec<(i64, i64)>>>,
}

impl Taker {
    fn work(&self, payment: &Payment, connection: &mut Conn) -> HandlerResult {
        self.calls.lock().unwrap().push((payment.id, payment.amount_cents));
        let place = self.ids.iter().position(|id| *id == payment.id);
        if let Some(place) = place.filter(|place| place % 8 == 3) {
            let (changed, taken) = (self.ids[place + 1], self.ids[place + 2]);
            let amount = payments::amount_cents.eq(1000);
            diesel::update(payments::table.find(changed)).set(amount).execute(connection)?;
            Payment::queue().filter(payments::id.eq(taken)).skip(connection)?;
        }
        Ok(Outcome::Done)
    }
}

impl<Q: Clone + 'static> Handler<Q, Conn> for Taker
where
    Payment: From<Q>,
{
    fn handle(&self, entity: &Q, message: &mut Message<'_, Conn>) -> HandlerResult {
        self.work(&Payment::from(entity.clone()), message.connection())
    }

    fn handle_group(&self, entities: &[Q], group: &mut Group<'_, Conn>) -> Option<Vec<HandlerResult>> {
        let work = |entity: &Q| self.work(&Payment::from(entity.clone()), group.connection());
        self.at_once.then(|| entities.iter().map(work).collect())
    }
}

#[test]
fn a_handler_that_changes_its_neighbours_repeats_the_calls_of_one_group_and_then_of_none() {
    for (way, optimistic, at_once) in [
        ("in a group", false, false),
        ("at once", false, true),
        ("optimistic", true, false),
        ("optimistic, at once", true, true),
    ] {
        let bank = Bank::new();
        let ids = bank.enqueue([1; 96]);
        let taker = Taker { ids: ids.clone(), at_once, calls: Arc::default() };
        let calls = taker.calls.clone();
        let tally = match optimistic {
            false => Grouped::poller(bank.pool(1), taker).workers(1).run_until_idle().unwrap(),
            true => Optimistic::poller(bank.pool(1), taker).workers(1).run_until_idle().unwrap(),
        };
        println!("{way}: {tally:?}");
        let calls = calls.lock().unwrap();
        let calls_of = |place: usize| -> Vec<(usize, i64)> {
            let calls = calls.iter().enumerate().filter(|(_, call)| call.0 == ids[place]);
            calls.map(|(when, call)| (when, call.1)).collect()
        };
        let (mut repeated, mut taken) = (0, 0);
        for (place, id) in ids.iter().enumerate() {
            let (status, seen) = (bank.state(*id).status, calls_of(place));
            let is_skipped = status == Status::Skipped;
            if seen.len() > usize::from(!is_skipped) {
                repeated += 1;
            } else if is_skipped {
                assert_eq!(place % 8, 5, "{way}, row {place}");
                taken += 1;
            } else {
                assert_eq!((status, seen.len()), (Status::Success, 1), "{way}, row {place}");
                // Rows of one time may be processed in another order.
                let is_changed = place % 8 == 4 && calls_of(place - 1).iter().all(|(when, _)| *when < seen[0].0);
                assert_eq!(seen[0].1, if is_changed { 1000 } else { 1 }, "{way}, row {place}");
            }
        }
        // The first group with such a row is undone, and shows that the next ones have to look.
        assert!(repeated <= 16, "{way}: {repeated} rows are called again");
        assert!(taken > 6, "{way}: {taken} rows are taken from the queue");
    }
}
