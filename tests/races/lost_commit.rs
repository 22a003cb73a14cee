//! A COMMIT whose answer is lost while others process the row: each success is counted once, for the one who had it.
//! SQLite has no sessions that could be lost.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chrono::{TimeDelta, Utc};
use diesel::prelude::*;
use fail::FailScenario;
use queue_core::internals::backend::SessionSetup;
use queueable::{CrashAccounting, HandlerResult, Message, Outcome, Queueable, Status, Tally};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, book, payment_queue, payments};

const PATIENCE: Duration = Duration::from_secs(60);

/// Payments in groups.
#[derive(Debug, Clone, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = grouped_queue, retry = fixed("1h"), max_tries = 3, group = 4)]
struct Grouped {
    id: i64,
}

/// The session that is ended at the next COMMIT.
#[derive(Clone, Default)]
struct Victim(Arc<Mutex<Option<i64>>>);

impl Victim {
    /// Makes a session the victim.
    fn is(&self, connection: &mut Conn) {
        *self.0.lock().unwrap() = connection.session_id().unwrap();
    }

    /// Ends the victim's session, if there is one. Returns whether there was.
    fn is_ended(&self, connection: &mut Conn) -> bool {
        let Some(session) = self.0.lock().unwrap().take() else { return false };
        connection.end_session(session).unwrap();
        true
    }
}

fn await_success(bank: &Bank, id: i64) {
    let deadline = Instant::now() + PATIENCE;
    while bank.state(id).status != Status::Success {
        assert!(Instant::now() < deadline, "row {id} is not processed");
        std::thread::yield_now();
    }
}

#[test]
fn a_success_that_another_worker_of_the_process_had_after_a_lost_commit_counts_once() {
    let scenario = FailScenario::setup();
    let bank = Arc::new(Bank::new());
    let first = bank.enqueue([7])[0];
    let (victim, meanwhile) = (Victim::default(), bank.clone());
    let ended = victim.clone();
    fail::cfg_callback("committing", move || {
        if ended.is_ended(&mut meanwhile.connect()) {
            await_success(&meanwhile, first);
            // The other worker claims this one after it has noted the end of the first.
            await_success(&meanwhile, meanwhile.enqueue([8])[0]);
        }
    })
    .unwrap();
    let once = Mutex::new(Some(victim));
    let handler = move |payment: &Payment, message: &mut Message<'_, Conn>| {
        if let Some(victim) = once.lock().unwrap().take() {
            victim.is(message.connection());
        }
        book(payment, message)
    };
    let poller = Payment::poller(bank.pool(2), handler).workers(2).poll_interval(Duration::from_millis(20));
    let handle = poller.start().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while handle.tally().succeeded + handle.tally().interrupted < 3 {
        assert!(Instant::now() < deadline, "the first worker does not go on: {:?}", handle.tally());
        std::thread::yield_now();
    }
    let tally = handle.shutdown(PATIENCE).tally;
    scenario.teardown();
    assert_eq!(bank.booked().len(), 2);
    assert_eq!((tally.succeeded, tally.interrupted), (2, 1), "{tally:?}");
}

/// Makes the rows what another process would have made of them, at this time by the database's clock.
fn succeed_elsewhere(bank: &Bank, ids: &[i64], at: chrono::DateTime<Utc>) {
    let success = (
        payment_queue::status.eq(Status::Success),
        payment_queue::try_count.eq(1),
        payment_queue::next_attempt_time.eq(None::<queueable::columns::Instant>),
        payment_queue::last_attempt_time.eq(queueable::columns::Instant::from(at)),
    );
    let rows = payments::table.filter(payments::id.eq_any(ids.to_vec()));
    assert_eq!(diesel::update(rows).set(success).execute(&mut bank.connect()), Ok(ids.len()));
}

/// Runs three payments, the last of which loses its session at its COMMIT. The fail point at which another process has
/// processed its row, or the two rows of its group, and when, follow.
fn run(
    grouped: bool,
    outcome: fn() -> Outcome,
    at: &'static str,
    ended: fn() -> chrono::DateTime<Utc>,
) -> (Arc<Bank>, Tally) {
    let scenario = FailScenario::setup();
    let bank = Arc::new(Bank::new());
    let ids = bank.enqueue([1, 2, 3]);
    let (victim, meanwhile) = (Victim::default(), bank.clone());
    let lost = if grouped { ids[1..].to_vec() } else { ids[2..].to_vec() };
    let (to_end, elsewhere) = (victim.clone(), Mutex::new(Some(lost)));
    let process = Arc::new(move |there: &Bank| {
        if let Some(ids) = elsewhere.lock().unwrap().take() {
            succeed_elsewhere(there, &ids, ended());
        }
    });
    let (at_once, processing) = (at == "committing", process.clone());
    fail::cfg_callback("committing", move || {
        if to_end.is_ended(&mut meanwhile.connect()) && at_once {
            processing(&meanwhile);
        }
    })
    .unwrap();
    let meanwhile = bank.clone();
    fail::cfg_callback("finding-out", move || process(&meanwhile)).unwrap();
    let (last, once) = (ids[2], Mutex::new(Some(victim)));
    let handle = move |id: i64, message: &mut Message<'_, Conn>| -> HandlerResult {
        if id == last
            && let Some(victim) = once.lock().unwrap().take()
        {
            victim.is(message.connection());
        }
        Ok(outcome())
    };
    let tally = if grouped {
        let handler = move |row: &Grouped, message: &mut Message<'_, Conn>| handle(row.id, message);
        Grouped::poller(bank.pool(1), handler).workers(1).run_until_idle().unwrap()
    } else {
        bank.run(move |row: &Payment, message: &mut Message<'_, Conn>| handle(row.id, message))
    };
    scenario.teardown();
    (bank, tally)
}

