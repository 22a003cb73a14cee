//! What operators have changed: a row for each change that names its author, in a table of the library's own.
//!
//! The row is written in the transaction of the change. Its key is a time and a random number, so no writer waits for another.

mod control;
mod record;

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

pub use self::control::{adopt_environment, pause, unpause};
pub(crate) use self::control::{end_limits, set_limits};
pub(crate) use self::record::Record;
use crate::backend::{AsQueueConnection, AuditRow, AuditType, OwnTable, load};
use crate::control::{check_author, expect_own};
use crate::error::Error;
use crate::row::printable;
use crate::statement::read_audit;

/// A change that an operator has made, as [`audit`] reads it.
///
/// ```
/// # use queueable::control::Audited;
/// let json = r#"{"at": "2026-03-01T12:00:00Z", "by": "ops@example.org", "reason": "ticket 812", "queue": "payments.status",
///     "action": "retry_now", "filter": "(company_id = 3345); status FAILED", "rows": 12}"#;
/// let audited: Audited = serde_json::from_str(json).unwrap();
/// assert_eq!(
///     audited.to_string(),
///     "2026-03-01 12:00:00 UTC ops@example.org: retry_now of payments.status, 12 rows: (company_id = 3345); status FAILED \
///      (ticket 812)"
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Audited {
    /// When the call began, by the database's clock.
    pub at: DateTime<Utc>,
    /// Who has asked for it.
    pub by: String,
    /// Why.
    pub reason: String,
    /// The queue's name: its table, with the schema that `table!` names, and its status column.
    pub queue: String,
    /// The call, and its argument if it has one: `retry_now`, `postpone_until 2026-03-02 08:00:00 UTC`, `purge 2592000s`.
    pub action: String,
    /// The rows that the call was for: the filter as SQL with its values, and after it the other conditions. Control characters
    /// are written as escapes, and the SQL is cut after 4,000 bytes, which then end with ` [...]`.
    pub filter: String,
    /// How many rows were changed, moved or removed.
    pub rows: usize,
}

impl fmt::Display for Audited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [by, reason, queue, action, filter] =
            [&self.by, &self.reason, &self.queue, &self.action, &self.filter].map(|text| printable(text, false));
        let (at, rows) = (self.at.format("%Y-%m-%d %H:%M:%S UTC"), self.rows);
        write!(f, "{at} {by}: {action} of {queue}, {rows} {}: ", if rows == 1 { "row" } else { "rows" })?;
        write!(f, "{filter} ({reason})")
    }
}

/// Which rows of the audit to read: the newest, or those after a page. It is a value that can be kept, sent and read back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Audit {
    queue: Option<String>,
    limit: Option<u32>,
    /// The time of the last row as the database writes it, and its number.
    after: Option<(String, i64)>,
}

impl Audit {
    /// The newest rows of all queues, 100 on a page.
    pub fn new() -> Self {
        Audit::default()
    }

    /// Reads the rows of one queue only, by its [name](Audited::queue). [`Queueable::audit`](crate::Queueable::audit) does it by
    /// the entity.
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.queue = Some(name.into());
        self
    }

    /// Sets how many rows a page has, 1 to 1,000.
    pub fn limit(mut self, rows: u32) -> Self {
        self.limit = Some(rows);
        self
    }
}

/// Some rows of the audit, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AuditPage {
    /// The rows.
    pub rows: Vec<Audited>,
    /// The next page; `None`: there are no more rows.
    pub next: Option<Audit>,
}

const ROWS_OF_A_PAGE: u32 = 100;

const LONGEST_PAGE: u32 = 1_000;

/// Reads what operators have changed, the newest first: a page of all queues, or of [one](Audit::queue).
///
/// The next page goes on after the last row of this one, whatever was added meanwhile. Rows whose time is odd are left out. A
/// page is read along the table's key; for one queue it reads past the rows of others.
///
/// # Errors
///
/// [`Error::Control`] if there is no [table of the audit](crate::Migrations::audit), [`Error::Database`].
///
/// # Examples
///
/// ```
/// # use diesel::prelude::*;
/// # use diesel_migrations::MigrationHarness;
/// # use queueable::Migrations;
/// use queueable::control::{Audit, AuditPage};
///
/// # let mut connection = SqliteConnection::establish(":memory:")?;
/// # connection.run_pending_migrations(Migrations::new().audit())?;
/// let mut next = Some(Audit::new().limit(50));
/// while let Some(audit) = next {
///     let page: AuditPage = queueable::control::audit(&mut connection, &audit)?;
///     page.rows.iter().for_each(|audited| println!("{audited}"));
///     next = page.next;
/// }
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub fn audit<C: AsQueueConnection>(connection: &mut C, audit: &Audit) -> Result<AuditPage, Error> {
    let connection = connection.as_queue_connection();
    expect_own(connection, OwnTable::Audit, "audit")?;
    let limit = audit.limit.unwrap_or(ROWS_OF_A_PAGE).clamp(1, LONGEST_PAGE) as usize;
    // One more, which shows whether there is another page.
    let read = read_audit(audit.queue.as_deref(), audit.after.as_ref(), limit as i64 + 1);
    let mut rows = load::<AuditType, AuditRow, _>(connection, &read)?;
    let is_last = rows.len() <= limit;
    rows.truncate(limit);
    let last = rows.last().filter(|_| !is_last).map(|((_, time, id), ..)| (time.0.clone(), *id));
    let next = last.map(|last| Audit { after: Some(last), ..audit.clone() });
    Ok(AuditPage { rows: rows.into_iter().filter_map(audited).collect(), next })
}

/// Returns what a row says.
fn audited(((at, ..), (by, reason, queue, action, filter), rows): AuditRow) -> Option<Audited> {
    let at = DateTime::from_timestamp_micros(at?)?;
    let [by, reason, queue, action, filter] = [by, reason, queue, action, filter].map(|text| text.0);
    Some(Audited { at, by, reason, queue, action, filter, rows: usize::try_from(rows).unwrap_or(0) })
}

/// Who asks for a change, and why.
#[derive(Debug, Clone)]
pub(crate) struct Author {
    pub(crate) by: String,
    pub(crate) reason: String,
}

impl Author {
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_author(("who asks for a change", &self.by), ("the reason of a change", &self.reason))
    }
}
