//! Operations: seen first, confirmed, done in batches on exactly those rows, and written into the audit.

use std::process::Stdio;
use std::thread;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queueable::{Queueable, Status};
use rustix::process::{Pid, Signal, kill_process};

use super::served::{Served, answer, fail};
use crate::entities::{Payment, payment_queue, payments};

#[test]
fn a_dry_run_shows_the_rows_and_changes_nothing() {
    let served = Served::filled();
    let dry = served.run(&["retry", "payments", "--failed", "--where", "company_id = 3345", "--dry-run"]);
    assert_eq!(dry.code, Some(4), "{dry:?}");
    assert!(dry.out.contains("2 rows, values of company_id: 1, sum of amount_cents: 12945"), "{}", dry.out);
    assert!(dry.out.contains("Ann") && !dry.out.contains("t0p"), "{}", dry.out);
    assert_eq!(served.status(6), Status::Failed);
    let none = served.run(&["retry", "payments", "--failed", "--where", "company_id = 1", "--dry-run"]);
    assert_eq!(none.code, Some(0), "{none:?}");
}

#[test]
fn nothing_is_changed_without_an_answer() {
    let served = Served::filled();
    let unasked = served.run(&["retry", "payments", "--failed"]);
    assert_eq!(unasked.code, Some(2), "{unasked:?}");
    assert!(unasked.err.contains("--yes"), "{unasked:?}");
    let everything = served.run(&["delete", "payments", "--yes"]);
    assert_eq!(everything.code, Some(2), "{everything:?}");
    assert!(everything.err.contains("--all"), "{everything:?}");
    assert_eq!(served.status(6), Status::Failed);
    assert_eq!(payments::table.count().get_result(&mut served.connect()), Ok(10_i64));
}

#[test]
fn each_operation_changes_its_rows_and_leaves_a_row_in_the_audit() {
    let served = Served::filled();
    let change = |arguments: &[&str]| {
        let rest = ["--yes", "--by", "ann@example.org", "--reason", "ticket 812"];
        let answer = served.run(&[arguments, &rest].concat());
        assert_eq!(answer.code, Some(0), "{arguments:?}: {answer:?}");
        answer.out
    };
    change(&["retry", "payments", "6"]);
    assert_eq!(served.status(6), Status::NotAttempted);
    change(&["skip", "payments", "--where", "id = 7"]);
    assert_eq!(served.status(7), Status::Skipped);
    change(&["rerun", "payments", "9"]);
    assert_eq!(served.status(9), Status::NotAttempted);
    change(&["stop", "payments", "1", "2"]);
    assert_eq!(Payment::queue().filter(payments::id.eq_any([1, 2])).pending().count(&mut served.connect()).unwrap(), 0);
    change(&["resume", "payments", "1"]);
    assert_eq!(Payment::queue().filter(payments::id.eq(1)).due().count(&mut served.connect()).unwrap(), 1);
    change(&["postpone", "payments", "3", "--for", "2h"]);
    assert_eq!(Payment::queue().filter(payments::id.eq(3)).scheduled().count(&mut served.connect()).unwrap(), 1);
    change(&["enqueue", "payments", "--where", "company_id = 7"]);
    assert_eq!(Payment::queue().filter(payments::id.eq(10)).due().count(&mut served.connect()).unwrap(), 1);
    change(&["priority", "invoices", "--all", "--to", "-3"]);
    assert_eq!(served.objects(&["list", "invoices", "--where", "priority = -3"]).len(), 2);
    change(&["delete", "payments", "8"]);
    assert_eq!(payments::table.find(8).count().get_result(&mut served.connect()), Ok(0_i64));
    change(&["purge", "payments", "--all", "--older-than", "0s"]);
    let audit = served.objects(&["audit", "--limit", "100"]);
    let actions: Vec<_> = audit.iter().filter_map(|row| row["action"].as_str()?.split(' ').next()).collect();
    let postponed = audit.iter().filter_map(|row| row["action"].as_str()).find(|action| action.starts_with("postpone"));
    assert!(
        postponed.is_some_and(|action| action.len() == "postpone_until 2026-03-01 12:00:00 UTC".len()),
        "{audit:?}"
    );
    let expected = [
        "purge",
        "delete",
        "set_priority",
        "enqueue_existing",
        "postpone_until",
        "restart",
        "stop",
        "rerun",
        "skip",
        "retry_now",
    ];
    assert_eq!(actions, expected);
    assert!(audit.iter().all(|row| row["by"] == "ann@example.org" && row["reason"] == "ticket 812"), "{audit:?}");
}

