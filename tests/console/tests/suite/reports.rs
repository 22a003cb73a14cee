//! Reports: they fit, they end with the same code in each form, and values do no harm in them.

use std::sync::LazyLock;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use regex::Regex;

use super::served::{Served, fail};
use crate::entities::payments;

/// The commands that only read.
pub(crate) const REPORTS: &[&[&str]] = &[
    &["status"],
    &["status", "--check", "--max-failed", "1", "--max-due", "2"],
    &["why"],
    &["why", "payments", "--where", "company_id = 7"],
    &["explain", "payments", "1", "4", "6", "10"],
    &["explain", "payments", "99"],
    &["explain", "invoices", "north,1"],
    &["show", "payments", "7"],
    &["show", "invoices", "north,1"],
    &["list", "payments"],
    &["list", "payments", "--failed", "--columns", "id,customer,api_token"],
    &["list", "payments", "--where", "amount_cents between 200 and 400", "--order", "key-descending"],
    &["list", "invoices", "--due"],
    &["backlog"],
    &["backlog", "payments", "--by", "company_id"],
    &["errors"],
    &["errors", "payments", "--by", "customer", "--since", "1d"],
    &["statistics", "payments", "--since", "3d", "--interval", "day"],
    &["limits"],
    &["pollers"],
    &["audit"],
    &["environment"],
    &["migrate", "check"],
];

#[test]
fn tables_fit_the_terminal() {
    let served = Served::filled();
    for (width, most) in [("80", 80), ("200", 200)] {
        for arguments in REPORTS {
            let answer = served.run(&[arguments, &["--width", width][..]].concat());
            let widest = answer.out.lines().filter(|line| line.contains("  ")).max_by_key(|line| line.chars().count());
            let widest = widest.unwrap_or_default();
            assert!(widest.chars().count() <= most, "{arguments:?} at {width}: {widest}");
        }
    }
}

#[test]
fn hostile_and_secret_values_do_no_harm() {
    let served = Served::filled();
    for arguments in REPORTS {
        let [text, json] = [&[][..], &["--json"]].map(|more| served.run(&[arguments, more].concat()));
        let text = text.out + &text.err + &json.out + &json.err;
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\r']), "{arguments:?}: {text:?}");
        assert!(!text.contains("t0p"), "{arguments:?}: {text:?}");
    }
    for report in ["backlog", "errors", "statistics"] {
        let split = served.run(&[report, "payments", "--by", "api_token"]);
        assert!(split.code == Some(2) && split.err.contains("`api_token` are not shown"), "{split:?}");
    }
    let coloured = served.said(&["list", "payments", "--failed", "--color", "always"]);
    assert!(!coloured.contains("\u{1b}[31m\u{202e}"), "{coloured:?}");
}

/// A text that would set a terminal's title, clear it, colour it and turn the direction of a line.
const HOSTILE: &str = "Eve\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}\r\u{8}";

/// The colours of the console itself. `HOSTILE` has none of this form.
static COLOURS: LazyLock<Regex> = LazyLock::new(|| Regex::new("\u{1b}\\[[0-9;]*m").expect("a pattern of ours"));

/// What a command writes that could do harm.
fn harm(served: &Served, arguments: &[&str]) -> Option<String> {
    let answer = served.run(arguments);
    let text = answer.out + &answer.err;
    let text = COLOURS.replace_all(&text, "");
    let harms =
        |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let line = text.lines().find(|line| line.contains(harms))?;
    Some(format!("{}: {line:?}\n", arguments.join(" ")))
}

