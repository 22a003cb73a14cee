//! What every command shows, as text at 80 and at 200 columns and as JSON: the same on every database.
//!
//! Not here is what needs no database.

use std::sync::LazyLock;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use insta::{Settings, assert_snapshot};
use queueable::{Queueable, Status};
use regex::{Captures, Regex};

use super::reports::REPORTS;
use super::served::{Served, ago};
use crate::entities::{Invoice, invoice_queue, invoices};

/// What is about queues and not about rows. `*` stands for who asks and why.
const CONTROLS: &[&[&str]] = &[
    &["pause", "payments", "*"],
    &["pause", "payments", "--where", "company_id = 7", "--for", "2h", "*"],
    &["pause", "invoices", "--stage", "send", "*"],
    &["limits", "payments", "--workers", "2", "--retry-delay", "10m", "*"],
    &["limits"],
    &["status"],
    &["status", "--check", "--allow-paused", "--min-pollers", "0", "--max-age", "1d"],
    &["why"],
    &["explain", "payments", "1"],
    &["backlog"],
    &["unpause", "payments", "*"],
    &["unpause", "payments", "--where", "company_id = 7", "*"],
    &["unpause", "invoices", "--stage", "send", "*"],
    &["unpause", "invoices", "--stage", "send", "*"],
    &["limits", "payments", "--end", "*"],
    &["limits", "payments", "--end", "*"],
    &["environment", "--adopt", "staging", "--yes", "*"],
    &["environment", "--adopt", "staging", "--yes", "*"],
    &["environment"],
    &["audit"],
    &["audit", "payments"],
];

/// Operations, each of which is seen before it is done.
const OPERATIONS: &[&[&str]] = &[
    &["retry", "payments", "--failed", "--where", "customer = 'Ann'"],
    &["postpone", "payments", "3", "--for", "2h"],
    &["skip", "payments", "7"],
    &["stop", "payments", "1", "2"],
    &["resume", "payments", "1"],
    &["rerun", "payments", "9"],
    &["enqueue", "payments", "10"],
    &["delete", "payments", "8"],
    &["purge", "payments", "--all", "--older-than", "1h"],
    &["priority", "invoices", "north,1", "--to", "-3"],
    &["archive", "invoices", "--all"],
    &["redrive", "invoices", "--all"],
    &["retry", "payments", "--where", "company_id = 99"],
];

/// What the operations have left.
const AFTERWARDS: &[&[&str]] = &[
    &["list", "payments", "--columns", "id,status,try_count"],
    &["list", "invoices", "--columns", "site,number,status,priority", "--limit", "2"],
    &["audit"],
];

/// What is refused.
const REFUSED: &[&[&str]] = &[
    &["delete", "payments", "--yes"],
    &["retry", "payments", "4"],
    &["list", "payments", "--where", "compny_id = 7"],
    &["explain", "invoices", "north"],
];

/// The migrations of tables without queues.
const MIGRATIONS: &[&[&str]] = &[
    &["migrate", "list"],
    &["migrate", "run"],
    &["migrate", "run", "--yes"],
    &["migrate", "list"],
    &["migrate", "run"],
];

/// Who asks, and why.
const AUTHOR: [&str; 4] = ["--by", "ann@example.org", "--reason", "ticket 812"];

/// A text in which what differs from run to run has been replaced by something as wide, and what differs from database to database by
/// what they have in common.
fn alike(text: &str) -> String {
    static REPLACED: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        let replaced = [
            // Where a page of the audit begins: a time as the database writes it, and a random number.
            (r#"(\\?"after\\?":)\[[^\]]*\]"#, "$1[..]"),
            // The number of a migration is that of its SQL.
            (r"\b(queueable_[a-z]+)_[0-9a-f]{16}\b", "${1}_0123456789abcdef"),
            // PostgreSQL quotes names in its own way.
            (r#"\\?"(payments|invoices)\\?"\.\\?"(\w+)\\?""#, "`$1`.`$2`"),
            (r#"\(\\?"(pay|inv)"#, "(`$1"),
        ];
        replaced.map(|(found, shown)| (Regex::new(found).expect("a pattern of ours"), shown)).into()
    });
    static DIGITS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
        let patterns = [
            r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?",
            r"(?:\bin |[ (])\d+(?:ms|s|m|h|d)(?: \d+(?:ms|s|m|h|d))?\b",
            // The beginning of a time or an age that is cut.
            r"[ (]\d[\d-]*…",
            r#""oldest_due":\d+\.\d+"#,
        ];
        patterns.map(|pattern| Regex::new(pattern).expect("a pattern of ours")).into()
    });
    let digits = |found: &Captures<'_>| {
        let whole = found[0].split('.').next().unwrap_or_default();
        whole.replace(|c: char| c.is_ascii_digit(), "#")
    };
    let text =
        REPLACED.iter().fold(text.to_owned(), |text, (found, shown)| found.replace_all(&text, *shown).into_owned());
    DIGITS.iter().fold(text, |text, found| found.replace_all(&text, digits).into_owned())
}

/// A console of which all answers are kept.
struct Told {
    served: Served,
    form: Vec<&'static str>,
    told: String,
}

