//! A hand on the queue while it runs: pauses in the control table, which pollers read once a second.

mod bad_input;
mod environment;
mod limits;
mod queue;
mod stages;
mod table;

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Lease, Message, Migrations, Outcome, Pause, Poller, Queueable, Status};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, companies, payment_queue, payments};
use crate::suite::lease::Charge;

/// How long a test waits for a message before it fails.
const PATIENCE: Duration = Duration::from_secs(60);

const BY: &str = "ops@example.org";

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = 10, retry = fixed("1h"), timeout = "30s")]
struct Grouped {
    id: i64,
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = companies)]
#[queue(timeout = "30s")]
struct Company {
    id: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Transaction,
    Group,
    Lease,
}

const MODES: [Mode; 3] = [Mode::Transaction, Mode::Group, Mode::Lease];

/// What is done when an attempt begins, and inside its transaction.
trait Work: Clone + Send + Sync + 'static {
    fn begin(&self, id: i64);

    fn write(&self, _id: i64, _connection: &mut Conn) {}
}

/// Notes the payments whose attempts begin.
#[derive(Clone, Default)]
struct Note(Arc<Mutex<Vec<i64>>>);

impl Work for Note {
    fn begin(&self, id: i64) {
        self.0.lock().unwrap().push(id);
    }
}

impl Note {
    fn begun(&self) -> Vec<i64> {
        let mut begun = self.0.lock().unwrap().clone();
        begun.sort_unstable();
        begun
    }
}

/// A bank with a control table, and a queue on its companies.
fn bank() -> Bank {
    let bank = Bank::new();
    let migrations = Migrations::new().entity::<Company>().control();
    bank.connect().run_pending_migrations(migrations).unwrap();
    bank
}

/// Serves the payments in one of the modes.
fn serve(bank: &Bank, mode: Mode, work: impl Work) -> Poller<Conn> {
    let poller = Poller::new(bank.pool(2)).control().workers(1);
    match mode {
        Mode::Transaction => poller
            .serve::<Payment>(move |payment: &Payment, message: &mut Message<'_, Conn>| {
                work.begin(payment.id);
                work.write(payment.id, message.connection());
                Ok(Outcome::Done)
            })
            .prefetch_at_once(),
        Mode::Group => poller.serve::<Grouped>(move |payment: &Grouped, message: &mut Message<'_, Conn>| {
            work.begin(payment.id);
            work.write(payment.id, message.connection());
            Ok(Outcome::Done)
        }),
        Mode::Lease => {
            // The next row may be called before the answer of this one is applied.
            let outside = Mutex::new(bank.connect());
            let call = move |payment: &Charge, _: &Lease| {
                work.begin(payment.id);
                work.write(payment.id, &mut outside.lock().unwrap());
                Ok(())
            };
            let apply = |_: &Charge, (): &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done);
            poller.serve::<Charge>((call, apply)).claim_batch(3)
        }
    }
}

fn pause(bank: &Bank, reason: &str) {
    Payment::pause(&mut bank.connect(), Pause::new(reason, BY)).unwrap();
}

/// Serves the companies too, and returns what tells of those that are handled.
fn with_companies(poller: Poller<Conn>) -> (Poller<Conn>, mpsc::Receiver<i64>) {
    let (sender, handled) = mpsc::channel();
    let handler = move |company: &Company, _: &mut Message<'_, Conn>| {
        sender.send(company.id)?;
        Ok(Outcome::Done)
    };
    (poller.serve::<Company>(handler), handled)
}

/// Waits until the poller has handled a company: it is at work, and has asked each of its entities.
fn await_company(bank: &Bank, handled: &mpsc::Receiver<i64>) {
    diesel::update(companies::table.find(1)).set(Company::due_now()).execute(&mut bank.connect()).unwrap();
    assert_eq!(handled.recv_timeout(PATIENCE), Ok(1));
}

/// Waits until this many payments are done.
fn await_successes(bank: &Bank, number: i64) {
    let done = payments::table.filter(payment_queue::status.eq(Status::Success)).count();
    await_true(|| done.get_result(&mut bank.connect()) == Ok(number));
}

fn await_true(is_it: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !is_it() {
        assert!(std::time::Instant::now() < deadline, "it never came true");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
