//! In a strictly serial lane a row on which the database refuses to write holds back those behind it. Other lanes go on,
//! and the run ends. In a plain serial lane those behind it go on, in their order.

use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queueable::{HandlerResult, Lease, Message, Outcome, Poller, PollerHandle, Queueable, Status, Tally};

use super::{Watch, enqueue, job, jobs, jobs_of};
use crate::db::{Conn, Database, KEEP_SEVEN, PUT_SEVEN_BACK, REFUSE_SEVEN, REFUSE_STATE_OF_SEVEN};

job!(Strict, strict_queue, serial_by(company_id, strict));
job!(StrictGroup, strict_group_queue, serial_by(company_id, strict), group = 4);
job!(StrictLease, strict_lease_queue, serial_by(company_id, strict), lease = "60s");

/// How many companies have a sound first job, and how many have a refused one: more than a claim passes over by their
/// keys.
const SOUND: i64 = 30;
const REFUSED: i64 = 60;

/// How many jobs are behind each refused one.
const BEHIND: i64 = 10;

/// Enqueues the first half of the sound jobs, so that groups grow, then the refused ones and those behind them, and
/// then the other half. Two jobs without a company come first; one of them is refused.
fn some_jobs(database: &Database) {
    let refused = SOUND + 1..=SOUND + REFUSED;
    let behind = (0..BEHIND).flat_map(|_| refused.clone());
    let companies = (1..=SOUND / 2).chain(refused.clone()).chain(behind).chain(SOUND / 2 + 1..=SOUND);
    enqueue(database, [None, None].into_iter().chain(companies.map(Some)));
    let mut connection = database.connect();
    let first: Vec<i64> = jobs::table
        .filter(jobs::company_id.gt(SOUND))
        .group_by(jobs::company_id)
        .select(diesel::dsl::min(jobs::id).assume_not_null())
        .load(&mut connection)
        .unwrap();
    assert_eq!(i64::try_from(first.len()), Ok(REFUSED));
    let without_company: Option<i64> = jobs::table
        .filter(jobs::company_id.is_null())
        .select(diesel::dsl::min(jobs::id))
        .get_result(&mut connection)
        .unwrap();
    let refused = jobs::table.filter(jobs::id.eq_any(first.into_iter().chain(without_company)));
    diesel::update(refused).set(jobs::rank.eq(7)).execute(&mut connection).unwrap();
}

/// A trigger for payments of 7 cents, for jobs of the rank 7.
pub(super) fn for_jobs(trigger: &str) -> String {
    trigger.replace("payments", "jobs").replace("amount_cents", "rank")
}

macro_rules! a_refusal_holds_back {
    ($entity:ident, $module:ident, $poller:expr) => {
        for trigger in [REFUSE_SEVEN, KEEP_SEVEN, PUT_SEVEN_BACK, REFUSE_STATE_OF_SEVEN] {
            let (database, watch) = (jobs_of::<$entity>(), Watch::default());
            some_jobs(&database);
            let mut connection = database.connect();
            connection.batch_execute(&for_jobs(trigger)).unwrap();
            let poller: fn(&Database, Watch) -> Poller<Conn> = $poller;
            let tally = poller(&database, watch.clone()).workers(2).run_until_idle().unwrap();
            let succeeded = jobs::table.filter($module::status.eq(Status::Success));
            let of_companies = succeeded.filter(jobs::company_id.le(SOUND)).count().get_result(&mut connection);
            assert_eq!(of_companies, Ok(SOUND), "{trigger}: {tally:?}");
            let all = succeeded.count().get_result(&mut connection);
            assert_eq!(all, Ok(SOUND + 1), "with one without a company, {trigger}: {tally:?}");
            let passed = jobs::table.filter(jobs::company_id.gt(SOUND)).filter(jobs::rank.eq(0)).select(jobs::id);
            let passed: Vec<i64> = passed.load(&mut connection).unwrap();
            let begun = (SOUND + 1..=SOUND + REFUSED).flat_map(|company| watch.ids(Some(company)));
            let passed: Vec<_> = begun.filter(|id| passed.contains(id)).collect();
            assert!(passed.is_empty(), "{passed:?} are behind a refused one, {trigger}: {tally:?}");
            assert!(tally.refused > REFUSED.unsigned_abs(), "{trigger}: {tally:?}");
        }
    };
}

macro_rules! noting {
    ($entity:ident) => {
        |database, watch| {
            let handler = move |job: &$entity, _: &mut Message<'_, Conn>| -> HandlerResult {
                watch.begin(job.id, job.company_id);
                Ok(Outcome::Done)
            };
            $entity::poller(database.pool(4), handler)
        }
    };
}

#[test]
fn a_job_that_is_refused_holds_its_company_back_in_a_transaction() {
    a_refusal_holds_back!(Strict, strict_queue, noting!(Strict));
}

