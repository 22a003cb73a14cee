//! Small cases at random, under two pollers that share nothing but the database: rows fail and are retried, are skipped
//! and enqueued meanwhile, and lose their sessions. What the handlers have noted is judged from outside.
//!
//! A case is drawn from its seed, but the threads run as they like. `QUEUEABLE_LANE_SEEDS=12..13` runs other seeds than
//! the usual ones, for example one of them, or thousands.

mod case;
mod journal;
mod judge;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use queueable::{Failure, HandlerResult, Lease, Message, Outcome, Queueable};

use self::case::{Answer, Case, Deed, Row, Step};
use self::journal::Journal;
use self::judge::{Left, Rules, What, judge};
use super::{jobs, jobs_of};
use crate::db::{Conn, Database, NAME};

/// How many cases each entity has.
const CASES: u64 = 24;

/// How long a case may make no progress: a place that nobody has given back holds its value for ever.
const PATIENCE: Duration = Duration::from_secs(120);

const POLL_INTERVAL: Duration = Duration::from_millis(5);

macro_rules! lane {
    ($name:ident, $module:ident, $($settings:tt)*) => {
        #[derive(Debug, Clone, Queryable, Selectable, Queueable)]
        #[diesel(table_name = jobs)]
        #[queue(module = $module, retry = fixed("2ms"), max_tries = 3, timeout = "30s", $($settings)*)]
        struct $name {
            id: i64,
        }
    };
}

lane!(Serial, serial_queue, serial_by = company_id);
lane!(SerialGroup, serial_group_queue, serial_by = company_id, group = 4);
lane!(SerialLease, serial_lease_queue, serial_by = company_id, lease = "60s");
lane!(Strict, strict_queue, serial_by(company_id, strict));
lane!(StrictGroup, strict_group_queue, serial_by(company_id, strict), group = 4);
lane!(StrictLease, strict_lease_queue, serial_by(company_id, strict), lease = "60s");
lane!(Pairs, pairs_queue, at_most(2, by = company_id));
lane!(PairsGroup, pairs_group_queue, at_most(2, by = company_id), group = 4);
lane!(PairsLease, pairs_lease_queue, at_most(2, by = company_id), lease = "60s");
lane!(ByRank, by_rank_queue, serial_by = company_id, order_by = rank.desc());
lane!(StrictByRank, strict_by_rank_queue, serial_by(company_id, strict), order_by = rank.desc(), lease = "60s");
lane!(Three, three_queue, fair_by = company_id, at_most(3));
lane!(ThreeLease, three_lease_queue, at_most(2, by = company_id), at_most(3), lease = "60s");
lane!(ThreeGroup, three_group_queue, at_most(3), group = 4);

const NONE: Rules =
    Rules { of_value: None, of_all: None, is_serial: false, is_strict: false, is_by_rank: false, is_leased: false };
const SERIAL: Rules = Rules { of_value: Some(1), is_serial: true, ..NONE };
const STRICT: Rules = Rules { is_strict: true, ..SERIAL };
const PAIRS: Rules = Rules { of_value: Some(2), ..NONE };
const THREE: Rules = Rules { of_all: Some(3), ..NONE };

/// What the handlers share: the case that they play, and their journal.
struct Scene {
    journal: Journal,
    case: Mutex<Arc<Case>>,
    attempts: AtomicI64,
    /// The rows that have lost their session.
    unlucky: Mutex<HashSet<i64>>,
}

impl Scene {
    fn new() -> Self {
        let case = Mutex::default();
        Scene { journal: Journal::new(), case, attempts: AtomicI64::new(1), unlucky: Mutex::default() }
    }

    fn begin(&self, id: i64) -> i64 {
        let attempt = self.attempts.fetch_add(1, Ordering::SeqCst);
        self.journal.note(attempt, id, What::Began);
        attempt
    }

    /// `None` if the row was skipped between its claim and this call, and with that its case has ended.
    fn begin_call(&self, id: i64, try_number: u32) -> Option<(i64, Step)> {
        let case = self.case.lock().unwrap();
        let step = case.row(id)?.step(try_number);
        Some((self.begin(id), step))
    }

    fn step(&self, id: i64, try_number: u32) -> Step {
        let case = self.case.lock().unwrap().clone();
        let row = case.row(id).unwrap_or_else(|| panic!("row {id} is none of this case"));
        row.step(try_number)
    }

    fn loses_session(&self, id: i64, step: Step) -> bool {
        step.loses_session && self.unlucky.lock().unwrap().insert(id)
    }

    fn answer(&self, attempt: i64, id: i64, step: Step) -> Result<(), Failure> {
        self.journal.note(attempt, id, What::of_answer(step.answer));
        match step.answer {
            Answer::Done => Ok(()),
            Answer::Retry => Err(Failure::retry("not this time")),
            Answer::Fatal => Err(Failure::fatal("never")),
        }
    }

