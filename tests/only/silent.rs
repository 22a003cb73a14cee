//! A network, or a server, that says nothing.

#[path = "../db/proxy.rs"]
mod proxy;

use std::future::ready;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{
    AsyncCalls, Event, Failure, HandlerResult, Lease, Message, Migrations, Outcome, Pause, Poller, PollerHandle,
    PollerSettings, Queueable, Status,
};
use tokio::runtime::Builder;

use self::proxy::Proxy;
use crate::db::{Conn, NAME};
use crate::suite::bank::{Bank, Payment, book, ledger, payments};
use crate::suite::thorough::times;
use crate::suite::warnings::{await_warning, keep_warnings};

const PATIENCE: Duration = Duration::from_secs(120);

/// A payment whose transaction the server ends soon.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = brief_queue, timeout = "3s", retry = fixed("10ms"), max_tries = 100)]
struct Brief {
    id: i64,
    amount_cents: i64,
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = brief_group_queue, group = 10, timeout = "3s", retry = fixed("10ms"), max_tries = 100)]
struct BriefInGroup {
    id: i64,
    amount_cents: i64,
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = brief_call_queue, lease = "20s", timeout = "60s", retry = fixed("10ms"), max_tries = 100)]
struct BriefCall {
    id: i64,
    amount_cents: i64,
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = brief_turn_queue, exclusive, timeout = "3s", retry = fixed("10ms"), max_tries = 100)]
struct BriefInTurn {
    id: i64,
    amount_cents: i64,
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = brief_lane_queue, serial_by = company_id, timeout = "3s", retry = fixed("10ms"), max_tries = 100)]
struct BriefInLane {
    id: i64,
    #[allow(dead_code, reason = "the lane")]
    company_id: i64,
    amount_cents: i64,
}

/// A payment whose lease ends if each row's extension takes a round trip to a server that is far away.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = far_call_queue, lease = "16s", timeout = "300s", retry = fixed("10ms"), max_tries = 100)]
struct FarCall {
    id: i64,
    amount_cents: i64,
}

fn enter(id: i64, amount_cents: i64, message: &mut Message<'_, Conn>) -> HandlerResult {
    diesel::insert_into(ledger::table)
        .values((ledger::payment_id.eq(id), ledger::amount_cents.eq(amount_cents)))
        .execute(message.connection())?;
    Ok(Outcome::Done)
}

/// What a handler does before it writes.
type Before = Arc<dyn Fn() + Send + Sync>;

/// Where handlers wait until the test releases them.
struct Barrier {
    entered: mpsc::Receiver<()>,
    is_released: Arc<AtomicBool>,
}

impl Barrier {
    fn new() -> (Self, Before) {
        let ((enter, entered), is_released) = (mpsc::sync_channel(1000), Arc::new(AtomicBool::new(false)));
        let may_go_on = is_released.clone();
        let before = move || {
            let _ = enter.send(());
            await_so("released", || may_go_on.load(Ordering::SeqCst));
        };
        (Barrier { entered, is_released }, Arc::new(before))
    }

    fn await_handler(&self) {
        self.entered.recv_timeout(PATIENCE).expect("a handler runs");
    }

    fn release(&self) {
        self.is_released.store(true, Ordering::SeqCst);
    }
}

/// Serves the payments in one of the modes.
type Serve = fn(Poller<Conn>, Before) -> Poller<Conn>;

const MODES: [Serve; 3] = [
    |poller, before| {
        poller.serve::<Brief>(move |row: &Brief, message: &mut Message<'_, Conn>| {
            before();
            enter(row.id, row.amount_cents, message)
        })
    },
    |poller, before| {
        poller.serve::<BriefInGroup>(move |row: &BriefInGroup, message: &mut Message<'_, Conn>| {
            before();
            enter(row.id, row.amount_cents, message)
        })
    },
    |poller, before| {
        let call = move |_: &BriefCall, _: &Lease| -> Result<(), Failure> {
            before();
            Ok(())
        };
        poller.serve::<BriefCall>((call, |row: &BriefCall, (): &(), message: &mut Message<'_, Conn>| {
            enter(row.id, row.amount_cents, message)
        }))
    },
];

/// The same where a row waits for others.
const IN_TURN: [Serve; 2] = [
    |poller, before| {
        poller.serve::<BriefInTurn>(move |row: &BriefInTurn, message: &mut Message<'_, Conn>| {
            before();
            enter(row.id, row.amount_cents, message)
        })
    },
    |poller, before| {
        poller.serve::<BriefInLane>(move |row: &BriefInLane, message: &mut Message<'_, Conn>| {
            before();
            enter(row.id, row.amount_cents, message)
        })
    },
];

