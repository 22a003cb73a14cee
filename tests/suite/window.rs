//! Work only at some hours, by the database's clock.

use std::sync::mpsc;
use std::time::Duration;

use chrono::{DateTime, DurationRound, TimeDelta, Timelike, Utc};
use diesel::prelude::*;
use queueable::bounds::QueueOn;
use queueable::{Error, Explanation, Lease, Message, Outcome, Poller, Queueable, Status, Tally, Window};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, book, payments};
use crate::suite::lease::Charge;

macro_rules! payments {
    ($($name:ident($($key:tt)*);)*) => {$(
        #[derive(Debug, Queryable, Selectable, Queueable)]
        #[diesel(table_name = payments)]
        #[queue($($key)*)]
        #[allow(dead_code, reason = "it is only asked for when it is worked")]
        struct $name {
            id: i64,
        }
    )*};
}

// One of the first two is always open, and the other is closed.
payments! {
    Before(window = "00:00-12:00 UTC");
    After(window = "12:00-24:00 UTC");
    InGroup(group(10), timeout = "30s");
    Nowhere(window = "22:00-06:00 Europe/Berlni");
}

/// Returns the hours around a time, or all other hours.
fn hours(now: DateTime<Utc>, open: bool) -> Window {
    let (from, to) = (now - TimeDelta::hours(2), now + TimeDelta::hours(2));
    let (from, to) = if open { (from, to) } else { (to, from) };
    format!("{}-{} UTC", from.format("%H:%M"), to.format("%H:%M")).parse().unwrap()
}

/// Runs four payments in each of the modes, on a poller that the test configures.
fn run_in_each_mode(through: impl Fn(Poller<Conn>) -> Poller<Conn>) -> Vec<(Tally, Bank)> {
    let run = |serve: &dyn Fn(&Bank) -> Poller<Conn>| {
        let bank = Bank::new();
        bank.enqueue([1, 2, 3, 4]);
        (through(serve(&bank)).workers(1).run_until_idle().unwrap(), bank)
    };
    vec![
        run(&|bank| Payment::poller(bank.pool(1), book)),
        run(&|bank| InGroup::poller(bank.pool(1), |_: &InGroup, _: &mut Message<'_, Conn>| Ok(Outcome::Done))),
        run(&|bank| {
            let call = |_: &Charge, _: &Lease| Ok(());
            let apply = |_: &Charge, (): &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done);
            Charge::poller(bank.pool(1), (call, apply)).claim_batch(3)
        }),
    ]
}

#[test]
fn outside_the_window_nothing_is_claimed_and_nothing_is_waited_for() {
    for (tally, bank) in run_in_each_mode(|poller| poller.window(hours(Utc::now(), false))) {
        assert_eq!(tally, Tally::default());
        let state = bank.state(1);
        assert_eq!((state.status, state.try_count), (Status::NotAttempted, 0));
        assert!(state.next_attempt_time.is_some_and(|time| time <= Utc::now()), "it stays due");
    }
}

#[test]
fn inside_the_window_all_is_as_without_one() {
    for (tally, _) in run_in_each_mode(|poller| poller.window(hours(Utc::now(), true))) {
        assert_eq!(tally.succeeded, 4);
    }
}

#[test]
fn an_entity_has_a_window_of_its_own_besides() {
    fn tally<Q>(bank: &Bank, pollers: &str) -> u64
    where
        Q: QueueOn<Conn, Mode = queueable::bounds::TransactionMode> + Send,
    {
        let handler = |_: &Q, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
        let poller = Q::poller(bank.pool(1), handler).window(pollers.parse().unwrap());
        poller.workers(1).run_until_idle().unwrap().succeeded
    }
    // Repeats the run if the clock has passed noon or midnight meanwhile.
    let (is_before, bank, ran) = loop {
        let (bank, began) = (Bank::new(), Utc::now());
        bank.enqueue([1]);
        let is_before = began.hour() < 12;
        let (open, closed) =
            if is_before { ("00:00-12:00 UTC", "12:00-24:00 UTC") } else { ("12:00-24:00 UTC", "00:00-12:00 UTC") };
        let ran = [
            tally::<Before>(&bank, closed),
            tally::<After>(&bank, closed),
            tally::<Before>(&bank, open),
            tally::<After>(&bank, open),
        ];
        if began.hour() / 12 == Utc::now().hour() / 12 {
            break (is_before, bank, ran);
        }
    };
    assert_eq!(ran, if is_before { [0, 0, 1, 0] } else { [0, 0, 0, 1] });
    assert_eq!(bank.state(1).status, Status::Success);
}

#[test]
fn a_poller_works_on_while_its_window_is_open() {
    let bank = Bank::new();
    let (sender, handled) = mpsc::channel();
    let handler = move |payment: &Payment, message: &mut Message<'_, Conn>| {
        sender.send(payment.id)?;
        book(payment, message)
    };
    let poller = bank.poller(handler).window(hours(Utc::now(), true)).start().unwrap();
    for id in bank.enqueue([1, 2]) {
        assert_eq!(handled.recv_timeout(Duration::from_secs(60)), Ok(id));
    }
    drop(poller);
}

#[test]
fn a_window_that_cannot_be_read_is_refused_at_start() {
    let bank = Bank::new();
    let handler = |_: &Nowhere, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let Err(Error::Unsafe(findings)) = Nowhere::poller(bank.pool(1), handler).workers(1).start() else {
        panic!("it started")
    };
    assert_eq!((findings.len(), findings[0].entity.as_str()), (1, "Nowhere"));
    assert!(findings[0].problem.contains("the time zone `Europe/Berlni` is not in the IANA database"), "{findings:?}");
    assert!(findings[0].mend.contains("window = "), "{findings:?}");
}

#[test]
fn a_row_outside_the_window_says_when_that_opens() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    let mut connection = bank.connect();
    // Repeats the run if the clock has passed noon or midnight meanwhile.
    let (now, before, after) = loop {
        let now = Utc::now();
        let (before, after) = (Before::explain(&mut connection, &id), After::explain(&mut connection, &id));
        if now.hour() / 12 == Utc::now().hour() / 12 {
            break (now, before.unwrap(), after.unwrap());
        }
    };
    let is_before = now.hour() < 12;
    let opens = (now + TimeDelta::hours(12)).duration_trunc(TimeDelta::hours(12)).unwrap();
    let closed = Explanation::OutsideWindow { opens: Some(opens) };
    assert_eq!((before, after), if is_before { (Explanation::Due, closed) } else { (closed, Explanation::Due) });
}
