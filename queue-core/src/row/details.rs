//! The optional columns of a row as an attempt knows them, the stages of a pipeline, and a row of the control table.

use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::sql_types::{BigInt, Integer, Nullable, Text};

use super::lane::Lane;
use super::time::{Instant, TimestampUtc};

/// The optional columns of a row as they were at the claim, read under the row's lock. Columns that the entity does not
/// ask for are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    /// The database's time at the claim.
    pub now: Option<DateTime<Utc>>,
    /// The text of the stage.
    pub stage: Option<String>,
    /// The seconds from run to run.
    pub period: Option<i64>,
    /// The cron expression.
    pub cron: Option<String>,
    /// The IANA time zone of the cron expression.
    pub time_zone: Option<String>,
    /// The scheduled time of the run that is due. Before the first run was scheduled, the time at which the row was
    /// due.
    pub scheduled_time: Option<DateTime<Utc>>,
    /// How often the columns of `rerun_on_change` have changed.
    pub change_count: Option<i64>,
    /// The text of the version column, where the entity names one and the row has one.
    pub version: Option<String>,
    /// The trace context in which the row was enqueued.
    pub traceparent: Option<String>,
    /// How many occasions of the row have ended.
    pub occasion: Option<i64>,
    /// The lane from which the row was claimed, if the rows are scheduled by lanes.
    pub lane: Option<Lane>,
}

impl Details {
    /// Replaces the version and the occasion by those that a claim has read.
    pub(crate) fn with_occasion_of(self, claimed: Details) -> Self {
        Details { version: claimed.version, occasion: claimed.occasion, ..self }
    }

    /// Returns the stage, as a value of the enum that the handler asks for.
    pub(crate) fn stage<S: Stage>(&self) -> S {
        let text = self.stage.as_deref().unwrap_or_default();
        S::named(text).unwrap_or_else(|| panic!("the row's stage `{text}` is none of {:?}", S::NAMES))
    }

    /// Returns the scheduled time of the row's run, if the row has a schedule and was not made due before that time.
    pub(crate) fn scheduled_for(&self) -> Option<DateTime<Utc>> {
        let has_schedule = self.period.is_some() || self.cron.is_some();
        self.scheduled_time.filter(|time| has_schedule && self.now.is_none_or(|now| *time <= now))
    }
}

/// The current time, the stage, the period, the cron expression, its time zone, the scheduled time, the change
/// count and the trace context, as they are loaded.
pub(crate) type DetailsRow = (
    Option<Instant>,
    Option<String>,
    Option<i64>,
    Option<String>,
    Option<String>,
    Option<Instant>,
    Option<i64>,
    Option<String>,
);

/// The SQL type of a [`DetailsRow`].
pub(crate) type DetailsType = (
    Nullable<TimestampUtc>,
    Nullable<Text>,
    Nullable<BigInt>,
    Nullable<Text>,
    Nullable<Text>,
    Nullable<TimestampUtc>,
    Nullable<BigInt>,
    Nullable<Text>,
);

impl From<DetailsRow> for Details {
    fn from((now, stage, period, cron, time_zone, scheduled_time, change_count, traceparent): DetailsRow) -> Self {
        Details {
            now: now.map(Into::into),
            stage,
            period,
            cron,
            time_zone,
            scheduled_time: scheduled_time.map(Into::into),
            change_count,
            traceparent,
            ..Details::default()
        }
    }
}

/// The stages that a row of a pipeline passes through: an enum without fields, named by `#[queue(stage = ..)]`.
///
/// `#[derive(Stage)]` implements it, together with Diesel's mapping to text, so that queries can filter by a stage and
/// store it like any value. The text of a stage is its name in capitals with underscores, `SEND_MAIL` for `SendMail`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an enum of stages",
    label = "not an enum of stages",
    note = "add `#[derive(Debug, Clone, Copy, queueable::Stage)]` to an enum without fields"
)]
pub trait Stage: Copy + Send + Sync + 'static {
    /// All stages, in the order in which a row passes through them. A row begins in the first.
    const ALL: &'static [Self];

    /// Their texts, in the same order.
    const NAMES: &'static [&'static str];

    /// Returns the stage's text.
    fn name(self) -> &'static str;

    /// Returns the stage with this text.
    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().zip(Self::NAMES).find(|(_, known)| **known == name).map(|(stage, _)| *stage)
    }
}

/// Returns the stage with this text, for the derive's mapping.
#[doc(hidden)]
pub fn stage_named<S: Stage>(name: &str) -> diesel::deserialize::Result<S> {
    S::named(name).ok_or_else(|| format!("`{name}` is not a stage, expected {}", S::NAMES.join(", ")).into())
}

/// A row of the table of minutes as it is loaded: when its period began, in microseconds since 1970, null if that is odd; its part
/// and its stage; the attempts by outcome, and the times of waits and of durations.
pub(crate) type MinutesRow = ((Option<i64>, i64, String), Nine, Eleven, Eleven);

