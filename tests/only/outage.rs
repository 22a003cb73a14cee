//! A server that goes away and comes back.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel::r2d2::ConnectionManager;
use queueable::{Event, Group, Handler, HandlerResult, Message, Outcome, Poller, Queueable, Status};

use crate::db::{Conn, Database, PrivateServer};
use crate::suite::bank::{Bank, Payment, book, payment_queue, payments};
use crate::suite::events::{await_event, listener};
use crate::suite::group::entity;
use crate::suite::health::await_health;

const PATIENCE: Duration = Duration::from_secs(60);

entity!(Together, together_queue, group = 16);

#[test]
fn workers_survive_the_servers_kill_and_every_row_is_handled_once() {
    survive_the_servers_kill(|bank| Poller::new(bank.pool(4)));
}

#[test]
fn workers_on_connections_of_their_own_survive_the_servers_kill() {
    survive_the_servers_kill(|bank| Poller::with_own_connections(ConnectionManager::new(bank.database.url())));
}

fn survive_the_servers_kill(poller: fn(&Bank) -> Poller<Conn>) {
    let server = PrivateServer::start();
    let bank = Bank::in_database(Database::on(&server));
    let ids = bank.enqueue(1..=300);
    let (handled, wait) = mpsc::channel();
    let handled = Mutex::new(handled);
    let handler = move |payment: &Payment, message: &mut Message<'_, Conn>| {
        let _ = handled.lock().unwrap().send(payment.id);
        book(payment, message)
    };
    let handle = poller(&bank).serve::<Payment>(handler).workers(4).start().unwrap();
    for _ in 0..50 {
        wait.recv_timeout(PATIENCE).unwrap();
    }
    server.kill();
    server.restart();
    let mut connection = bank.connect();
    let deadline = Instant::now() + PATIENCE;
    while pending(&mut connection) > 0 {
        assert!(Instant::now() < deadline, "the workers did not come back");
        // A handler runs a moment before its message is committed, so the last handler is not the end.
        let _ = wait.recv_timeout(Duration::from_millis(100));
    }
    let shutdown = handle.shutdown(PATIENCE);
    assert_eq!(shutdown.rolled_back, 0);
    assert_eq!(bank.booked(), ids);
    assert_eq!(bank.balance(1), (1..=300).sum::<i64>());
    let tried_once = payments::table
        .filter(payment_queue::status.eq(Status::Success).and(payment_queue::try_count.eq(1)))
        .count()
        .get_result::<i64>(&mut connection);
    assert_eq!(tried_once, Ok(300), "an outage uses no try");
}

#[test]
fn an_outage_is_told_and_shows_in_the_health_and_so_does_its_end() {
    let server = PrivateServer::start();
    let bank = Bank::in_database(Database::on(&server));
    let (listener, heard) = listener();
    let mut settings = queueable::PollerSettings::default();
    (settings.workers, settings.pool_timeout) = (2, Duration::from_millis(100));
    settings.poll_interval = Duration::from_millis(100);
    let handle = Payment::poller(bank.pool(2), book).settings(settings).on_event(listener).start().unwrap();
    await_health(&handle, |health| health.is_well(PATIENCE));
    server.kill();
    let lost = await_event(&heard, |event| matches!(event, Event::ConnectionLost { .. }));
    assert!(!format!("{lost:?}").contains("password="), "{lost:?}");
    // The poller lives on, and nobody gets an old answer for a new one.
    let health = await_health(&handle, |health| health.threads_without_connection > 0);
    assert!(health.alive && !health.is_well(PATIENCE), "{health:#?}");
    await_health(&handle, |health| health.last_probe > Some(Duration::from_millis(500)));
    server.restart();
    await_event(&heard, |event| matches!(event, Event::ConnectionRegained { .. }));
    await_health(&handle, |health| health.is_well(PATIENCE));
    let id = bank.enqueue([1])[0];
    let told = await_event(&heard, |event| matches!(event, Event::Succeeded(_)));
    assert_eq!(*told.attempt().unwrap().key, id.to_string());
    handle.shutdown(PATIENCE);
}

/// Kills the server in the middle of its first group of sixteen.
struct Killer {
    server: Arc<PrivateServer>,
    killed: Mutex<Option<Sender<()>>>,
}

impl Handler<Together, Conn> for Killer {
    fn handle(&self, together: &Together, message: &mut Message<'_, Conn>) -> HandlerResult {
        book(&together.payment(), message)
    }

    fn handle_group(&self, together: &[Together], _: &mut Group<'_, Conn>) -> Option<Vec<HandlerResult>> {
        if together.len() == 16
            && let Some(killed) = self.killed.lock().unwrap().take()
        {
            self.server.kill();
            killed.send(()).unwrap();
            return Some(together.iter().map(|_| Ok(Outcome::Done)).collect());
        }
        None
    }
}

#[test]
fn a_server_that_is_away_after_its_kill_in_a_group_costs_no_try_and_nobody_is_in_doubt() {
    let server = Arc::new(PrivateServer::start());
    let bank = Bank::in_database(Database::on(&server));
    let ids = bank.enqueue(1..=31);
    let (kill, killed) = mpsc::channel();
    let handler = Killer { server: server.clone(), killed: Mutex::new(Some(kill)) };
    let mut settings = queueable::PollerSettings::default();
    (settings.workers, settings.pool_timeout) = (1, Duration::from_millis(100));
    let handle = Together::poller(bank.pool(1), handler).settings(settings).start().unwrap();
    killed.recv_timeout(PATIENCE).unwrap();
    // Long enough for the worker to stop asking for the outcome.
    let (_nobody, pace) = mpsc::channel::<()>();
    let _ = pace.recv_timeout(Duration::from_secs(1));
    server.restart();
    let mut connection = bank.connect();
    let deadline = Instant::now() + PATIENCE;
    while pending(&mut connection) > 0 {
        assert!(Instant::now() < deadline, "the workers did not come back");
        let _ = pace.recv_timeout(Duration::from_millis(100));
    }
    handle.shutdown(PATIENCE);
    for id in &ids {
        let state = bank.state(*id);
        assert_eq!((state.status, state.try_count), (Status::Success, 1), "{state:?}");
    }
    assert_eq!(bank.booked(), ids);
}

fn pending(connection: &mut Conn) -> i64 {
    payments::table.filter(payment_queue::next_attempt_time.is_not_null()).count().get_result(connection).unwrap()
}
