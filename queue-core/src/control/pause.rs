//! Pauses of queues. What a pause does is in `poller`.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use chrono::{DateTime, Datelike, Utc};
use diesel::result::QueryResult;
use diesel::sql_types::Nullable;
use serde::{Deserialize, Serialize};

use super::table::{
    LONGEST_BY, LONGEST_REASON, Nonsense, check_text, expect_control, given, name_of, rows, time_of, utc,
};
use crate::backend::{AsQueueConnection, OwnTable, QueueConnection, execute, load_first};
use crate::entity::{StageOf, StoredIn};
use crate::error::Error;
use crate::row::{ControlRow, Instant, MAX_DELAY, Stage, TimestampUtc, printable};
use crate::statement::{PauseEnd, SetPause, end_pause, present};

/// What stands before a stage in the scope of a pause.
const STAGE: &str = "stage ";

/// A pause of a queue, or of one of its stages: who asked for it, when and why.
///
/// [`pauses`] lists them all. [`Explanation::Paused`](crate::Explanation::Paused) has the one that keeps a row waiting.
///
/// ```
/// let json = r#"{"queue": "payments.status", "since": "2026-03-01T12:00:00Z", "by": "ops@example.org", "reason": "bank down"}"#;
/// let paused: queueable::Paused = serde_json::from_str(json).unwrap();
/// assert_eq!(paused.to_string(), "paused since 2026-03-01 12:00:00 UTC by ops@example.org: bank down");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Paused {
    /// The queue's name in the control table: its table, with the schema that `table!` names, and its status column.
    pub queue: String,
    /// The text of the stage that is paused; `None` for the whole queue.
    #[serde(default)]
    pub stage: Option<String>,
    /// Since when, by the database's clock.
    pub since: DateTime<Utc>,
    /// When it ends by itself, by the database's clock; `None` if it lasts until `unpause`.
    #[serde(default)]
    pub until: Option<DateTime<Utc>>,
    /// Who has asked for it.
    pub by: String,
    /// Why.
    pub reason: String,
}

impl fmt::Display for Paused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(stage) = &self.stage {
            write!(f, "stage {} ", printable(stage, false))?;
        }
        write!(f, "paused since {}", utc(self.since))?;
        if let Some(until) = &self.until {
            write!(f, " until {}", utc(*until))?;
        }
        write!(f, " by {}: {}", printable(&self.by, false), printable(&self.reason, false))
    }
}

/// A pause whose end has not come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StandingPause {
    pub(crate) paused: Paused,
    /// How long it is until its end, if it has one.
    pub(crate) left: Option<Duration>,
}

/// Returns the pause that a row says, if it says any.
pub(super) fn read((queue, scope, pause, ..): &ControlRow) -> Option<Result<StandingPause, Nonsense>> {
    let (by, reason, is_paused, has_end, since, until, now) = pause;
    if *is_paused == 0 {
        return None;
    }
    let stage = match scope.strip_prefix(STAGE) {
        _ if scope.is_empty() => Ok(None),
        Some(stage) if !stage.is_empty() => Ok(Some(stage.to_owned())),
        _ => Err("its scope is neither empty nor a stage"),
    };
    let checked = (|| {
        let (stage, since) = (stage?, time_of(*since).ok_or("its paused_at is not a time")?);
        let until = time_of(*until);
        if *has_end != 0 && until.is_none() {
            return Err("its paused_until is not a time");
        }
        let by = given(by).ok_or("its paused_by is empty")?;
        let reason = given(reason).ok_or("its pause_reason is empty")?;
        let left = until.zip(time_of(*now)).map(|(until, now)| (until - now).to_std().unwrap_or_default());
        let paused = Paused { queue: queue.clone(), stage, since, until, by, reason };
        Ok((left != Some(Duration::ZERO)).then_some(StandingPause { paused, left }))
    })();
    checked.map_err(|problem| Nonsense::of(queue, scope, problem)).transpose()
}

/// Returns the scope of a stage, or of the whole queue.
fn scope_of(stage: Option<&str>) -> String {
    stage.map_or_else(String::new, |stage| STAGE.to_owned() + stage)
}

