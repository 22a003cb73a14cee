//! A paused queue begins nothing in any mode, asks for nothing, and everybody is told why.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use chrono::{TimeDelta, Utc};
use diesel::connection::{Instrumentation, InstrumentationEvent, SimpleConnection};
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Pool};
use queueable::{Explanation, Message, Outcome, Pause, Paused, Queueable, Status, Tally};

use super::{
    BY, Company, MODES, Mode, Note, PATIENCE, Work, await_company, await_successes, bank, pause, serve, with_companies,
};
use crate::db::Conn;
use crate::suite::bank::{Payment, payments};
use crate::suite::warnings::{await_warning, is_told, keep_warnings};

#[test]
fn a_paused_queue_begins_nothing_until_it_is_unpaused() {
    for mode in MODES {
        let bank = bank();
        let ids = bank.enqueue([1, 2, 3, 4]);
        let before = bank.state(ids[0]);
        pause(&bank, "bank down");
        let work = Note::default();
        assert_eq!(serve(&bank, mode, work.clone()).run_until_idle().unwrap(), Tally::default(), "{mode:?}");
        assert_eq!(bank.state(ids[0]), before, "nothing is written on the row");
        assert!(Payment::unpause(&mut bank.connect()).unwrap());
        assert!(!Payment::unpause(&mut bank.connect()).unwrap(), "it was ended already");
        assert_eq!(serve(&bank, mode, work.clone()).run_until_idle().unwrap().succeeded, 4, "{mode:?}");
        assert_eq!(work.begun(), ids);
    }
}

#[test]
fn run_until_idle_tells_what_it_leaves_because_of_a_pause() {
    keep_warnings();
    let bank = bank();
    bank.enqueue([1]);
    pause(&bank, "left for another day");
    serve(&bank, Mode::Transaction, Note::default()).run_until_idle().unwrap();
    assert!(is_told(&["WARN", "left due rows alone", BY, "left for another day"]));
}

/// The first payment pauses its own queue, and the second waits until the poller knows.
#[derive(Clone)]
struct PausesItself {
    note: Note,
    first: i64,
    reason: String,
}

impl Work for PausesItself {
    fn begin(&self, id: i64) {
        self.note.begin(id);
        if id == self.first + 1 {
            await_warning(&["INFO", "paused", &self.reason, BY]);
        }
    }

    fn write(&self, id: i64, connection: &mut Conn) {
        if id == self.first {
            Payment::pause(connection, Pause::new(self.reason.as_str(), BY)).unwrap();
        }
    }
}

#[test]
fn a_worker_that_goes_from_row_to_row_stops_at_a_pause_and_goes_on_at_its_end() {
    keep_warnings();
    for mode in MODES {
        let bank = bank();
        let ids = bank.enqueue(1..=6);
        let due = bank.state(ids[5]).next_attempt_time;
        let reason = format!("stops at once in {mode:?} mode");
        let note = Note::default();
        let work = PausesItself { note: note.clone(), first: ids[0], reason: reason.clone() };
        let (poller, handled) = with_companies(serve(&bank, mode, work));
        let handle = poller.start().unwrap();
        await_warning(&["INFO", "paused", &reason]);
        await_company(&bank, &handled);
        let later = bank.enqueue([7])[0];
        await_company(&bank, &handled);
        // The poller may know of the pause before the second begins.
        let begun = note.begun();
        assert!(begun == ids[..1] || begun == ids[..2], "{mode:?}: {begun:?}");
        for id in ids[begun.len()..].iter().copied().chain([later]) {
            let state = bank.state(id);
            assert_eq!((state.status, state.try_count), (Status::NotAttempted, 0), "{mode:?} {id}");
        }
        assert_eq!(bank.state(ids[5]).next_attempt_time, due, "nothing is written on the row");
        Payment::unpause(&mut bank.connect()).unwrap();
        await_warning(&["INFO", "no longer paused", &reason]);
        await_successes(&bank, 7);
        assert_eq!(note.begun().len(), 7, "{mode:?}");
        drop(handle);
    }
}

#[test]
fn a_pause_ends_at_its_end_by_the_databases_clock() {
    keep_warnings();
    let bank = bank();
    let pause = |seconds| {
        let pause = Pause::new("a short break", BY).lasting(Duration::from_secs(seconds));
        Payment::pause(&mut bank.connect(), pause).unwrap();
    };
    pause(3600);
    let (sender, begun) = mpsc::channel();
    let handler = move |payment: &Payment, message: &mut Message<'_, Conn>| {
        sender.send((payment.id, queueable::pauses(message.connection())?.len()))?;
        Ok(Outcome::Done)
    };
    let handle = Payment::poller(bank.pool(1), handler).workers(1).control().start().unwrap();
    let id = bank.enqueue([1])[0];
    await_warning(&["INFO", "paused", "a short break"]);
    // The second takes the first one's place.
    pause(2);
    assert_eq!(begun.recv_timeout(PATIENCE), Ok((id, 0)), "by then it is no pause any more");
    await_warning(&["INFO", "no longer paused", "a short break"]);
    drop(handle);
}