/// The SQL type of a [`MinutesRow`].
pub(crate) type MinutesType = (
    (Nullable<BigInt>, BigInt, Text),
    (BigInt, BigInt, BigInt, BigInt, BigInt, BigInt, BigInt, BigInt, BigInt),
    ElevenType,
    ElevenType,
);

type Nine = (i64, i64, i64, i64, i64, i64, i64, i64, i64);

type Eleven = (i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64);

type ElevenType = (BigInt, BigInt, BigInt, BigInt, BigInt, BigInt, BigInt, BigInt, BigInt, BigInt, BigInt);

/// One value's numbers as they are loaded: the value; the pending rows; those whose time has come; of these, those
/// whose condition holds; those that a worker holds under a lease; the microseconds for which the oldest has been due;
/// and the number of values.
pub type PendingRow = (Option<String>, i64, i64, i64, i64, Option<i64>, i64);

/// What a [`PendingRow`] says.
pub(crate) struct Pending {
    pub(crate) value: Option<String>,
    pub(crate) due: i64,
    pub(crate) scheduled: i64,
    /// `None`: the rows are not processed under leases.
    pub(crate) running: Option<i64>,
    pub(crate) held_back: i64,
    pub(crate) oldest_due: Option<Duration>,
}

impl Pending {
    /// Outside lease mode, the end of a lease that another mode left behind is a due time like any other.
    pub(crate) fn of((value, pending, come, due, leased, oldest, _): PendingRow, is_leased: bool) -> Self {
        let running = is_leased.then_some(leased);
        let scheduled = pending - come - running.unwrap_or(0);
        let oldest_due = oldest.map(|age| Duration::from_micros(age.max(0).unsigned_abs()));
        Pending { value, due, scheduled, running, held_back: come - due, oldest_due }
    }
}

/// The SQL type of a [`PendingRow`].
pub type PendingRowType = (Nullable<Text>, BigInt, BigInt, BigInt, BigInt, Nullable<BigInt>, BigInt);

/// One value's number as it is loaded, and the number of values.
pub type CountRow = (Option<String>, i64, i64);

/// The SQL type of a [`CountRow`].
pub type CountRowType = (Nullable<Text>, BigInt, BigInt);

/// A pending row at a glance: the text of its key, its status and its tries, for how many microseconds it has been due, if its time
/// is one, and its stage.
pub type GlanceRow = (String, String, i32, Option<i64>, Option<String>);

/// The SQL type of a [`GlanceRow`].
pub type GlanceRowType = (Text, Text, Integer, Nullable<BigInt>, Nullable<Text>);

/// One value's sum as it is loaded, as a text: databases have sums of several types. Null is the sum of no rows.
pub type SumRow = (Option<String>, Option<String>);

/// The SQL type of a [`SumRow`].
pub type SumRowType = (Nullable<Text>, Nullable<Text>);

/// A row of the control table as it is loaded: the queue and the scope; its pause, its limits, and the environment's name.
pub(crate) type ControlRow = (String, String, PauseRow, LimitsRow, Option<String>);

/// The SQL type of a [`ControlRow`].
pub(crate) type ControlType = (Text, Text, PauseType, LimitsType, Nullable<Text>);

/// A pause as it is loaded: who, why, and of which value; whether there is one, and whether it has an end; and the times of its beginning
/// and its end and the current time, in microseconds since 1970, null if they are odd.
pub(crate) type PauseRow =
    (Option<String>, Option<String>, Option<String>, i64, i64, Option<i64>, Option<i64>, Option<i64>);

/// The SQL type of a [`PauseRow`].
pub(crate) type PauseType = (
    Nullable<Text>,
    Nullable<Text>,
    Nullable<Text>,
    BigInt,
    BigInt,
    Nullable<BigInt>,
    Nullable<BigInt>,
    Nullable<BigInt>,
);

/// Limits as they are loaded: who and why, since when, in microseconds since 1970; the workers, the rows at the same time, and the
/// milliseconds until a retry.
pub(crate) type LimitsRow = (Option<String>, Option<String>, Option<i64>, Option<i64>, Option<i64>, Option<i64>);

/// The SQL type of a [`LimitsRow`].
pub(crate) type LimitsType =
    (Nullable<Text>, Nullable<Text>, Nullable<BigInt>, Nullable<BigInt>, Nullable<BigInt>, Nullable<BigInt>);

/// A row of the table of pollers as it is loaded: the number, the host and the process; the versions of the library and of the
/// application, the state and the workers; the queues and the running messages, as JSON; and when it started, when it was written
/// and the current time, in microseconds since 1970, null if they are odd.
pub(crate) type PollerRow =
    ((i64, String, i64), (String, String, String, i64), (String, String), (Option<i64>, Option<i64>, Option<i64>));

/// The SQL type of a [`PollerRow`].
pub(crate) type PollerType = (
    (BigInt, Text, BigInt),
    (Text, Text, Text, BigInt),
    (Text, Text),
    (Nullable<BigInt>, Nullable<BigInt>, Nullable<BigInt>),
);
