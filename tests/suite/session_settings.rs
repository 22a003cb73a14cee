//! The session is lent to the handler: whatever a handler sets, its own row is settled, and the next handler does not
//! see the change.

use std::sync::{Arc, Mutex};

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use queueable::{Failure, HandlerResult, Lease, Message, Outcome, Queueable, Status, Tally};

use crate::db::{self, Conn, Database};
use crate::suite::bank::{Bank, Payment, payments};
use crate::suite::group::{self, entity};
use crate::suite::lease::Charge;

entity!(Grouped, guest_queue, group = 50);
entity!(Optimistic, optimistic_guest_queue, group(50, optimistic));

/// What a handler does to its session after its work.
struct Guest {
    statements: Vec<String>,
    /// The settings that each run of a handler has seen, with the key of its row.
    found: Mutex<Vec<(i64, String)>>,
    /// Whether the handler fails after its statements.
    fails: bool,
    /// The key of the only row whose handler runs them.
    only_of: Option<i64>,
}

impl Guest {
    fn new(statements: Vec<String>) -> Arc<Self> {
        Arc::new(Guest { statements, found: Mutex::default(), fails: false, only_of: None })
    }

    fn handle(&self, id: i64, connection: &mut Conn) -> Result<Outcome, Failure> {
        // Each a text of its own: MySQL runs a prepared one in the database in which it was prepared.
        let settings = format!("{} /* of {id} */", db::settings());
        let found: String = diesel::select(sql::<Text>(&settings)).get_result(connection)?;
        self.found.lock().unwrap().push((id, found));
        connection.batch_execute(&format!("INSERT INTO ledger (payment_id, amount_cents) VALUES ({id}, 1)"))?;
        for statement in self.statements.iter().filter(|_| self.only_of.is_none_or(|only| only == id)) {
            connection.batch_execute(statement)?;
        }
        if self.fails { Err(Failure::fatal("it has set all it could")) } else { Ok(Outcome::Done) }
    }

    /// Checks that every run has seen the same settings as the first one.
    fn has_found_nothing(&self) {
        let found = self.found.lock().unwrap();
        assert!(found.iter().all(|(_, settings)| *settings == found[0].1), "{found:#?}");
    }

    /// Checks that the last run of each of these rows, whose effects stay, has seen the same settings as the first run.
    fn has_found_nothing_at_last(&self, ids: &[i64]) {
        let found = self.found.lock().unwrap();
        for id in ids {
            let last = found.iter().rfind(|(row, _)| row == id).map(|(_, settings)| settings);
            assert_eq!(last, Some(&found[0].1), "{id}: {found:#?}");
        }
    }
}

/// A bank whose payments exist twice. A changed setting may lead a worker to the second copy.
struct Trap {
    bank: Bank,
    elsewhere: Database,
}

impl Trap {
    fn new() -> Self {
        Trap { bank: Bank::new(), elsewhere: Database::new() }
    }

    fn enqueue(&self) -> Vec<i64> {
        let ids = self.bank.enqueue([1; 12]);
        self.bank.connect().batch_execute(&db::twin(&self.elsewhere)).unwrap();
        ids
    }

    /// Processes the queue in each mode, and compares its rows with their twins.
    fn holds(&self, ids: &[i64], tally: Tally) {
        assert_eq!(
            (tally.succeeded, tally.retried, tally.failed),
            (ids.len() as u64, 0, 0),
            "{:?}",
            self.bank.state(ids[0])
        );
        assert_eq!(self.bank.booked(), ids);
        assert!(ids.iter().all(|id| self.bank.state(*id).status == Status::Success));
        let twin = db::twin_table(&self.elsewhere);
        let written = sql::<BigInt>(&format!("SELECT count(*) FROM {twin} WHERE status <> 'NOT_ATTEMPTED'"));
        assert_eq!(written.get_result::<i64>(&mut self.bank.connect()), Ok(0));
    }
}