/// A poller that soon gives up a connection that says nothing.
fn poller(url: &str) -> Poller<Conn> {
    let mut settings = PollerSettings::default();
    settings.workers = 2;
    settings.poll_interval = Duration::from_millis(50);
    settings.lock_timeout = Duration::from_millis(500);
    settings.network_timeout = Duration::from_secs(1);
    Poller::new(url).settings(settings)
}

/// A poller that also reports, on a connection of its own.
fn reporting(bank: &Bank, poller: Poller<Conn>) -> Poller<Conn> {
    bank.connect().run_pending_migrations(Migrations::new().minutes()).unwrap();
    poller.minutes().gauges(Duration::from_secs(1))
}

/// Looks again and again until it is so.
fn await_so(what: &str, mut is_so: impl FnMut() -> bool) {
    let (_nobody, pace) = mpsc::channel::<()>();
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        let _ = pace.recv_timeout(Duration::from_millis(10));
    }
    panic!("still not: {what}");
}

fn await_booked(bank: &Bank, handle: &PollerHandle, ids: &[i64]) {
    let (mut booked, mut health) = (Vec::new(), None);
    let so = || {
        booked = bank.booked();
        health = Some(handle.health());
        booked == ids
    };
    let found = catch_unwind(AssertUnwindSafe(|| await_so("booked", so)));
    assert!(found.is_ok(), "{booked:?} instead of {ids:?}: {health:#?}");
}

/// Waits until no thread is without an answer. A handler may be: its own statements are its own affair, up to its timeout.
fn await_well(handle: &PollerHandle) {
    let mut health = None;
    let is_well = || {
        let found = health.insert(handle.health());
        found.stuck_workers = 0;
        found.is_well(Duration::from_secs(1))
    };
    let found = catch_unwind(AssertUnwindSafe(|| await_so("well again", is_well)));
    assert!(found.is_ok(), "{health:#?}");
}

#[test]
fn a_stop_is_heard_while_the_poller_waits_for_its_first_connection() {
    // The system accepts for it.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("{NAME}://nobody@{}/none", server.local_addr().unwrap());
    let poller: Poller<Conn> = Payment::poller(&url, book);
    let runtime = Builder::new_current_thread().build().unwrap();
    let shutdown = runtime.block_on(poller.run_until(ready(()))).unwrap();
    assert_eq!((shutdown.tally.succeeded, shutdown.rolled_back), (0, 0));
}

#[test]
fn work_goes_on_after_all_connections_of_an_idle_poller_have_fallen_silent() {
    for serve in MODES {
        let bank = Bank::new();
        let proxy = Proxy::before(&bank);
        let (sender, heard) = mpsc::channel();
        let poller = serve(reporting(&bank, poller(&proxy.url(&bank))), Arc::new(|| {}));
        let handle = poller.on_event(move |event| drop(sender.send(event.clone()))).start().unwrap();
        let mut ids = bank.enqueue(1..=3);
        await_booked(&bank, &handle, &ids);
        proxy.silence();
        // Soon, because the wait ends by itself. An idle poller asks too.
        await_so("the wait shows", || !handle.health().is_well(Duration::from_millis(300)));
        ids.extend(bank.enqueue(4..=8));
        await_booked(&bank, &handle, &ids);
        await_well(&handle);
        let lost = heard.try_iter().find_map(|event| match event {
            Event::ConnectionLost { error, .. } => Some(error),
            _ => None,
        });
        assert!(lost.as_ref().is_some_and(|error| error.contains("has not answered")), "{lost:?}");
        // Of a COMMIT that got no answer nobody tells.
        let _ = handle.shutdown(PATIENCE);
        assert_eq!(bank.booked(), ids);
    }
}

#[test]
fn a_pause_that_ends_while_the_network_says_nothing_has_ended_for_the_thread_that_reads_next() {
    keep_warnings();
    let bank = Bank::new();
    bank.connect().run_pending_migrations(Migrations::new().control()).unwrap();
    let proxy = Proxy::before(&bank);
    let handle = MODES[0](poller(&proxy.url(&bank)).control(), Arc::new(|| {})).start().unwrap();
    Brief::pause(&mut bank.connect(), Pause::new("until nothing is heard", "ops@example.org")).unwrap();
    await_warning(&["INFO", "paused", "until nothing is heard"]);
    proxy.silence();
    await_so("the wait shows", || !handle.health().is_well(Duration::from_millis(300)));
    Brief::unpause(&mut bank.connect()).unwrap();
    let ids = bank.enqueue(1..=3);
    await_booked(&bank, &handle, &ids);
    let _ = handle.shutdown(PATIENCE);
    assert_eq!(bank.booked(), ids);
}