    fn handle(&self, id: i64, message: &mut Message<'_, Conn>) -> HandlerResult {
        let attempt = self.begin(id);
        let step = self.step(id, message.try_number());
        self.journal.take_time(step.round_trips);
        if self.loses_session(id, step) {
            let end = end_of_session(message.connection());
            self.journal.note(attempt, id, What::Lost);
            self.journal.with(|other| other.batch_execute(&end))?;
            self.journal.take_time(5);
            return Ok(Outcome::Done);
        }
        self.answer(attempt, id, step).map(|()| Outcome::Done)
    }

    fn call(&self, id: i64, lease: &Lease) -> Result<(i64, u32), Failure> {
        let Some((attempt, step)) = self.begin_call(id, lease.try_number()) else { return Ok((0, lease.try_number())) };
        self.journal.take_time(step.round_trips);
        match step.answer {
            Answer::Done => Ok((attempt, lease.try_number())),
            Answer::Retry | Answer::Fatal => self.answer(attempt, id, step).map(|()| (attempt, lease.try_number())),
        }
    }

    fn apply(&self, id: i64, call: (i64, u32), message: &mut Message<'_, Conn>) -> HandlerResult {
        let step = self.step(id, call.1);
        if self.loses_session(id, step) {
            // The lease outlives the session, and so does the attempt.
            let end = end_of_session(message.connection());
            self.journal.with(|other| other.batch_execute(&end))?;
            self.journal.take_time(5);
            return Ok(Outcome::Done);
        }
        self.answer(call.0, id, step).map(|()| Outcome::Done)
    }
}

/// The statement by which another session ends this one.
fn end_of_session(connection: &mut Conn) -> String {
    let (id, end) = match NAME {
        "postgres" => ("CAST(pg_backend_pid() AS bigint)", "SELECT pg_terminate_backend"),
        _ => ("CAST(CONNECTION_ID() AS SIGNED)", "KILL CONNECTION "),
    };
    let id: i64 = diesel::select(diesel::dsl::sql::<BigInt>(id)).get_result(connection).unwrap();
    if NAME == "postgres" { format!("{end}({id})") } else { format!("{end}{id}") }
}

fn seeds() -> Range<u64> {
    let Ok(asked) = std::env::var("QUEUEABLE_LANE_SEEDS") else { return 0..CASES };
    let (first, end) = asked.split_once("..").expect("QUEUEABLE_LANE_SEEDS is like 0..24");
    first.parse().unwrap()..end.parse().unwrap()
}

/// Plays all cases.
fn play_all(title: &str, rules: Rules, database: &Database, scene: &Scene, skip: &dyn Fn(&mut Conn, i64) -> bool) {
    let mut connection = database.connect();
    for (played, seed) in (1..).zip(seeds()) {
        // SQLite's sessions are the process's own.
        let case = Arc::new(Case::draw(seed, played * 100, rules, NAME != "sqlite"));
        *scene.case.lock().unwrap() = case.clone();
        let stands_still = play(&case, &mut connection, scene, skip);
        *scene.case.lock().unwrap() = Arc::default();
        let (journal, left) = (scene.journal.take(), left(&mut connection));
        let verdict = match stands_still {
            true => Err("no progress".to_owned()),
            false => judge(&case, rules, &journal, &left),
        };
        if let Err(why) = verdict {
            let journal: Vec<_> = journal.iter().map(|entry| format!("{entry:?}")).collect();
            let rows: Vec<_> = case.rows.iter().map(|row| format!("{row:?}")).collect();
            panic!(
                "{title} on {NAME}, QUEUEABLE_LANE_SEEDS={seed}..{}: {why}\n{}\n{}\nleft {left:?}",
                seed + 1,
                rows.join("\n"),
                journal.join("\n")
            );
        }
        connection.batch_execute("DELETE FROM jobs").unwrap();
    }
}

/// Plays a case until no row is pending. Returns whether it stands still before that.
fn play(case: &Case, connection: &mut Conn, scene: &Scene, skip: &dyn Fn(&mut Conn, i64) -> bool) -> bool {
    let before = scene.journal.len();
    enqueue(connection, case.rows.iter().filter(|row| !row.comes_later));
    let mut deeds = case.deeds.iter().copied().peekable();
    let (mut moved, mut last) = (before, Instant::now());
    loop {
        let is_idle = pending(connection) == 0;
        match deeds.peek() {
            Some(&(after, deed)) if is_idle || scene.journal.await_entries(before + after) => {
                deeds.next();
                act(case, deed, connection, scene, skip);
            }
            Some(_) => {}
            None if is_idle => return false,
            None => {
                scene.journal.await_entries(scene.journal.len() + 1);
            }
        }
        let now = scene.journal.len();
        if now != moved {
            (moved, last) = (now, Instant::now());
        }
        if last.elapsed() > PATIENCE {
            return true;
        }
    }
}

fn act(case: &Case, deed: Deed, connection: &mut Conn, scene: &Scene, skip: &dyn Fn(&mut Conn, i64) -> bool) {
    match deed {
        Deed::Enqueue(id) => {
            enqueue(connection, case.row(id));
            scene.journal.note(0, id, What::Enqueued);
        }
        Deed::Skip(id) => {
            scene.journal.note(0, id, What::Skipping);
            if skip(connection, id) {
                scene.journal.note(0, id, What::Skipped);
            }
        }
    }
}

