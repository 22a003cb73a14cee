//! The result of the job, for people and as JSON.

use std::env;
use std::fmt::{self, Write};
use std::path::Path;

use queueable::report::StatusCounts;
use queueable::{QueueState, Status, Tally};
use serde::Serialize;

use crate::Options;
use crate::bank::Payment;

/// How many rows of a list are printed; JSON has all of them.
const PRINTED: usize = 20;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) file: String,
    pub(crate) payments: i64,
    pub(crate) statuses: StatusCounts,
    pub(crate) errors: Vec<ErrorGroup>,
    pub(crate) company: Company,
    pub(crate) check: Check,
    /// This process's share of the work; other processes may have done the rest.
    pub(crate) handled_here: Tally,
}

impl Report {
    /// What a reader may do now: commands to paste.
    pub(crate) fn next_steps(&self, options: &Options, log: Option<&Path>) -> String {
        let database = options.database_url();
        let program = match (env::current_exe(), env::current_dir()) {
            (Ok(program), Ok(present)) => program.strip_prefix(present).map(Path::to_owned).unwrap_or(program),
            _ => "payments".into(),
        };
        let run = match &options.database_url {
            Some(url) => format!("{} --database-url {url}", program.display()),
            None => program.display().to_string(),
        };
        let company = self.company.id;
        let mut text = "try next\n".to_owned();
        let mut step = |what: &str, command: &str| {
            let _ = writeln!(text, "  {what}\n    {command}");
        };
        if options.database_url.is_none() {
            step("kill it in the middle, and let another process go on", &format!("{run} & sleep 1; kill -9 $!"));
        }
        step("continue a run that was cut short", &format!("{run} --resume"));
        step("ask for another company's payments", &format!("{run} --resume --company 3346"));
        if !self.company.failed.is_empty() {
            step(
                "retry this company's failed payments (they fail again until somebody mends the amounts)",
                &format!("{run} --resume --company {company} --retry-failed"),
            );
        }
        if !database.contains("://") {
            let query = "SELECT status, count(*) FROM payments GROUP BY status";
            step("ask by SQL: the queue's columns are in your table", &format!("sqlite3 {database} '{query}'"));
        }
        if let Some(log) = log {
            step("read the log: each failed payment is a warning", &format!("head {}", log.display()));
        }
        text
    }
}

/// The rows with the same error.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorGroup {
    message: String,
    count: i64,
}

impl From<(Option<String>, i64)> for ErrorGroup {
    fn from((message, count): (Option<String>, i64)) -> Self {
        ErrorGroup { message: message.unwrap_or_default(), count }
    }
}

/// The payments of one company that are not done.
#[derive(Debug, Serialize)]
pub(crate) struct Company {
    id: i64,
    pending: Vec<Row>,
    failed: Vec<Row>,
}

impl Company {
    pub(crate) fn new(id: i64, pending: Vec<(Payment, QueueState)>, failed: Vec<(Payment, QueueState)>) -> Self {
        let rows = |rows: Vec<_>| rows.into_iter().map(|(payment, queue)| Row { payment, queue }).collect();
        Company { id, pending: rows(pending), failed: rows(failed) }
    }
}

#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    payment: Payment,
    #[serde(flatten)]
    queue: QueueState,
}

/// Whether the books agree.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) success_rows: usize,
    pub(crate) success_cents: i64,
    pub(crate) ledger_rows: usize,
    pub(crate) ledger_cents: i64,
    pub(crate) balance_cents: i64,
    pub(crate) old_rows: usize,
    pub(crate) old_rows_untouched: usize,
    /// Every payment with SUCCESS is in the ledger once and nothing else is, every company's balance is the sum of its
    /// payments with SUCCESS, and the old payments are as they were.
    pub(crate) holds: bool,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (charged, failed) = (self.statuses.of(Status::Success), self.statuses.of(Status::Failed));
        let left = self.payments - charged - failed;
        writeln!(f, "{charged} of {} payments of {} are charged", self.payments, self.file)?;
        writeln!(f, "{} cents in the ledger; {failed} failed for good, {left} are left\n", self.check.ledger_cents)?;
        writeln!(f, "{}", self.statuses)?;
        writeln!(f, "{}", if self.errors.is_empty() { "no payment has failed" } else { "why payments failed" })?;
        for ErrorGroup { message, count } in &self.errors {
            writeln!(f, "{count:>8} x  {message}")?;
        }
        writeln!(f, "\n{}\n{}", self.company, self.check)
    }
}

impl fmt::Display for Company {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, rows) in [("pending", &self.pending), ("failed", &self.failed)] {
            writeln!(f, "company {}: {} {what}", self.id, rows.len())?;
            for Row { payment, queue } in rows.iter().take(PRINTED) {
                let error = queue.last_attempt_error_message.as_deref().unwrap_or("");
                let (id, cents, tries) = (payment.id, payment.amount_cents, queue.try_count);
                writeln!(f, "{id:>8}  {cents:>10} cents  {}, try {tries}  {error}", queue.status)?;
            }
            if rows.len() > PRINTED {
                writeln!(f, "          and {} more", rows.len() - PRINTED)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "check: {}", if self.holds { "the books agree" } else { "THE BOOKS DO NOT AGREE" })?;
        writeln!(f, "{:>8} rows with SUCCESS, {} cents", self.success_rows, self.success_cents)?;
        writeln!(f, "{:>8} rows in the ledger, {} cents", self.ledger_rows, self.ledger_cents)?;
        writeln!(f, "         {} cents on the companies' balances", self.balance_cents)?;
        write!(f, "{:>8} of {} old rows as they were", self.old_rows_untouched, self.old_rows)
    }
}
