//! A row is announced while another one is locked. Not on SQLite, which locks the whole file.

use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use diesel::connection::{Instrumentation, InstrumentationEvent};
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Pool};
use queueable::{Message, Outcome, Queueable};

use crate::db::Conn;
use crate::suite::bank::{Bank, NewPayment, Payment, payments};

const PATIENCE: Duration = Duration::from_secs(30);

/// A connection that begins a worker's transaction slowly.
#[derive(Debug)]
struct Slow;

impl CustomizeConnection<Conn, diesel::r2d2::Error> for Slow {
    fn on_acquire(&self, connection: &mut Conn) -> Result<(), diesel::r2d2::Error> {
        let (_never, wait) = mpsc::channel::<()>();
        std::mem::forget(_never);
        connection.set_instrumentation(SlowToBegin(Mutex::new(wait)));
        Ok(())
    }
}

struct SlowToBegin(Mutex<Receiver<()>>);

impl Instrumentation for SlowToBegin {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        if matches!(event, InstrumentationEvent::BeginTransaction { .. }) {
            let _ = self.0.lock().unwrap().recv_timeout(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_row_enqueued_while_another_is_handled_is_noticed_long_before_the_poll_interval() {
    let bank = Bank::new();
    let pool = Pool::builder()
        .max_size(4)
        .connection_customizer(Box::new(Slow))
        .build(ConnectionManager::<Conn>::new(bank.database.url()))
        .unwrap();
    let (handled, wait) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (handled, released) = (Mutex::new(handled), Mutex::new(released));
    let handle = Payment::poller(pool, move |payment: &Payment, _: &mut Message<'_, Conn>| {
        handled.lock().unwrap().send(payment.amount_cents)?;
        if payment.amount_cents == 1 {
            let _ = released.lock().unwrap().recv_timeout(PATIENCE);
        }
        Ok(Outcome::Done)
    })
    .workers(3)
    .poll_interval(Duration::from_secs(600))
    .start()
    .unwrap();
    bank.enqueue([1]);
    assert_eq!(wait.recv_timeout(PATIENCE), Ok(1));
    // Meanwhile the scout finds that the due row is locked.
    assert_eq!(wait.recv_timeout(Duration::from_millis(500)), Err(RecvTimeoutError::Timeout));
    let mut application = bank.connect();
    let announced = Instant::now();
    application
        .transaction(|connection| {
            let row = (NewPayment { company_id: 1, amount_cents: 2 }, Payment::due_now());
            diesel::insert_into(payments::table).values(row).execute(connection)?;
            // The scout has probed several times since the announcement when the row becomes visible.
            assert_eq!(wait.recv_timeout(Duration::from_millis(100)), Err(RecvTimeoutError::Timeout));
            QueryResult::Ok(())
        })
        .unwrap();
    if announced.elapsed() > Duration::from_secs(1) {
        // The machine has paused for longer than the scout waits for an announced row, so the test announces it again.
        let row = diesel::update(payments::table.filter(payments::amount_cents.eq(2)));
        row.set(Payment::due_now()).execute(&mut application).unwrap();
    }
    assert_eq!(wait.recv_timeout(PATIENCE - Duration::from_secs(5)), Ok(2), "the poller slept through an enqueue");
    drop(release);
    handle.shutdown(PATIENCE);
}