fn paused_now<C: QueueConnection>(connection: &mut C, queue: Option<&str>) -> QueryResult<Vec<Paused>> {
    Ok(rows(connection, queue)?.iter().filter_map(|row| Some(read(row)?.ok()?.paused)).collect())
}

/// Reads the pauses of one queue; none if there is no control table.
pub(crate) fn pauses_of<C: QueueConnection>(connection: &mut C, queue: &str) -> QueryResult<Vec<Paused>> {
    if !connection.has_own(OwnTable::Control)? {
        return Ok(Vec::new());
    }
    paused_now(connection, Some(queue))
}

/// Lists the pauses of all queues in the database, in the order of the queues' names. Rows of the control
/// table that are not valid pauses are left out; the pollers ignore them too.
///
/// # Errors
///
/// [`Error::Control`] if there is no control table, [`Error::Database`].
///
/// # Examples
///
/// ```
/// # use diesel::prelude::*;
/// # use diesel::connection::SimpleConnection;
/// # use diesel_migrations::MigrationHarness;
/// # use queueable::{Migrations, Pause, Queueable};
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// # let mut connection = SqliteConnection::establish(":memory:")?;
/// # connection.run_pending_migrations(Migrations::new().control())?;
/// Payment::pause(&mut connection, Pause::new("bank down", "ops@example.org"))?;
/// for paused in queueable::pauses(&mut connection)? {
///     println!("{}: {paused}", paused.queue);
/// }
/// # assert_eq!(queueable::pauses(&mut connection)?.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub fn pauses<C: AsQueueConnection>(connection: &mut C) -> Result<Vec<Paused>, Error> {
    let connection = connection.as_queue_connection();
    expect_control(connection)?;
    Ok(paused_now(connection, None)?)
}

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
    /// who asks for it, in up to 255. Reports and logs show both.
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
        check_text("the reason of a pause", &self.reason, LONGEST_REASON)?;
        check_text("who asks for a pause", &self.by, LONGEST_BY)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(scope: &str) -> PauseRow {
        let who_and_why = (Some("ops".to_owned()), Some("bank down".to_owned()));
        ("payments.status".to_owned(), scope.to_owned(), who_and_why.0, who_and_why.1, 0, (Some(0), None, Some(5)))
    }

    #[test]
    fn a_row_is_a_pause_of_the_queue_or_of_a_stage() {
        let stage = |row| read(row).expect("it is a pause").expect("it stands").paused.stage;
        assert_eq!(stage(row("")), None);
        assert_eq!(stage(row(&scope_of(Some("SEND")))).as_deref(), Some("SEND"));
    }

    #[test]
    fn a_pause_is_over_when_its_end_has_come() {
        let until = |until| read((0, (Some(0), until, Some(5))).of(row(""))).expect("it is a pause");
        assert_eq!(until(Some(5)), None);
        let standing = until(Some(6)).expect("it stands");
        assert_eq!(standing.paused.until, DateTime::from_timestamp_micros(6));
        assert_eq!(standing.left, Some(Duration::from_micros(1)));
    }

    #[test]
    fn what_can_be_no_pause_is_nonsense() {
        let refused = |row: PauseRow| read(row).unwrap_err().problem;
        assert!(refused(row("stages")).contains("neither empty nor a stage"));
        assert!(refused(row("stage ")).contains("neither empty nor a stage"));
        assert!(refused((1, (Some(0), None, Some(5))).of(row(""))).contains("paused_until is not a time"));
        assert!(refused((0, (None, None, Some(5))).of(row(""))).contains("paused_at is not a time"));
        let (queue, scope, _, reason, has_end, times) = row("");
        assert!(refused((queue, scope, Some(" ".to_owned()), reason, has_end, times)).contains("paused_by is empty"));
    }

    /// The end and the times of a row.
    trait Of {
        fn of(self, row: PauseRow) -> PauseRow;
    }

    impl Of for (i64, (Option<i64>, Option<i64>, Option<i64>)) {
        fn of(self, (queue, scope, by, reason, _, _): PauseRow) -> PauseRow {
            let has_end = self.0.max(i64::from(self.1.1.is_some()));
            (queue, scope, by, reason, has_end, self.1)
        }
    }
}
