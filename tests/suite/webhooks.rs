//! The example of lease mode, `examples/webhooks`, as processes on a real database: undisturbed, frozen, killed.
//!
//! The checks are SQL of their own, beside what the example says of itself.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use serde_json::{Value, json};

use super::main_job::program::Program;
use super::main_job::{count, report};
use crate::db::{self, Conn, Database};

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
    // SQLite has one writer. Few workers leave enough to do for the moments at which the processes are disturbed.
    let (webhooks, workers) = if db::NAME == "sqlite" { (2_000, 2) } else { (5_000, 4) };
    let run = Run::new(webhooks, workers);
    let session = &mut run.database.connect();
    let mut endpoint = Program::start("webhooks", ["--only", "endpoint"]);
    let url = endpoint.line_after("endpoint ");
    Program::run("webhooks", run.arguments(["--only", "enqueue", "--endpoint", &url])).well();

    let work = || Program::start("webhooks", run.arguments(["--only", "work"]));
    let (mut frozen, mut killed) = (work(), work());
    frozen.await_answer("both processes work", || {
        let in_progress = count(session, "SELECT COUNT(*) FROM webhooks WHERE status = 'IN_PROGRESS'").unwrap();
        // More than one process can hold.
        (in_progress > workers && count(session, "SELECT COUNT(*) FROM answers").unwrap() > 20).then_some(())
    });
    freeze(&frozen, session);
    // Of the rows that succeed at the first try, only those whose lease has ended are tried again.
    const TAKEN_OVER: &str =
        "SELECT COUNT(*) FROM webhooks WHERE try_count > 1 AND (url LIKE '%/ok/%' OR url LIKE '%/slow/%')";
    killed.await_answer("rows of the frozen process are taken over", || {
        (count(session, TAKEN_OVER).unwrap() > 0).then_some(())
    });
    let from_the_frozen = count(session, TAKEN_OVER).unwrap();
    killed.kill();
    let left = count(session, "SELECT COUNT(*) FROM webhooks WHERE next_attempt_time IS NOT NULL").unwrap();
    frozen.signal("CONT");
    let thawed = report(&frozen.end().well());

    let arguments = run.arguments(["--only", "check", "--after-a-crash", "--endpoint", &url]);
    let check = run.check_of(&Program::run("webhooks", arguments).well());
    println!(
        "{from_the_frozen} rows were taken over from the frozen process, {left} were left when the other was killed, {} \
         were taken over in all; the thawed one's tally: {}; calls per key: {}; tries without a call: {}",
        count(session, TAKEN_OVER).unwrap(),
        thawed["handled_here"],
        check["calls_per_key"],
        check["unheard"],
    );
    assert_eq!((&check["holds"], &check["faults"]), (&json!(true), &json!([])));
    assert_eq!(faults(session, webhooks), [0; 5]);
}

/// A database and what every process of a run is told.
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

/// Freezes a process, but not while it holds SQLite's only write lock: nobody could take over its rows then.
fn freeze(program: &Program, session: &mut Conn) {
    let begin = if db::NAME == "sqlite" { "BEGIN IMMEDIATE" } else { "BEGIN" };
    session.batch_execute(begin).unwrap();
    program.signal("STOP");
    session.batch_execute("ROLLBACK").unwrap();
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
