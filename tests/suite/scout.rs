//! The scout: what it watches while the workers are busy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Message, Migrations, Outcome, Poller, QueueState, Queueable, Status};

use crate::db::{Conn, NAME};
use crate::suite::bank::{Bank, Payment, companies, payments};

#[test]
fn a_timeout_is_kept_although_the_poll_interval_is_longer() {
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = companies)]
    #[queue(timeout = "1m")]
    #[expect(dead_code, reason = "it only takes time")]
    struct Company {
        id: i64,
    }

    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(module = hurried_queue, timeout = "50ms", retry = fixed("1h"))]
    #[expect(dead_code, reason = "it only takes time")]
    struct Hurried {
        id: i64,
    }

    let bank = Bank::new();
    bank.connect().run_pending_migrations(Migrations::new().entity::<Payment>().entity::<Company>()).unwrap();
    diesel::update(companies::table.find(1)).set(Company::due_now()).execute(&mut bank.connect()).unwrap();
    let id = bank.enqueue([1])[0];
    let (other, noted) = (Mutex::new(bank.connect()), Arc::new(AtomicBool::new(false)));
    let has_failed = move || {
        let state = payments::table.find(id).select(Hurried::queue_state());
        state.get_result::<QueueState>(&mut *other.lock().unwrap()).unwrap().status == Status::Error
    };
    let (_never, wait) = mpsc::channel::<()>();
    let (wait, notes) = (Arc::new(Mutex::new(wait)), noted.clone());
    let (patient, pace) = (wait.clone(), wait);
    // While the only worker processes the company, the scout finds the payment and goes to sleep. So the payment's
    // attempt begins while the scout sleeps.
    Poller::new(bank.pool(1))
        .serve::<Company>(move |_: &Company, _: &mut Message<'_, Conn>| {
            let _ = patient.lock().unwrap().recv_timeout(Duration::from_secs(1));
            Ok(Outcome::Done)
        })
        .serve::<Hurried>(move |_: &Hurried, _: &mut Message<'_, Conn>| {
            let begun = Instant::now();
            // On SQLite the failure is recorded when the handler has returned.
            let most = Duration::from_secs(if NAME == "sqlite" { 1 } else { 60 });
            while !has_failed() && begun.elapsed() < most {
                let _ = pace.lock().unwrap().recv_timeout(Duration::from_millis(20));
            }
            notes.store(has_failed(), Ordering::SeqCst);
            Ok(Outcome::Done)
        })
        .workers(1)
        .poll_interval(Duration::from_secs(600))
        .run_until_idle()
        .unwrap();
    assert_eq!(noted.load(Ordering::SeqCst), NAME != "sqlite", "the failure is recorded while the handler runs");
    let state: QueueState = bank.state(id);
    assert_eq!((state.status, state.try_count), (Status::Error, 1), "{state:?}");
    assert!(state.last_attempt_error_message.unwrap().contains("longer than its timeout of 50ms"));
}
