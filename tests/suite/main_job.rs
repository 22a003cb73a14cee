//! The main job, `examples/payments`, as processes on a real database: killed, resumed, and several at once.
//!
//! The checks have SQL of their own and use none of the library's code.

use std::fs;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use serde_json::Value;
use tempfile::TempDir;

use self::program::Program;
use crate::db::{self, Conn, Database};
use crate::suite::thorough::times;

#[allow(unused, reason = "`tests/examples.rs` needs more of it")]
#[path = "../program/mod.rs"]
pub(crate) mod program;

#[test]
fn the_main_job_survives_kills_at_random_moments() {
    let kills = times(6, 20);
    let payments = times(1_500, 4_000);
    let mut random = Random::new();
    let job = Job::new(payments);
    let mut session = job.database.connect();
    let mut moments = Vec::new();
    for kill in 0..kills {
        let mut program = job.start(4);
        let before = booked_so_far(&mut session);
        if kill % 4 == 0 || (kill < kills / 2 && !is_enqueued(&mut session)) {
            // Nothing can be seen yet: the kill hits the start, the set-up or the enqueue, or what follows.
            wait(Duration::from_millis(random.below(40 + 20 * kill.min(5))));
        } else {
            let enough = before + 1 + i64::try_from(random.below(100)).unwrap();
            program.await_answer("more payments are booked", || (booked_so_far(&mut session) >= enough).then_some(()));
        }
        program.kill();
        moments.push(match (is_set_up(&mut session), is_enqueued(&mut session)) {
            (false, _) => "during set-up".to_owned(),
            (true, false) => "before the enqueue's commit".to_owned(),
            _ => format!("{} booked", booked_so_far(&mut session) - before),
        });
        if is_set_up(&mut session) {
            assert_eq!(half_enqueued(&mut session, payments), 0, "after {moments:?}");
        }
        if booked_so_far(&mut session) > 0 {
            assert_eq!(faults(&mut session), [0; 6], "after {moments:?}");
        }
    }
    let left = payments - booked_so_far(&mut session);
    let report = report(&job.start(4).end().well());
    println!(
        "{kills} kills after {moments:?}, {left} payments were left, the last run's tally: {}",
        report["handled_here"]
    );
    assert_eq!(faults(&mut session), [0; 6]);
    assert_done(&mut session, &report, payments);
}

#[test]
fn two_processes_with_eight_workers_each_handle_every_payment_once() {
    // SQLite has one writer, whatever the number of processes: fewer payments show the same.
    let payments = if db::NAME == "sqlite" { times(2_000, 4_000) } else { times(5_000, 20_000) };
    let job = Job::new(payments);
    let mut session = job.database.connect();
    let mut one = job.start(8);
    one.await_answer("the first payment is booked", || (booked_so_far(&mut session) > 0).then_some(()));
    let other = job.start(8);
    let reports = [one, other].map(|program| report(&program.end().well()));
    assert_eq!(faults(&mut session), [0; 6]);
    assert_done(&mut session, &reports[0], payments);
    // Every row was handled in one of the processes, and in one only.
    let succeeded = reports.each_ref().map(|report| report["handled_here"]["succeeded"].as_i64().unwrap());
    println!("each process's tally: {} and {}", reports[0]["handled_here"], reports[1]["handled_here"]);
    // SQLite's lock is not fair: the last writer is likely to write next, and may leave nothing to the other process.
    assert!(db::NAME == "sqlite" || succeeded.iter().all(|rows| *rows > 0), "{succeeded:?}");
    assert_eq!(succeeded.iter().sum::<i64>(), booked_so_far(&mut session));
    let wrong_tries = "SELECT COUNT(*) FROM payments WHERE id > 1000 AND try_count <> \
        CASE WHEN amount_cents > 0 AND amount_cents % 100 = 13 THEN 2 ELSE 1 END";
    assert_eq!(count(&mut session, wrong_tries), Ok(0));
}

/// A database and an input file of the main job.
pub(crate) struct Job {
    pub(crate) database: Database,
    directory: TempDir,
}

impl Job {
    pub(crate) fn new(payments: i64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let job = Self { database: Database::new(), directory };
        fs::write(job.input(), program::payments(payments)).unwrap();
        job
    }

    fn input(&self) -> PathBuf {
        self.directory.path().join("payments.csv")
    }

    /// Starts a process, which begins the run or joins it.
    fn start(&self, workers: u32) -> Program {
        Program::start("payments", self.arguments(workers))
    }

    /// The same with a wrong clock.
    #[allow(dead_code, reason = "only the roots with a server need it")]
    pub(crate) fn start_at(&self, offset: &str) -> Program {
        Program::start_at(offset, "payments", self.arguments(4))
    }

    fn arguments(&self, workers: u32) -> impl Iterator<Item = String> {
        let input = self.input();
        let arguments = ["--resume", "--json", "--database-url", self.database.url(), "--input"];
        let arguments: Vec<_> = arguments.map(str::to_owned).into();
        arguments.into_iter().chain([
            input.to_str().expect("a temporary directory's path is text").to_owned(),
            "--workers".to_owned(),
            workers.to_string(),
        ])
    }
}

