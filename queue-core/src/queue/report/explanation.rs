//! The reasons why a row does not run now, their texts, and those that the row itself shows.

use std::fmt;
use std::mem::discriminant;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::table;
use crate::backend::DatabaseText;
use crate::control::{Paused, Unserved};
use crate::entity::{Entity, QueueTable, Window};
use crate::row::{Options, Status, printable};
use crate::statement::InspectedRow;

/// Why a row does not run now: the first reason that applies, in the order in which a worker would meet them.
///
/// ```
/// use queueable::Explanation;
///
/// let explanation: Explanation =
///     serde_json::from_str(r#"{"reason": "scheduled_for", "time": "2026-03-01T12:00:00Z"}"#).unwrap();
/// assert_eq!(explanation.to_string(), "scheduled for 2026-03-01 12:00:00 UTC");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Explanation {
    /// There is no row with this key, neither in the table nor in the entity's archives.
    NoSuchRow,
    /// The row is finished, and was moved to this archive table.
    Archived {
        /// The table.
        table: String,
    },
    /// The status is not one of the queue's, so no worker touches the row.
    UnknownStatus {
        /// The text in the status column.
        status: String,
    },
    /// The row was never enqueued.
    NotQueued,
    /// The row was stopped, see [`QueueRows::stop`](crate::QueueRows::stop); `restart` lets it go on.
    Stopped,
    /// The row is not to be processed.
    Skipped,
    /// The work is done.
    Succeeded {
        /// When the attempt ended, if that was recorded and can be read.
        time: Option<DateTime<Utc>>,
    },
    /// The queue gave up.
    FailedForGood {
        /// How many attempts were recorded.
        tries: i32,
        /// Whether this is as many as the entity's attributes allow. If not, the failure was fatal, or the poller
        /// allows fewer.
        exhausted: bool,
        /// The text of the last failure.
        error: Option<String>,
    },
    /// The row's time has not come.
    ScheduledFor {
        /// The time.
        time: DateTime<Utc>,
    },
    /// The row waits for a time that cannot be read as a time, or has been under a lease since such a time: `infinity`,
    /// a zero date, or anything but a time on SQLite.
    OddTime {
        /// The column.
        column: String,
        /// Its value, as the database writes it.
        text: String,
    },
    /// A worker is processing the row, or another session has locked it.
    Held {
        /// When the attempt under a lease began. `None`: another session, of a worker or of the application, has locked
        /// the row; on SQLite, another connection is writing.
        since: Option<DateTime<Utc>>,
        /// The process that said within the last minute that it runs the row, if one did, see
        /// [`Poller::register`](crate::Poller::register).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// The condition (`claim_if = ..`) is not true.
    ConditionFalse,
    /// The stage is not one of the entity's, so no worker touches the row.
    UnknownStage {
        /// The text in the stage column; `None` is null.
        stage: Option<String>,
    },
    /// The entity's messages are not processed at this time.
    OutsideWindow {
        /// When its window opens, if it ever does.
        opens: Option<DateTime<Utc>>,
    },
    /// The queue is paused, or the row's stage, see [`Queueable::pause`](crate::Queueable::pause). Pollers without
    /// [`control`](crate::Poller::control) do not heed it.
    Paused {
        /// Who has paused it, when and why.
        pause: Paused,
    },
    /// The entity is exclusive, and another row comes first.
    BehindHead,
    /// The entity is exclusive, and this row comes first. But a session that processes none of the rows holds the lock
    /// by which workers take turns.
    TurnHeld {
        /// The session, as the server's list of sessions shows it.
        session: String,
    },
    /// As many rows of the queue, or of the same value of a column, are being processed as `at_most` or `serial_by` allows.
    NoPlace {
        /// The column and its value; `None` if the limit is that of the whole queue.
        by: Option<(String, String)>,
        /// The limit.
        at_most: u32,
    },
    /// The entity is `serial_by(.., strict)`, and a row of the same value that has failed comes first.
    Behind {
        /// The primary key of that row, as text.
        key: String,
        /// When it is retried.
        time: DateTime<Utc>,
    },
    /// The row is due, and the database refuses to write on it, because of a constraint that it violates, or a trigger.
    /// A worker tries it again after pauses that grow to an hour.
    Refused {
        /// The database's message; `None` if there is none and the row stays as it is.
        error: Option<String>,
    },
    /// Nothing is in its way: the next free worker claims it, after the rows that have been due for longer.
    Due,
}

