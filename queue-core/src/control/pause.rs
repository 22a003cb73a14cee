//! Pauses a queue and ends its pause.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use chrono::{DateTime, Datelike, Utc};
use diesel::result::QueryResult;
use diesel::sql_types::Nullable;

use super::paused::{expect_control, scope_of};
use crate::backend::{QueueBackend, QueueConnection, TableName, execute, load_first};
use crate::entity::{QueueSql, StageOf, StoredIn};
use crate::error::Error;
use crate::row::{Instant, MAX_DELAY, Stage, TimestampUtc, queue_name};
use crate::statement::{PauseEnd, SetPause, end_pause, present};

/// The longest name of somebody who pauses a queue, and the longest reason, in characters.
const LONGEST_BY: usize = 255;
const LONGEST_REASON: usize = 1000;

/// The shortest pause with an end: pollers read the control table once a second.
const SHORTEST: Duration = Duration::from_secs(1);

/// A pause to ask for: of the queue `Q`, or of one of its stages.
///
/// ```
/// # use std::time::Duration;
/// # use diesel::prelude::*;
/// # use diesel::connection::SimpleConnection;
/// # use diesel_migrations::MigrationHarness;
/// # use queueable::{Migrations, Pause, Queueable, Stage};
/// # diesel::table! { invoices (id) { id -> BigInt, } }
/// # #[derive(Debug, Clone, Copy, PartialEq, Eq, Stage)] enum InvoiceStage { Render, Send, Book }
/// # #[derive(Queryable, Selectable, Queueable)] #[queue(stage = InvoiceStage)] struct Invoice { id: i64 }
/// # let mut connection = SqliteConnection::establish(":memory:")?;
/// # connection.run_pending_migrations(Migrations::new().control())?;
/// let pause = Pause::new("mail server moves", "ops@example.org").stage(InvoiceStage::Send);
/// Invoice::pause(&mut connection, pause.lasting(Duration::from_secs(3600)))?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[must_use = "it is only asked for by `pause` of the entity"]
pub struct Pause<Q> {
    reason: String,
    by: String,
    end: PauseEnd,
    stage: Option<&'static str>,
    entity: PhantomData<fn() -> Q>,
}

impl<Q> Pause<Q> {
    /// A pause of the whole queue, until somebody ends it. `reason` says why, in up to 1,000 characters; `by` says
    /// who asks for it, in up to 255. Everybody who asks why nothing runs reads both.
    pub fn new(reason: impl Into<String>, by: impl Into<String>) -> Self {
        Pause { reason: reason.into(), by: by.into(), end: PauseEnd::Never, stage: None, entity: PhantomData }
    }

    /// Pauses only the rows in this stage.
    pub fn stage<S: StageOf<Q>>(mut self, stage: S) -> Self {
        self.stage = Some(Stage::name(stage));
        self
    }

    /// Ends the pause at this time, by the database's clock: a time in the future, before the year 10000.
    pub fn until(mut self, time: DateTime<Utc>) -> Self {
        self.end = PauseEnd::At(time.into());
        self
    }

    /// Ends the pause after this time, 1 second to 100 years.
    pub fn lasting(mut self, time: Duration) -> Self {
        self.end = PauseEnd::After(time);
        self
    }

    /// Checks what does not depend on the database's clock.
    fn check(&self) -> Result<(), Error> {
        check_text("the reason of a pause", &self.reason, LONGEST_REASON, "1 to 1,000 characters, in one line")?;
        check_text("who asks for a pause", &self.by, LONGEST_BY, "1 to 255 characters, in one line")?;
        match self.end {
            PauseEnd::After(time) if !(SHORTEST..=MAX_DELAY).contains(&time) => Err(Error::Setting {
                setting: "how long a pause lasts",
                found: format!("{time:?}"),
                expected: "1 second to 100 years",
            }),
            _ => Ok(()),
        }
    }

    /// Refuses an end that has come, or that a database cannot store.
    fn check_end<C: QueueConnection>(&self, connection: &mut C) -> Result<(), Error> {
        let PauseEnd::At(Instant(until)) = self.end else { return Ok(()) };
        let now = load_first::<Nullable<TimestampUtc>, Option<Instant>, _>(connection, &present())?.flatten();
        // Pollers read the table once a second, and SQLite stores milliseconds.
        let is_future = now.is_none_or(|Instant(now)| until >= now + SHORTEST);
        if is_future && until.year() < 10_000 {
            return Ok(());
        }
        Err(Error::Setting {
            setting: "the end of a pause",
            found: until.to_string(),
            expected: "a time that is 1 second or more in the future by the database's clock, before the year 10000",
        })
    }
}

fn check_text(setting: &'static str, text: &str, longest: usize, expected: &'static str) -> Result<(), Error> {
    let length = text.chars().count();
    let found = if text.trim().is_empty() {
        "empty".to_owned()
    } else if length > longest {
        format!("{length} characters long")
    } else if text.contains(char::is_control) {
        format!("{text:?}")
    } else {
        return Ok(());
    };
    Err(Error::Setting { setting, found, expected })
}

impl<Q> fmt::Debug for Pause<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pause { reason, by, end, stage, .. } = self;
        f.debug_struct("Pause")
            .field("reason", reason)
            .field("by", by)
            .field("end", end)
            .field("stage", stage)
            .finish_non_exhaustive()
    }
}

/// Writes a pause into the control table.
pub(crate) fn pause<Q, C>(connection: &mut C, pause: &Pause<Q>) -> Result<(), Error>
where
    C: QueueConnection,
    Q: StoredIn<C::Backend>,
{
    pause.check()?;
    expect_control(connection)?;
    pause.check_end(connection)?;
    let (queue, scope) = (name_of(Q::SQL)?, scope_of(pause.stage));
    let Pause { reason, by, end, .. } = pause;
    execute(connection, &SetPause { queue: &queue, scope: &scope, by, reason, end: *end })?;
    Ok(())
}

/// Ends a pause of the whole queue, or of a stage. Returns whether there was one.
pub(crate) fn unpause<Q, C>(connection: &mut C, stage: Option<&str>) -> Result<bool, Error>
where
    C: QueueConnection,
    Q: StoredIn<C::Backend>,
{
    expect_control(connection)?;
    let (queue, scope) = (name_of(Q::SQL)?, scope_of(stage));
    Ok(execute(connection, &end_pause(&queue, &scope))? > 0)
}

/// Returns the queue's name in the control table.
pub(crate) fn name_of<DB: QueueBackend>(queue: &'static QueueSql<DB>) -> QueryResult<String> {
    let table = TableName::of(queue.table, &DB::default())?;
    Ok(queue_name(table.schema.as_deref(), &table.name, queue.names.status))
}
