//! No more jobs than the limit run at the same time, in any mode, whatever the number of pollers; and as many as the
//! limit allows do.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use diesel::connection::{SimpleConnection, TransactionManager};
use diesel::prelude::*;
use queueable::bounds::StoredIn;
use queueable::{Lease, Message, Outcome, Queueable};

use super::{Backend, Seen, Watch, dawdle, enqueue, job, jobs, jobs_of};
use crate::db::{Conn, Database, NAME};

job!(Serial, serial_queue, serial_by = company_id);
job!(SerialGroup, serial_group_queue, serial_by = company_id, group = 8);
job!(SerialLease, serial_lease_queue, serial_by = company_id, lease = "60s");
job!(Strict, strict_queue, serial_by(company_id, strict));
job!(Ordered, ordered_queue, serial_by = company_id, order_by = rank);
job!(Pairs, pairs_queue, at_most(2, by = company_id));
job!(PairsGroup, pairs_group_queue, at_most(2, by = company_id), group = 8);
job!(PairsLease, pairs_lease_queue, at_most(2, by = company_id), lease = "60s");
job!(Three, three_queue, at_most(3));
job!(ThreeLease, three_lease_queue, at_most = 3, lease = "60s");

/// Runs two pollers with four workers each, until both are idle. Each makes its own handler.
macro_rules! run_two {
    ($entity:ident, $database:expr, $handler:expr) => {{
        let (database, handler) = ($database.clone(), $handler);
        let pollers = [(); 2].map(|()| {
            let poller = $entity::poller(database.pool(8), handler.clone()).workers(4);
            thread::spawn(move || poller.run_until_idle().unwrap())
        });
        pollers.map(|poller| poller.join().unwrap().succeeded).iter().sum::<u64>()
    }};
}

/// Forty jobs of four companies, and some without one.
fn some() -> impl Iterator<Item = Option<i64>> {
    (0..50).map(|i| if i % 5 == 4 { None } else { Some(i % 5) })
}

macro_rules! handled_in_a_transaction {
    ($entity:ident, $most:expr, $all:expr) => {{
        let database = Arc::new(jobs_of::<$entity>());
        enqueue(&database, some());
        let watch = Watch::default();
        let (seen, other) = (watch.clone(), database.clone());
        let handler = move |job: &$entity, _: &mut Message<'_, Conn>| {
            seen.begin(job.id, job.company_id);
            dawdle(&other);
            seen.end(job.company_id);
            Ok(Outcome::Done)
        };
        assert_eq!(run_two!($entity, database, handler), 50);
        check(&watch, $most, $all);
        watch
    }};
}

macro_rules! called_under_a_lease {
    ($entity:ident, $most:expr, $all:expr) => {{
        let database = Arc::new(jobs_of::<$entity>());
        enqueue(&database, some());
        let watch = Watch::default();
        let (seen, other) = (watch.clone(), database.clone());
        let call = move |job: &$entity, _: &Lease| {
            seen.begin(job.id, job.company_id);
            dawdle(&other);
            seen.end(job.company_id);
            Ok(())
        };
        let apply = |_: &$entity, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done);
        assert_eq!(run_two!($entity, database, (call, apply)), 50);
        check(&watch, $most, $all);
        watch
    }};
}

fn check(watch: &Watch, by_company: u32, of_all: u32) {
    for company in 0..4 {
        let most = watch.most(Some(company));
        assert!((1..=by_company).contains(&most), "{most} jobs of company {company} ran at the same time");
    }
    assert!(watch.most_of_all() <= of_all, "{} jobs ran at the same time", watch.most_of_all());
}

#[test]
fn one_job_of_a_company_runs_at_a_time_in_a_transaction() {
    let watch = handled_in_a_transaction!(Serial, 1, 8);
    for company in 0..4 {
        let ids = watch.ids(Some(company));
        assert!(ids.is_sorted(), "company {company}, in the order of their due times: {ids:?}");
    }
}

#[test]
fn one_job_of_a_company_runs_at_a_time_in_groups() {
    let watch = handled_in_a_transaction!(SerialGroup, 1, 8);
    for company in 0..4 {
        let ids = watch.ids(Some(company));
        assert!(ids.is_sorted(), "company {company}, in the order of their due times: {ids:?}");
    }
}

#[test]
fn one_job_of_a_company_runs_at_a_time_under_a_lease() {
    let watch = called_under_a_lease!(SerialLease, 1, 8);
    for company in 0..4 {
        let ids = watch.ids(Some(company));
        assert!(ids.is_sorted(), "company {company}, in the order of their due times: {ids:?}");
    }
}

