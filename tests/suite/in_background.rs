//! A poller in an asynchronous application: tasks wait for it, and never block the thread that runs them all.

use std::future::{pending, ready};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use diesel::prelude::*;
use queueable::{Error, Event, HandlerResult, Message, Outcome, Poller, Queueable, Status};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;

use crate::db::Conn;
use crate::suite::bank::{Bank, NewPayment, Payment, book, payment_queue, payments};
use crate::suite::warnings::{await_warning, keep_warnings};

/// Longer than any of these tests takes, except one that fails.
const GRACE: Duration = Duration::from_secs(60);

/// How long a start may wait for a lock that the test itself holds.
const SOON: Duration = Duration::from_millis(100);

/// One thread for all tasks: what blocks it blocks the test.
fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

/// Tells what has begun, and books when it is told to.
fn booking(bank: &Bank) -> (Poller<Conn>, UnboundedReceiver<i64>, mpsc::Sender<()>) {
    let ((begin, begun), (go_on, is_told)) = (unbounded_channel(), mpsc::channel());
    let is_told = Mutex::new(is_told);
    let handler = move |payment: &Payment, message: &mut Message<'_, Conn>| {
        begin.send(payment.id)?;
        is_told.lock().unwrap().recv()?;
        book(payment, message)
    };
    (Payment::poller(bank.pool(1), handler).workers(1), begun, go_on)
}

/// Lets the poller say that it has stopped.
fn with_end(poller: Poller<Conn>) -> (Poller<Conn>, UnboundedReceiver<()>) {
    let (end, ended) = unbounded_channel();
    let poller = poller.on_event(move |event| {
        if let Event::PollerStopped { .. } = event {
            let _ = end.send(());
        }
    });
    (poller, ended)
}

fn successes(bank: &Bank) -> i64 {
    payments::table.filter(payment_queue::status.eq(Status::Success)).count().get_result(&mut bank.connect()).unwrap()
}

#[test]
fn a_shutdown_waits_for_a_handler_that_waits_for_another_task() {
    let bank = Bank::new();
    bank.enqueue([5]);
    runtime().block_on(async {
        let (poller, mut begun, go_on) = booking(&bank);
        let poller = poller.start_async().await.unwrap();
        begun.recv().await.unwrap();
        let shutdown = tokio::spawn(poller.shutdown_async(GRACE));
        // The shutdown begins, and this task goes on.
        tokio::task::yield_now().await;
        go_on.send(()).unwrap();
        let shutdown = shutdown.await.unwrap();
        assert_eq!((shutdown.tally.succeeded, shutdown.rolled_back), (1, 0));
    });
    assert_eq!(bank.booked().len(), 1);
}

#[test]
fn a_poller_runs_until_a_future_is_ready() {
    let bank = Bank::new();
    bank.enqueue(1..=5);
    runtime().block_on(async {
        let (poller, mut begun, go_on) = booking(&bank);
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(poller.shutdown_grace(GRACE).run_until(async {
            let _ = stopped.await;
        }));
        for _ in 0..5 {
            begun.recv().await.unwrap();
            go_on.send(()).unwrap();
        }
        stop.send(()).unwrap();
        let shutdown = running.await.unwrap().unwrap();
        assert_eq!((shutdown.tally.succeeded, shutdown.rolled_back), (5, 0));
    });
}

#[test]
fn a_poller_that_is_stopped_while_its_last_worker_connects_tells_what_the_others_have_done() {
    let bank = Bank::new();
    bank.enqueue(1..=3);
    let (url, (_answer, answers)) = (bank.database.url().to_owned(), mpsc::channel::<()>());
    let answers = Mutex::new(answers);
    let connect = move || {
        if thread::current().name() == Some("queueable-1") {
            let _ = answers.lock().unwrap().recv();
        }
        Conn::establish(&url)
    };
    let (tell, mut told) = unbounded_channel();
    let poller = Poller::with_own_connections(connect).workers(2).shutdown_grace(SOON).serve::<Payment>(book);
    let poller = poller.on_event(move |event| {
        if let Event::Succeeded(_) = event {
            let _ = tell.send(());
        }
    });
    let stop = async {
        for _ in 0..3 {
            told.recv().await.unwrap();
        }
    };
    let shutdown = runtime().block_on(poller.run_until(stop)).unwrap();
    assert_eq!((shutdown.tally.succeeded, shutdown.rolled_back), (3, 0));
}