#[test]
fn work_goes_on_after_all_connections_have_fallen_silent_in_the_middle_of_messages() {
    for serve in MODES {
        let bank = Bank::new();
        let proxy = Proxy::before(&bank);
        let (barrier, before) = Barrier::new();
        let handle = serve(poller(&proxy.url(&bank)), before).start().unwrap();
        let ids = bank.enqueue(1..=5);
        barrier.await_handler();
        proxy.silence();
        barrier.release();
        await_booked(&bank, &handle, &ids);
        await_well(&handle);
        let _ = handle.shutdown(PATIENCE);
        assert_eq!(bank.booked(), ids);
    }
}

#[test]
fn work_goes_on_after_a_reset_whose_new_connections_fall_silent_too() {
    for serve in MODES.into_iter().chain(IN_TURN) {
        // Where exactly the threads are when their connections fall silent, each client decides in its own way.
        for sends in times(&[3][..], &[3, 5, 8]) {
            let bank = Bank::new();
            let in_turn = Migrations::new().entity::<BriefInTurn>().entity::<BriefInLane>();
            bank.connect().run_pending_migrations(in_turn).unwrap();
            let proxy = Proxy::before(&bank);
            let (barrier, before) = Barrier::new();
            let handle = serve(poller(&proxy.url(&bank)), before).start().unwrap();
            let ids = bank.enqueue(1..=9);
            barrier.await_handler();
            proxy.silence_after(*sends);
            proxy.reset();
            barrier.release();
            await_so("the wait shows", || !handle.health().is_well(Duration::from_millis(300)));
            proxy.silence_after(0);
            await_booked(&bank, &handle, &ids);
            let _ = handle.shutdown(PATIENCE);
            assert_eq!(bank.booked(), ids);
        }
    }
}

#[test]
fn a_start_ends_although_its_connections_fall_silent() {
    let bank = Bank::new();
    let proxy = Proxy::before(&bank);
    for sends in [4, 20] {
        proxy.silence_after(sends);
        let (poller, (done, started)) = (MODES[2](poller(&proxy.url(&bank)), Arc::new(|| {})), mpsc::channel());
        thread::spawn(move || drop(done.send(poller.start())));
        let started = started.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("after {sends} sends it hangs"));
        match started {
            Ok(handle) => drop(handle.shutdown(Duration::ZERO)),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    proxy.silence_after(0);
    let ids = bank.enqueue(1..=3);
    let handle = MODES[2](poller(&proxy.url(&bank)), Arc::new(|| {})).start().unwrap();
    await_booked(&bank, &handle, &ids);
    let _ = handle.shutdown(PATIENCE);
}

#[test]
fn a_poller_that_is_stopped_while_it_starts_processes_nothing() {
    for opened in [1, 2, 3, 5] {
        let bank = Bank::new();
        bank.enqueue(1..=3);
        let proxy = Proxy::before(&bank);
        proxy.delay(Duration::from_millis(3));
        let (sender, heard) = mpsc::channel();
        let poller = MODES[0](poller(&proxy.url(&bank)), Arc::new(|| {}));
        let poller = poller.on_event(move |event| drop(sender.send(event.clone())));
        let links = proxy.links();
        let stop = async move {
            while links() < opened {
                tokio::task::yield_now().await;
            }
        };
        let runtime = Builder::new_current_thread().build().unwrap();
        let stopped = runtime.block_on(poller.run_until(stop)).unwrap();
        let booked = bank.booked().len();
        // It may have begun before the stop was ready, and ends as at any shutdown then.
        assert_eq!(u64::try_from(booked), Ok(stopped.tally.succeeded));
        // The listener is let go when nothing is left of the poller.
        while heard.recv_timeout(PATIENCE).is_ok() {}
        assert_eq!(bank.booked().len(), booked);
    }
}

#[test]
fn work_goes_on_after_a_server_has_only_accepted_connections_for_a_while() {
    let bank = Bank::new();
    let proxy = Proxy::before(&bank);
    let handle = MODES[0](poller(&proxy.url(&bank)), Arc::new(|| {})).start().unwrap();
    let mut ids = bank.enqueue(1..=3);
    await_booked(&bank, &handle, &ids);
    proxy.accept_only(true);
    proxy.silence();
    ids.extend(bank.enqueue(4..=8));
    let links = proxy.links();
    let before = links();
    await_so("several threads have tried to connect", || links() >= before + 3);
    assert!(!handle.health().is_well(Duration::from_secs(60)), "{:#?}", handle.health());
    proxy.accept_only(false);
    await_booked(&bank, &handle, &ids);
    await_well(&handle);
    let _ = handle.shutdown(PATIENCE);
    assert_eq!(bank.booked(), ids);
}

#[test]
fn a_lease_is_extended_although_the_connections_have_fallen_silent() {
    let bank = Bank::new();
    let proxy = Proxy::before(&bank);
    let (barrier, before) = Barrier::new();
    let handle = MODES[2](poller(&proxy.url(&bank)), before).start().unwrap();
    let ids = bank.enqueue([1]);
    barrier.await_handler();
    proxy.silence();
    let until = |id| -> DateTime<Utc> { bank.state(id).next_attempt_time.expect("the end of the lease") };
    let first = until(ids[0]);
    // After this much, no extension of before can hold it.
    await_so("extended", || until(ids[0]) > first + chrono::TimeDelta::seconds(20));
    assert_eq!(bank.state(ids[0]).try_count, 1);
    assert!(barrier.entered.try_recv().is_err(), "it was called once");
    // Its worker's connection is silent too, so another worker settles it, after another call.
    barrier.release();
    await_booked(&bank, &handle, &ids);
    let _ = handle.shutdown(PATIENCE);
}

#[test]
fn a_shutdown_ends_although_no_connection_says_anything() {
    let bank = Bank::new();
    let proxy = Proxy::before(&bank);
    let (barrier, before) = Barrier::new();
    let handle = MODES[0](reporting(&bank, poller(&proxy.url(&bank))), before).start().unwrap();
    let ids = bank.enqueue(1..=2);
    barrier.await_handler();
    proxy.accept_only(true);
    proxy.silence();
    let shutdown = handle.shutdown(Duration::ZERO);
    assert_eq!(shutdown.tally.succeeded, 0);
    barrier.release();
    assert!(bank.booked().is_empty());
    // Another process goes on when the server has ended the transactions.
    let other = MODES[0](poller(bank.database.url()), Arc::new(|| {})).start().unwrap();
    await_booked(&bank, &other, &ids);
    let _ = other.shutdown(PATIENCE);
}

#[test]
fn a_failed_connect_says_which_host_and_why_and_no_password() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("{NAME}://me:secret-word@{nobody}/none");
    let error = Payment::poller::<Conn>(&url, book).start().unwrap_err().to_string();
    assert!(error.contains("127.0.0.1") && !error.contains("secret-word"), "{error}");
    // What tokio-postgres says of a refused connection does not name the refusal.
    let why = ["refused", "Can't connect", "error connecting to server"];
    assert!(why.iter().any(|why| error.contains(why)), "{error}");
}