#[test]
fn a_success_that_another_process_had_after_a_lost_commit_does_not_count_here() {
    // The database's clock need not agree with ours.
    let later = || Utc::now() + TimeDelta::hours(1);
    let (_, tally) = run(false, || Outcome::Done, "finding-out", later);
    assert_eq!((tally.succeeded, tally.interrupted), (2, 1), "{tally:?}");
    let (_, tally) = run(true, || Outcome::Done, "finding-out", later);
    assert_eq!((tally.succeeded, tally.interrupted), (1, 2), "{tally:?}");
}

#[test]
fn a_success_that_was_committed_before_the_answer_was_lost_counts() {
    let before = || Utc::now() - TimeDelta::milliseconds(1);
    let (_, tally) = run(false, || Outcome::Done, "committing", before);
    assert_eq!((tally.succeeded, tally.interrupted), (3, 0), "{tally:?}");
    let (_, tally) = run(true, || Outcome::Done, "committing", before);
    assert_eq!((tally.succeeded, tally.interrupted), (3, 0), "{tally:?}");
}

#[test]
fn a_finished_row_that_own_sql_made_due_is_not_taken_for_its_next_success_after_a_lost_commit() {
    let scenario = FailScenario::setup();
    let bank = Arc::new(Bank::new());
    let ids = bank.enqueue([1]);
    bank.run(|_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done));
    let again = payment_queue::next_attempt_time.eq(queueable::columns::Now);
    diesel::update(payments::table.find(ids[0])).set(again).execute(&mut bank.connect()).unwrap();
    let (victim, meanwhile) = (Victim::default(), bank.clone());
    let once = Mutex::new(Some(victim.clone()));
    fail::cfg_callback("committing", move || {
        victim.is_ended(&mut meanwhile.connect());
    })
    .unwrap();
    let tally = bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
        if let Some(victim) = once.lock().unwrap().take() {
            victim.is(message.connection());
        }
        book(payment, message)
    });
    scenario.teardown();
    assert_eq!((tally.succeeded, tally.interrupted), (1, 1), "{tally:?}");
    assert_eq!(bank.booked(), ids);
}

#[test]
fn a_crash_mark_whose_commit_was_lost_is_removed_before_the_row_runs_again() {
    let scenario = FailScenario::setup();
    let bank = Arc::new(Bank::new());
    let ids = bank.enqueue([1, 2]);
    let (victim, mark) = (Victim::default(), Arc::new(Mutex::new(None::<String>)));
    let (to_end, text, meanwhile, second) = (victim.clone(), mark.clone(), bank.clone(), ids[1]);
    fail::cfg_callback("marking", move || {
        let mut connection = meanwhile.connect();
        if to_end.is_ended(&mut connection) {
            // What the server has committed although its answer does not arrive.
            let marked = (
                payment_queue::next_attempt_time
                    .eq(queueable::columns::Instant::from(Utc::now() + TimeDelta::seconds(30))),
                payment_queue::last_attempt_error_message.eq(text.lock().unwrap().clone()),
            );
            assert_eq!(diesel::update(payments::table.find(second)).set(marked).execute(&mut connection), Ok(1));
        }
    })
    .unwrap();
    let handler = move |payment: &Payment, message: &mut Message<'_, Conn>| {
        let row = payments::table.find(payment.id).select(Payment::queue_state());
        let state: queueable::QueueState = row.get_result(message.connection())?;
        if payment.id != second {
            *mark.lock().unwrap() = state.last_attempt_error_message;
            victim.is(message.connection());
        }
        book(payment, message)
    };
    let tally = bank.poller(handler).crash_accounting(CrashAccounting::Strict).run_until_idle().unwrap();
    scenario.teardown();
    assert_eq!((tally.succeeded, tally.interrupted), (2, 1), "{tally:?}");
    assert_eq!(bank.booked(), ids);
    assert_eq!(bank.state(second).last_attempt_error_message, None);
}
