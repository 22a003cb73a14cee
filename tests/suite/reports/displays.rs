//! How the reports look in a terminal, and that their JSON reads back unchanged.

use std::fmt::Display;

use queueable::Explanation;
use queueable::report::{Backlog, By, ErrorReport, Statistics};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Reads a report from its JSON, and shows it.
fn shown<R: Display + Serialize + DeserializeOwned>(json: Value) -> String {
    let report: R = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(serde_json::to_value(&report).unwrap(), json);
    report.to_string()
}

/// Compares with the file of this name, the same for every database.
fn matches(name: &str, reports: &[String]) {
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(format!("report_{name}"), reports.join("\n"));
    });
}

fn seconds(secs: u64, nanos: u32) -> Value {
    json!({ "secs": secs, "nanos": nanos })
}

#[test]
fn a_backlog() {
    let backlog = |due, running: Option<i64>, held_back, oldest_due: Option<Value>| json!({ "due": due, "scheduled": 30, "running": running, "held_back": held_back, "failed": 4, "oldest_due": oldest_due });
    let by = json!({ "column": "company_id", "left_out": 2, "parts": [
        { "value": null, "report": backlog(0, None, 0, None) },
        { "value": "7", "report": backlog(1, None, 17, Some(seconds(90_000, 5))) },
        { "value": "3345", "report": backlog(100, None, 0, Some(seconds(5, 250_000_000))) },
    ] });
    let reports = [
        shown::<Backlog>(backlog(12_345, Some(8), 0, Some(seconds(3_723, 0)))),
        shown::<Backlog>(backlog(0, None, 0, None)),
        shown::<By<Backlog>>(by),
        shown::<By<Backlog>>(json!({ "column": "company_id", "left_out": 0, "parts": [] })),
    ];
    matches("backlog", &reports);
}

#[test]
fn statistics() {
    let period = |start, failed, durations: [Value; 3]| {
        let [mean, p50, p95] = durations;
        json!({ "start": start, "succeeded": 1_200, "failed": failed, "mean": mean, "p50": p50, "p95": p95 })
    };
    let none = || [Value::Null, Value::Null, Value::Null];
    let timed = || [seconds(1, 500_000_000), seconds(0, 80_000_000), seconds(61, 0)];
    let hours = json!({ "interval": "hour", "counted": "rows", "left_out": 0, "periods": [
        period("2026-03-01T09:00:00Z", 3, timed()), period("2026-03-01T10:00:00Z", 0, none()),
    ] });
    let days = json!({ "interval": "day", "counted": "newest_rows", "left_out": 3, "periods": [period("2026-03-01T00:00:00Z", 3, none())] });
    let by = json!({ "column": "region", "left_out": 0, "parts": [
        { "value": "north", "report": days }, { "value": "south", "report": days },
    ] });
    let reports = [shown::<Statistics>(hours), shown::<Statistics>(days), shown::<By<Statistics>>(by)];
    matches("statistics", &reports);
}

#[test]
fn errors() {
    let group = |pattern: &str, rows: i64| {
        json!({ "pattern": pattern, "rows": rows, "retrying": rows - 1, "failed": 1, "texts": 1,
            "first": "2026-03-01T09:00:00Z", "last": "2026-03-02T10:00:01.123Z", "examples": [[3345, 7], [3345, 8]],
            "example_text": pattern })
    };
    let few = [group("no route to <number>", 120), group("a stack:\n  here\n  there", 20)];
    let many: Vec<_> = (0..23).zip((78..=100).rev()).map(|(i, rows)| group(&"long ".repeat(19 + i), rows)).collect();
    let reports = [
        shown::<ErrorReport<(i64, i64)>>(json!({ "groups": few, "left_out": 0 })),
        shown::<ErrorReport<(i64, i64)>>(json!({ "groups": many, "left_out": 7 })),
        shown::<ErrorReport<i64>>(json!({ "groups": [], "left_out": 0 })),
    ];
    matches("errors", &reports);
}

#[test]
fn explanations() {
    let time = "2026-03-01T09:00:00Z";
    let lines = [
        json!({ "reason": "no_such_row" }),
        json!({ "reason": "archived", "table": "payments_failed" }),
        json!({ "reason": "unknown_status", "status": "DONE" }),
        json!({ "reason": "not_queued" }),
        json!({ "reason": "stopped" }),
        json!({ "reason": "skipped" }),
        json!({ "reason": "succeeded", "time": time }),
        json!({ "reason": "succeeded", "time": null }),
        json!({ "reason": "failed_for_good", "tries": 1, "exhausted": false, "error": "no account" }),
        json!({ "reason": "failed_for_good", "tries": 20, "exhausted": true, "error": null }),
        json!({ "reason": "scheduled_for", "time": time }),
        json!({ "reason": "held", "since": time }),
        json!({ "reason": "held", "since": null }),
        json!({ "reason": "condition_false" }),
        json!({ "reason": "unknown_stage", "stage": "OLD" }),
        json!({ "reason": "unknown_stage", "stage": null }),
        json!({ "reason": "outside_window", "opens": time }),
        json!({ "reason": "outside_window", "opens": null }),
        json!({ "reason": "behind_head" }),
        json!({ "reason": "due" }),
    ]
    .map(shown::<Explanation>);
    matches("explanations", &lines);
}
