//! Limits at run time: fewer workers, fewer rows at the same time, another delay of retries.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{TimeDelta, Utc};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::control::Limits;
use queueable::{Error, Explanation, Failure, HandlerResult, Message, Migrations, Outcome, Poller, Queueable, Status};

use super::{BY, Mode, Note, PATIENCE, await_company, await_successes, await_true, bank, serve, with_companies};
use crate::db::{Conn, NAME};
use crate::suite::bank::{Bank, Payment, payments};
use crate::suite::lease::{Charge, apply};
use crate::suite::warnings::{await_warning, is_told, keep_warnings, times_told};

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(lease = "60s", at_most(3))]
struct Few {
    id: i64,
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = few_of_each_queue, lease = "60s", at_most(2, by = company_id))]
struct FewOfEach {
    id: i64,
}

fn limit<Q>(bank: &Bank, limits: Limits<Q>)
where
    Q: Queueable + queueable::bounds::StoredIn<<Conn as diesel::Connection>::Backend>,
{
    Q::set_limits(&mut bank.connect(), limits).unwrap();
}

/// Calls that begin, each of which ends when it is told to.
struct Calls {
    begun: Receiver<i64>,
    go_on: Sender<()>,
}

impl Calls {
    /// Serves rows by calls that wait, on this many workers.
    fn new(workers: usize, serve: impl FnOnce(Call) -> Poller<Conn>) -> (Poller<Conn>, Calls) {
        let ((begin, begun), (go_on, is_told)) = (mpsc::channel(), mpsc::channel());
        (serve(Call(begin, Arc::new(Mutex::new(is_told)))).workers(workers).claim_batch(1), Calls { begun, go_on })
    }

    fn next(&self) -> i64 {
        self.begun.recv_timeout(PATIENCE).unwrap()
    }
}

#[derive(Clone)]
struct Call(Sender<i64>, Arc<Mutex<Receiver<()>>>);

impl Call {
    fn wait(&self, id: i64) -> Result<i64, Failure> {
        self.0.send(id)?;
        self.1.lock().unwrap().recv_timeout(PATIENCE)?;
        Ok(1)
    }
}

#[test]
fn fewer_workers_work_for_a_limited_queue_and_as_many_as_before_at_the_end() {
    keep_warnings();
    let bank = bank();
    let (poller, calls) = Calls::new(4, |call| {
        let call = move |charge: &Charge, _: &queueable::Lease| call.wait(charge.id);
        Poller::new(bank.pool(4)).control().serve::<Charge>((call, apply))
    });
    let (poller, companies) = with_companies(poller.workers_for::<Charge>(3));
    let handle = poller.start().unwrap();
    limit(&bank, Limits::<Charge>::new("one at a time", BY).workers(1));
    await_warning(&["INFO", "limited: 1 worker in each process", "one at a time", BY]);
    bank.enqueue([1, 1, 1]);
    calls.next();
    // Another worker has asked each entity since.
    await_company(&bank, &companies);
    await_company(&bank, &companies);
    assert!(calls.begun.try_recv().is_err());
    calls.go_on.send(()).unwrap();
    calls.next();
    assert!(Charge::end_limits(&mut bank.connect()).unwrap());
    assert!(!Charge::end_limits(&mut bank.connect()).unwrap(), "they were ended already");
    calls.next();
    await_warning(&["INFO", "no longer limited", "one at a time", BY]);
    drop(calls.go_on);
    handle.shutdown(PATIENCE);
}

#[test]
fn a_worker_that_goes_from_row_to_row_heeds_a_limit() {
    keep_warnings();
    for mode in [Mode::Transaction, Mode::Group, Mode::Lease] {
        let bank = bank();
        let reason = format!("while it runs in {mode:?} mode");
        let note = Note::default();
        let handle = serve(&bank, mode, note.clone()).workers(2).start();
        let handle = handle.unwrap();
        limit(&bank, Limits::<Payment>::new(reason.as_str(), BY).workers(1));
        await_warning(&["INFO", "limited: 1 worker", &reason]);
        bank.enqueue(1..=200);
        await_successes(&bank, 200);
        handle.shutdown(PATIENCE);
    }
}

#[test]
fn fewer_rows_are_processed_at_the_same_time() {
    keep_warnings();
    let bank = bank();
    let (poller, calls) = Calls::new(3, |call| {
        let call = move |few: &Few, _: &queueable::Lease| call.wait(few.id);
        let apply = |_: &Few, _: &i64, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
        Poller::new(bank.pool(4)).control().serve::<Few>((call, apply))
    });
    let (poller, companies) = with_companies(poller.workers(4).workers_for::<Few>(3));
    let handle = poller.start().unwrap();
    limit(&bank, Limits::<Few>::new("the bank takes one", BY).at_most(1));
    await_warning(&["INFO", "limited: at most 1 at the same time", "the bank takes one"]);
    let ids = bank.enqueue([1, 1, 1]);
    let first = calls.next();
    await_company(&bank, &companies);
    await_company(&bank, &companies);
    assert!(calls.begun.try_recv().is_err());
    let other = ids.into_iter().find(|id| *id != first).unwrap();
    let explained = Few::explain(&mut bank.connect(), &other).unwrap();
    assert_eq!(explained, Explanation::NoPlace { by: None, at_most: 1 });
    let backlog = Few::queue().backlog(&mut bank.connect()).unwrap();
    assert_eq!((backlog.due, backlog.over_limit), (2, Some(2)));
    assert!(backlog.to_string().contains("at most 1 at the same time"), "{backlog}");
    Few::end_limits(&mut bank.connect()).unwrap();
    calls.next();
    calls.next();
    drop(calls.go_on);
    handle.shutdown(PATIENCE);
}