/// Why the first pending rows of a selection do not run now, see [`QueueRows::explain`](crate::QueueRows::explain).
///
/// ```
/// let json = r#"{"reasons": [{"rows": 950, "example": "17", "explanation": {"reason": "condition_false"}},
///     {"rows": 50, "example": "4", "explanation": {"reason": "due"}}], "more": true}"#;
/// let explanations: queueable::report::Explanations = serde_json::from_str(json).unwrap();
/// assert_eq!(explanations.to_string(), "\
/// rows  example  why
///  950  17       its condition (`claim_if`) is not true
///   50  4        due
/// and there are more rows
/// ");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Explanations {
    /// The reasons, that of most rows first.
    pub reasons: Vec<ExplainedRows>,
    /// Whether there are pending rows that were not looked at.
    pub more: bool,
    /// That no poller serves the queue, if that is known, see [`Poller::register`](crate::Poller::register).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unserved: Option<Unserved>,
}

/// The rows that do not run for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ExplainedRows {
    /// How many they are.
    pub rows: usize,
    /// The key of the first one, as text.
    pub example: String,
    /// The reason. What it says of times, tries and values is that of the example.
    pub explanation: Explanation,
}

impl Explanations {
    /// Adds some rows, of which the first has this key.
    pub(super) fn add(&mut self, explanation: Explanation, rows: usize, example: &str) {
        let like = self.reasons.iter_mut().find(|reason| reason.explanation.is_like(&explanation));
        match like {
            _ if rows == 0 => {}
            Some(reason) => reason.rows += rows,
            None => self.reasons.push(ExplainedRows { rows, example: example.to_owned(), explanation }),
        }
    }
}

impl fmt::Display for Explanations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(unserved) = &self.unserved {
            writeln!(f, "{unserved}")?;
        }
        if self.reasons.is_empty() {
            return writeln!(f, "no row is pending");
        }
        let line = |reason: &ExplainedRows| {
            vec![reason.rows.to_string(), reason.example.clone(), reason.explanation.to_string()]
        };
        let lines: Vec<_> = self.reasons.iter().map(line).collect();
        table::write_table(f, None, &[table::number("rows"), table::text("example"), table::text("why")], &lines)?;
        if self.more { writeln!(f, "and there are more rows") } else { Ok(()) }
    }
}

impl Explanation {
    /// Tells whether the reason is the same, although its times, tries and values may differ.
    fn is_like(&self, other: &Explanation) -> bool {
        match self {
            Explanation::UnknownStatus { .. } | Explanation::UnknownStage { .. } | Explanation::Paused { .. } => {
                self == other
            }
            _ => discriminant(self) == discriminant(other),
        }
    }

    /// Tells whether the reason holds for all rows that wait for the same turn.
    pub(super) fn is_of_a_turn(&self) -> bool {
        matches!(
            self,
            Explanation::BehindHead
                | Explanation::TurnHeld { .. }
                | Explanation::NoPlace { .. }
                | Explanation::Behind { .. }
        )
    }
}

/// Returns the reason that the row itself shows; `None` if it is due.
pub(super) fn told_by_the_row<Q: Entity>(row: InspectedRow) -> Option<Explanation> {
    let (status, tries, error, (is_pending, is_due, condition_holds), (next, last, now), stage, (odd_next, odd_last)) =
        row;
    let text_of = |text: DatabaseText| text.0;
    let (status, error, stage) = (status.0, error.map(text_of), stage.map(text_of));
    let options: Options = <Q::Queue as QueueTable>::OPTIONS;
    let at = |microseconds: Option<i64>| microseconds.and_then(DateTime::from_timestamp_micros);
    let Ok(known) = status.parse::<Status>() else { return Some(Explanation::UnknownStatus { status }) };
    if is_pending == 0 {
        return Some(match known {
            // A success clears the text. A row with a schedule was still pending, until it was stopped.
            Status::Success if options.periodic.is_some() && error.is_some() => Explanation::Stopped,
            Status::Success => Explanation::Succeeded { time: at(last) },
            Status::Skipped => Explanation::Skipped,
            Status::Failed => {
                let exhausted = u32::try_from(tries).is_ok_and(|tries| tries >= Q::SETTINGS.max_tries);
                Explanation::FailedForGood { tries, exhausted, error }
            }
            // `restart` makes the same distinction.
            Status::NotAttempted if error.is_none() => Explanation::NotQueued,
            _ => Explanation::Stopped,
        });
    }
    if is_due == 0 {
        let columns = <Q::Queue as QueueTable>::COLUMNS;
        let odd = |column: &str, text: DatabaseText| Explanation::OddTime { column: column.to_owned(), text: text.0 };
        return Some(match (known, odd_next, odd_last) {
            (Status::InProgress, _, None) => Explanation::Held { since: at(last), by: None },
            (Status::InProgress, _, Some(text)) => odd(columns.last_attempt_time, text),
            (_, Some(text), _) => odd(columns.next_attempt_time, text),
            (_, None, _) => Explanation::ScheduledFor { time: at(next).unwrap_or(DateTime::<Utc>::MAX_UTC) },
        });
    }
    if condition_holds == 0 {
        return Some(Explanation::ConditionFalse);
    }
    let is_stage = |stage: &str| options.stages.is_none_or(|stages| stages.names.contains(&stage));
    if options.stages.is_some() && !stage.as_deref().is_some_and(is_stage) {
        return Some(Explanation::UnknownStage { stage });
    }
    closed_window(&options, at(now)).map(|opens| Explanation::OutsideWindow { opens })
}

