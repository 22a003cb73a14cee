//! Shutdown while a worker is between two handlers: it is claiming, and has not got its row yet.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use diesel::connection::{Instrumentation, InstrumentationEvent};
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Pool};
use queueable::{PollerHandle, Queueable, Status};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, book};

const PATIENCE: Duration = Duration::from_secs(60);

/// Stops the first transaction that a worker begins.
#[derive(Debug)]
struct Gate {
    shut: AtomicBool,
    begun: Mutex<Sender<()>>,
    opened: Mutex<Receiver<()>>,
    scout_left: Mutex<Sender<()>>,
}

/// A poller whose worker waits at the gate.
struct Claiming {
    handle: PollerHandle,
    gate: Arc<Gate>,
    open: Sender<()>,
    scout_left: Receiver<()>,
}

impl Claiming {
    fn start(bank: &Bank) -> Self {
        let (begun, has_begun) = mpsc::channel();
        let (open, opened) = mpsc::channel();
        let (leaving, scout_left) = mpsc::channel();
        let gate = Arc::new(Gate {
            shut: AtomicBool::new(true),
            begun: Mutex::new(begun),
            opened: Mutex::new(opened),
            scout_left: Mutex::new(leaving),
        });
        let pool = Pool::builder()
            .max_size(3)
            .connection_customizer(Box::new(Gated(gate.clone())))
            .build(ConnectionManager::<Conn>::new(bank.database.url()))
            .unwrap();
        let handle = Payment::poller(pool, book).workers(1).start().unwrap();
        has_begun.recv_timeout(PATIENCE).unwrap();
        Claiming { handle, gate, open, scout_left }
    }
}

#[derive(Debug)]
struct Gated(Arc<Gate>);

impl CustomizeConnection<Conn, diesel::r2d2::Error> for Gated {
    fn on_acquire(&self, connection: &mut Conn) -> Result<(), diesel::r2d2::Error> {
        connection.set_instrumentation(AtTheGate(self.0.clone()));
        Ok(())
    }

    fn on_release(&self, _: Conn) {
        if std::thread::current().name() == Some("queueable-scout") {
            let _ = self.0.scout_left.lock().unwrap().send(());
        }
    }
}

struct AtTheGate(Arc<Gate>);

impl Instrumentation for AtTheGate {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        let begins = matches!(event, InstrumentationEvent::BeginTransaction { .. });
        if begins && std::thread::current().name() == Some("queueable-0") && self.0.shut.load(Ordering::Acquire) {
            let _ = self.0.begun.lock().unwrap().send(());
            let _ = self.0.opened.lock().unwrap().recv_timeout(PATIENCE);
            self.0.shut.store(false, Ordering::Release);
        }
    }
}

#[test]
fn a_row_that_is_claimed_after_the_shutdown_began_is_not_handled() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    let Claiming { handle, open, scout_left, .. } = Claiming::start(&bank);
    let stopping = std::thread::spawn(move || handle.shutdown(PATIENCE));
    // The scout leaves when it sees that the poller stops.
    scout_left.recv_timeout(PATIENCE).unwrap();
    drop(open);
    let shutdown = stopping.join().unwrap();
    assert_eq!((shutdown.tally.succeeded, shutdown.rolled_back), (0, 0));
    assert_eq!((bank.state(id).status, bank.state(id).try_count), (Status::NotAttempted, 0));
    assert_eq!(bank.run(book).succeeded, 1);
    assert_eq!(bank.booked(), [id]);
}

#[test]
fn a_database_that_does_not_answer_holds_up_no_shutdown_past_its_grace() {
    let bank = Bank::new();
    bank.enqueue([1]);
    let Claiming { handle, gate, open, .. } = Claiming::start(&bank);
    handle.shutdown(Duration::ZERO);
    assert!(gate.shut.load(Ordering::Acquire), "the shutdown waited for the database's answer");
    drop(open);
}
