//! In a strictly serial lane a job that has failed holds back those behind it, until it is settled for good.

use std::env;
use std::time::{Duration, Instant};

use queueable::{CrashAccounting, Explanation, Failure, HandlerResult, Lease, Message, Outcome, Queueable, Status};

use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::result::{DatabaseErrorKind, Error as DieselError};

use super::{Watch, enqueue, job, jobs, jobs_of};
use crate::db::{Conn, Database};
use crate::suite::main_job::program::Program;

job!(Strict, strict_queue, serial_by(company_id, strict));
job!(StrictGroup, strict_group_queue, serial_by(company_id, strict), group = 4);
job!(StrictLease, strict_lease_queue, serial_by(company_id, strict), lease = "60s");
job!(StrictByRank, strict_by_rank_queue, serial_by(company_id, strict), order_by = rank.desc());

/// Jobs 1, 2 and 5 of company 7, 3 of company 8, and 4 and 6 without a company.
fn some_jobs(database: &Database) {
    enqueue(database, [Some(7), Some(7), Some(8), None, Some(7), None]);
}

/// Runs jobs of which the first fails once and then waits an hour for its retry, and then retries it at once.
macro_rules! a_failure_holds_back {
    ($entity:ident, $handler:expr) => {{
        let database = jobs_of::<$entity>();
        some_jobs(&database);
        let watch = Watch::default();
        let handler = $handler(watch.clone());
        let run = || $entity::poller(database.pool(4), handler.clone()).workers(2).run_until_idle().unwrap();
        let tally = run();
        assert_eq!((tally.succeeded, tally.retried), (3, 1));
        assert_eq!((watch.ids(Some(7)), watch.ids(Some(8))), (vec![1], vec![3]));
        assert_eq!(watch.ids(None).len(), 2);

        let mut connection = database.connect();
        let Explanation::Behind { key, time } = $entity::explain(&mut connection, &2).unwrap() else {
            panic!("{:?}", $entity::explain(&mut connection, &2));
        };
        assert_eq!(key, "1");
        let Explanation::ScheduledFor { time: retry } = $entity::explain(&mut connection, &1).unwrap() else {
            panic!("{:?}", $entity::explain(&mut connection, &1));
        };
        assert!((time - retry).abs() < chrono::TimeDelta::minutes(1), "{time} is not about {retry}");

        assert_eq!($entity::queue().filter(jobs::id.eq(1)).retry_now(&mut connection).unwrap(), 1);
        assert_eq!(run().succeeded, 3);
        assert_eq!(watch.ids(Some(7)), [1, 1, 2, 5]);
    }};
}

fn fails_first(watch: &Watch, id: i64, company: Option<i64>) -> Result<Outcome, Failure> {
    watch.begin(id, company);
    if id == 1 && watch.ids(company).len() == 1 {
        return Err(Failure::retry("the bank is down"));
    }
    Ok(Outcome::Done)
}

#[test]
fn a_job_that_failed_holds_its_company_back_in_a_transaction() {
    a_failure_holds_back!(Strict, |watch: Watch| move |job: &Strict, _: &mut Message<'_, Conn>| {
        fails_first(&watch, job.id, job.company_id)
    });
}

#[test]
fn a_job_that_failed_holds_its_company_back_in_groups() {
    a_failure_holds_back!(StrictGroup, |watch: Watch| move |job: &StrictGroup, _: &mut Message<'_, Conn>| {
        fails_first(&watch, job.id, job.company_id)
    });
}

#[test]
fn a_job_that_failed_holds_its_company_back_under_a_lease() {
    a_failure_holds_back!(StrictLease, |watch: Watch| {
        let call = move |job: &StrictLease, _: &Lease| fails_first(&watch, job.id, job.company_id).map(drop);
        (call, |_: &StrictLease, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done))
    });
}

/// What a worker takes for a conflict with another session.
fn conflict() -> Failure {
    // Diesel has no error kind for this on SQLite.
    let is_sqlite = crate::db::NAME == "sqlite";
    let kind = if is_sqlite { DatabaseErrorKind::Unknown } else { DatabaseErrorKind::SerializationFailure };
    DieselError::DatabaseError(kind, Box::new("database is locked".to_owned())).into()
}

/// Runs jobs of which the first is interrupted three times.
macro_rules! an_interruption_holds_back {
    ($entity:ident) => {{
        let database = jobs_of::<$entity>();
        some_jobs(&database);
        let watch = Watch::default();
        let seen = watch.clone();
        let handler = move |job: &$entity, _: &mut Message<'_, Conn>| {
            seen.begin(job.id, job.company_id);
            if job.id == 1 && seen.ids(job.company_id).len() <= 3 { Err(conflict()) } else { Ok(Outcome::Done) }
        };
        // The other worker may meet a marked row before its interruption is written, which counts as one more.
        let poller = $entity::poller(database.pool(4), handler).crash_accounting(CrashAccounting::Off);
        let tally = poller.workers(2).run_until_idle().unwrap();
        assert_eq!((tally.succeeded, tally.interrupted, tally.retried), (6, 3, 0));
        assert_eq!(watch.ids(Some(7)), [1, 1, 1, 1, 2, 5]);
    }};
}

