//! A place comes back by itself from a session or a process that is gone, and rows that cannot be written keep none.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use chrono::{TimeDelta, Utc};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::columns::Now;
use queueable::{
    CrashAccounting, Lease, Message, Migrations, Outcome, PollerHandle, PollerSettings, Queueable, Status,
};

use super::{Watch, dawdle, enqueue, job, jobs, jobs_of};
use crate::db::{Conn, Database, NAME, REFUSE_SEVEN};
use crate::suite::bank::{Bank, payments};
use crate::suite::events::PATIENCE;

job!(Serial, serial_queue, serial_by = company_id);
job!(SerialLease, serial_lease_queue, serial_by = company_id, lease = "60s");
job!(PairsLease, pairs_lease_queue, at_most(2, by = company_id), lease = "60s");

#[test]
fn a_session_that_ends_gives_its_place_back() {
    let end = match NAME {
        "postgres" => "SELECT pg_terminate_backend(pg_backend_pid())",
        "mysql" => "KILL CONNECTION_ID()",
        // The session is the process's own.
        _ => return,
    };
    let database = jobs_of::<Serial>();
    enqueue(&database, [1, 1, 1].map(Some));
    let (watch, has_ended) = (Watch::default(), Arc::new(AtomicBool::new(false)));
    let seen = watch.clone();
    let handler = move |job: &Serial, message: &mut Message<'_, Conn>| {
        seen.begin(job.id, job.company_id);
        if !has_ended.swap(true, Ordering::SeqCst) {
            message.connection().batch_execute(end)?;
        }
        Ok(Outcome::Done)
    };
    let tally = Serial::poller(database.pool(6), handler).workers(3).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, watch.companies().len()), (3, 4));
}

/// A poller whose calls tell when they begin, and return when the test lets them.
fn calling(
    database: &Database,
    begun: mpsc::Sender<i64>,
    leave: impl Fn(&Lease) -> bool + Send + Sync + 'static,
) -> PollerHandle {
    let call = move |job: &SerialLease, lease: &Lease| {
        begun.send(job.id).unwrap();
        while !leave(lease) {
            thread::yield_now();
        }
        Ok(())
    };
    let apply = |_: &SerialLease, (): &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    SerialLease::poller(database.pool(6), (call, apply)).workers(2).start().unwrap()
}

#[test]
fn a_company_waits_for_a_call_that_outlives_its_poller() {
    let database = jobs_of::<SerialLease>();
    enqueue(&database, [Some(1), Some(1)]);
    let (free, (begun, calls)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
    let is_free = free.clone();
    let stopping = calling(&database, begun, move |_| is_free.load(Ordering::SeqCst));
    assert_eq!(calls.recv_timeout(PATIENCE), Ok(1));
    assert_eq!(stopping.shutdown(Duration::ZERO).rolled_back, 1);

    let (begun, others) = mpsc::channel();
    let other = calling(&database, begun, |_| true);
    // It sees the first company's rows before those of the second.
    enqueue(&database, [Some(2)]);
    assert_eq!(others.recv_timeout(PATIENCE), Ok(3));
    assert!(others.try_recv().is_err(), "the first call still runs");
    free.store(true, Ordering::SeqCst);
    // In their order, long before the lease ends.
    assert_eq!((others.recv_timeout(PATIENCE), others.recv_timeout(PATIENCE)), (Ok(1), Ok(2)));
    other.shutdown(PATIENCE);
}

/// The row of a process that is gone, under a lease that only a test ends.
fn lease_elsewhere(database: &Database, company: i64) {
    enqueue(database, [Some(company)]);
    let later = Utc::now() + TimeDelta::hours(1);
    diesel::update(jobs::table.filter(jobs::company_id.eq(company)))
        .set((
            serial_lease_queue::status.eq(Status::InProgress),
            serial_lease_queue::try_count.eq(1),
            serial_lease_queue::next_attempt_time.eq(later),
        ))
        .execute(&mut database.connect())
        .unwrap();
}

fn end_first_lease(database: &Database) {
    diesel::update(jobs::table.find(1))
        .set(serial_lease_queue::next_attempt_time.eq(Now))
        .execute(&mut database.connect())
        .unwrap();
}

/// Tells whether the lease of the first row has ended, by the database's clock.
fn has_ended(database: &Database) -> bool {
    let due = jobs::table.find(1).filter(serial_lease_queue::next_attempt_time.le(Now));
    diesel::select(diesel::dsl::exists(due)).get_result(&mut database.connect()).unwrap()
}

#[test]
fn the_lease_of_a_process_that_is_gone_holds_its_place_until_it_ends() {
    let database = Arc::new(jobs_of::<SerialLease>());
    lease_elsewhere(&database, 1);
    enqueue(&database, [1, 2].map(Some));
    let watch = Watch::default();
    let (seen, other) = (watch.clone(), database.clone());
    let call = move |job: &SerialLease, _: &Lease| {
        seen.begin(job.id, job.company_id);
        if job.company_id == Some(2) {
            dawdle(&other);
            end_first_lease(&other);
        }
        // The first row's lease is a new one once it is called itself.
        let ran_before = seen.ids(Some(1)).contains(&1);
        Ok(job.company_id == Some(2) || ran_before || has_ended(&other))
    };
    let apply = |_: &SerialLease, has_ended: &bool, _: &mut Message<'_, Conn>| {
        assert!(*has_ended, "another row of the company was under a lease");
        Ok(Outcome::Done)
    };
    let tally = SerialLease::poller(database.pool(6), (call, apply)).workers(3).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.retried), (3, 0));
    assert_eq!(watch.companies()[0], Some(2));
}

