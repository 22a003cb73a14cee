//! Dry runs: how many rows an operation would change, and some of them.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, SubsecRound, Utc};
use diesel::result::QueryResult;
use diesel::sql_types::BigInt;
use serde::{Deserialize, Serialize};

use super::operate::Operate;
use super::queue::{Chosen, QueueRows, Selection};
use super::read::{BackendOf, LoadsRows};
use crate::backend::load;
use crate::entity::{Entity, HasArchive, HasPriority};
use crate::error::Error;
use crate::statement::{Condition, SampleRow, count};

/// How many rows a preview shows.
const SHOWN: usize = 5;

/// How many characters of a failure's text a line of a preview shows.
const TEXT_SHOWN: usize = 60;

/// Says for each changing call what it would do, without doing it: see [`QueueRows::dry_run`].
#[derive(Debug)]
#[must_use = "nothing is read before an operation is called"]
pub struct DryRun<Q, F>(pub(crate) QueueRows<Q, F>);

impl<Q, F: Clone> Clone for DryRun<Q, F> {
    fn clone(&self) -> Self {
        DryRun(self.0.clone())
    }
}

/// What an operation would do at the moment of the dry run.
///
/// Its `Display` is a line for each row that it shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Preview<Q> {
    /// How many rows the call would change, move or remove.
    pub rows: usize,
    /// The first five of them, in the order of the primary key.
    pub some: Vec<PreviewedRow<Q>>,
}

/// A row that an operation would change, as it is now. Its `Display` leaves out the key; the code that shows it writes
/// the key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PreviewedRow<Q> {
    /// The primary key, as `Debug` writes it, if it can be decoded.
    pub key: String,
    /// The status, even if it is not one of the queue's.
    pub status: String,
    /// How many attempts were recorded since the row was enqueued.
    pub try_count: i32,
    /// When the next attempt is due; `None` means that the row is not to be processed.
    pub next_attempt_time: Option<DateTime<Utc>>,
    /// When the last recorded attempt ended.
    pub last_attempt_time: Option<DateTime<Utc>>,
    /// The text of the last failure.
    pub last_attempt_error_message: Option<String>,
    /// The entity. `None` if it cannot be decoded; then the times and the text are missing too.
    pub entity: Option<Q>,
}

impl<Q: Entity, F: Selection> QueueRows<Q, F> {
    /// Makes a dry run: each changing call then returns how many rows it would change, and some of them. It writes
    /// nothing and takes no lock.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::connection::SimpleConnection;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::{Migrations, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, company_id -> BigInt, } }
    /// # #[derive(Debug, Queryable, Selectable, Queueable)] struct Payment { id: i64, company_id: i64 }
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, company_id BIGINT NOT NULL)")?;
    /// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
    /// let company = Payment::queue().filter(payments::company_id.eq(3345));
    /// let preview = company.dry_run().retry_now(&mut connection)?;
    /// println!("{preview}");
    /// assert_eq!(preview.rows, company.retry_now(&mut connection)?);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn dry_run(&self) -> DryRun<Q, F>
    where
        F: Chosen + Clone,
    {
        DryRun(self.clone())
    }
}

