//! `replay`: an attempt once more, of which nothing stays.

use std::fs;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queueable::{QueueState, Queueable, Status};
use serde_json::Value;

use super::served::{self, Answer, Served, ago, enqueue, fail};
use crate::db::{BIGINT, NAME};
use crate::entities::{Invoice, Letter, invoices, letters, payments};

/// A console with handlers.
struct Replays(Served);

impl Replays {
    /// Makes the queues, with invoices that have failed at their third try.
    fn new() -> Self {
        let replays = Replays(Served::bare());
        let connection = &mut replays.0.connect();
        let letters = format!("CREATE TABLE letters (id {BIGINT} NOT NULL PRIMARY KEY)");
        connection.batch_execute(&letters).expect("the table is new");
        assert_eq!(replays.run(&["migrate", "run", "--yes"]).code, Some(0));
        for number in 1..=10 {
            let domain = (invoices::site.eq("north"), invoices::number.eq(number), invoices::total_cents.eq(1_999));
            diesel::insert_into(invoices::table)
                .values((domain, Invoice::due_at(ago(5_000))))
                .execute(connection)
                .expect("it is new");
        }
        let failed = "UPDATE invoices SET status = 'FAILED', last_attempt_time = next_attempt_time, next_attempt_time = NULL, \
                      try_count = 3, last_attempt_error_message = 'no ink at try 3'";
        connection.batch_execute(failed).expect("the table is there");
        replays
    }

    fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = self.0.command(arguments);
        command.env("HANDLERS", "yes");
        command
    }

    fn run(&self, arguments: &[&str]) -> Answer {
        served::answer(&mut self.command(arguments))
    }

    /// Replays a row, and returns the exit code and the object.
    fn object(&self, queue: &str, key: &str) -> (Option<i32>, Value) {
        let answer = self.run(&["replay", queue, key, "--rollback", "--json"]);
        let object = serde_json::from_str(&answer.out).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
        (answer.code, object)
    }

    fn state(&self, number: i32) -> QueueState {
        let row = invoices::table.find(("north", number)).select(Invoice::queue_state());
        row.first(&mut self.0.connect()).expect("the invoice is there")
    }

    fn total(&self, number: i32) -> i64 {
        let row = invoices::table.find(("north", number)).select(invoices::total_cents);
        row.first(&mut self.0.connect()).expect("the invoice is there")
    }
}

#[test]
fn the_failed_attempt_is_made_again_with_its_number_and_nothing_stays() {
    let replays = Replays::new();
    let before = replays.state(1);
    let answer = replays.run(&["replay", "invoices", "north,1", "--rollback", "--utc"]);
    assert_eq!((answer.code, &*answer.err), (Some(4), ""), "{answer:?}");
    for said in [
        "try 3 in RENDER failed, and would be retried\n  no ink at try 3\n",
        "the handler's SQL:\n  UPDATE invoices SET total_cents = total_cents - 500 WHERE site = 'north' AND number = 1\n",
        "status             FAILED",
        "everything was rolled back\n",
    ] {
        assert!(answer.out.contains(said), "{said:?} is not in: {}", answer.out);
    }
    assert_eq!((replays.state(1), replays.total(1)), (before, 1_999));
    // Again, and as often as one likes.
    let (code, again) = replays.object("invoices", "north,1");
    assert_eq!((code, &again["try_number"], &again["end"]), (Some(4), &3.into(), &"will_retry".into()), "{again}");
    assert_eq!(again["error"], "no ink at try 3", "{again}");
    assert!(again["next"].is_string(), "{again}");
    assert_eq!((&again["row"]["status"], &again["would_be"]["status"]), (&"FAILED".into(), &"ERROR".into()), "{again}");
}

#[test]
fn a_handler_that_is_mended_shows_what_the_row_would_become() {
    let replays = Replays::new();
    let (code, object) = replays.object("invoices", "north,2");
    assert_eq!((code, &object["end"]), (Some(0), &"advanced".into()), "{object}");
    assert_eq!((&object["queue"], &object["key"]), (&"invoices.status".into(), &"north,2".into()), "{object}");
    let is = &object["row"];
    let would_be = &object["would_be"];
    assert_eq!((&is["stage"], &would_be["stage"]), (&"RENDER".into(), &"SEND".into()), "{object}");
    assert_eq!((&is["total_cents"], &would_be["total_cents"]), (&1_999.into(), &1_499.into()), "{object}");
    assert_eq!((replays.state(2).status, replays.total(2)), (Status::Failed, 1_999));
    let (code, nested) = replays.object("invoices", "north,8");
    let sql: Vec<_> = nested["statements"].as_array().unwrap().iter().map(|of| of["sql"].as_str().unwrap()).collect();
    assert_eq!((code, sql.len()), (Some(0), 4), "{nested}");
    assert!(sql[1].starts_with("SAVEPOINT") && sql[3].starts_with("RELEASE SAVEPOINT"), "{nested}");
    assert_eq!(replays.total(9), 1_999);
}

