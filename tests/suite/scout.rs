//! The scout: what it watches while the workers are busy.

use std::sync::Mutex;
use std::sync::mpsc;
use std::time::Duration;

use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Message, Migrations, Outcome, Poller, QueueState, Queueable, Status};

use crate::db::Conn;
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
    // Nobody ever sends: each handler waits for its own time.
    let (_never, wait) = mpsc::channel::<()>();
    let wait = std::sync::Arc::new(Mutex::new(wait));
    let takes = move |time| {
        let wait = wait.clone();
        move || {
            let _ = wait.lock().unwrap().recv_timeout(time);
            Ok(Outcome::Done)
        }
    };
    let (patient, hurried) = (takes(Duration::from_secs(1)), takes(Duration::from_secs(5)));
    // While the only worker processes the company, the scout finds the payment and goes to sleep. So the payment's
    // attempt begins while the scout sleeps.
    Poller::new(bank.pool(1))
        .serve::<Company>(move |_: &Company, _: &mut Message<'_, Conn>| patient())
        .serve::<Hurried>(move |_: &Hurried, _: &mut Message<'_, Conn>| hurried())
        .workers(1)
        .poll_interval(Duration::from_secs(600))
        .run_until_idle()
        .unwrap();
    let state: QueueState = bank.state(id);
    assert_eq!((state.status, state.try_count), (Status::Error, 1), "{state:?}");
    assert!(state.last_attempt_error_message.unwrap().contains("longer than its timeout of 50ms"));
}
