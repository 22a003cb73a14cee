//! The example of lease mode, `examples/services/webhooks`, as processes on a real database: undisturbed, frozen, killed.
//!
//! The checks have SQL of their own, besides the example's own report.

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use serde_json::{Value, json};

use super::main_job::program::Program;
use super::main_job::{count, report};
use crate::db::{self, Conn, Database};
use crate::suite::thorough::times;

#[test]
fn every_webhook_is_called_once_for_each_try_and_its_answer_is_written_once() {
    let run = Run::new(300, 8);
    let check = run.check_of(&Program::run("webhooks", run.arguments(["--seed", "7"])).well());
    assert_eq!((&check["holds"], &check["faults"]), (&json!(true), &json!([])));
    assert_eq!((&check["unheard"], &check["early"]), (&json!(0), &json!(0)));
    assert_eq!(faults(&mut run.database.connect(), 300), [0; 5]);
}

#[test]
fn a_process_that_was_frozen_and_one_that_was_killed_leave_every_webhook_settled_once() {
    // SQLite has one writer, whatever the number of processes: fewer webhooks show the same.
    let webhooks = if db::NAME == "sqlite" { 2_000 } else { times(2_000, 5_000) };
    let run = Run::new(webhooks, 4);
    let session = &mut run.database.connect();
    let mut endpoint = Program::start("webhooks", ["--only", "endpoint"]);
    let url = endpoint.line_after("endpoint ");
    // A claim takes the rows that have been due longest. A lease of the first seconds ends when the rows of the last
    // ones are not due yet.
    Program::run("webhooks", run.arguments(["--only", "enqueue", "--endpoint", &url, "--over", "12"])).well();

    let work = || Program::start("webhooks", run.arguments(["--only", "work"]));
    let mut frozen = work();
    let held = freeze_in_a_call(&mut frozen, session);
    let mut killed = work();
    let taken_over = format!("SELECT COUNT(*) FROM webhooks WHERE id = {held} AND try_count > 1");
    killed.await_answer("a row of the frozen process is taken over", || {
        (count(session, &taken_over).unwrap() > 0).then_some(())
    });
    killed.kill();
    let left = count(session, "SELECT COUNT(*) FROM webhooks WHERE next_attempt_time IS NOT NULL").unwrap();
    assert!(left > 0);
    frozen.signal("CONT");
    let thawed = report(&frozen.end().well());

    let arguments = run.arguments(["--only", "check", "--after-a-crash", "--endpoint", &url]);
    let check = run.check_of(&Program::run("webhooks", arguments).well());
    // Rows that succeed at their first try, unless the try is interrupted.
    let again = "SELECT COUNT(*) FROM webhooks WHERE try_count > 1 AND (url LIKE '%/ok/%' OR url LIKE '%/slow/%')";
    println!(
        "{left} of {webhooks} webhooks were left when one process was frozen and the other killed; {} of those that need one \
         try had more; the thawed process's tally: {}; calls per key: {}; tries without a call: {}",
        count(session, again).unwrap(),
        thawed["handled_here"],
        check["calls_per_key"],
        check["unheard"],
    );
    assert_eq!((&check["holds"], &check["faults"]), (&json!(true), &json!([])));
    assert_eq!(faults(session, webhooks), [0; 5]);
}

/// A database, and the arguments of every process of a run.
struct Run {
    database: Database,
    webhooks: String,
    workers: String,
}

impl Run {
    fn new(webhooks: i64, workers: i64) -> Self {
        Run { database: Database::new(), webhooks: webhooks.to_string(), workers: workers.to_string() }
    }

    fn arguments<'a>(&'a self, more: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        let run = ["--database-url", self.database.url(), "--webhooks", &self.webhooks, "--workers", &self.workers];
        run.into_iter().chain(["--json"]).chain(more).collect()
    }

    fn check_of(&self, said: &str) -> Value {
        report(said)["check"].take()
    }
}

/// Freezes a process that works alone during a call, and returns the row that it holds.
///
/// The process must not hold a lock meanwhile, or nobody could take over: neither SQLite's only lock nor that of the
/// row.
fn freeze_in_a_call(program: &mut Program, session: &mut Conn) -> i64 {
    const SLOW: &str = "status = 'IN_PROGRESS' AND url LIKE '%/slow/%'";
    let (begin, unlocked) =
        if db::NAME == "sqlite" { ("BEGIN IMMEDIATE", "") } else { ("BEGIN", " FOR UPDATE SKIP LOCKED") };
    let in_a_call = format!("SELECT COUNT(*) FROM webhooks WHERE {SLOW}");
    loop {
        program.await_answer("a slow call runs", || (count(session, &in_a_call).unwrap() > 0).then_some(()));
        // SQLite's lock has no queue: the process's workers may pass it to one another for longer than the session
        // waits.
        program.await_answer("the lock is free for a moment", || {
            let begun = session.batch_execute(begin);
            let is_taken = matches!(&begun, Err(error) if error.to_string().contains("database is locked"));
            (!is_taken).then(|| begun.unwrap())
        });
        program.freeze();
        session.batch_execute("ROLLBACK").unwrap();
        let held = sql::<BigInt>(&format!("SELECT id FROM webhooks WHERE {SLOW}{unlocked}")).load(session).unwrap();
        match held.first() {
            Some(row) => return *row,
            None => program.signal("CONT"),
        }
    }
}

/// The webhooks that are missing or not settled; those with two answers; the answers of a try that was not the one that
/// succeeded, as a stale owner would write them; the webhooks with SUCCESS and no answer; the answers that are no success.
fn faults(session: &mut Conn, webhooks: i64) -> [i64; 5] {
    [
        format!(
            "SELECT {webhooks} - COUNT(*) FROM webhooks WHERE status IN ('SUCCESS', 'FAILED') AND next_attempt_time IS NULL"
        )
        .as_str(),
        "SELECT COUNT(*) FROM (SELECT webhook_id FROM answers GROUP BY webhook_id HAVING COUNT(*) > 1) AS doubled",
        "SELECT COUNT(*) FROM answers LEFT JOIN webhooks ON webhooks.id = answers.webhook_id
            AND webhooks.status = 'SUCCESS' AND webhooks.try_count = answers.try_number WHERE webhooks.id IS NULL",
        "SELECT COUNT(*) FROM webhooks LEFT JOIN answers ON answers.webhook_id = webhooks.id
            WHERE webhooks.status = 'SUCCESS' AND answers.webhook_id IS NULL",
        "SELECT COUNT(*) FROM answers WHERE status <> 200",
    ]
    .map(|faults| count(session, faults).unwrap())
}