#[test]
fn a_row_that_was_never_attempted_has_its_first_attempt() {
    let replays = Replays::new();
    let row = invoices::table.find(("north", 1));
    diesel::update(row).set(Invoice::due_at(ago(-600))).execute(&mut replays.0.connect()).unwrap();
    let (code, object) = replays.object("invoices", "north,1");
    assert_eq!((code, &object["try_number"]), (Some(4), &1.into()), "{object}");
    assert_eq!(replays.state(1).try_count, 0);
}

#[test]
fn a_panic_and_a_refused_statement_are_shown() {
    let replays = Replays::new();
    let (code, panicked) = replays.object("invoices", "north,6");
    assert_eq!((code, &panicked["end"]), (Some(4), &"will_retry".into()), "{panicked}");
    assert!(panicked["error"].as_str().unwrap().contains("the ribbon is torn"), "{panicked}");
    let (code, refused) = replays.object("invoices", "north,7");
    let statement = &refused["statements"][1];
    assert_eq!((code, &statement["sql"]), (Some(4), &"UPDATE nowhere SET id = 1".into()), "{refused}");
    assert!(statement["error"].as_str().unwrap().contains("nowhere"), "{refused}");
    // A row that fails for good goes to the archive.
    let (code, archived) = replays.object("invoices", "north,9");
    assert_eq!((code, &archived["end"]), (Some(4), &"gave_up".into()), "{archived}");
    assert!(archived["would_be"].is_null() && archived["row"].is_object(), "{archived}");
    assert_eq!([6, 7, 9].map(|number| replays.total(number)), [1_999; 3]);
}

#[test]
fn what_is_no_replay_is_refused_before_anything_runs() {
    let replays = Replays::new();
    for (arguments, code, said) in [
        (&["replay", "invoices", "north,2"][..], 2, "say `--rollback`"),
        (&["replay", "invoces", "north,2", "--rollback"], 2, "invoces"),
        (&["replay", "invoices", "north", "--rollback"], 2, "the parts site,number"),
        (&["replay", "invoices", "north,99", "--rollback"], 1, "invoices north,99: there is no such row"),
        (&["replay", "payments", "1", "--rollback"], 2, "say `--call`"),
        (&["replay", "invoices", "north,2", "--rollback", "--watch"], 2, "--watch"),
    ] {
        let answer = replays.run(arguments);
        assert_eq!((answer.code, &*answer.out), (Some(code), ""), "{arguments:?}: {answer:?}");
        assert!(answer.err.contains(said), "{arguments:?}: {answer:?}");
    }
    let read_only =
        served::answer(replays.command(&["replay", "invoices", "north,2", "--rollback"]).env("READ_ONLY", "yes"));
    assert!(read_only.code == Some(2) && read_only.err.contains("read-only"), "{read_only:?}");
    let without = replays.0.run(&["replay", "invoices", "north,2", "--rollback"]);
    assert_eq!(without.code, Some(2), "{without:?}");
    assert!(
        without.err.contains("no handler for invoices: its program adds one by `.handler::<Invoice>(..)`"),
        "{without:?}"
    );
    assert_eq!(replays.total(2), 1_999);
}