#[test]
fn a_lease_that_has_ended_is_lost_when_others_have_its_places() {
    let database = Arc::new(jobs_of::<PairsLease>());
    enqueue(&database, [1, 1, 1].map(Some));
    let watch = Watch::default();
    let (seen, other) = (watch.clone(), database.clone());
    let call = move |job: &PairsLease, _: &Lease| {
        seen.begin(job.id, job.company_id);
        if job.id == 1 {
            // As after a pause of this process that was longer than the lease, in which another one has claimed the other
            // two rows.
            let mut connection = other.connect();
            diesel::update(jobs::table.find(1))
                .set(pairs_lease_queue::next_attempt_time.eq(Now))
                .execute(&mut connection)
                .unwrap();
            diesel::update(jobs::table.filter(jobs::id.gt(1)))
                .set((
                    pairs_lease_queue::status.eq(Status::InProgress),
                    pairs_lease_queue::next_attempt_time.eq(Utc::now() + TimeDelta::hours(1)),
                ))
                .execute(&mut connection)
                .unwrap();
        }
        Ok(())
    };
    let apply = |_: &PairsLease, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let poller = PairsLease::poller(database.pool(6), (call, apply)).workers(1).claim_batch(1);
    let handle = poller.start().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while handle.tally().lost + handle.tally().succeeded == 0 {
        assert!(Instant::now() < deadline, "{:?}", handle.tally());
        thread::park_timeout(Duration::from_millis(5));
    }
    let tally = handle.shutdown(Duration::from_secs(60)).tally;
    assert!(tally.lost >= 1 && tally.succeeded == 0, "{tally:?}");
}