pub(crate) fn report(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

/// Returns how many payments are in the ledger, or none before the ledger exists.
fn booked_so_far(session: &mut Conn) -> i64 {
    count(session, "SELECT COUNT(*) FROM ledger").unwrap_or(0)
}

fn is_set_up(session: &mut Conn) -> bool {
    count(session, "SELECT COUNT(*) FROM imports").is_ok()
}

fn is_enqueued(session: &mut Conn) -> bool {
    count(session, "SELECT COUNT(*) FROM imports") == Ok(1)
}

/// Returns how many payments are enqueued beyond none, or, once the import is recorded, beyond all.
fn half_enqueued(session: &mut Conn, payments: i64) -> i64 {
    let sql =
        format!("SELECT (SELECT COUNT(*) FROM payments WHERE id > 1000) - {payments} * (SELECT COUNT(*) FROM imports)");
    count(session, &sql).unwrap()
}

/// The payments with two ledger rows; the ledger rows without SUCCESS; the SUCCESS rows without a ledger row; the
/// companies with a wrong balance; the payments that were lost; the old payments that were touched. One statement, so
/// that it sees one state: a server may still commit what a killed process has asked for.
pub(crate) fn faults(session: &mut Conn) -> [i64; 6] {
    const FAULTS: &str = "
        (SELECT COUNT(*) FROM (SELECT payment_id FROM ledger GROUP BY payment_id HAVING COUNT(*) > 1) AS doubled),
        (SELECT COUNT(*) FROM ledger LEFT JOIN payments ON payments.id = ledger.payment_id
            AND payments.status = 'SUCCESS' AND payments.amount_cents = ledger.amount_cents WHERE payments.id IS NULL),
        (SELECT COUNT(*) FROM payments LEFT JOIN ledger ON ledger.payment_id = payments.id
            WHERE payments.status = 'SUCCESS' AND ledger.payment_id IS NULL),
        (SELECT COUNT(*) FROM companies LEFT JOIN (SELECT company_id, SUM(amount_cents) AS cents FROM payments
            WHERE status = 'SUCCESS' GROUP BY company_id) AS booked ON booked.company_id = companies.id
            WHERE companies.balance_cents <> COALESCE(booked.cents, 0)),
        (SELECT COUNT(*) FROM payments WHERE id > 1000 AND next_attempt_time IS NULL
            AND status NOT IN ('SUCCESS', 'FAILED')),
        (SELECT COUNT(*) FROM payments WHERE id <= 1000 AND (status <> 'NOT_ATTEMPTED' OR next_attempt_time IS NOT NULL
            OR try_count <> 0 OR last_attempt_time IS NOT NULL))";
    type Six = (BigInt, BigInt, BigInt, BigInt, BigInt, BigInt);
    let (a, b, c, d, e, f) =
        diesel::select(sql::<Six>(FAULTS)).get_result::<(i64, i64, i64, i64, i64, i64)>(session).unwrap();
    [a, b, c, d, e, f]
}

/// Compares the result with the input, and with the program's own report.
pub(crate) fn assert_done(session: &mut Conn, report: &Value, payments: i64) {
    let amounts: Vec<i64> = program::payments(payments)
        .lines()
        .skip(1)
        .map(|line| line.split_once(',').unwrap().1.parse().unwrap())
        .filter(|amount| *amount > 0)
        .collect();
    let booked = i64::try_from(amounts.len()).unwrap();
    let cents: i64 = amounts.iter().sum();
    assert_eq!(booked_so_far(session), booked);
    assert_eq!(report["statuses"], serde_json::json!({"SUCCESS": booked, "FAILED": payments - booked, "unknown": 0}));
    let check = &report["check"];
    assert_eq!((&check["ledger_rows"], &check["success_rows"]), (&booked.into(), &booked.into()));
    assert_eq!((&check["ledger_cents"], &check["balance_cents"]), (&cents.into(), &cents.into()));
    assert_eq!((&check["old_rows_untouched"], &check["holds"]), (&1000.into(), &true.into()));
}

pub(crate) fn count(session: &mut Conn, query: &str) -> QueryResult<i64> {
    sql::<BigInt>(query).get_result(session)
}

/// Lets time pass, in which another process makes progress.
fn wait(time: Duration) {
    let (_nobody, nothing) = mpsc::channel::<()>();
    let _ = nothing.recv_timeout(time);
}

/// Random numbers (splitmix64). The test prints the seed, and reads it from `QUEUEABLE_SEED` to repeat a failure.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let given = std::env::var("QUEUEABLE_SEED").ok().and_then(|seed| seed.parse().ok());
        let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("the clock is past 1970");
        let seed = given.unwrap_or_else(|| u64::from(now().subsec_nanos()));
        println!("QUEUEABLE_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}