#[test]
fn a_job_that_is_refused_holds_its_company_back_in_groups() {
    a_refusal_holds_back!(StrictGroup, strict_group_queue, noting!(StrictGroup));
}

#[test]
fn a_job_that_is_refused_holds_its_company_back_under_a_lease() {
    a_refusal_holds_back!(StrictLease, strict_lease_queue, |database, watch| {
        let call = move |job: &StrictLease, _: &Lease| {
            watch.begin(job.id, job.company_id);
            Ok(())
        };
        let apply = |_: &StrictLease, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done);
        StrictLease::poller(database.pool(4), (call, apply))
    });
}

#[test]
fn the_company_goes_on_when_an_operator_skips_the_refused_job() {
    let (database, watch) = (jobs_of::<Strict>(), Watch::default());
    enqueue(&database, [7, 7].map(Some));
    let mut connection = database.connect();
    diesel::update(jobs::table.find(1)).set(jobs::rank.eq(7)).execute(&mut connection).unwrap();
    connection.batch_execute(&for_jobs(REFUSE_SEVEN)).unwrap();
    let poller: fn(&Database, Watch) -> Poller<Conn> = noting!(Strict);
    let handle = poller(&database, watch.clone()).workers(1).start().unwrap();
    await_tally(&handle, |tally| tally.refused > 0);
    // What refuses the row is gone, but its pause is not over: only the skip lets the next job go.
    let name = REFUSE_SEVEN.split("CREATE TRIGGER ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let of_table = if crate::db::NAME == "postgres" { " ON jobs" } else { "" };
    connection.batch_execute(&format!("DROP TRIGGER {name}{of_table}")).unwrap();
    assert_eq!(Strict::queue().filter(jobs::id.eq(1)).skip(&mut connection).unwrap(), 1);
    await_tally(&handle, |tally| tally.succeeded == 1);
    assert_eq!(watch.ids(Some(7)).last(), Some(&2));
}

fn await_tally(handle: &PollerHandle, wanted: impl Fn(Tally) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(300);
    while !wanted(handle.tally()) {
        assert!(Instant::now() < deadline, "{:?}", handle.tally());
        thread::park_timeout(Duration::from_millis(5));
    }
}

job!(Serial, serial_queue, serial_by = company_id);
job!(SerialGroup, serial_group_queue, serial_by = company_id, group = 4);
job!(SerialLease, serial_lease_queue, serial_by = company_id, lease = "60s");

macro_rules! nobody_overtakes {
    ($entity:ident, $poller:expr) => {
        for of_company in [1, REFUSED] {
            let (database, watch) = (jobs_of::<$entity>(), Watch::default());
            let others = SOUND + 1..=SOUND + REFUSED;
            enqueue(&database, others.chain((0..of_company).map(|_| 7)).map(Some));
            let mut connection = database.connect();
            let refused = diesel::update(jobs::table).set(jobs::rank.eq(7)).execute(&mut connection).unwrap();
            connection.batch_execute(&for_jobs(REFUSE_SEVEN)).unwrap();
            let poller: fn(&Database, Watch) -> Poller<Conn> = $poller;
            let handle = poller(&database, watch.clone()).workers(2).start().unwrap();
            await_tally(&handle, |tally| tally.refused >= refused as u64);
            // Claims begin behind the refused ones by now, and so behind the first of these two.
            let sound = "(7, '2026-01-01 00:00:01.500'), (7, '2026-01-01 02:00:00.000')";
            let insert = format!("INSERT INTO jobs (company_id, next_attempt_time) VALUES {sound}");
            connection.batch_execute(&insert).unwrap();
            handle.wake();
            await_tally(&handle, |tally| tally.succeeded == 2);
            let sound = jobs::table.filter(jobs::rank.eq(0)).order(jobs::id).select(jobs::id);
            let sound: Vec<i64> = sound.load(&mut connection).unwrap();
            let mut begun = watch.ids(Some(7));
            begun.retain(|id| sound.contains(id));
            assert_eq!(begun, sound, "{of_company} refused ones of the same company");
        }
    };
}

#[test]
fn behind_refused_jobs_none_overtakes_another_of_its_company_in_a_transaction() {
    nobody_overtakes!(Serial, noting!(Serial));
}

#[test]
fn behind_refused_jobs_none_overtakes_another_of_its_company_in_groups() {
    nobody_overtakes!(SerialGroup, noting!(SerialGroup));
}

#[test]
fn behind_refused_jobs_none_overtakes_another_of_its_company_under_a_lease() {
    nobody_overtakes!(SerialLease, |database, watch| {
        let call = move |job: &SerialLease, _: &Lease| {
            watch.begin(job.id, job.company_id);
            Ok(())
        };
        let apply = |_: &SerialLease, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done);
        SerialLease::poller(database.pool(4), (call, apply))
    });
}
