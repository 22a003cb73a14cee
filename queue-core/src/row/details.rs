//! What an attempt knows of its row beyond the five columns, where the entity asks for more.

use chrono::{DateTime, Utc};
use diesel::sql_types::{BigInt, Nullable, Text};

use super::instant::{Instant, TimestampUtc};
use super::stage::Stage;

/// The optional columns of a row as they were when it was claimed, read under its lock. What the entity does not ask for is
/// `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    /// The database's present at the claim.
    pub now: Option<DateTime<Utc>>,
    /// The text of the stage.
    pub stage: Option<String>,
    /// The seconds from run to run.
    pub period: Option<i64>,
    /// The cron expression.
    pub cron: Option<String>,
    /// The IANA time zone of the cron expression.
    pub time_zone: Option<String>,
    /// The scheduled time of the run that is due; before the first one was scheduled, when the row was due.
    pub scheduled_time: Option<DateTime<Utc>>,
    /// How often the columns have changed whose change makes the row due.
    pub change_count: Option<i64>,
    /// The text of the version column, where the entity names one and the row has one.
    pub version: Option<String>,
    /// How many occasions of the row have ended.
    pub occasion: Option<i64>,
}

impl Details {
    /// These details, with what a claim has read of the occasion.
    pub(crate) fn with_occasion_of(self, claimed: Details) -> Self {
        Details { version: claimed.version, occasion: claimed.occasion, ..self }
    }

    /// The stage, for a handler that says of which enum it is.
    pub(crate) fn stage<S: Stage>(&self) -> S {
        let text = self.stage.as_deref().unwrap_or_default();
        S::named(text).unwrap_or_else(|| panic!("the row's stage `{text}` is none of {:?}", S::NAMES))
    }

    /// The time on its schedule for which a row runs, if it has a schedule, and was not made due before its time.
    pub(crate) fn scheduled_for(&self) -> Option<DateTime<Utc>> {
        let has_schedule = self.period.is_some() || self.cron.is_some();
        self.scheduled_time.filter(|time| has_schedule && self.now.is_none_or(|now| *time <= now))
    }
}

/// The present, the stage, the period, the cron expression, its time zone, the scheduled time and the change count, as they are
/// loaded.
pub(crate) type DetailsRow =
    (Option<Instant>, Option<String>, Option<i64>, Option<String>, Option<String>, Option<Instant>, Option<i64>);

/// The SQL type of a [`DetailsRow`].
pub(crate) type DetailsType = (
    Nullable<TimestampUtc>,
    Nullable<Text>,
    Nullable<BigInt>,
    Nullable<Text>,
    Nullable<Text>,
    Nullable<TimestampUtc>,
    Nullable<BigInt>,
);

impl From<DetailsRow> for Details {
    fn from((now, stage, period, cron, time_zone, scheduled_time, change_count): DetailsRow) -> Self {
        Details {
            now: now.map(Into::into),
            stage,
            period,
            cron,
            time_zone,
            scheduled_time: scheduled_time.map(Into::into),
            change_count,
            ..Details::default()
        }
    }
}
