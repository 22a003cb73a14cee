//! Several queues in one poller: the slow calls of one leave workers to the others.

use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Error, HandlerResult, Lease, Message, Migrations, Outcome, Poller, Queueable};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, companies};

const PATIENCE: Duration = Duration::from_secs(60);

/// A company whose books are audited by a slow call.
#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = companies)]
#[queue(module = audit_queue, lease = "60s")]
#[expect(dead_code, reason = "nobody looks into the books")]
struct Audit {
    id: i64,
}

/// A gate at which calls wait.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opens: Condvar,
}

impl Gate {
    fn pass(&self) {
        let _open = self.opens.wait_while(self.is_open.lock().unwrap(), |is_open| !*is_open).unwrap();
    }

    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opens.notify_all();
    }
}

/// Four workers, 12 audits whose calls do not end, and then 50 payments. This many calls begin, and no more until all
/// payments are processed.
fn payments_are_worked_beside_calls(share: fn(Poller<Conn>) -> Poller<Conn>, calls: usize) {
    let bank = Bank::new();
    bank.connect().run_pending_migrations(Migrations::new().entity::<Audit>()).unwrap();
    let audits: Vec<_> = (100..112).map(|id| (companies::id.eq(id), Audit::due_now())).collect();
    diesel::insert_into(companies::table).values(audits).execute(&mut bank.connect()).unwrap();
    let gate = Arc::new(Gate::default());
    let (begin, begun) = mpsc::channel();
    let (work, worked) = mpsc::channel();
    let (audit, audited) = mpsc::channel();
    let (begin, work, audit) = (Mutex::new(begin), Mutex::new(work), Mutex::new(audit));
    let at_the_gate = gate.clone();
    let call = move |_: &Audit, _: &Lease| {
        begin.lock().unwrap().send(()).unwrap();
        at_the_gate.pass();
        Ok(())
    };
    let apply = move |_: &Audit, (): &(), _: &mut Message<'_, Conn>| -> HandlerResult {
        audit.lock().unwrap().send(()).unwrap();
        Ok(Outcome::Done)
    };
    let charge = move |_: &Payment, _: &mut Message<'_, Conn>| -> HandlerResult {
        work.lock().unwrap().send(()).unwrap();
        Ok(Outcome::Done)
    };
    let poller = Poller::new(bank.pool(5)).serve::<Audit>((call, apply)).serve::<Payment>(charge).workers(4);
    let handle = share(poller).start().unwrap();
    (0..calls).for_each(|_| begun.recv_timeout(PATIENCE).unwrap());
    bank.enqueue([1; 50]);
    (0..50).for_each(|_| worked.recv_timeout(PATIENCE).unwrap());
    assert_eq!(begun.try_recv(), Err(mpsc::TryRecvError::Empty), "one call more than {calls}");
    gate.open();
    (0..12).for_each(|_| audited.recv_timeout(PATIENCE).unwrap());
    assert_eq!(handle.shutdown(PATIENCE).tally.succeeded, 62);
}

#[test]
fn slow_calls_leave_a_worker_to_the_other_queue() {
    payments_are_worked_beside_calls(|poller| poller, 3);
}

#[test]
fn an_entity_has_as_many_workers_as_it_is_given() {
    payments_are_worked_beside_calls(|poller| poller.workers_for::<Audit>(1), 1);
}

#[test]
fn a_share_of_nothing_or_of_an_entity_that_is_not_served_is_refused() {
    let bank = Bank::new();
    let poller = || bank.poller(|_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done));
    for (poller, text) in
        [(poller().workers_for::<Payment>(0), "0 of Payment"), (poller().workers_for::<Audit>(1), "those of Audit")]
    {
        let refused = poller.start().unwrap_err();
        assert!(matches!(refused, Error::Setting { .. }) && refused.to_string().contains(text), "{refused}");
    }
}