#[test]
fn the_call_of_a_lease_is_made_for_real_and_only_if_it_is_asked_for() {
    let replays = Replays::new();
    for id in [6, 7] {
        enqueue(&mut replays.0.connect(), id, 3345, 100, ago(60));
        fail(&mut replays.0.connect(), id, "card declined");
    }
    let set = (payments::customer.eq("Ann"), payments::api_token.eq("t0p"));
    diesel::update(payments::table).set(set).execute(&mut replays.0.connect()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let calls = directory.path().join("calls");
    let replay = |key: &str, more: &[&str]| {
        let arguments = [&["replay", "payments", key, "--rollback"], more].concat();
        served::answer(replays.command(&arguments).env("CALLS", &calls))
    };
    assert!(replay("6", &[]).code == Some(2) && !calls.exists());
    let declined = replay("6", &["--call"]);
    assert_eq!(declined.code, Some(4), "{declined:?}");
    assert!(declined.out.contains("the call is made for real"), "{}", declined.out);
    assert!(declined.out.contains("card declined: payment 6, try 1"), "{}", declined.out);
    assert!(declined.out.contains("the handler ran no SQL on its connection"), "{}", declined.out);
    let paid = replay("7", &["--call", "--json"]);
    let object: Value = serde_json::from_str(&paid.out).unwrap_or_else(|error| panic!("{error}: {paid:?}"));
    assert_eq!((paid.code, &object["end"]), (Some(0), &"succeeded".into()), "{object}");
    let would_be = &object["would_be"];
    let shown = (&would_be["status"], &would_be["customer"], &would_be["api_token"]);
    assert_eq!(shown, (&"SUCCESS".into(), &"paid: payment 7, try 1".into(), &"[hidden]".into()), "{object}");
    assert_eq!(object["statements"].as_array().map(Vec::len), Some(1), "{object}");
    assert!(!paid.out.contains("t0p") && !declined.out.contains("t0p"), "{paid:?}, {declined:?}");
    assert_eq!(fs::read_to_string(&calls).unwrap(), "payment 6, try 1\npayment 7, try 1\n");
    assert_eq!([6, 7].map(|id| replays.0.status(id)), [Status::Failed; 2]);
}

#[test]
fn a_row_that_a_worker_holds_is_left_alone() {
    let replays = Replays::new();
    enqueue(&mut replays.0.connect(), 5, 8, 500, ago(-600));
    let leased = "UPDATE payments SET status = 'IN_PROGRESS', try_count = 1, last_attempt_time = next_attempt_time";
    replays.0.connect().batch_execute(leased).unwrap();
    let held = replays.run(&["replay", "payments", "5", "--rollback", "--call"]);
    assert_eq!(held.code, Some(1), "{held:?}");
    assert!(held.err.contains("held by a worker"), "{held:?}");
    assert_eq!(replays.0.status(5), Status::InProgress);
    let connection = &mut replays.0.connect();
    let locked = connection.transaction::<_, diesel::result::Error, _>(|connection| {
        diesel::update(invoices::table.find(("north", 2))).set(invoices::total_cents.eq(5)).execute(connection)?;
        Ok(replays.run(&["replay", "invoices", "north,2", "--rollback"]))
    });
    let locked = locked.unwrap();
    assert_eq!(locked.code, Some(1), "{locked:?}");
    assert!(
        locked.err.contains("an attempt may be running now: another session has changed or locked it"),
        "{locked:?}"
    );
    assert_eq!((replays.state(2).status, replays.total(2)), (Status::Failed, 5));
}

#[test]
fn a_commit_of_the_handler_is_stopped_before_it_is_sent() {
    let replays = Replays::new();
    let before = replays.state(3);
    let stopped = replays.run(&["replay", "invoices", "north,3", "--rollback"]);
    assert_eq!(stopped.code, Some(1), "{stopped:?}");
    assert!(
        stopped.err.contains("the handler runs `COMMIT`") && stopped.err.contains("rolled everything back"),
        "{stopped:?}"
    );
    assert_eq!((replays.state(3), replays.total(3)), (before, 1_999));
    let commented = replays.run(&["replay", "invoices", "north,10", "--rollback"]);
    assert!(
        commented.code == Some(1) && commented.err.contains("the handler runs `/* trace 4711 */ COMMIT`"),
        "{commented:?}"
    );
    assert_eq!((replays.state(10).status, replays.total(10)), (Status::Failed, 1_999));
    // A statement that makes a table commits on MySQL and MariaDB only.
    let made = replays.run(&["replay", "invoices", "north,5", "--rollback"]);
    match NAME {
        "mysql" => {
            assert!(made.code == Some(1) && made.err.contains("the handler runs `CREATE TABLE made"), "{made:?}")
        }
        _ => assert_eq!(made.code, Some(0), "{made:?}"),
    }
    assert_eq!((replays.state(5).status, replays.total(5)), (Status::Failed, 1_999));
    let count = diesel::sql_query("DELETE FROM made").execute(&mut replays.0.connect());
    assert!(count.is_err(), "the table was rolled back");
}

#[test]
fn of_a_commit_that_nobody_could_stop_the_console_says_what_stays() {
    let replays = Replays::new();
    let committed = replays.run(&["replay", "invoices", "north,4", "--rollback"]);
    assert_eq!(committed.code, Some(1), "{committed:?}");
    for said in [
        "could not be rolled back",
        "What the handler has written until then is committed",
        "The row is now: ",
        "the handler of Invoice",
    ] {
        assert!(committed.err.contains(said), "{said:?} is not in: {}", committed.err);
    }
    let state = replays.state(4);
    assert_eq!((state.status, replays.total(4)), (Status::Error, 1_499));
}

#[test]
fn a_row_of_a_group_is_handled_alone() {
    let replays = Replays::new();
    for id in [1, 2, 3] {
        let row = diesel::insert_into(letters::table).values((letters::id.eq(id), Letter::due_at(ago(60))));
        row.execute(&mut replays.0.connect()).unwrap();
    }
    let (code, failed) = replays.object("letters", "1");
    assert_eq!((code, &failed["end"]), (Some(4), &"will_retry".into()), "{failed}");
    assert_eq!(failed["error"], "no such address at try 1", "{failed}");
    let (code, sent) = replays.object("letters", "2");
    assert_eq!((code, &sent["end"], &sent["key"]), (Some(0), &"succeeded".into(), &"2".into()), "{sent}");
    assert_eq!(Letter::queue().due().count(&mut replays.0.connect()).unwrap(), 3);
}

#[test]
fn of_a_row_that_no_worker_would_take_the_console_says_why() {
    let replays = Replays::new();
    let row = diesel::insert_into(letters::table).values((letters::id.eq(-1), Letter::due_at(ago(60))));
    row.execute(&mut replays.0.connect()).unwrap();
    let kept = replays.run(&["replay", "letters", "-1", "--rollback"]);
    assert_eq!(kept.code, Some(1), "{kept:?}");
    let said = "a worker would not attempt the row: its condition (`claim_if`) is not true";
    assert!(kept.err.contains(said), "{kept:?}");
}