#[test]
fn an_archive_takes_rows_and_gives_them_back() {
    let served = Served::filled();
    let failed = "UPDATE invoices SET status = 'FAILED', next_attempt_time = NULL WHERE number = 1";
    diesel::sql_query(failed).execute(&mut served.connect()).expect("the table is there");
    let archived = served.run(&["archive", "invoices", "--all", "--yes"]);
    assert_eq!(archived.code, Some(0), "{archived:?}");
    assert_eq!(served.objects(&["list", "invoices"]).len(), 1);
    let back = served.run(&["redrive", "invoices", "north,1", "--yes"]);
    assert_eq!(back.code, Some(0), "{back:?}");
    assert!(back.out.contains("1 row changed"), "{back:?}");
    assert_eq!(served.objects(&["list", "invoices", "--due"]).len(), 2);
    let lacks = served.run(&["archive", "payments", "--all", "--yes"]);
    assert_eq!(lacks.code, Some(1), "{lacks:?}");
    assert!(lacks.err.contains("has no archive"), "{lacks:?}");
}

#[test]
fn a_group_of_errors_is_retried_alone() {
    let served = Served::filled();
    fail(&mut served.connect(), 8, "no route to host");
    let groups = served.objects(&["errors", "payments"]);
    let group = groups.iter().find(|group| group["errors"]["pattern"] == "card declined for order <number>");
    let group = group.and_then(|group| group["group"].as_str()).expect("the group is there");
    let retried = served.run(&["retry", "payments", "--error-group", group, "--yes"]);
    assert_eq!(retried.code, Some(0), "{retried:?}");
    let states = [6, 7, 8].map(|id| served.status(id));
    assert_eq!(states, [Status::NotAttempted, Status::NotAttempted, Status::Failed]);
    let unknown = served.run(&["retry", "payments", "--error-group", "00000000", "--yes"]);
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
}

#[test]
fn many_rows_of_a_production_need_its_name() {
    let served = Served::new();
    fill(&served, 1_001);
    let adopted = served.run(&["environment", "--adopt", "production", "--yes"]);
    assert_eq!(adopted.code, Some(0), "{adopted:?}");
    let unnamed = served.run(&["stop", "payments", "--all", "--yes"]);
    assert_eq!(unnamed.code, Some(2), "{unnamed:?}");
    assert!(unnamed.err.contains("--environment production"), "{unnamed:?}");
    let named = served.run(&["stop", "payments", "--all", "--yes", "--environment", "production"]);
    assert_eq!(named.code, Some(0), "{named:?}");
    assert!(named.out.contains("1,001 rows changed"), "{named:?}");
}

#[test]
fn a_read_only_console_changes_nothing() {
    let served = Served::filled();
    for arguments in [
        &["retry", "payments", "6", "--yes"][..],
        &["pause", "payments"],
        &["limits", "payments", "--workers", "1"],
        &["environment", "--adopt", "x", "--yes"],
        &["migrate", "run", "--yes"],
    ] {
        let refused = answer(served.command(arguments).env("READ_ONLY", "1"));
        assert_eq!(refused.code, Some(2), "{arguments:?}: {refused:?}");
        assert!(refused.err.contains("read-only"), "{refused:?}");
    }
    let read = answer(served.command(&["status"]).env("READ_ONLY", "1"));
    assert_eq!(read.code, Some(0), "{read:?}");
}

