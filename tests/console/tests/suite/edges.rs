//! Odd keys, odd values, odd readers.

use std::io::Read;
use std::process::Stdio;

use diesel::prelude::*;
use queueable::{Queueable, Status};

use super::served::{Served, ago, answer, command, enqueue, fail};
use crate::entities::{Invoice, invoices};

#[test]
fn a_key_of_several_parts_is_written_as_it_is_shown() {
    let served = Served::new();
    for site in ["north, east", " north", "it's"] {
        let domain = (invoices::site.eq(site), invoices::number.eq(1), invoices::total_cents.eq(1));
        let row = diesel::insert_into(invoices::table).values((domain, Invoice::due_at(ago(60))));
        row.execute(&mut served.connect()).expect("it is new");
    }
    let listed = served.objects(&["list", "invoices"]);
    let keys: Vec<_> = listed.iter().filter_map(|row| row["key"].as_str()).collect();
    assert_eq!(keys.len(), 3, "{listed:?}");
    for key in keys {
        let shown = served.objects(&["show", "invoices", key]);
        assert_eq!(shown[0]["key"], key, "{shown:?}");
        let deleted = served.run(&["delete", "invoices", key, "--yes"]);
        assert!(deleted.code == Some(0) && deleted.out.contains("1 row changed"), "{key}: {deleted:?}");
    }
}

#[test]
fn a_key_that_a_report_shows_is_a_key_that_the_console_takes() {
    let served = Served::new();
    let domain = (invoices::site.eq("a:b, 100%"), invoices::number.eq(1), invoices::total_cents.eq(1));
    let row = diesel::insert_into(invoices::table).values((domain, Invoice::due_at(ago(60))));
    row.execute(&mut served.connect()).expect("it is new");
    let cut = "a".repeat(200);
    served.register(&format!(
        r#"[{{"queue": "invoices.status", "key": "a%3Ab%2C%20100%25,1", "stage": null, "for_ms": 30000}},
            {{"queue": "invoices.status", "key": "{cut}", "stage": null, "for_ms": 30000}}]"#
    ));
    let key = r#"["a:b, 100%","1"]"#;
    let why = served.objects(&["why", "invoices"]);
    assert_eq!(why[0]["why"]["reasons"][0]["example"], key, "{why:?}");
    let running = &served.objects(&["pollers"])[0]["running"];
    assert_eq!((&running[0]["key"], &running[1]["key"]), (&key.into(), &cut.into()), "{running}");
    assert!(served.said(&["pollers"]).contains(&format!("invoices.status {key} runs on web-1")));
    assert_eq!(served.objects(&["show", "invoices", key])[0]["key"], key);
}

#[test]
fn a_program_gets_long_values_and_is_told_which_are_cut() {
    let served = Served::filled();
    fail(&mut served.connect(), 6, &"x".repeat(12_000));
    fail(&mut served.connect(), 7, &"y".repeat(900));
    for command in [&["list", "payments", "--failed", "--order", "key"][..], &["show", "payments", "6", "7"]] {
        let rows = served.objects(command);
        let error = |row: &serde_json::Value| row["row"]["last_attempt_error_message"].as_str().map(str::len);
        assert_eq!((error(&rows[0]), error(&rows[1])), (Some(10_000), Some(900)), "{command:?}");
        assert_eq!(rows[0]["cut"], serde_json::json!(["last_attempt_error_message"]), "{command:?}");
        assert!(rows[1].get("cut").is_none(), "{command:?}");
        let text = served.said(command);
        assert!(text.contains(&format!("{}…", "x".repeat(10_000))), "{command:?}");
        assert!(text.contains(&"y".repeat(900)) && !text.contains("y…"), "{command:?}");
    }
    let dry = served.run(&["retry", "payments", "7", "--dry-run", "--json"]);
    assert!(dry.out.contains(&"y".repeat(900)), "{dry:?}");
}

#[test]
fn many_keys_are_chosen_at_once() {
    let served = Served::filled();
    let keys: Vec<String> = (1..=1_200).map(|key| key.to_string()).collect();
    let arguments: Vec<&str> =
        ["stop", "payments", "--dry-run"].into_iter().chain(keys.iter().map(|key| &**key)).collect();
    let dry = served.run(&arguments);
    assert!(dry.code == Some(4) && dry.out.contains("6 rows"), "{dry:?}");
    let invoices: Vec<String> = (1..=1_200).map(|key| format!("north,{key}")).collect();
    let arguments: Vec<&str> =
        ["stop", "invoices", "--dry-run"].into_iter().chain(invoices.iter().map(|key| &**key)).collect();
    let dry = served.run(&arguments);
    assert!(dry.code == Some(4) && dry.out.contains("2 rows"), "{dry:?}");
    let wrong = served.run(&["stop", "payments", "--dry-run", "1", "x", "3"]);
    assert!(wrong.code == Some(2) && wrong.err.contains("'x'"), "{wrong:?}");
}

#[test]
fn the_largest_numbers_do_no_harm() {
    let served = Served::new();
    for (id, amount) in [(1, i64::MAX), (2, i64::MAX), (3, i64::MIN)] {
        enqueue(&mut served.connect(), id, 7, amount, ago(60));
    }
    let dry = served.run(&["stop", "payments", "1", "2", "--dry-run"]);
    assert_eq!(dry.code, Some(4), "{dry:?}");
    let listed = served.objects(&["list", "payments"]);
    let amounts: Vec<_> = listed.iter().map(|row| row["row"]["amount_cents"].as_str()).collect();
    assert_eq!(amounts, [Some("9223372036854775807"), Some("9223372036854775807"), Some("-9223372036854775808")]);
}