#[test]
fn calls_that_run_when_a_limit_comes_go_on_to_their_ends() {
    keep_warnings();
    let bank = bank();
    let (poller, calls) = Calls::new(3, |call| {
        let call = move |few: &Few, _: &queueable::Lease| call.wait(few.id);
        let apply = |_: &Few, _: &i64, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
        Poller::new(bank.pool(4)).control().serve::<Few>((call, apply))
    });
    let handle = poller.start().unwrap();
    bank.enqueue([1, 1, 1]);
    let begun = [calls.next(), calls.next(), calls.next()];
    limit(&bank, Limits::<Few>::new("while three calls run", BY).at_most(1));
    await_warning(&["INFO", "limited: at most 1 at the same time", "while three calls run"]);
    (0..3).for_each(|_| calls.go_on.send(()).unwrap());
    await_true(|| begun.iter().all(|id| bank.state(*id).status == Status::Success));
    let tally = handle.shutdown(PATIENCE).tally;
    assert_eq!((tally.succeeded, tally.lost), (3, 0));
    assert!(begun.iter().all(|id| bank.state(*id).try_count == 1));
}

#[test]
fn fewer_rows_of_each_value_are_processed_at_the_same_time() {
    keep_warnings();
    let bank = bank();
    bank.connect().run_pending_migrations(Migrations::new().entity::<FewOfEach>()).unwrap();
    let (poller, calls) = Calls::new(3, |call| {
        let call = move |few: &FewOfEach, _: &queueable::Lease| call.wait(few.id);
        let apply = |_: &FewOfEach, _: &i64, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
        Poller::new(bank.pool(4)).control().serve::<FewOfEach>((call, apply))
    });
    let (poller, companies) = with_companies(poller.workers(4).workers_for::<FewOfEach>(3));
    let handle = poller.start().unwrap();
    limit(&bank, Limits::<FewOfEach>::new("one of each company", BY).at_most(1));
    await_warning(&["INFO", "limited: at most 1 at the same time", "one of each company"]);
    bank.enqueue([1, 1]);
    let others = bank.enqueue([1, 1]);
    let of_others = payments::table.filter(payments::id.eq_any(&others));
    diesel::update(of_others).set(payments::company_id.eq(3345)).execute(&mut bank.connect()).unwrap();
    // Both may be of the first company: the rows of the other may have been claimed before they were its own.
    calls.next();
    calls.next();
    await_company(&bank, &companies);
    await_company(&bank, &companies);
    assert!(calls.begun.try_recv().is_err());
    drop(calls.go_on);
    handle.shutdown(PATIENCE);
}

