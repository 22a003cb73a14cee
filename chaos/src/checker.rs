//! The invariants, in plain SQL: none of the library's code decides whether the library was right.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::calls::{Call, calls};
use crate::session::{Dialect, Session};

/// How many rows of a broken invariant are shown.
const SHOWN: usize = 10;

/// One invariant, and the rows that break it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Invariant {
    pub(crate) name: &'static str,
    pub(crate) broken: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) rows: Vec<String>,
}

impl Invariant {
    pub(crate) fn of(name: &'static str, mut rows: Vec<String>) -> Self {
        let broken = rows.len();
        rows.truncate(SHOWN);
        Invariant { name, broken, rows }
    }
}

/// What a run expects beyond the invariants that always hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    /// The last key of the payments that were there before the queue.
    pub(crate) old: i64,
    /// How many payments were enqueued and not deleted by the application.
    pub(crate) payments: Option<i64>,
    /// Whether the faults are over and all payments were worked.
    pub(crate) drained: bool,
    /// Whether only the handler's own failures use tries.
    pub(crate) exact_tries: bool,
    /// Whether a row may be set aside because it ended its process, or seemed to.
    pub(crate) may_be_set_aside: bool,
    /// A condition on the row `p`: further payments that may fail for good.
    pub(crate) also_fail: &'static str,
}

impl Expected {
    /// The expectations that hold at any moment.
    pub(crate) fn while_faults_go_on(self) -> Self {
        Expected { payments: None, drained: false, may_be_set_aside: true, ..self }
    }
}

/// The error text of a row that was set aside for its crashes, as a pattern for `LIKE`.
const SET_ASIDE: &str = "the process ended % times while this message was handled%";

/// The invariants by name, each with a query for the rows that break it. `$row` stands for the row as a text.
const ALWAYS: &[(&str, &str)] = &[
    (
        "no payment has two ledger rows",
        "SELECT $ledger AS line FROM ledger AS p
            WHERE p.payment_id IN (SELECT payment_id FROM ledger GROUP BY payment_id HAVING COUNT(*) > 1)",
    ),
    (
        "every ledger row has its SUCCESS row",
        "SELECT $payment_id AS line FROM ledger AS p LEFT JOIN payments ON payments.id = p.payment_id
            AND payments.status = 'SUCCESS' AND payments.amount_cents = p.amount_cents WHERE payments.id IS NULL",
    ),
    (
        "every SUCCESS row has its ledger row",
        "SELECT $row AS line FROM payments AS p LEFT JOIN ledger ON ledger.payment_id = p.id
            WHERE p.status = 'SUCCESS' AND ledger.payment_id IS NULL",
    ),
    (
        "balances are the sums of SUCCESS amounts",
        "SELECT $company AS line FROM companies AS p LEFT JOIN (SELECT company_id, SUM(amount_cents) AS cents FROM payments
            WHERE status = 'SUCCESS' GROUP BY company_id) AS booked ON booked.company_id = p.id
            WHERE p.balance_cents <> COALESCE(booked.cents, 0)",
    ),
    (
        "every payment is terminal, due, waiting or leased, until a finite time",
        "SELECT $row AS line FROM payments AS p WHERE p.id > $old AND NOT (
            (p.status IN ('SUCCESS', 'FAILED', 'SKIPPED') AND p.next_attempt_time IS NULL)
            OR (p.status IN ('NOT_ATTEMPTED', 'ERROR', 'IN_PROGRESS') AND p.next_attempt_time IS NULL
                AND p.id IN (SELECT payment_id FROM touched WHERE how = 'stopped'))
            OR (p.status IN ('NOT_ATTEMPTED', 'ERROR', 'IN_PROGRESS') AND p.next_attempt_time IS NOT NULL
                AND p.next_attempt_time < $later))",
    ),
    (
        "what an operator has skipped stays skipped, and nothing else is",
        // Notes of skipped payments are kept completely or not at all.
        "SELECT $row AS line FROM payments AS p WHERE (p.status = 'SKIPPED')
            <> (p.id IN (SELECT payment_id FROM touched WHERE how = 'skipped')) AND EXISTS (SELECT 1 FROM touched)",
    ),
    (
        "payments from before the queue are untouched",
        "SELECT $row AS line FROM payments AS p WHERE p.id <= $old AND (p.status <> 'NOT_ATTEMPTED'
            OR p.next_attempt_time IS NOT NULL OR p.try_count <> 0 OR p.last_attempt_time IS NOT NULL)",
    ),
    (
        "every planned failure has used a try",
        "SELECT $row AS line FROM payments AS p WHERE p.status = 'SUCCESS' AND p.try_count < p.fails + 1",
    ),
];

const WHEN_DRAINED: &[(&str, &str)] = &[(
    "everything becomes terminal",
    "SELECT $row AS line FROM payments AS p WHERE p.id > $old AND p.next_attempt_time IS NOT NULL",
)];