#[test]
fn a_poller_whose_future_is_dropped_stops() {
    let bank = Bank::new();
    bank.enqueue(1..=2);
    runtime().block_on(async {
        let (poller, mut begun, go_on) = booking(&bank);
        let (poller, mut ended) = with_end(poller.shutdown_grace(GRACE));
        tokio::select! {
            _ = poller.run_until(pending()) => unreachable!("nothing stops it"),
            id = begun.recv() => assert!(id.is_some()),
        }
        // Nobody waits for the poller, which waits for its handler.
        assert!(ended.try_recv().is_err());
        go_on.send(()).unwrap();
        // A second payment may have begun before the poller knew.
        drop(go_on);
        ended.recv().await.unwrap();
    });
    assert_eq!(successes(&bank), 1);
}

#[test]
fn a_poller_whose_start_is_dropped_stops() {
    let bank = Bank::new();
    let (poller, mut ended) = with_end(Payment::poller(bank.pool(1), book).workers(1));
    runtime().block_on(async {
        tokio::select! {
            biased;
            // Polled once, so that it begins.
            started = poller.start_async() => drop(started.unwrap()),
            () = ready(()) => (),
        }
        ended.recv().await.unwrap();
    });
}

#[test]
fn a_handle_that_a_task_drops_keeps_no_other_task_waiting() {
    let bank = Bank::new();
    bank.enqueue([5]);
    runtime().block_on(async {
        let (poller, mut begun, go_on) = booking(&bank);
        let (poller, mut ended) = with_end(poller.shutdown_grace(GRACE));
        let handle = poller.start_async().await.unwrap();
        begun.recv().await.unwrap();
        // The handler waits for what this task does next.
        drop(handle);
        go_on.send(()).unwrap();
        ended.recv().await.unwrap();
    });
    assert_eq!(bank.booked().len(), 1);
}

/// Books, and enqueues the next payment: without an end.
fn book_and_enqueue(payment: &Payment, message: &mut Message<'_, Conn>) -> HandlerResult {
    let next = NewPayment { company_id: 1, amount_cents: 1 };
    diesel::insert_into(payments::table).values((next, Payment::due_now())).execute(message.connection())?;
    book(payment, message)
}

#[test]
fn a_run_until_nothing_is_due_ends_by_itself_or_when_its_future_is_dropped() {
    let bank = Bank::new();
    bank.enqueue(1..=5);
    runtime().block_on(async {
        let tally = Payment::poller(bank.pool(2), book).workers(2).run_until_idle_async().await.unwrap();
        assert_eq!(tally.succeeded, 5);
    });
    bank.enqueue([1]);
    runtime().block_on(async {
        let (begin, mut begun) = unbounded_channel();
        let handler = move |payment: &Payment, message: &mut Message<'_, Conn>| {
            let _ = begin.send(());
            book_and_enqueue(payment, message)
        };
        let (poller, mut ended) = with_end(Payment::poller(bank.pool(1), handler).workers(1));
        tokio::select! {
            _ = poller.run_until_idle_async() => unreachable!("something is always due"),
            begun = begun.recv() => assert!(begun.is_some()),
        }
        ended.recv().await.unwrap();
    });
    assert_eq!(Payment::queue().due().count(&mut bank.connect()).unwrap(), 1);
}

#[test]
fn what_keeps_a_poller_from_starting_is_an_error_of_the_future() {
    let bank = Bank::new();
    let refused = |started: Result<_, Error>| matches!(started, Err(Error::Setting { setting: "workers", .. }));
    let poller = || Payment::poller(bank.pool(1), book).workers(0);
    keep_warnings();
    runtime().block_on(async {
        assert!(refused(poller().start_async().await.map(drop)));
        assert!(refused(poller().run_until(pending()).await.map(drop)));
        assert!(refused(poller().run_until_idle_async().await.map(drop)));
    });
    // Of a task that was spawned, often nobody asks for the error.
    await_warning(&["ERROR", "the poller does not start: workers is 0"]);
}

#[test]
fn a_handler_cannot_wait_for_its_own_queue_on_another_thread() {
    let bank = Bank::new();
    bank.enqueue([5]);
    let pool = bank.pool(1);
    let (tell, told) = mpsc::channel();
    let handler = move |_: &Payment, _: &mut Message<'_, Conn>| {
        let waiting = Payment::poller(pool.clone(), book).workers(1).lock_timeout(SOON).run_until_idle_async();
        tell.send(runtime().block_on(waiting).map_err(|error| error.to_string()))?;
        Ok(Outcome::Done)
    };
    assert_eq!(bank.run(handler).succeeded, 1);
    let refused = told.recv().unwrap().unwrap_err();
    assert!(refused.starts_with("run_until_idle is called for Payment inside a handler"), "{refused}");
}
