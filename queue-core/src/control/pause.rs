//! Pauses of queues. What a pause does is in `poller`.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use chrono::{DateTime, Datelike, Utc};
use diesel::query_builder::QueryFragment;
use diesel::sql_types::{Nullable, Text};
use serde::{Deserialize, Serialize};

use super::table::{Nonsense, check_author, expect_control, given, rows, time_of, utc};
use crate::backend::{AsQueueConnection, QueueBackend, QueueConnection, load_first};
use crate::entity::{QueueSql, StageOf};
use crate::error::Error;
use crate::row::{ControlRow, Instant, MAX_DELAY, Options, Stage, printable};
use crate::statement::{PauseEnd, lane_value, read_lane, read_present};

/// What stands before a stage in the scope of a pause.
const STAGE: &str = "stage ";

/// What stands before a column and a value in the scope of a pause.
const VALUE: &str = "value ";

/// How many characters of a value a pause shows.
const SHOWN: usize = 200;

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
    /// The column and the value whose rows are paused, such as `company_id = 3345`; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The column, a space, and the name of the value.
    #[serde(skip)]
    pub(crate) lane: Option<String>,
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
        if let Some(value) = &self.value {
            write!(f, "{} ", printable(value, false))?;
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
    let (by, reason, value, is_paused, has_end, since, until, now) = pause;
    if *is_paused == 0 {
        return None;
    }
    let of_value = scope.strip_prefix(VALUE).filter(|value| value.contains(' '));
    let scoped = match (scope.strip_prefix(STAGE), of_value) {
        _ if scope.is_empty() => Ok((None, None)),
        (Some(stage), _) if !stage.is_empty() => Ok((Some(stage.to_owned()), None)),
        (_, Some(lane)) => Ok((None, Some(lane.to_owned()))),
        _ => Err("its scope is neither empty nor a stage nor a value"),
    };
    let checked = (|| {
        let ((stage, lane), since) = (scoped?, time_of(*since).ok_or("its paused_at is not a time")?);
        let until = time_of(*until);
        if *has_end != 0 && until.is_none() {
            return Err("its paused_until is not a time");
        }
        let by = given(by).ok_or("its paused_by is empty")?;
        let reason = given(reason).ok_or("its pause_reason is empty")?;
        let left = until.zip(time_of(*now)).map(|(until, now)| (until - now).to_std().unwrap_or_default());
        let shown = |lane: &String| value.clone().unwrap_or_else(|| lane.replacen(' ', " = ", 1));
        let value = lane.as_ref().map(shown);
        let paused = Paused { queue: queue.clone(), stage, value, lane, since, until, by, reason };
        Ok((left != Some(Duration::ZERO)).then_some(StandingPause { paused, left }))
    })();
    checked.map_err(|problem| Nonsense::of(queue, scope, problem)).transpose()
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
    Ok(rows(connection, None)?.iter().filter_map(|row| Some(read(row)?.ok()?.paused)).collect())
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
    pub(crate) reason: String,
    pub(crate) by: String,
    pub(crate) end: PauseEnd,
    pub(crate) stage: Option<&'static str>,
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

    /// Pauses only the rows in the stage with this name.
    #[doc(hidden)]
    pub fn stage_named(mut self, name: Option<&'static str>) -> Self {
        self.stage = name;
        self
    }

    /// Checks what does not depend on the database's clock.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_author(("who asks for a pause", &self.by), ("the reason of a pause", &self.reason))?;
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
    pub(crate) fn check_end<C: QueueConnection>(&self, connection: &mut C) -> Result<(), Error> {
        let PauseEnd::At(Instant(until)) = self.end else { return Ok(()) };
        let now = read_present(connection)?;
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

/// The part of a queue that a pause is of.
pub enum PausedPart<'a, DB: QueueBackend> {
    /// The whole queue.
    Whole,
    /// The stage of this name.
    Stage(&'a str),
    /// The rows whose column has this value.
    Value(&'a str, &'a dyn QueryFragment<DB>),
}

/// What a pause is of, in the control table and for people.
pub(crate) struct PauseScope {
    pub(crate) scope: String,
    /// The value, as people read it.
    pub(crate) value: Option<String>,
    /// What is paused, in words.
    pub(crate) words: String,
}

impl PauseScope {
    pub(crate) fn of<C: QueueConnection>(
        connection: &mut C,
        queue: &'static QueueSql<C::Backend>,
        part: PausedPart<'_, C::Backend>,
    ) -> Result<Self, Error> {
        let (column, value) = match part {
            PausedPart::Whole => {
                return Ok(PauseScope { scope: String::new(), value: None, words: "the whole queue".to_owned() });
            }
            PausedPart::Stage(stage) => {
                let words = format!("stage {}", printable(stage, false));
                return Ok(PauseScope { scope: STAGE.to_owned() + stage, value: None, words });
            }
            PausedPart::Value(column, value) => (column, value),
        };
        let setting = "the column of a pause";
        if queue.options.lanes.is_none_or(|lanes| lanes.column != column) {
            let expected = "the column of `serial_by`, `fair_by` or `at_most(.., by = ..)`: along its index claims pass over a value";
            return Err(Error::Setting { setting, found: column.to_owned(), expected });
        }
        let text = load_first::<Nullable<Text>, Option<String>, _>(connection, &lane_value(queue, value))?.flatten();
        let lane = read_lane(queue, text);
        let (Some(name), Some(value)) = (lane.pause_name(), lane.value()) else {
            let found = format!("{column} is null");
            return Err(Error::Setting { setting, found, expected: "a value" });
        };
        let value = format!("{column} = {}", shown(&value.text()));
        let words = printable(&value, false);
        Ok(PauseScope { scope: format!("{VALUE}{column} {name}"), value: Some(value), words })
    }
}

/// Returns a value as a pause shows it.
fn shown(value: &str) -> String {
    value.chars().filter(|char| !char.is_control()).take(SHOWN).collect()
}

/// Returns the name of a value of the column by which the rows of the entity take turns.
pub(crate) fn lane_name<'l>(lane: &'l str, options: &Options) -> Option<&'l str> {
    lane.strip_prefix(options.lanes?.column)?.strip_prefix(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pause whose end and current time are these, in microseconds; `has_end`: whether it has one.
    fn row(scope: &str, has_end: i64, until: Option<i64>) -> ControlRow {
        let (by, reason) = (Some("ops".to_owned()), Some("bank down".to_owned()));
        let pause = (by, reason, None, 1, has_end, Some(0), until, Some(5));
        ("payments.status".to_owned(), scope.to_owned(), pause, Default::default(), None)
    }

    fn standing(row: &ControlRow) -> Option<StandingPause> {
        Some(read(row)?.expect("it is a pause"))
    }

    #[test]
    fn a_row_is_a_pause_of_the_queue_of_a_stage_or_of_a_value() {
        let paused = |scope: &str| standing(&row(scope, 0, None)).expect("it stands").paused;
        assert_eq!((paused("").stage, paused("").value), (None, None));
        assert_eq!(paused("stage SEND").stage.as_deref(), Some("SEND"));
        let of_value = paused("value company_id 33 45");
        assert_eq!(of_value.value.as_deref(), Some("company_id = 33 45"));
        assert_eq!(of_value.lane.as_deref(), Some("company_id 33 45"));
        let mut shown = row("value company_id ab12", 0, None);
        shown.2.2 = Some("company_id = Acme".to_owned());
        assert_eq!(standing(&shown).expect("it stands").paused.value.as_deref(), Some("company_id = Acme"));
    }

    #[test]
    fn a_pause_is_over_when_its_end_has_come() {
        assert_eq!(standing(&row("", 1, Some(5))), None);
        let standing = standing(&row("", 1, Some(6))).expect("it stands");
        assert_eq!(standing.paused.until, DateTime::from_timestamp_micros(6));
        assert_eq!(standing.left, Some(Duration::from_micros(1)));
    }

    #[test]
    fn what_can_be_no_pause_is_nonsense() {
        let refused = |row: ControlRow| read(&row).expect("it is there").unwrap_err().problem;
        assert!(refused(row("stages", 0, None)).contains("neither empty nor a stage nor a value"));
        assert!(refused(row("stage ", 0, None)).contains("neither empty nor a stage nor a value"));
        assert!(refused(row("value company_id", 0, None)).contains("neither empty nor a stage nor a value"));
        assert!(refused(row("", 1, None)).contains("paused_until is not a time"));
        let (mut odd, mut empty) = (row("", 0, None), row("", 0, None));
        odd.2.5 = None;
        assert!(refused(odd).contains("paused_at is not a time"));
        empty.2.0 = Some(" ".to_owned());
        assert!(refused(empty).contains("paused_by is empty"));
        let mut none = row("", 0, None);
        none.2.3 = 0;
        assert!(read(&none).is_none());
    }
}
