//! The result of the job, for people and as JSON.

use std::fmt;

use queueable::{QueueState, StatusCounts, Tally};
use serde::Serialize;

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
        writeln!(f, "{} payments of {}\n\n{}", self.payments, self.file, self.statuses)?;
        writeln!(f, "errors")?;
        if self.errors.is_empty() {
            writeln!(f, "  none")?;
        }
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