// With `--color always`, because without colours a pipe is written without its escapes.
#[test]
fn a_hostile_value_does_no_harm_in_a_split_report_with_colours() {
    let served = Served::filled();
    let connection = &mut served.connect();
    diesel::update(payments::table)
        .set(payments::customer.eq(HOSTILE))
        .execute(connection)
        .expect("the table is there");
    fail(connection, 6, &format!("refused for {HOSTILE}"));
    let mut asked = Vec::new();
    for report in ["backlog", "errors", "statistics", "list", "why"] {
        for form in [&["--color", "always"][..], &["--color", "always", "--width", "80"], &["--json"]] {
            let by: &[&str] = if matches!(report, "list" | "why") { &[] } else { &["--by", "customer"] };
            asked.push([&[report, "payments"], by, form].concat());
        }
    }
    let key = format!("{HOSTILE},1");
    let unclosed = format!("customer = '{HOSTILE}");
    for form in [&["--color", "always"][..], &["--json"]] {
        asked.push([&["explain", "payments", "6", "7"][..], form].concat());
        asked.push([&["show", "payments", "6", "7"][..], form].concat());
        asked.push([&["retry", "payments", "--failed", "--dry-run"][..], form].concat());
        asked.push([&["list", "payments", "--where", &unclosed][..], form].concat());
        asked.push([&["list", HOSTILE][..], form].concat());
        asked.push([&["list", "payments", "--columns", HOSTILE][..], form].concat());
        asked.push([&["list", "payments", "--after", HOSTILE][..], form].concat());
        asked.push([&["backlog", "payments", "--by", HOSTILE][..], form].concat());
        asked.push([&["explain", "payments", HOSTILE][..], form].concat());
        asked.push([&["show", "invoices", &key][..], form].concat());
        asked.push([&["retry", "payments", "--error-group", HOSTILE][..], form].concat());
        asked.push([&["pause", "invoices", "--stage", HOSTILE][..], form].concat());
    }
    let harm: String = asked.iter().filter_map(|arguments| harm(&served, arguments)).collect();
    assert!(harm.is_empty(), "{harm}");
}

#[test]
fn a_hostile_reason_does_no_harm() {
    let served = Served::filled();
    let author = ["--by", HOSTILE, "--reason", HOSTILE];
    let mut harms = String::new();
    for arguments in [
        &["pause", "payments"][..],
        &["limits", "payments", "--workers", "1"],
        &["retry", "payments", "6", "--yes"],
        &["environment", "--adopt", "staging", "--yes"],
    ] {
        for form in [&["--color", "always"][..], &["--json"]] {
            harms.extend(harm(&served, &[arguments, &author, form].concat()));
        }
    }
    for arguments in [&["status"][..], &["why"], &["explain", "payments", "1"], &["backlog"], &["limits"], &["audit"]] {
        for form in [&["--color", "always"][..], &["--color", "always", "--width", "80"], &["--json"]] {
            harms.extend(harm(&served, &[arguments, form].concat()));
        }
    }
    assert!(harms.is_empty(), "{harms}");
}

#[test]
fn pages_follow_one_another_in_every_order() {
    let served = Served::filled();
    for order in ["latest", "next", "key", "key-descending"] {
        let (mut keys, mut after) = (Vec::new(), None::<String>);
        for _ in 0..10 {
            let cursor = after.as_deref().map_or(vec![], |cursor| vec!["--after", cursor]);
            let page = [&["list", "payments", "--limit", "3", "--order", order][..], &cursor].concat();
            let objects = served.objects(&page);
            keys.extend(objects.iter().filter_map(|row| row["key"].as_str().map(str::to_owned)));
            after = objects.iter().find_map(|row| row["next"].as_str().map(str::to_owned));
            if after.is_none() {
                break;
            }
        }
        let mut sorted = keys.clone();
        sorted.sort();
        let mut all: Vec<_> = (1..=10).map(|id: i64| id.to_string()).collect();
        all.sort();
        assert_eq!(sorted, all, "{order}: {keys:?}");
        let expected: Vec<_> = (1..=10).map(|id: i64| id.to_string()).collect();
        match order {
            "key" => assert_eq!(keys, expected),
            "key-descending" => assert_eq!(keys, expected.into_iter().rev().collect::<Vec<_>>()),
            _ => {}
        }
    }
    let keys: Vec<_> = served.objects(&["list", "invoices", "--limit", "1"]);
    let cursor = keys[1]["next"].as_str().expect("there is another page");
    let next = served.objects(&["list", "invoices", "--limit", "1", "--after", cursor]);
    assert_eq!(next[0]["key"], "north,2");
}

#[test]
fn a_split_report_says_how_much_it_leaves_out() {
    let served = Served::new();
    let rows: Vec<String> = (1..=10_003).map(|id| format!("({id}, {id}, 1, 'FAILED')")).collect();
    for rows in rows.chunks(1_000) {
        let insert = "INSERT INTO payments (id, company_id, amount_cents, status) VALUES";
        served.connect().batch_execute(&format!("{insert} {}", rows.join(", "))).expect("they are new");
    }
    let split = served.objects(&["backlog", "payments", "--by", "company_id"]);
    assert_eq!(split.last(), Some(&serde_json::json!({ "queue": "payments.status", "left_out": 3 })));
}

#[test]
fn an_exit_code_is_the_same_with_json() {
    let served = Served::filled();
    for arguments in REPORTS {
        let [text, json] = [&[][..], &["--json"]].map(|more| served.run(&[arguments, more].concat()).code);
        assert_eq!(text, json, "{arguments:?}");
    }
}