#[test]
fn a_pause_whose_end_has_come_is_none() {
    let bank = bank();
    let ids = bank.enqueue([1]);
    Payment::pause(&mut bank.connect(), Pause::new("over", BY).until(Utc::now() + TimeDelta::hours(1))).unwrap();
    let mut connection = bank.connect();
    let paused = queueable::pauses(&mut connection).unwrap();
    assert_eq!((paused.len(), paused[0].until.is_some()), (1, true));
    let past = "UPDATE queueable_control SET paused_at = '2020-01-01 00:00:00', paused_until = '2020-01-02 00:00:00'";
    connection.batch_execute(past).unwrap();
    assert_eq!(queueable::pauses(&mut connection).unwrap(), []);
    assert_eq!(Payment::explain(&mut connection, &ids[0]).unwrap(), Explanation::Due);
    assert_eq!(serve(&bank, Mode::Transaction, Note::default()).run_until_idle().unwrap().succeeded, 1);
}

#[test]
fn everybody_is_told_who_has_paused_a_queue_when_and_why() {
    let bank = bank();
    let ids = bank.enqueue([1]);
    let mut connection = bank.connect();
    assert_eq!(Payment::explain(&mut connection, &ids[0]).unwrap(), Explanation::Due);
    assert_eq!(Payment::queue().backlog(&mut connection).unwrap().paused, []);
    let began = Utc::now() - TimeDelta::seconds(1);
    pause(&bank, "first");
    // The second takes the first one's place.
    let until = Utc::now() + TimeDelta::days(3);
    Payment::pause(&mut connection, Pause::new("bänk down", BY).until(until)).unwrap();
    let paused: Vec<Paused> = queueable::pauses(&mut connection).unwrap();
    let [paused] = paused.as_slice() else { panic!("{paused:?}") };
    assert_eq!(
        (paused.queue.as_str(), paused.by.as_str(), paused.reason.as_str()),
        ("payments.status", BY, "bänk down")
    );
    assert!(paused.since >= began && paused.since <= Utc::now() + TimeDelta::seconds(1), "{paused:?}");
    assert!((paused.until.unwrap() - until).abs() < TimeDelta::milliseconds(2), "{paused:?}");
    let explained = Payment::explain(&mut connection, &ids[0]).unwrap();
    assert_eq!(explained, Explanation::Paused { pause: paused.clone() });
    assert!(explained.to_string().ends_with("by ops@example.org: bänk down"), "{explained}");
    let backlog = Payment::queue().backlog(&mut connection).unwrap();
    assert_eq!((backlog.due, backlog.paused.as_slice()), (1, std::slice::from_ref(paused)));
    assert!(backlog.to_string().ends_with("by ops@example.org: bänk down\n"), "{backlog}");
    assert_eq!(Company::queue().backlog(&mut connection).unwrap().paused, [], "another queue");
}

/// Counts the queries of a pool's connections.
#[derive(Debug, Clone, Default)]
struct Queries(Arc<AtomicUsize>);

impl CustomizeConnection<Conn, diesel::r2d2::Error> for Queries {
    fn on_acquire(&self, connection: &mut Conn) -> Result<(), diesel::r2d2::Error> {
        connection.set_instrumentation(self.clone());
        Ok(())
    }
}

impl Instrumentation for Queries {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        if let InstrumentationEvent::StartQuery { .. } = event {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_paused_queue_with_due_rows_is_not_asked_for_in_a_loop() {
    // An entity of its own: other tests of this process enqueue payments, and that wakes pollers.
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(module = counted_queue)]
    #[expect(dead_code, reason = "it is only counted")]
    struct Counted {
        id: i64,
    }

    keep_warnings();
    let bank = bank();
    bank.enqueue(1..=100);
    let queries = Queries::default();
    let pool = Pool::builder()
        .max_size(6)
        .min_idle(Some(0))
        .connection_customizer(Box::new(queries.clone()))
        .build(ConnectionManager::<Conn>::new(bank.database.url()))
        .unwrap();
    let pause = |seconds| {
        let pause = Pause::new("as quiet as can be", BY).lasting(Duration::from_secs(seconds));
        Counted::pause(&mut bank.connect(), pause).unwrap();
    };
    // However long the start takes.
    pause(3600);
    let (sender, begun) = mpsc::channel();
    let count = queries.clone();
    let handler = move |_: &Counted, _: &mut Message<'_, Conn>| {
        sender.send(count.0.load(Ordering::Relaxed))?;
        Ok(Outcome::Done)
    };
    let handle = Counted::poller(pool, handler).workers(4).control().start().unwrap();
    await_warning(&["INFO", "paused", "as quiet as can be"]);
    let before = queries.0.load(Ordering::Relaxed);
    pause(6);
    let asked = begun.recv_timeout(PATIENCE).unwrap() - before;
    // The first attempts after the pause are among them, and the polls while a thread stands still. A loop would ask
    // thousands of times.
    assert!(asked < 200, "{asked} queries in 6 seconds");
    drop(handle);
}
