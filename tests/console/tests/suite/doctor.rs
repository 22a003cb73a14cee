//! The doctor: a healthy database has no finding; an ill is shown with its mend, and decides the exit code.

use diesel::connection::SimpleConnection;

use serde_json::Value;

use super::served::{Served, ago, bundle_of, enqueue};

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
    let objects: Vec<Value> = objects.out.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    let mend = objects.iter().find(|ill| ill["kind"] == "unknown-status").expect("it is found")["mend"].as_str();
    connection.batch_execute(mend.expect("a text")).expect("the mend is SQL");
    let mended = served.run(&["doctor", "payments"]);
    assert!(!mended.out.contains("unknown-status"), "{mended:?}");
}

#[test]
fn a_bundle_has_what_a_ticket_needs_and_no_rows() {
    let served = Served::filled();
    let text = bundle_of(|arguments| served.run(arguments));
    let bundle: Value = serde_json::from_str(&text).expect("it is JSON");
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
    assert!(!text.contains("unread"), "{text}");
    let nowhere = served.run(&["doctor", "--bundle", "/nowhere/bundle.json"]);
    assert_eq!(nowhere.code, Some(1), "{nowhere:?}");
}

#[test]
fn a_bundle_has_the_version_the_settings_the_sizes_and_the_plans() {
    let served = Served::filled();
    let text = bundle_of(|arguments| served.run(arguments));
    let bundle: Value = serde_json::from_str(&text).expect("it is JSON");
    let database = &bundle["database"];
    assert!(database["version"].as_str().is_some_and(|version| version.contains('.')), "{text}");
    assert!(bundle["library"].as_str().is_some_and(|version| version.contains('.')), "{text}");
    let settings = database["settings"].as_object().expect("an object");
    assert!(settings.len() >= 5 && settings.values().all(Value::is_string), "{text}");
    for queue in bundle["queues"].as_array().expect("a list") {
        for name in ["claim", "probe", "oldest_due"] {
            let plan = queue["plans"][name].as_str().unwrap_or_else(|| panic!("no plan of {name}: {text}"));
            assert!(plan.contains("queueable_"), "{name} uses no index of the queue: {plan}");
        }
        assert!(queue["sizes"][0]["bytes"].as_i64().is_some_and(|bytes| bytes > 0), "{text}");
    }
}

#[test]
fn what_cannot_be_read_leaves_the_rest_of_the_bundle() {
    let served = Served::bare();
    let text = bundle_of(|arguments| served.run(arguments));
    let bundle: Value = serde_json::from_str(&text).expect("it is JSON");
    for part in ["plans", "backlog"] {
        assert!(bundle["queues"][0][part]["unread"].is_string(), "there is no queue: {text}");
    }
    assert!(bundle["database"]["version"].is_string(), "{text}");
}