#[test]
fn a_job_that_was_interrupted_holds_its_company_back_in_a_transaction() {
    an_interruption_holds_back!(Strict);
}

#[test]
fn a_job_that_was_interrupted_holds_its_company_back_in_groups() {
    an_interruption_holds_back!(StrictGroup);
}

/// Names the database of a process that its first job ends.
const ENDS_AT_ONCE: &str = "QUEUEABLE_STRICT_LANE_URL";

#[test]
fn a_process_that_its_first_job_ends() {
    // As one of the other tests, it has no database.
    let Ok(url) = env::var(ENDS_AT_ONCE) else { return };
    // A pool that opens connections while its process exits makes libpq's Kerberos library abort it.
    let pool = Pool::builder().max_size(3).min_idle(Some(0)).build(ConnectionManager::<Conn>::new(url)).unwrap();
    let handler = |_: &Strict, _: &mut Message<'_, Conn>| -> HandlerResult { std::process::abort() };
    let poller = Strict::poller(pool, handler).workers(1).crash_accounting(CrashAccounting::Strict);
    poller.run_until_idle().unwrap();
}

#[test]
fn a_job_that_ended_its_process_is_the_next_of_its_company_under_strict_accounts() {
    let database = jobs_of::<Strict>();
    some_jobs(&database);
    let ended = Program::of_this_test(
        "suite::lanes::strict::a_process_that_its_first_job_ends",
        [(ENDS_AT_ONCE, database.url().to_owned())],
    )
    .end();
    assert!(!ended.status.success(), "{ended:?}");
    let mut connection = database.connect();
    // The server may not have noticed yet that the process is gone.
    let begun = Instant::now();
    while Strict::explain(&mut connection, &1).unwrap() != Explanation::Due {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", Strict::explain(&mut connection, &1));
    }

    let watch = Watch::default();
    let seen = watch.clone();
    let handler = move |job: &Strict, _: &mut Message<'_, Conn>| {
        seen.begin(job.id, job.company_id);
        Ok(Outcome::Done)
    };
    let poller = Strict::poller(database.pool(4), handler).workers(2).crash_accounting(CrashAccounting::Strict);
    assert_eq!((poller.run_until_idle().unwrap().succeeded, watch.ids(Some(7))), (6, vec![1, 2, 5]));
}

#[test]
fn a_job_that_fails_for_good_or_is_skipped_lets_the_next_one_go() {
    let database = jobs_of::<Strict>();
    some_jobs(&database);
    let watch = Watch::default();
    let seen = watch.clone();
    let handler = move |job: &Strict, _: &mut Message<'_, Conn>| {
        seen.begin(job.id, job.company_id);
        match job.id {
            1 => Err(Failure::fatal("no such account")),
            2 => Err(Failure::retry("the bank is down")),
            _ => Ok(Outcome::Done),
        }
    };
    let run = || Strict::poller(database.pool(4), handler.clone()).workers(2).run_until_idle().unwrap();
    assert_eq!(run().failed, 1);
    assert_eq!(watch.ids(Some(7)), [1, 2]);
    let skipped = Strict::queue().filter(jobs::id.eq(2)).skip(&mut database.connect()).unwrap();
    assert_eq!((skipped, run().succeeded), (1, 1));
    assert_eq!(watch.ids(Some(7)), [1, 2, 5]);
}

#[test]
fn the_retry_comes_first_whatever_the_order() {
    let database = jobs_of::<StrictByRank>();
    enqueue(&database, [7, 7, 7].map(Some));
    let mut connection = database.connect();
    diesel::update(jobs::table).set(jobs::rank.eq(jobs::id)).execute(&mut connection).unwrap();
    // The last one by its rank has failed and is due again.
    diesel::update(jobs::table.find(1))
        .set((strict_by_rank_queue::status.eq(Status::Error), strict_by_rank_queue::try_count.eq(1)))
        .execute(&mut connection)
        .unwrap();
    let watch = Watch::default();
    let seen = watch.clone();
    let handler = move |job: &StrictByRank, _: &mut Message<'_, Conn>| {
        seen.begin(job.id, job.company_id);
        Ok(Outcome::Done)
    };
    assert_eq!(StrictByRank::poller(database.pool(4), handler).workers(2).run_until_idle().unwrap().succeeded, 3);
    assert_eq!(watch.ids(Some(7)), [1, 3, 2]);
}