#[test]
fn a_group_of_errors_is_named_in_the_audit_and_has_no_archive() {
    let served = Served::filled();
    let groups = served.objects(&["errors", "payments"]);
    let group = groups[0]["group"].as_str().expect("there is a group");
    let skipped = served.run(&["skip", "payments", "--error-group", group, "--yes"]);
    assert_eq!(skipped.code, Some(0), "{skipped:?}");
    let audit = served.objects(&["audit"]);
    let filter = audit[0]["filter"].as_str().unwrap_or_default();
    assert!(filter.contains("error `card declined for order <number>`"), "{audit:?}");
    assert_eq!(audit[0]["rows"], 2, "{audit:?}");
    let failed =
        "UPDATE invoices SET status = 'FAILED', next_attempt_time = NULL, last_attempt_error_message = 'no ink'";
    diesel::sql_query(failed).execute(&mut served.connect()).expect("the table is there");
    let groups = served.objects(&["errors", "invoices"]);
    let group = groups[0]["group"].as_str().expect("there is a group");
    let refused = served.run(&["redrive", "invoices", "--error-group", group, "--yes"]);
    assert!(refused.code == Some(1) && refused.err.contains("not grouped in an archive"), "{refused:?}");
}

#[test]
fn a_hidden_value_cannot_be_guessed_by_conditions() {
    let served = Served::filled();
    for arguments in [
        &["list", "payments", "--where", "api_token like 't%'"][..],
        &["backlog", "payments", "--where", "company_id = 7 or not (api_token = 't0p')"],
        &["backlog", "payments", "--by", "api_token"],
        &["retry", "payments", "--where", "api_token in ('t0p')", "--dry-run"],
    ] {
        let refused = served.run(arguments);
        assert!(refused.code == Some(2) && refused.err.contains("api_token"), "{arguments:?}: {refused:?}");
    }
    assert_eq!(served.objects(&["list", "payments", "--where", "api_token is not null"]).len(), 3);
}

#[test]
fn a_reader_that_goes_away_ends_a_report_and_no_change() {
    let served = Served::filled();
    for (arguments, code) in [(&["completions", "bash"][..], 0), (&["list", "payments", "--json"], 0)] {
        let mut child =
            served.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("it is UTF-8");
        assert_eq!((child.wait().expect("it is our child").code(), &*said), (Some(code), ""), "{arguments:?}");
    }
    let mut change = served.command(&["retry", "payments", "6", "--yes"]);
    let mut child = change.stdout(Stdio::piped()).spawn().expect("it runs");
    drop(child.stdout.take());
    child.wait().expect("it is our child");
    assert_eq!(served.status(6), Status::NotAttempted, "nobody reads, and the change is done");
}

#[test]
fn a_wrong_option_is_json_too() {
    let wrong = answer(&mut command(&["status", "--bogus", "--json"]));
    let error: serde_json::Value = serde_json::from_str(&wrong.err).expect("it is JSON");
    assert_eq!((wrong.code, error["error"].as_str()), (Some(2), Some("usage")), "{wrong:?}");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("--bogus")), "{error}");
}

#[test]
fn a_queue_is_found_in_any_case_and_one_state_is_asked_for() {
    let served = Served::filled();
    for name in ["payments", "PAYMENTS", "Payment", "payments.status"] {
        assert_eq!(served.objects(&["list", name, "--failed"]).len(), 2, "{name}");
    }
    let two = served.run(&["list", "payments", "--failed", "--skipped"]);
    assert_eq!(two.code, Some(2), "{two:?}");
}

#[test]
fn no_form_of_an_address_shows_its_password() {
    for address in [
        "postgres://u:hunter2@127.0.0.1:1/x",
        "postgres://u:hunter2/a@127.0.0.1:1/x",
        "postgres://u:a@hunter2@127.0.0.1:1/x",
        "postgres://127.0.0.1:1/x?user=u&password=hunter2",
        "mysql://u:hunter2@127.0.0.1:1/x",
        "mysql://u:a/hunter2?@127.0.0.1:1/x",
        "mysqlx://u:hunter2@127.0.0.1:1/x",
        "host=127.0.0.1 user=u password=hunter2",
        "postgres:/u:hunter2@db/x",
        "https://u:hunter2@db/x",
    ] {
        for more in [&[][..], &["--json"]] {
            let refused =
                answer(command(&[&["status", "--timeout", "5s"], more].concat()).env("DATABASE_URL", address));
            assert!(matches!(refused.code, Some(2 | 3)), "{address}: {refused:?}");
            assert!(!refused.err.contains("hunter2") && !refused.out.contains("hunter2"), "{address}: {refused:?}");
        }
    }
}

#[test]
fn a_row_that_fails_otherwise_meanwhile_is_no_longer_of_its_group() {
    let served = Served::filled();
    let groups = served.objects(&["errors", "payments"]);
    let group = groups[0]["group"].as_str().expect("there is a group").to_owned();
    fail(&mut served.connect(), 7, "no route");
    let skipped = served.run(&["skip", "payments", "--error-group", &group, "--yes"]);
    assert!(skipped.code == Some(0) && skipped.out.contains("1 row changed"), "{skipped:?}");
    assert_eq!([6, 7].map(|id| served.status(id)), [Status::Skipped, Status::Failed]);
}
