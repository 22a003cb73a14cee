//! The rights that `docs/console.md` names are enough, on the databases that have rights.

use crate::db::Account;
use crate::suite::served::{Answer, Served, answer, bundle_of};

const READS: &[&str] = &[
    "SELECT ON payments",
    "SELECT ON invoices",
    "SELECT ON invoices_failed",
    "SELECT ON queueable_control",
    "SELECT ON queueable_pollers",
    "SELECT ON queueable_minutes",
    "SELECT ON queueable_audit",
];

const OPERATES: &[&str] = &[
    "UPDATE (status, next_attempt_time, try_count, last_attempt_time, last_attempt_error_message) ON payments",
    "INSERT, UPDATE ON queueable_control",
    "INSERT, UPDATE (row_count) ON queueable_audit",
];

fn run(served: &Served, account: &Account<'_>, arguments: &[&str]) -> Answer {
    answer(served.command(arguments).env("DATABASE_URL", &account.url))
}

#[test]
fn an_account_that_may_only_read_can_ask_everything() {
    let served = Served::filled();
    let account = Account::new(&served.database, READS);
    for arguments in [
        &["status"][..],
        &["why"],
        &["explain", "payments", "1", "5", "6"],
        &["show", "invoices", "north,1"],
        &["list", "payments"],
        &["backlog"],
        &["backlog", "payments", "--by", "company_id"],
        &["errors"],
        &["statistics"],
        &["limits"],
        &["pollers"],
        &["audit"],
        &["environment"],
    ] {
        let asked = run(&served, &account, arguments);
        assert_eq!((asked.code, &*asked.err), (Some(0), ""), "{arguments:?}: {asked:?}");
    }
    let bundle = bundle_of(|arguments| run(&served, &account, arguments));
    assert!(bundle.contains("queueable_payments_3d307857d9304fe5") && !bundle.contains(r#""unread":"#), "{bundle}");
    // It looks for the rights of a poller too, which this account lacks.
    let check = run(&served, &account, &["migrate", "check"]);
    assert_eq!((check.code, &*check.err), (Some(4), ""), "{check:?}");
    assert!(check.out.lines().all(|line| line.contains(" right ") || line.contains("mend: GRANT ")), "{check:?}");
    let previewed = run(&served, &account, &["retry", "payments", "--failed", "--dry-run"]);
    assert_eq!((previewed.code, &*previewed.err), (Some(4), ""), "{previewed:?}");
    let changed = run(&served, &account, &["retry", "payments", "--failed", "--yes"]);
    assert_eq!(changed.code, Some(1), "{changed:?}");
}

#[test]
fn an_account_with_the_rights_of_an_operator_can_operate() {
    let served = Served::filled();
    let account = Account::new(&served.database, &[READS, OPERATES].concat());
    for arguments in [
        &["retry", "payments", "--failed", "--yes"][..],
        &["stop", "payments", "1", "--yes"],
        &["resume", "payments", "1", "--yes"],
        &["postpone", "payments", "1", "--for", "1h", "--yes"],
        &["skip", "payments", "1", "--yes"],
        &["rerun", "payments", "9", "--yes"],
        &["enqueue", "payments", "10", "--yes"],
        &["pause", "payments"],
        &["unpause", "payments"],
        &["limits", "payments", "--workers", "1"],
        &["limits", "payments", "--end"],
        &["environment", "--adopt", "staging", "--yes"],
    ] {
        let changed = run(&served, &account, arguments);
        assert_eq!((changed.code, &*changed.err), (Some(0), ""), "{arguments:?}: {changed:?}");
    }
    assert_eq!(served.objects(&["audit"]).len(), 12, "each call leaves a row");
    let deleted = run(&served, &account, &["delete", "payments", "1", "--yes"]);
    assert_eq!(deleted.code, Some(1), "{deleted:?}");
}
