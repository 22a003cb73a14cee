//! A handler that commits by itself, and the other workers of its process meanwhile. On SQLite they wait for it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use diesel::connection::SimpleConnection;
use queueable::{Message, Outcome, Queueable, Status};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment};

/// How long a test waits before it reports that something did not happen.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn while_a_handler_that_has_committed_goes_on_no_other_worker_of_the_process_takes_its_row() {
    let bank = Bank::new();
    let ids = bank.enqueue([13, 1, 1]);
    let (runs, (tell, told), (open, gate)) = (AtomicU32::new(0), mpsc::channel(), mpsc::channel::<()>());
    let (runs, gate) = (Arc::new(runs), Mutex::new(gate));
    let counted = runs.clone();
    let handler = move |payment: &Payment, message: &mut Message<'_, Conn>| {
        if payment.amount_cents == 13 {
            message.connection().batch_execute("COMMIT")?;
            // Only the first run waits. A second one must not happen.
            if counted.fetch_add(1, Ordering::SeqCst) == 0 {
                tell.send(())?;
                let _ = gate.lock().unwrap().recv();
            }
        }
        Ok(Outcome::Done)
    };
    let handle = Payment::poller(bank.pool(3), handler).workers(3).start().unwrap();
    told.recv_timeout(PATIENCE).unwrap();
    // A worker that claims one of these has seen the first row, which is due longer and not locked.
    let more = bank.enqueue([1; 20]);
    handle.wake();
    for id in ids[1..].iter().chain(&more) {
        while bank.state(*id).status != Status::Success {
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    drop(open);
    let tally = handle.shutdown(PATIENCE).tally;
    assert_eq!(runs.load(Ordering::SeqCst), 1, "{tally:?}");
    assert_eq!((tally.succeeded, bank.state(ids[0]).try_count), (22, 1), "{tally:?}");
}