/// The dry runs: each call stands for the one of the same name on [`QueueRows`].
macro_rules! dry_runs {
    ($($name:ident($($argument:ident: $type:ty),*) $(where $has:ident)? = $operate:expr $(, $more:literal)?;)*) => {
        impl<Q: Entity, F: Selection> DryRun<Q, F> {$(
            #[doc = concat!("Reads what [`QueueRows::", stringify!($name), "`] would do.")]
            $(#[doc = $more])?
            ///
            /// # Errors
            ///
            /// [`Error::Database`], and [`Error::Archive`] if the rows are in an archive that the entity does not name, or
            /// that cannot be searched.
            pub fn $name<C: LoadsRows<Q, F>>(
                &self,
                connection: &mut C,
                $($argument: $type),*
            ) -> Result<Preview<Q>, Error>
            $(where Q::Queue: $has,)?
            {
                self.0.preview(connection, &$operate)
            }
        )*}
    };
}

dry_runs! {
    retry_now() = Operate::RetryNow;
    postpone_until(time: DateTime<Utc>) = Operate::PostponeUntil(time);
    stop() = Operate::Stop;
    restart() = Operate::Restart;
    rerun() = Operate::Rerun;
    skip() = Operate::Skip;
    delete() = Operate::Delete;
    purge(older_than: Duration) = Operate::Purge(older_than);
    enqueue_existing() = Operate::EnqueueExisting;
    set_priority(priority: i32) where HasPriority = Operate::SetPriority(priority);
    archive() where HasArchive = Operate::Archive;
    redrive() where HasArchive = Operate::Redrive, "Rows that would conflict count too.";
    redrive_succeeded() where HasArchive = Operate::RedriveSucceeded, "Rows that would conflict count too.";
}

impl<Q: Entity, F: Selection> QueueRows<Q, F> {
    fn preview<C: LoadsRows<Q, F>>(&self, connection: &mut C, operate: &Operate) -> Result<Preview<Q>, Error> {
        let kinds = operate.operation::<Q>().kinds();
        if kinds.is_empty() {
            return Ok(Preview::default());
        }
        let archive = operate.archive(C::condition(self, &[]).queue)?;
        let condition = C::condition(self, &self.terms.states).of_kinds(&kinds).within(archive.as_ref());
        Ok(preview_of(connection, condition)?)
    }
}

/// Reads how many rows a condition picks, and the first of them.
pub(super) fn preview_of<Q: Entity, F, C: LoadsRows<Q, F>>(
    connection: &mut C,
    condition: Condition<'_, BackendOf<C>>,
) -> QueryResult<Preview<Q>> {
    let counts = load::<BigInt, i64, _>(connection.as_queue_connection(), &count(condition))?;
    let rows = connection.load_samples(condition, SHOWN)?;
    let rows_in_all = usize::try_from(counts.into_iter().sum::<i64>()).unwrap_or(0);
    Ok(Preview { rows: rows_in_all, some: rows.into_iter().map(PreviewedRow::from).collect() })
}

impl<Q> Preview<Q> {
    /// Adds the preview of other rows.
    pub(crate) fn add(&mut self, other: Preview<Q>) {
        self.rows += other.rows;
        self.some.extend(other.some);
        self.some.truncate(SHOWN);
    }
}

impl<Q> Default for Preview<Q> {
    fn default() -> Self {
        Preview { rows: 0, some: Vec::new() }
    }
}

impl<Q: Entity> From<SampleRow<Q>> for PreviewedRow<Q> {
    fn from((key, _, status, try_count, rest): SampleRow<Q>) -> Self {
        let (next, last, text, entity) = match rest.ok() {
            Some((next, last, text, entity)) => (next, last, text, Some(entity)),
            None => (None, None, None, None),
        };
        PreviewedRow {
            key: key.ok().map_or_else(|| "(cannot be decoded)".to_owned(), |(key,)| format!("{key:?}")),
            status,
            try_count,
            next_attempt_time: next.map(Into::into),
            last_attempt_time: last.map(Into::into),
            last_attempt_error_message: text,
            entity,
        }
    }
}

impl<Q: fmt::Debug> fmt::Display for Preview<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Preview { rows, some } = self;
        write!(f, "{rows} {}", if *rows == 1 { "row" } else { "rows" })?;
        if some.len() < *rows {
            write!(f, ", the first {}", some.len())?;
        }
        f.write_str(if some.is_empty() { "" } else { ":" })?;
        let width = some.iter().map(|row| row.key.chars().count()).max().unwrap_or(0);
        some.iter().try_for_each(|row| write!(f, "\n  {:<width$}  {row}", row.key))
    }
}

impl<Q: fmt::Debug> fmt::Display for PreviewedRow<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<13}  ", self.status)?;
        match self.next_attempt_time {
            Some(time) => write!(f, "due {}", time.trunc_subsecs(0))?,
            None => f.write_str("not pending")?,
        }
        write!(f, ", {} {}", self.try_count, if self.try_count == 1 { "try" } else { "tries" })?;
        if let Some(text) = &self.last_attempt_error_message {
            let line = text.lines().next().unwrap_or_default();
            let mut shown: String = line.chars().take(TEXT_SHOWN).collect();
            if shown.len() < text.len() {
                shown.push_str(" ..");
            }
            write!(f, ", {shown:?}")?;
        }
        match &self.entity {
            Some(entity) => write!(f, "  {entity:?}"),
            None => f.write_str("  (cannot be decoded)"),
        }
    }
}