/// Runs a queue whose handlers run these statements, in every mode.
fn in_every_mode(statements: fn(&Database) -> Vec<String>) {
    for mode in ["transaction", "group", "optimistic group", "lease"] {
        let trap = Trap::new();
        let ids = trap.enqueue();
        let guest = Guest::new(statements(&trap.elsewhere));
        let at_work = guest.clone();
        let tally = match mode {
            "transaction" => trap.bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
                at_work.handle(payment.id, message.connection())
            }),
            "group" => group::run::<Grouped>(&trap.bank, move |row: &Grouped, message: &mut Message<'_, Conn>| {
                at_work.handle(row.payment().id, message.connection())
            }),
            "optimistic group" => {
                let handler = move |row: &Optimistic, message: &mut Message<'_, Conn>| {
                    at_work.handle(row.payment().id, message.connection())
                };
                group::run::<Optimistic>(&trap.bank, handler)
            }
            _ => {
                let apply = move |charge: &Charge, _: &(), message: &mut Message<'_, Conn>| -> HandlerResult {
                    at_work.handle(charge.id, message.connection())
                };
                let handler = (|_: &Charge, _: &Lease| Ok(()), apply);
                Charge::poller(trap.bank.pool(1), handler).workers(1).run_until_idle().unwrap()
            }
        };
        trap.holds(&ids, tally);
        // The group is undone for this reason, and each of its rows runs on its own.
        match mode.ends_with("group") {
            true => guest.has_found_nothing_at_last(&ids),
            false => guest.has_found_nothing(),
        }
    }
}

#[test]
fn what_a_handler_sets_for_its_transaction_ends_with_its_message() {
    in_every_mode(db::set_locally);
}

#[test]
fn what_a_handler_sets_for_the_session_ends_with_its_message() {
    in_every_mode(db::set_for_the_session);
}

#[test]
fn each_setting_alone_ends_with_its_message() {
    let number = db::set_for_the_session(&Database::new()).len();
    for at in 0..number {
        let trap = Trap::new();
        let ids = trap.enqueue();
        let guest = Guest::new(vec![db::set_for_the_session(&trap.elsewhere).swap_remove(at)]);
        let at_work = guest.clone();
        let handler =
            move |payment: &Payment, message: &mut Message<'_, Conn>| at_work.handle(payment.id, message.connection());
        trap.holds(&ids, trap.bank.run(handler));
        guest.has_found_nothing();
    }
}

#[test]
fn what_a_failed_handler_has_set_is_undone_too() {
    let trap = Trap::new();
    let ids = trap.enqueue();
    let mut guest = Guest::new(db::set_for_the_session(&trap.elsewhere));
    Arc::get_mut(&mut guest).unwrap().fails = true;
    let at_work = guest.clone();
    let tally = trap.bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
        at_work.handle(payment.id, message.connection())
    });
    assert_eq!((tally.failed, tally.succeeded), (ids.len() as u64, 0));
    guest.has_found_nothing();
    assert!(ids.iter().all(|id| trap.bank.state(*id).status == Status::Failed));
}

/// The worker's own statements are prepared by then. On PostgreSQL the handlers of the next moment may see some of the session's
/// settings.
#[test]
fn what_a_later_handler_sets_ends_with_its_message_too() {
    let all = [db::set_locally, db::set_for_the_session];
    for statements in &all[..if db::NAME == "postgres" { 1 } else { 2 }] {
        let number = statements(&Database::new()).len();
        for at in 0..number {
            let trap = Trap::new();
            let ids = trap.enqueue();
            let mut guest = Guest::new(vec![statements(&trap.elsewhere).swap_remove(at)]);
            Arc::get_mut(&mut guest).unwrap().only_of = Some(ids[4]);
            let at_work = guest.clone();
            let handler = move |payment: &Payment, message: &mut Message<'_, Conn>| {
                at_work.handle(payment.id, message.connection())
            };
            trap.holds(&ids, trap.bank.run(handler));
            guest.has_found_nothing();
        }
    }
}
