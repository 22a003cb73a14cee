//! The harness itself: what it refuses, what it prints, and that its checker finds what is wrong.

use std::process::{Command, Output};

use serde_json::Value;

fn chaos(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_chaos")).args(arguments).output().expect("the program was built for this test")
}

/// A small run without faults on SQLite, before whose check this SQL is run.
fn spoiled(sql: &str) -> (Option<i32>, Value) {
    let run = ["--bar", "0", "--backend", "sqlite", "--mode", "transaction", "--count", "120", "--seed", "1"];
    let output = match sql {
        "" => chaos(&run),
        sql => chaos(&[&run[..], &["--spoil", sql]].concat()),
    };
    let line = String::from_utf8(output.stdout).expect("a report is text");
    let report = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    (output.status.code(), report)
}

/// The names of the invariants that broke.
fn broken(report: &Value) -> Vec<&str> {
    let invariants = report["invariants"].as_array().expect("a report lists its invariants");
    let broken = invariants.iter().filter(|invariant| invariant["broken"] != 0);
    broken
        .map(|invariant| {
            assert!(!invariant["rows"].as_array().expect("broken rows are shown").is_empty(), "{invariant}");
            invariant["name"].as_str().expect("an invariant has a name")
        })
        .collect()
}

#[test]
fn a_sound_run_passes_and_prints_one_line() {
    let (code, report) = spoiled("");
    assert_eq!((code, &report["passed"], &report["seed"]), (Some(0), &true.into(), &1.into()), "{report}");
    assert!(broken(&report).is_empty() && report["faults"] == serde_json::json!([]), "{report}");
    assert!(report["invariants"].as_array().is_some_and(|invariants| invariants.len() > 8), "{report}");
}

#[test]
fn every_invariant_that_breaks_is_found_with_its_rows() {
    let newest = "(SELECT MAX(id) FROM payments WHERE kind = 'plain' AND fails = 0)";
    for (sql, expected) in [
        (
            format!("INSERT INTO ledger (payment_id, amount_cents, attempt) VALUES ({newest}, 1, 1)"),
            &["every ledger row has its SUCCESS row", "no payment has two ledger rows"][..],
        ),
        (format!("DELETE FROM ledger WHERE payment_id = {newest}"), &["every SUCCESS row has its ledger row"]),
        (
            "UPDATE companies SET balance_cents = balance_cents + 1 WHERE id = 3".to_owned(),
            &["balances are the sums of SUCCESS amounts"],
        ),
        (
            format!("UPDATE payments SET next_attempt_time = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE id = {newest}"),
            &["every payment is terminal, due, waiting or leased, until a finite time", "everything becomes terminal"],
        ),
        (
            "INSERT INTO payments (company_id, amount_cents, kind) VALUES (1, 1, 'plain')".to_owned(),
            &["every payment is terminal, due, waiting or leased, until a finite time", "no payment disappears"],
        ),
        (
            "UPDATE payments SET try_count = 1 WHERE id = 1".to_owned(),
            &["payments from before the queue are untouched"],
        ),
        (
            format!("UPDATE payments SET try_count = 2 WHERE id = {newest}"),
            &["no try is used but by a planned failure"],
        ),
        (
            format!("UPDATE payments SET try_count = 0 WHERE id = {newest}"),
            &["every planned failure has used a try", "no try is used but by a planned failure"],
        ),
        (
            "INSERT INTO ledger (payment_id, amount_cents, attempt) VALUES (1, 5, 1)".to_owned(),
            &["every booked payment was called", "every ledger row has its SUCCESS row"],
        ),
        (
            format!("INSERT INTO touched (payment_id, how) VALUES ({newest}, 'skipped')"),
            &["what an operator has skipped stays skipped, and nothing else is"],
        ),
        (
            "INSERT INTO payments (company_id, amount_cents, kind, status) VALUES (1, 1, 'plain', 'FAILED');
             DELETE FROM payments WHERE kind = 'fatal' AND id = (SELECT MIN(id) FROM payments WHERE kind = 'fatal')"
                .to_owned(),
            &["only what is planned fails for good"],
        ),
    ] {
        let (code, report) = spoiled(&sql);
        assert_eq!((code, broken(&report)), (Some(1), expected.to_vec()), "{sql}: {report}");
    }
}

#[test]
fn what_breaks_of_the_kinds_of_work_is_found() {
    let spoil = "UPDATE invoices_done SET stage = 'SEND' WHERE id = 1; DELETE FROM invoices_done WHERE id = 2;
        INSERT INTO invoices (id) VALUES (3); UPDATE invoices_failed SET status = 'SUCCESS' WHERE id = 7;
        UPDATE documents SET body = 'new' WHERE id = 1; INSERT INTO taken (turn_id) VALUES (1);
        INSERT INTO runs (job_id, scheduled) SELECT job_id, scheduled FROM runs WHERE job_id = 1;
        DELETE FROM runs WHERE job_id = 2 AND id NOT IN (SELECT MIN(id) FROM runs WHERE job_id = 2);
        INSERT INTO runs (job_id, scheduled) VALUES (2, 1); UPDATE jobs SET next_attempt_time = NULL WHERE id = 3";
    let run =
        ["--bar", "26", "--backend", "sqlite", "--mode", "group", "--count", "1", "--seed", "1", "--spoil", spoil];
    let output = chaos(&run);
    let line = String::from_utf8(output.stdout).expect("a report is text");
    let report: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let all = report["invariants"].as_array().map(Vec::len);
    assert_eq!((output.status.code(), Some(broken(&report).len())), (Some(1), all), "{report}");
    assert_eq!(report["faults"], serde_json::json!(["99 of 100 invoices are in the archives"]), "{report}");
}

#[test]
fn what_cannot_be_asked_for_is_refused_with_what_can() {
    for (arguments, said) in [
        (&["--bar", "99"][..], "there is no bar 99; there are 0 (no faults), 1 (kill -9"),
        (&["--bar", "0", "--backend", "galera"], "no faults is for [Postgres, Mariadb, Sqlite] in the modes"),
        (&["--bar", "0", "--count", "0"], "0 is not in 1.."),
        (&["--backend", "oracle"], "possible values: postgres, async-postgres, mariadb, galera, sqlite"),
        (&["--smoke", "--bar", "1"], "cannot be used with"),
        (&["--planted", "--bug", "no such bug"], "no bug of this name is planted: [\"no such bug\"]; there are: "),
        (&["worker", "--url", "x", "--mode", "lease", "--calls", "y", "--break", "claimed"], "NAME:PASS:ACTION"),
    ] {
        let output = chaos(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(said), "{arguments:?}: {stderr}");
    }
}