impl Told {
    fn new(served: Served, form: &[&'static str]) -> Self {
        Told { served, form: form.to_vec(), told: String::new() }
    }

    fn say(&mut self, arguments: &[&str]) {
        let answer = self.served.run(&[arguments, &self.form].concat());
        let lines = format!("{}{}", answer.out, answer.err);
        let lines: String = lines.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
        let code = answer.code.map_or_else(|| "killed".to_owned(), |code| code.to_string());
        self.told += &format!("$ console {}\n{}=> {code}\n\n", quoted(arguments), alike(&lines));
    }

    /// Says commands whose last argument may stand for who asks and why.
    fn say_all(&mut self, commands: &[&[&str]]) {
        for arguments in commands {
            match arguments.split_last() {
                Some((&"*", arguments)) => self.say(&[arguments, &AUTHOR].concat()),
                _ => self.say(arguments),
            }
        }
    }
}

/// Arguments as one writes them.
fn quoted(arguments: &[&str]) -> String {
    let quoted = |argument: &&str| match argument.contains(' ') {
        true => format!("\"{argument}\""),
        false => (*argument).to_owned(),
    };
    arguments.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Runs every command.
fn everything(form: &[&'static str]) -> String {
    let served = Served::filled();
    served.register(r#"[{"queue": "payments.status", "key": "5", "stage": null, "for_ms": 30000}]"#);
    let mut told = Told::new(served, form);
    told.say(&["pollers"]);
    told.served.connect().batch_execute("DELETE FROM queueable_pollers").expect("the table is there");
    told.say_all(REPORTS);
    told.say_all(CONTROLS);
    to_archive(&told.served);
    for arguments in OPERATIONS {
        told.say(&[arguments, &["--dry-run"][..]].concat());
        told.say(&[arguments, &["--yes"][..], &AUTHOR].concat());
    }
    told.say_all(AFTERWARDS);
    told.say_all(REFUSED);
    let mut migrated = Told::new(Served::bare(), form);
    migrated.say_all(MIGRATIONS);
    told.told + &migrated.told
}

/// Adds an invoice that has failed, so that there is one to archive.
fn to_archive(served: &Served) {
    let domain = (invoices::site.eq("south"), invoices::number.eq(1), invoices::total_cents.eq(2_999));
    let queue = (invoice_queue::stage.eq("SEND"), Invoice::due_at(ago(5_000)));
    let connection = &mut served.connect();
    diesel::insert_into(invoices::table).values((domain, queue)).execute(connection).expect("it is new");
    let row = invoices::table.find(("south", 1));
    let failed = (
        invoice_queue::status.eq(Status::Failed),
        invoice_queue::next_attempt_time.eq(None::<queueable::columns::Instant>),
        invoice_queue::last_attempt_time.eq(Some(queueable::columns::Instant::from(ago(5_000)))),
        invoice_queue::last_attempt_error_message.eq("no printer"),
    );
    diesel::update(row).set(failed).execute(connection).expect("the row is there");
}

fn settings() -> Settings {
    let mut settings = Settings::clone_current();
    settings.set_snapshot_path("snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings
}

#[test]
fn every_command_shows_the_same_at_80_columns_on_every_database() {
    let told = everything(&["--utc", "--width", "80"]);
    settings().bind(|| assert_snapshot!("text-80", told));
    let of_table = |line: &&str| line.contains("  ") && !line.starts_with("  ");
    let widest = told.lines().filter(of_table).max_by_key(|line| line.chars().count()).unwrap_or_default();
    assert!(widest.chars().count() <= 80, "{widest}");
}

#[test]
fn every_command_shows_the_same_at_200_columns_on_every_database() {
    settings().bind(|| assert_snapshot!("text-200", everything(&["--utc", "--width", "200"])));
}

#[test]
fn every_command_has_the_same_json_on_every_database() {
    settings().bind(|| assert_snapshot!("json", everything(&["--json"])));
}

/// What the doctor finds of the queues, without what it finds of the tests' servers.
fn of_queues(found: &str) -> String {
    let of_server =
        |finding: &str| ["durability", "journal-mode", "errors, "].iter().any(|kind| finding.contains(kind));
    let mut findings: Vec<String> = Vec::new();
    for line in found.lines().filter(|line| !line.is_empty()) {
        let goes_on = ["of ", "problem ", "mend ", " "].iter().any(|start| line.starts_with(start));
        match findings.last_mut().filter(|_| goes_on) {
            Some(finding) => *finding += &format!("{line}\n"),
            None => findings.push(format!("{line}\n")),
        }
    }
    findings.into_iter().filter(|finding| !of_server(finding)).collect()
}

#[test]
fn the_doctor_shows_the_same_of_queues_on_every_database() {
    let served = Served::filled();
    let mut told = String::new();
    for form in [&["--width", "80"][..], &["--width", "200"], &["--json"]] {
        let answer = served.run(&[&["doctor"][..], form].concat());
        assert_eq!((answer.code, &*answer.err), (Some(4), ""), "{answer:?}");
        told += &format!("$ console doctor {}\n{}\n", form.join(" "), of_queues(&answer.out));
    }
    let mut settings = settings();
    settings.add_filter(r"\b\d+h( \d+m)?( \d+s)?\b", "[age]");
    settings.bind(|| assert_snapshot!("doctor", told));
}