#[test]
fn a_row_without_a_place_is_explained() {
    // SQLite has one writer, so that the row's own lock is in the way.
    if NAME != "sqlite" {
        let database = Arc::new(jobs_of::<Serial>());
        enqueue(&database, [1, 1, 2].map(Some));
        let (watch, other) = (Watch::default(), database.clone());
        let seen = watch.clone();
        let handler = move |job: &Serial, _: &mut Message<'_, Conn>| {
            seen.begin(job.id, job.company_id);
            if job.id == 1 {
                let mut connection = other.connect();
                let why = Serial::explain(&mut connection, &2)?;
                assert_eq!(why.to_string(), "another row with company_id = 1 is being processed");
                let why = Serial::explain(&mut connection, &1)?;
                assert_eq!(why.to_string(), "locked by another session");
                assert_eq!(Serial::explain(&mut connection, &3)?.to_string(), "due");
                let all = Serial::queue().explain(&mut connection)?.to_string();
                let mut lines: Vec<_> = all.lines().skip(1).map(|line| line.trim().to_owned()).collect();
                lines.sort();
                let (held, full) = (
                    "1  1        locked by another session",
                    "1  2        another row with company_id = 1 is being processed",
                );
                assert_eq!(lines, [held, full, "1  3        due"]);
            }
            Ok(Outcome::Done)
        };
        // A marked row is scheduled, for a moment.
        let poller = Serial::poller(database.pool(3), handler).crash_accounting(CrashAccounting::Off);
        let tally = poller.workers(1).run_until_idle().unwrap();
        assert_eq!((tally.succeeded, tally.retried), (3, 0));
    }
    let database = jobs_of::<SerialLease>();
    lease_elsewhere(&database, 1);
    enqueue(&database, [1, 2].map(Some));
    let mut connection = database.connect();
    let why = SerialLease::explain(&mut connection, &2).unwrap();
    assert_eq!(why.to_string(), "another row with company_id = 1 is being processed");
    assert_eq!(SerialLease::explain(&mut connection, &3).unwrap().to_string(), "due");
    enqueue(&database, [1, 2, 2].map(Some));
    let all = SerialLease::queue().due().explain(&mut connection).unwrap();
    let lines: Vec<_> = all.reasons.iter().map(|reason| (reason.rows, reason.explanation.to_string())).collect();
    assert_eq!(lines, [(3, "due".to_owned()), (2, "another row with company_id = 1 is being processed".to_owned())]);
}

#[test]
fn a_place_is_held_across_the_two_transactions_of_strict_crash_accounts() {
    let database = Arc::new(jobs_of::<Serial>());
    enqueue(&database, (0..24).map(|i| Some(i % 3)));
    let watch = Watch::default();
    let (seen, other) = (watch.clone(), database.clone());
    let handler = move |job: &Serial, _: &mut Message<'_, Conn>| {
        seen.begin(job.id, job.company_id);
        dawdle(&other);
        seen.end(job.company_id);
        Ok(Outcome::Done)
    };
    let pollers = [(); 2].map(|()| {
        let mut settings = PollerSettings::default();
        settings.crash_accounting = CrashAccounting::Strict;
        let poller = Serial::poller(database.pool(6), handler.clone()).settings(settings).workers(3);
        thread::spawn(move || poller.run_until_idle().unwrap().succeeded)
    });
    assert_eq!(pollers.map(|poller| poller.join().unwrap()).iter().sum::<u64>(), 24);
    for company in 0..3 {
        assert_eq!(watch.most(Some(company)), 1);
        let ids = watch.ids(Some(company));
        assert!(ids.is_sorted(), "the mark costs no row its place: {ids:?}");
    }
}

/// Payments of a company, one at a time.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(serial_by = company_id, module = by_company_queue, retry = fixed("1h"), timeout = "30s")]
struct ByCompany {
    id: i64,
}

#[test]
fn rows_that_cannot_be_written_hold_no_place() {
    let bank = Bank::before_the_queue();
    let mut connection = bank.connect();
    connection.run_pending_migrations(Migrations::new().entity::<ByCompany>()).unwrap();
    // More of them than a claim passes over by their keys, and behind them one that can be written.
    let company = |company: i64, amount: i64| {
        (payments::company_id.eq(company), payments::amount_cents.eq(amount), ByCompany::due_now())
    };
    let rows: Vec<_> = (0..70).map(|_| company(1, 7)).chain([company(1, 8), company(2, 8)]).collect();
    diesel::insert_into(payments::table).values(rows).execute(&mut connection).unwrap();
    connection.batch_execute(REFUSE_SEVEN).unwrap();
    let handled = Arc::new(AtomicBool::new(false));
    let seen = handled.clone();
    let last = 71;
    let handler = move |payment: &ByCompany, _: &mut Message<'_, Conn>| {
        seen.fetch_or(payment.id == last, Ordering::SeqCst);
        Ok(Outcome::Done)
    };
    let tally = ByCompany::poller(bank.pool(3), handler).workers(3).run_until_idle().unwrap();
    assert_eq!(tally.succeeded, 2);
    assert!(handled.load(Ordering::SeqCst));
}