/// Enqueues so many payments.
fn fill(served: &Served, rows: i64) {
    let connection = &mut served.connect();
    for ids in (1..=rows).collect::<Vec<_>>().chunks(1_000) {
        let row = |id: &i64| format!("({id}, {}, 1, '2026-01-01 00:00:00.000')", id % 9);
        let rows: Vec<_> = ids.iter().map(row).collect();
        let columns = "id, company_id, amount_cents, next_attempt_time";
        let insert = format!("INSERT INTO payments ({columns}) VALUES {}", rows.join(", "));
        connection.batch_execute(&insert).expect("the rows are new");
    }
}

fn stopped(served: &Served) -> i64 {
    let stopped = payments::table.filter(payment_queue::next_attempt_time.is_null()).count();
    let connection = &mut served.connect();
    // On SQLite a session that only reads may lose every turn for seconds against one that commits all the time.
    (0..100).find_map(|_| stopped.get_result(connection).ok()).expect("the table is there")
}

/// Starts a command that stops all rows that are left, and sends it a signal when it has done some.
fn interrupted(served: &Served, signal: Signal, rows: i64) -> Option<i32> {
    let before = stopped(served);
    let mut command = served.command(&["stop", "payments", "--all", "--yes", "--batch", "20"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the console runs");
    while stopped(served) == before && child.try_wait().expect("it is our child").is_none() {
        thread::yield_now();
    }
    kill_process(Pid::from_child(&child), signal).expect("it runs");
    let code = child.wait().expect("it is our child").code();
    let done = stopped(served);
    assert!(done > before && done < rows, "{before}, {done} of {rows}");
    assert_eq!(done % 20, 0, "a transaction is done whole");
    code
}

#[test]
fn an_operation_is_interrupted_between_two_transactions_and_goes_on() {
    // So many that the command still runs when this process has seen that some are done: on SQLite, that takes it several turns.
    let rows = if crate::db::NAME == "sqlite" { 20_000 } else { 8_000 };
    let served = Served::new();
    if crate::db::NAME == "sqlite" {
        // This process reads beside the command, however often that commits.
        served.connect().batch_execute("PRAGMA journal_mode = WAL").expect("the database is a file");
    }
    fill(&served, rows);
    assert_eq!(interrupted(&served, Signal::INT, rows), Some(130));
    let before = stopped(&served);
    let killed = Served::run(&served, &["audit", "--json"]);
    assert!(killed.out.contains(&format!("\"rows\":{before}")), "{before}: {killed:?}");
    assert_eq!(interrupted(&served, Signal::KILL, rows), None);
    // For a moment, the session of the killed command may still have the rows of its last transaction.
    let are_stopped = (0..100).any(|_| {
        let rest = served.run(&["stop", "payments", "--all", "--yes", "--batch", "5000"]);
        assert_eq!(rest.code, Some(0), "{rest:?}");
        stopped(&served) == rows
    });
    assert!(are_stopped);
    let audited: i64 = served.objects(&["audit"]).iter().filter_map(|row| row["rows"].as_i64()).sum();
    assert_eq!(audited, rows, "each row is stopped once");
}

#[test]
fn rows_that_another_session_has_locked_are_left_alone() {
    let served = Served::new();
    if crate::db::NAME == "sqlite" {
        return; // It has one writer, for which everybody waits.
    }
    fill(&served, 3);
    let connection = &mut served.connect();
    connection
        .transaction::<_, diesel::result::Error, _>(|connection| {
            diesel::update(payments::table.find(2)).set(payments::amount_cents.eq(5)).execute(connection)?;
            let answer = served.run(&["stop", "payments", "--all", "--yes"]);
            assert_eq!(answer.code, Some(0), "{answer:?}");
            assert!(answer.out.contains("2 rows changed") && answer.out.contains("1 row left alone"), "{answer:?}");
            Ok(())
        })
        .expect("the row is there");
}