#[test]
fn many_calls_keep_their_leases_and_are_settled_although_the_server_is_far_away() {
    let bank = Bank::new();
    let ids = bank.enqueue(1..=300);
    let proxy = Proxy::before(&bank);
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let released = Arc::new(tokio::sync::Semaphore::new(0));
    let permits = released.clone();
    let calls = AsyncCalls::of(
        move |_: &FarCall, _: &Lease| {
            let permits = permits.clone();
            Box::pin(async move {
                permits.acquire().await?.forget();
                Ok(())
            })
        },
        |row: &FarCall, (): &(), message: &mut Message<'_, Conn>| enter(row.id, row.amount_cents, message),
    );
    let calls = calls.runtime(runtime.handle().clone()).in_flight(300);
    let handle = Poller::new(proxy.url(&bank)).serve::<FarCall>(calls).workers(2).start().unwrap();
    let leased = || -> Vec<DateTime<Utc>> {
        let leases = payments::table.filter(far_call_queue::status.eq(Status::InProgress));
        let ends: Vec<Option<DateTime<Utc>>> =
            leases.select(far_call_queue::next_attempt_time).load(&mut bank.connect()).unwrap();
        ends.into_iter().flatten().collect()
    };
    await_so("all calls run", || leased().len() == 300);
    // Twenty milliseconds there, and twenty back.
    proxy.delay(Duration::from_millis(20));
    let longest = leased().into_iter().max().unwrap();
    await_so("each lease is extended", || {
        leased().into_iter().all(|end| end > longest + chrono::TimeDelta::seconds(5))
    });
    // More than there are rows, so that a call that is repeated shows by its number of tries.
    released.add_permits(10_000);
    await_booked(&bank, &handle, &ids);
    let tries: Vec<i32> = payments::table.select(far_call_queue::try_count).load(&mut bank.connect()).unwrap();
    let tally = handle.shutdown(PATIENCE).tally;
    assert!(tries.iter().all(|tries| *tries == 1), "{tries:?}: {tally:?}");
}