/// Runs a poller beside a session that holds the first job of company 0, until the job of company 1 has had its turn.
macro_rules! held_by_another_session {
    ($entity:ident, $watch:expr, $handler:expr) => {{
        let database = jobs_of::<$entity>();
        enqueue(&database, [Some(0), Some(0), Some(1), Some(0)]);
        let mut holder = database.connect();
        <Conn as Connection>::TransactionManager::begin_transaction(&mut holder).unwrap();
        diesel::update(jobs::table.find(1)).set(jobs::rank.eq(9)).execute(&mut holder).unwrap();
        let poller = $entity::poller(database.pool(4), $handler).workers(1);
        let poller = thread::spawn(move || poller.run_until_idle().unwrap().succeeded);
        assert!($watch.meet(1, |seen| seen.begun.iter().filter(|(id, _)| *id == 3).count() as u32));
        <Conn as Connection>::TransactionManager::rollback_transaction(&mut holder).unwrap();
        assert_eq!(poller.join().unwrap(), 4);
        assert_eq!($watch.ids(Some(0)), [1, 2, 4]);
    }};
}

#[test]
fn no_job_overtakes_one_of_its_company_that_another_session_holds() {
    // SQLite has one writer: who holds a row holds them all.
    if NAME == "sqlite" {
        return;
    }
    let watch = Watch::default();
    let seen = watch.clone();
    let handler = move |job: &Serial, _: &mut Message<'_, Conn>| {
        seen.begin(job.id, job.company_id);
        Ok(Outcome::Done)
    };
    held_by_another_session!(Serial, watch, handler);
    let watch = Watch::default();
    let seen = watch.clone();
    let handler = move |job: &SerialGroup, _: &mut Message<'_, Conn>| {
        seen.begin(job.id, job.company_id);
        Ok(Outcome::Done)
    };
    held_by_another_session!(SerialGroup, watch, handler);
    let watch = Watch::default();
    let seen = watch.clone();
    let call = move |job: &SerialLease, _: &Lease| {
        seen.begin(job.id, job.company_id);
        Ok(())
    };
    let apply = |_: &SerialLease, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    held_by_another_session!(SerialLease, watch, (call, apply));
}

/// Runs a poller while others start, and returns how many have.
fn starts_beside_a_poller() -> u32 {
    let database = Arc::new(jobs_of::<Serial>());
    enqueue(&database, (0..240).map(|i| Some(i % 2)));
    let watch = Watch::default();
    let (seen, other) = (watch.clone(), database.clone());
    let handler = move |job: &Serial, _: &mut Message<'_, Conn>| {
        seen.begin(job.id, job.company_id);
        let _: i64 = jobs::table.count().get_result(&mut other.connect())?;
        seen.end(job.company_id);
        Ok(Outcome::Done)
    };
    let poller = Serial::poller(database.pool(5), handler.clone()).workers(2);
    let poller = thread::spawn(move || poller.run_until_idle().unwrap());
    let (pool, mut starts) = (database.pool(4), 0);
    // A check that locked the first row for a moment would let the one behind it go first.
    while !poller.is_finished() {
        let another = Serial::poller(pool.clone(), handler.clone()).workers(1).start().unwrap();
        another.shutdown(Duration::from_secs(30));
        starts += 1;
    }
    poller.join().unwrap();
    for company in 0..2 {
        let ids = watch.ids(Some(company));
        assert!(ids.len() == 120 && ids.is_sorted(), "company {company}, in the order of their due times: {ids:?}");
        assert_eq!(watch.most(Some(company)), 1);
    }
    starts
}

#[test]
fn a_process_that_starts_takes_no_job_out_of_its_turn() {
    // The poller may have ended before this thread, which starts the others, goes on.
    assert!((0..5).any(|_| starts_beside_a_poller() > 0), "no other process has started meanwhile");
}

#[test]
fn no_more_jobs_of_a_company_run_than_its_limit() {
    handled_in_a_transaction!(Pairs, 2, 8);
    handled_in_a_transaction!(PairsGroup, 2, 8);
    called_under_a_lease!(PairsLease, 2, 8);
}

#[test]
fn no_more_jobs_run_than_the_limit_of_the_queue() {
    handled_in_a_transaction!(Three, 3, 3);
    called_under_a_lease!(ThreeLease, 3, 3);
}