fn enqueue<'a>(connection: &mut Conn, rows: impl IntoIterator<Item = &'a Row>) {
    let values: Vec<_> = rows
        .into_iter()
        .map(|Row { id, value, rank, due, .. }| {
            let value = value.map_or("NULL".to_owned(), |value| value.to_string());
            format!("({id}, {value}, {rank}, '2026-01-01 00:00:{due:02}.000')")
        })
        .collect();
    if values.is_empty() {
        return;
    }
    let rank = if NAME == "mysql" { "`rank`" } else { "\"rank\"" };
    let insert = format!("INSERT INTO jobs (id, company_id, {rank}, next_attempt_time) VALUES {}", values.join(", "));
    connection.batch_execute(&insert).unwrap();
}

fn pending(connection: &mut Conn) -> i64 {
    let pending = diesel::dsl::sql::<diesel::sql_types::Bool>("next_attempt_time IS NOT NULL");
    jobs::table.filter(pending).count().get_result(connection).unwrap()
}

fn left(connection: &mut Conn) -> Vec<Left> {
    #[derive(QueryableByName)]
    struct Line {
        #[diesel(sql_type = BigInt)]
        id: i64,
        #[diesel(sql_type = Text)]
        status: String,
        #[diesel(sql_type = Nullable<BigInt>)]
        pending: Option<i64>,
    }
    let select = "SELECT id, status, CASE WHEN next_attempt_time IS NULL THEN NULL ELSE id END AS pending FROM jobs";
    let lines: Vec<Line> = diesel::sql_query(select).load(connection).unwrap();
    let left = |line: Line| Left { id: line.id, status: line.status, is_pending: line.pending.is_some() };
    lines.into_iter().map(left).collect()
}

/// Plays the cases of an entity under two pollers.
macro_rules! played {
    ($test:ident, $entity:ident, $rules:expr, $handler:expr) => {
        #[test]
        fn $test() {
            let (database, scene) = (jobs_of::<$entity>(), Arc::new(Scene::new()));
            let start = |workers| {
                let poller = $entity::poller(database.pool(8), $handler(scene.clone())).workers(workers);
                poller.poll_interval(POLL_INTERVAL).start().unwrap()
            };
            let pollers = [start(2), start(3)];
            let skip = |connection: &mut Conn, id: i64| {
                $entity::queue().filter(jobs::id.eq(id)).skip(connection).is_ok_and(|rows| rows == 1)
            };
            play_all(stringify!($entity), $rules, &database, &scene, &skip);
            for poller in pollers {
                poller.shutdown(PATIENCE);
            }
        }
    };
}

macro_rules! in_a_transaction {
    ($test:ident, $entity:ident, $rules:expr) => {
        played!($test, $entity, $rules, |scene: Arc<Scene>| {
            move |job: &$entity, message: &mut Message<'_, Conn>| scene.handle(job.id, message)
        });
    };
}

macro_rules! under_a_lease {
    ($test:ident, $entity:ident, $rules:expr) => {
        played!($test, $entity, Rules { is_leased: true, ..$rules }, |scene: Arc<Scene>| {
            let other = scene.clone();
            (
                move |job: &$entity, lease: &Lease| scene.call(job.id, lease),
                move |job: &$entity, call: &(i64, u32), message: &mut Message<'_, Conn>| {
                    other.apply(job.id, *call, message)
                },
            )
        });
    };
}

in_a_transaction!(rows_of_a_value_run_one_at_a_time_in_order, Serial, SERIAL);
in_a_transaction!(rows_of_a_value_run_one_at_a_time_in_order_in_groups, SerialGroup, SERIAL);
under_a_lease!(rows_of_a_value_run_one_at_a_time_in_order_under_a_lease, SerialLease, SERIAL);
in_a_transaction!(no_row_passes_one_that_failed, Strict, STRICT);
in_a_transaction!(no_row_passes_one_that_failed_in_groups, StrictGroup, STRICT);
under_a_lease!(no_row_passes_one_that_failed_under_a_lease, StrictLease, STRICT);
in_a_transaction!(two_rows_of_a_value_run_at_most, Pairs, PAIRS);
in_a_transaction!(two_rows_of_a_value_run_at_most_in_groups, PairsGroup, PAIRS);
under_a_lease!(two_rows_of_a_value_run_at_most_under_a_lease, PairsLease, PAIRS);
in_a_transaction!(rows_of_a_value_run_in_the_order_of_their_ranks, ByRank, Rules { is_by_rank: true, ..SERIAL });
under_a_lease!(no_row_passes_one_that_failed_by_rank, StrictByRank, Rules { is_by_rank: true, ..STRICT });
in_a_transaction!(three_rows_run_at_most, Three, THREE);
under_a_lease!(three_rows_run_at_most_and_two_of_a_value_under_a_lease, ThreeLease, Rules { of_all: Some(3), ..PAIRS });
in_a_transaction!(three_rows_run_at_most_in_groups, ThreeGroup, THREE);
