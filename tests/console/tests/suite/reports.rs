//! Reports: the same text and the same JSON on every database.

use insta::assert_snapshot;

use super::served::Served;

/// The commands that only read.
const REPORTS: &[&[&str]] = &[
    &["status"],
    &["status", "--check", "--max-failed", "1", "--max-due", "2"],
    &["why"],
    &["why", "payments", "--where", "company_id = 7"],
    &["explain", "payments", "1", "4", "6", "10"],
    &["explain", "payments", "99"],
    &["explain", "invoices", "north,1"],
    &["show", "payments", "7"],
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

/// Runs each report, and hides what differs from run to run.
fn reported(served: &Served, more: &[&str]) -> String {
    let mut all = String::new();
    for arguments in REPORTS {
        let answer = served.run(&[arguments, more].concat());
        all += &format!("$ console {}\n{}{}", arguments.join(" "), answer.out, answer.err);
        all += &format!("=> {}\n\n", answer.code.map_or_else(|| "killed".to_owned(), |code| code.to_string()));
    }
    all
}

fn settings() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    for (found, shown) in [
        (r"(in )?\b\d+(ms|s|m|h|d)( \d+(ms|s|m|h|d))?\b( ago)?", "[age]"),
        (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?( UTC|Z)?", "[time]"),
        (r#""(oldest_due|mean|p50|p95)":\d+\.\d+"#, r#""$1":"[seconds]""#),
        ("  +", "  "),
    ] {
        settings.add_filter(found, shown);
    }
    settings
}

#[test]
fn reports_are_the_same_text_on_every_database() {
    let served = Served::filled();
    settings().bind(|| assert_snapshot!("text", reported(&served, &["--utc"])));
}

#[test]
fn reports_are_the_same_json_on_every_database() {
    let served = Served::filled();
    settings().bind(|| assert_snapshot!("json", reported(&served, &["--json"])));
}

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
fn an_exit_code_is_the_same_with_json() {
    let served = Served::filled();
    for arguments in REPORTS {
        let [text, json] = [&[][..], &["--json"]].map(|more| served.run(&[arguments, more].concat()).code);
        assert_eq!(text, json, "{arguments:?}");
    }
}