/// Waits in each handler until as many jobs run as may, and at most then goes on.
macro_rules! meets {
    ($entity:ident, $handled:ident, $companies:expr, $number:expr, $of:expr) => {{
        let database = Arc::new(jobs_of::<$entity>());
        enqueue(&database, $companies);
        let watch = Watch::default();
        let seen = watch.clone();
        let handler = $handled(move |id, company| {
            seen.begin(id, company);
            assert!(seen.meet($number, $of), "fewer than {} jobs run at the same time", $number);
        });
        let tally = $entity::poller(database.pool(8), handler).workers(6).run_until_idle().unwrap();
        assert_eq!((tally.succeeded, watch.companies().len()), ($number, $number as usize));
    }};
}

macro_rules! in_transaction {
    ($name:ident, $entity:ident) => {
        fn $name(
            wait: impl Fn(i64, Option<i64>) + Send + Sync + 'static,
        ) -> impl Fn(&$entity, &mut Message<'_, Conn>) -> queueable::HandlerResult + Send + Sync + 'static {
            move |job, _| {
                wait(job.id, job.company_id);
                Ok(Outcome::Done)
            }
        }
    };
}

in_transaction!(serial, Serial);
in_transaction!(pairs, Pairs);
in_transaction!(three, Three);

#[test]
fn as_many_jobs_run_as_the_limits_allow() {
    // SQLite has one writer.
    if NAME == "sqlite" {
        return;
    }
    let all = |seen: &Seen| seen.running.values().sum();
    meets!(Serial, serial, [1, 2, 3].map(Some), 3, all);
    meets!(Pairs, pairs, [1, 1].map(Some), 2, all);
    meets!(Three, three, [1, 1, 1].map(Some), 3, all);
    // Rows without a value are not one company's.
    meets!(Serial, serial, [None, None, None], 3, all);
}

#[test]
fn jobs_that_are_due_at_the_same_time_begin_in_the_order_of_their_keys() {
    fn jobs_of_one_company<Q: StoredIn<Backend> + 'static>() -> Database {
        let database = jobs_of::<Q>();
        // Each is stored behind all those that it comes before.
        let values: Vec<_> = (1..=9).rev().map(|id| format!("({id}, 7, '2026-01-01 00:00:00.000')")).collect();
        let insert = format!("INSERT INTO jobs (id, company_id, next_attempt_time) VALUES {}", values.join(", "));
        database.connect().batch_execute(&insert).unwrap();
        database
    }
    macro_rules! begun {
        ($entity:ident, $handler:expr) => {{
            let (database, watch) = (jobs_of_one_company::<$entity>(), Watch::default());
            let handler: fn(Watch) -> _ = $handler;
            $entity::poller(database.pool(4), handler(watch.clone())).workers(2).run_until_idle().unwrap();
            assert_eq!(watch.ids(Some(7)), (1..=9).collect::<Vec<_>>());
        }};
    }
    macro_rules! in_a_transaction {
        ($entity:ident) => {
            begun!($entity, |watch| move |job: &$entity, _: &mut Message<'_, Conn>| {
                watch.begin(job.id, job.company_id);
                Ok(Outcome::Done)
            })
        };
    }
    in_a_transaction!(Serial);
    in_a_transaction!(SerialGroup);
    in_a_transaction!(Strict);
    in_a_transaction!(Ordered);
    begun!(SerialLease, |watch| (
        move |job: &SerialLease, _: &Lease| {
            watch.begin(job.id, job.company_id);
            Ok(())
        },
        |_: &SerialLease, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done),
    ));
}

/// More are due than a claim looks at otherwise.
#[test]
fn the_lanes_of_many_due_jobs_with_an_order_take_turns_and_keep_it() {
    let database = Arc::new(jobs_of::<Ordered>());
    enqueue(&database, (0..400).map(|i| (i % 11 != 0).then_some(i % 7)));
    let watch = Watch::default();
    let seen = watch.clone();
    let handler = move |job: &Ordered, _: &mut Message<'_, Conn>| {
        seen.begin(job.id, job.company_id);
        seen.end(job.company_id);
        Ok(Outcome::Done)
    };
    assert_eq!(run_two!(Ordered, database, handler), 400);
    let seen = watch.0.0.lock().unwrap();
    for company in 0..7 {
        assert_eq!(seen.most[&Some(company)], 1);
        let begun: Vec<_> = seen.begun.iter().filter(|(_, of)| *of == Some(company)).map(|(id, _)| *id).collect();
        assert!(begun.is_sorted(), "{company}: {begun:?}");
    }
}