const EXACT_TRIES: &[(&str, &str)] = &[(
    "no try is used but by a planned failure",
    "SELECT $row AS line FROM payments AS p WHERE p.id > $old AND (p.status = 'SUCCESS' AND p.try_count <> p.fails + 1
        OR p.kind = 'fatal' AND p.status = 'FAILED' AND p.try_count <> 1)",
)];

/// Checks all invariants in one snapshot: a server may still commit for a killed process, and during the faults the workers
/// and the application go on.
pub(crate) fn check(session: &mut dyn Session, calls: &Path, expected: Expected) -> Result<Vec<Invariant>> {
    session.run(match session.dialect() {
        Dialect::Postgres => "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
        Dialect::Mysql => {
            "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
        }
        // The first query takes the snapshot.
        Dialect::Sqlite => "BEGIN",
    })?;
    let checked = check_snapshot(session, calls, expected);
    // The transaction has only read. If it cannot end, the session's next statement fails.
    let _ = session.run("ROLLBACK");
    checked
}

fn check_snapshot(session: &mut dyn Session, file: &Path, expected: Expected) -> Result<Vec<Invariant>> {
    let dialect = session.dialect();
    let mut asked: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    let mut queries: Vec<(&'static str, String)> = ALWAYS.iter().map(|&(name, sql)| (name, sql.to_owned())).collect();
    if expected.drained {
        queries.extend(WHEN_DRAINED.iter().map(|&(name, sql)| (name, sql.to_owned())));
    }
    if expected.exact_tries {
        queries.extend(EXACT_TRIES.iter().map(|&(name, sql)| (name, sql.to_owned())));
    }
    let set_aside = if expected.may_be_set_aside { SET_ASIDE } else { "" };
    queries.push((
        "only what is planned fails for good",
        format!(
            "SELECT $row AS line FROM payments AS p WHERE p.id > $old AND p.status = 'FAILED' AND p.kind <> 'fatal'
             AND COALESCE(p.last_attempt_error_message, '-') NOT LIKE '{set_aside}' AND NOT ({})",
            expected.also_fail
        ),
    ));
    for (name, sql) in queries {
        let rows = session.lines(&spelled(dialect, &sql, expected.old)).with_context(|| name.to_owned())?;
        asked.entry(name).or_default().extend(rows);
    }
    if let Some(payments) = expected.payments {
        let found = session.count(&format!("SELECT COUNT(*) AS n FROM payments WHERE id > {}", expected.old))?;
        let rows = if found == payments { Vec::new() } else { vec![format!("{found} instead of {payments}")] };
        asked.insert("no payment disappears", rows);
    }
    let (two_keys, uncalled) = check_calls(session, file)?;
    asked.insert("every call of a payment carries one key", two_keys);
    asked.insert("every booked payment was called", uncalled);
    Ok(asked.into_iter().map(|(name, rows)| Invariant::of(name, rows)).collect())
}

fn spelled(dialect: Dialect, sql: &str, old: i64) -> String {
    let text = |column: &str| format!("COALESCE({}, '-')", dialect.text(column));
    let join = |columns: &[&str]| {
        let columns: Vec<_> = columns.iter().map(|column| text(column)).collect();
        match dialect {
            Dialect::Mysql => format!("CONCAT_WS(' ', {})", columns.join(", ")),
            Dialect::Postgres | Dialect::Sqlite => columns.join(" || ' ' || "),
        }
    };
    let row = [
        "p.id",
        "p.kind",
        "p.fails",
        "p.status",
        "p.try_count",
        "p.next_attempt_time",
        "p.last_attempt_time",
        "p.last_attempt_error_message",
    ];
    sql.replace("$row", &join(&row))
        .replace("$payment_id", &text("p.payment_id"))
        .replace("$ledger", &join(&["p.payment_id", "p.id", "p.amount_cents", "p.attempt"]))
        .replace("$company", &join(&["p.id", "p.balance_cents", "booked.cents"]))
        .replace("$old", &old.to_string())
        .replace("$later", &dialect.now_plus(3600))
}

/// The calls are noted in a file, because a note in the database would share its fate. Returns the calls of payments that
/// were called with another key before, and the payments that are booked without a call.
fn check_calls(session: &mut dyn Session, file: &Path) -> Result<(Vec<String>, Vec<String>)> {
    let mut keys: HashMap<String, String> = HashMap::new();
    let mut two_keys = Vec::new();
    for Call { payment, key, .. } in calls(file)? {
        let payment = payment.to_string();
        if keys.get(&payment).is_some_and(|known| *known != key) {
            two_keys.push(format!("{payment} {key}"));
        } else {
            keys.insert(payment, key);
        }
    }
    let booked = session.lines(&spelled(session.dialect(), "SELECT $payment_id AS line FROM ledger AS p", 0))?;
    Ok((two_keys, booked.into_iter().filter(|payment| !keys.contains_key(payment)).collect()))
}
