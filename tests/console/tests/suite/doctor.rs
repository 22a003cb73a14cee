//! The doctor: a healthy database has no finding; an ill is shown with its mend, and decides the exit code.

use diesel::connection::SimpleConnection;

use super::served::{Served, ago, enqueue};

#[test]
fn a_healthy_database_has_no_finding() {
    let served = Served::new();
    if crate::db::NAME == "sqlite" {
        served.connect().batch_execute("PRAGMA journal_mode = WAL").expect("it is a file");
    }
    let healthy = served.run(&["doctor", "--json"]);
    // The servers of the tests write without fsync, for speed, and the doctor says so.
    let others: Vec<_> = healthy.out.lines().filter(|line| !line.contains(r#""kind":"durability""#)).collect();
    assert!(others.is_empty() && healthy.err.is_empty(), "{healthy:?}");
    if crate::db::NAME == "sqlite" {
        assert_eq!(served.said(&["doctor"]), "nothing is wrong\n");
    }
}

#[test]
fn an_ill_is_found_and_its_mend_mends_it() {
    let served = Served::new();
    let connection = &mut served.connect();
    enqueue(connection, 1, 7, 100, ago(0));
    connection.batch_execute("UPDATE payments SET status = 'DONE'").expect("the table is there");
    let ill = served.run(&["doctor", "payments"]);
    assert_eq!(ill.code, Some(4), "{ill:?}");
    assert!(ill.out.contains("unknown-status") && ill.out.contains("payments.status"), "{ill:?}");
    let objects = served.run(&["doctor", "payments", "--json"]);
    let objects: Vec<serde_json::Value> =
        objects.out.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    let mend = objects.iter().find(|ill| ill["kind"] == "unknown-status").expect("it is found")["mend"].as_str();
    connection.batch_execute(mend.expect("a text")).expect("the mend is SQL");
    let mended = served.run(&["doctor", "payments"]);
    assert!(!mended.out.contains("unknown-status"), "{mended:?}");
}

#[test]
fn a_bundle_has_what_a_ticket_needs_and_no_rows() {
    let served = Served::filled();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("bundle.json");
    let answer = served.run(&["doctor", "--bundle", &file.display().to_string()]);
    assert!(matches!(answer.code, Some(0 | 4)), "{answer:?}");
    let text = std::fs::read_to_string(&file).expect("the file is written");
    let bundle: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(bundle["queues"][0]["backlog"]["failed"], 2, "{text}");
    assert!(text.contains("card declined for order <number>"), "{text}");
    for secret in ["Ann", "Bob", "t0p", "order 6"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    if let Some(password) =
        served.database.url().split_once("://").and_then(|(_, rest)| rest.split_once(':')?.1.split_once('@'))
    {
        assert!(password.0.is_empty() || !text.contains(password.0), "{text}");
    }
    let nowhere = served.run(&["doctor", "--bundle", "/nowhere/bundle.json"]);
    assert_eq!(nowhere.code, Some(1), "{nowhere:?}");
}
