//! Pauses, limits, the environment and migrations.

use super::served::{Served, ago, enqueue};

#[test]
fn a_queue_a_stage_and_a_value_are_paused_and_unpaused() {
    let served = Served::filled();
    let pause =
        |arguments: &[&str]| served.said(&[arguments, &["--by", "ops@example.org", "--reason", "bank down"]].concat());
    pause(&["pause", "payments"]);
    pause(&["pause", "invoices", "--stage", "send", "--for", "1h"]);
    pause(&["pause", "payments", "--where", "company_id = 7"]);
    let status = served.said(&["status", "--min-pollers", "0", "--max-age", "1d"]);
    assert!(status.contains("! payments: paused since"), "{status}");
    assert!(status.contains("stage SEND by ops@example.org"), "{status}");
    assert!(status.contains("company_id = 7 by ops@example.org"), "{status}");
    let explained = served.said(&["explain", "payments", "1"]);
    assert!(explained.contains("by ops@example.org: bank down"), "{explained}");
    pause(&["unpause", "payments"]);
    pause(&["unpause", "payments", "--where", "company_id = 7"]);
    pause(&["unpause", "invoices", "--stage", "SEND"]);
    assert!(!served.said(&["status"]).contains("paused"));
    assert!(pause(&["unpause", "payments"]).contains("there was no such pause"));
    assert_eq!(served.objects(&["audit"]).len(), 7, "an end of a pause that was none too");
}

#[test]
fn rows_of_an_allowed_pause_may_wait() {
    let served = Served::new();
    enqueue(&mut served.connect(), 1, 7, 100, ago(9_000));
    served.said(&["pause", "payments", "--where", "company_id = 7"]);
    let check = ["status", "--check", "--allow-paused", "--min-pollers", "0"];
    assert!(served.said(&check).starts_with("nothing is wrong"));
    assert_eq!(served.run(&check[..2]).code, Some(4));
    enqueue(&mut served.connect(), 2, 8, 100, ago(9_000));
    let other = served.run(&check);
    assert!(other.code == Some(4) && other.out.contains("the oldest due row has waited"), "{other:?}");
}

#[test]
fn what_cannot_be_paused_is_refused() {
    let served = Served::filled();
    for (arguments, expected) in [
        (&["pause", "payments", "--where", "amount_cents = 7"][..], "serial_by"),
        (&["pause", "payments", "--where", "company_id > 7"], "write `company_id = 3345`"),
        (&["pause", "payments", "--where", "compny_id = 7"], "did you mean `company_id`?"),
        (&["pause", "payments", "--stage", "send"], "has no stages"),
        (&["pause", "invoices", "--stage", "sent"], "it has RENDER, SEND"),
        (&["pause", "paymnts"], "a similar value exists: 'payments'"),
        (&["pause", "payments", "--for", "0s"], "1 second to 100 years"),
        (&["limits", "payments", "--at-most", "3"], "at_most"),
        (&["limits", "payments", "--workers", "0"], "1 to 10,000"),
    ] {
        let refused = served.run(arguments);
        assert_eq!(refused.code, Some(2), "{arguments:?}: {refused:?}");
        assert!(refused.err.contains(expected), "{arguments:?}: {refused:?}");
    }
}

#[test]
fn limits_are_set_shown_and_ended() {
    let served = Served::filled();
    let set =
        served.said(&["limits", "payments", "--workers", "2", "--retry-delay", "10m", "--reason", "bank is slow"]);
    assert!(set.contains("2 workers in each process, retries after 10m") && set.contains("bank is slow"), "{set}");
    assert_eq!(served.objects(&["limits"]).len(), 1);
    assert!(served.said(&["limits", "payments", "--end"]).contains("the limits have ended"));
    assert!(served.said(&["limits"]).contains("no limits"));
}

#[test]
fn a_database_is_given_to_another_environment() {
    let served = Served::filled();
    assert!(served.said(&["environment"]).contains("none"));
    let unasked = served.run(&["environment", "--adopt", "staging"]);
    assert_eq!(unasked.code, Some(2), "{unasked:?}");
    assert!(served.said(&["environment", "--adopt", "staging", "--yes"]).contains("belongs to `staging` now"));
    assert_eq!(served.objects(&["environment"])[0]["environment"], "staging");
}

#[test]
fn migrations_are_listed_written_and_run() {
    let served = Served::bare();
    let listed = served.said(&["migrate", "list"]);
    assert_eq!(listed.matches("pending").count(), 6, "{listed}");
    let missing = served.run(&["status"]);
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(missing.err.contains("`migrate run`"), "{missing:?}");
    let check = served.run(&["migrate", "check"]);
    assert_eq!(check.code, Some(4), "{check:?}");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().display().to_string();
    for written in served.said(&["migrate", "write", &path]).lines() {
        assert!(std::path::Path::new(written).join("up.sql").is_file(), "{written}");
    }
    served.said(&["migrate", "run", "--yes"]);
    assert!(!served.said(&["migrate", "list"]).contains("pending"));
    assert!(served.said(&["migrate", "check"]).contains("as the entities declare them"));
    assert!(served.said(&["migrate", "run", "--yes"]).contains("all migrations have run"));
}

#[test]
fn a_narrow_audit_has_whole_times() {
    let served = Served::new();
    served.said(&["pause", "payments", "--reason", "the bank has told us that it moves all its servers tonight"]);
    let audit = served.said(&["audit", "--utc", "--width", "80"]);
    assert_eq!(audit.find("who"), Some("2026-03-01 03:12:30Z  ".len()), "{audit}");
    assert!(audit.contains('…') && !audit.contains("Z…"), "{audit}");
}