/// Returns when the entity's window opens, if it has one that is closed now. A poller refuses to start with a window
/// that cannot be read, so such a window counts as none here.
fn closed_window(options: &Options, now: Option<DateTime<Utc>>) -> Option<Option<DateTime<Utc>>> {
    let window: Window = options.window?.parse().ok()?;
    let now = now?;
    (!window.is_open(now)).then(|| window.next_opening(now))
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let utc = |time: &DateTime<Utc>| format!("{} UTC", table::time(Some(*time)));
        match self {
            Explanation::NoSuchRow => f.write_str("there is no such row"),
            Explanation::Archived { table } => write!(f, "archived in {table}"),
            Explanation::UnknownStatus { status } => {
                write!(f, "the status `{}` is unknown", printable(status, false))
            }
            Explanation::NotQueued => f.write_str("not queued"),
            Explanation::Stopped => f.write_str("stopped"),
            Explanation::Skipped => f.write_str("skipped"),
            Explanation::Succeeded { time: Some(time) } => write!(f, "succeeded at {}", utc(time)),
            Explanation::Succeeded { time: None } => f.write_str("succeeded"),
            Explanation::FailedForGood { tries, exhausted, error } => {
                write_failed(f, *tries, *exhausted, error.as_deref())
            }
            Explanation::ScheduledFor { time } => write!(f, "scheduled for {}", utc(time)),
            Explanation::OddTime { column, text } => {
                write!(f, "its {column} is `{}`, which is not a time", printable(text, false))
            }
            Explanation::Held { since, by } => write_held(f, since.map(|since| utc(&since)), by.as_deref()),
            Explanation::ConditionFalse => f.write_str("its condition (`claim_if`) is not true"),
            Explanation::UnknownStage { stage: Some(stage) } => {
                write!(f, "the stage `{}` is unknown", printable(stage, false))
            }
            Explanation::UnknownStage { stage: None } => f.write_str("it has no stage"),
            Explanation::OutsideWindow { opens: Some(opens) } => {
                write!(f, "outside the window, which opens at {}", utc(opens))
            }
            Explanation::OutsideWindow { opens: None } => f.write_str("outside the window, which never opens"),
            Explanation::Paused { pause } => pause.fmt(f),
            Explanation::BehindHead => f.write_str("another row's turn comes first"),
            Explanation::TurnHeld { session } => write!(f, "{session} holds the lock of this exclusive queue"),
            Explanation::NoPlace { by, at_most } => write_no_place(f, by.as_ref(), *at_most),
            Explanation::Behind { key, time } => write!(f, "behind {key}, which is retried at {}", utc(time)),
            Explanation::Refused { error: Some(error) } => {
                write!(f, "the database refuses to write on it: {}", printable(error, true))
            }
            Explanation::Refused { error: None } => f.write_str("a trigger keeps it from changing"),
            Explanation::Due => f.write_str("due"),
        }
    }
}

fn write_failed(f: &mut fmt::Formatter<'_>, tries: i32, exhausted: bool, error: Option<&str>) -> fmt::Result {
    let after = if exhausted { "the tries are exhausted" } else { "failed for good" };
    let unit = if tries == 1 { "try" } else { "tries" };
    write!(f, "{after}, after {tries} {unit}")?;
    error.iter().try_for_each(|error| write!(f, ": {}", printable(error, true)))
}

fn write_held(f: &mut fmt::Formatter<'_>, since: Option<String>, by: Option<&str>) -> fmt::Result {
    match (since, by) {
        (None, None) => return f.write_str("locked by another session"),
        (None, Some(_)) => f.write_str("held by a worker")?,
        (Some(since), _) => write!(f, "held by a worker since {since}")?,
    }
    by.map_or(Ok(()), |process| write!(f, " in {}", printable(process, false)))
}

fn write_no_place(f: &mut fmt::Formatter<'_>, by: Option<&(String, String)>, at_most: u32) -> fmt::Result {
    match by {
        Some((column, value)) if at_most == 1 => {
            write!(f, "another row with {column} = {} is being processed", printable(value, false))
        }
        Some((column, value)) => {
            write!(f, "{at_most} of {at_most} rows with {column} = {} are being processed", printable(value, false))
        }
        None => write!(f, "{at_most} of {at_most} rows of the queue are being processed"),
    }
}