#[test]
fn a_row_that_fails_waits_as_long_as_the_limits_say() {
    keep_warnings();
    let bank = bank();
    let handler = |payment: &Payment, _: &mut Message<'_, Conn>| -> HandlerResult {
        Err(match payment.amount_cents {
            1 => Failure::retry("later"),
            2 => Failure::retry_after(Duration::from_secs(7200), "in two hours"),
            _ => Failure::fatal("never"),
        })
    };
    let handle = bank.poller(handler).control().start().unwrap();
    let day = Duration::from_secs(24 * 3600);
    limit(&bank, Limits::<Payment>::new("again tomorrow", BY).retry_delay(day));
    await_warning(&["INFO", "limited: retries after 1day", "again tomorrow"]);
    let ids = bank.enqueue([1, 2, 3]);
    await_true(|| ids.iter().all(|id| bank.state(*id).try_count == 1));
    let left = |id: i64| bank.state(id).next_attempt_time.unwrap() - Utc::now();
    assert!(left(ids[0]) > TimeDelta::hours(23), "{}", left(ids[0]));
    assert!(left(ids[1]) < TimeDelta::hours(3), "the handler's own delay stays: {}", left(ids[1]));
    assert_eq!(bank.state(ids[2]).status, Status::Failed);
    handle.shutdown(PATIENCE);
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    let bank = bank();
    let mut connection = bank.connect();
    let mut refused = |limits: Limits<Payment>| match Payment::set_limits(&mut connection, limits) {
        Err(Error::Setting { setting, .. }) => setting,
        other => panic!("{other:?}"),
    };
    let of = || Limits::new("bank is slow", BY);
    assert_eq!(refused(of()), "the limits");
    assert_eq!(refused(Limits::new("", BY).workers(1)), "the reason of limits");
    assert_eq!(refused(Limits::new("bank is slow", "y".repeat(256)).workers(1)), "who asks for limits");
    assert_eq!(refused(of().workers(0)), "the limit of workers");
    assert_eq!(refused(of().workers(10_001)), "the limit of workers");
    assert_eq!(refused(of().at_most(1)), "the limit `at_most`");
    assert_eq!(refused(of().retry_delay(Duration::MAX)), "the delay of retries");
    assert!(Few::set_limits(&mut connection, Limits::new("too many", BY).at_most(4)).is_err());
    assert!(Few::set_limits(&mut connection, Limits::new("none", BY).at_most(0)).is_err());
    assert_eq!(queueable::control::limits(&mut connection).unwrap(), []);
    let longest = Limits::<Payment>::new("ü".repeat(1000), "ö".repeat(255)).workers(10_000);
    Payment::set_limits(&mut connection, longest.retry_delay(queueable::columns::MAX_DELAY)).unwrap();
    let found = queueable::control::limits(&mut connection).unwrap();
    assert_eq!((found.len(), found[0].workers), (1, Some(10_000)));
    assert_eq!(found[0].retry_delay, Some(queueable::columns::MAX_DELAY));
    Payment::set_limits(&mut connection, of().workers(2)).unwrap();
    let found = queueable::control::limits(&mut connection).unwrap();
    assert_eq!((found[0].workers, found[0].retry_delay), (Some(2), None), "the last ones hold");
    let rolled_back = connection.transaction(|connection| {
        Payment::end_limits(connection).unwrap();
        Err::<(), _>(diesel::result::Error::RollbackTransaction)
    });
    assert!(rolled_back.is_err());
    assert_eq!(queueable::control::limits(&mut connection).unwrap().len(), 1);
}

#[test]
fn a_pause_and_limits_of_one_queue_leave_each_other_alone() {
    let bank = bank();
    let mut connection = bank.connect();
    Payment::set_limits(&mut connection, Limits::new("bank is slow", BY).workers(2)).unwrap();
    super::pause(&bank, "bank down");
    assert_eq!(queueable::control::limits(&mut connection).unwrap().len(), 1);
    assert_eq!(queueable::pauses(&mut connection).unwrap().len(), 1);
    Payment::end_limits(&mut connection).unwrap();
    assert_eq!(queueable::pauses(&mut connection).unwrap().len(), 1);
    Payment::set_limits(&mut connection, Limits::new("bank is slow", BY).workers(2)).unwrap();
    Payment::unpause(&mut connection).unwrap();
    assert_eq!(queueable::control::limits(&mut connection).unwrap().len(), 1);
}

#[test]
fn the_table_refuses_what_can_be_no_limits_and_a_poller_ignores_what_its_entity_does_not_allow() {
    keep_warnings();
    let bank = bank();
    let mut connection = bank.connect();
    let mut insert = |queue: &str, workers: &str, at_most: &str, delay: &str, by: &str| {
        connection.batch_execute(&format!(
            "INSERT INTO queueable_control (queue, scope, workers, at_most, retry_delay_ms, limited_at, limited_by, limit_reason) \
             VALUES ('{queue}', '', {workers}, {at_most}, {delay}, '2026-01-01 00:00:00', {by}, 'by hand')"
        ))
    };
    assert!(insert("q", "0", "NULL", "NULL", "'me'").is_err());
    assert!(insert("q", "NULL", "-1", "NULL", "'me'").is_err());
    assert!(insert("q", "NULL", "NULL", "-1", "'me'").is_err());
    assert!(insert("q", "NULL", "NULL", "9000000000000000", "'me'").is_err());
    assert!(insert("q", "1", "NULL", "NULL", "NULL").is_err());
    assert!(insert("q", "1", "NULL", "NULL", "' '").is_err());
    assert!(insert("q", "NULL", "NULL", "NULL", "'me'").is_err(), "there is no limit");
    if NAME == "sqlite" {
        assert!(insert("q", "'many'", "NULL", "NULL", "'me'").is_err());
    }
    insert("payments.status", "NULL", "7", "NULL", "'me'").unwrap();
    insert("companies.status", "NULL", "7", "NULL", "'me'").unwrap();
    let (poller, companies) = with_companies(serve(&bank, Mode::Transaction, Note::default()));
    let handle = poller.start().unwrap();
    let told = "ignoring a row of the control table: at_most is 7, and the entity has no `at_most`";
    let of_each = ["Payment", "Company"].map(|entity| ["WARN", told, entity]);
    of_each.iter().for_each(|texts| await_warning(texts));
    bank.enqueue([1]);
    await_successes(&bank, 1);
    await_company(&bank, &companies);
    handle.shutdown(PATIENCE);
    assert_eq!(of_each.map(|texts| times_told(&texts)), [1, 1]);
    assert!(!is_told(&["limited:", "by hand"]));
}
