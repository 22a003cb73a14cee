//! When a periodic row runs next: by a period, or by a cron expression in a time zone; and what that means for an attempt.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use chrono::{DateTime, MappedLocalTime, NaiveDateTime, TimeDelta, TimeZone, Timelike, Utc};
use chrono_tz::{GapInfo, Tz};
use croner::Cron;

use crate::row::{Details, MAX_DELAY, Missed, Periodic};

/// The times at which something runs repeatedly.
///
/// Every run has a time on the schedule. The next run is counted from that time and not from the end of the run, so a
/// schedule does not drift, however late its runs are.
///
/// A cron expression names local times of its time zone. When clocks are set forward, the times that they skip run at
/// the first instant after the gap: all the times of the gap make one run. When clocks are set back, a time that occurs
/// twice runs once, the first time. So a schedule like `*/15 * * * *` pauses for the hour that occurs twice. If it
/// should not, use a period, or UTC.
///
/// ```
/// use queueable::Schedule;
///
/// let nightly = Schedule::cron("30 2 * * *", "Europe/Berlin")?;
/// let runs: Vec<_> = nightly.runs_after("2026-03-27T12:00:00Z".parse()?).take(3).map(|run| run.to_rfc3339()).collect();
/// assert_eq!(
///     runs,
///     [
///         "2026-03-28T01:30:00+00:00",
///         "2026-03-29T01:00:00+00:00", // there is no 02:30 in this night: the run comes at 03:00
///         "2026-03-30T00:30:00+00:00",
///     ],
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule(Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Period(TimeDelta),
    // Boxed, because it is fifty times as large.
    Cron(Box<Cron>, Tz),
}

/// Why a period or an expression does not make a schedule. The text says what was found and what is accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSchedule {
    /// The period is not positive, or too long.
    #[error("the period {0} is out of range: 1 to {max} seconds are accepted", max = MAX_DELAY.as_secs())]
    Period(String),
    /// The cron expression cannot be read.
    #[error(
        "the cron expression `{0}` cannot be read ({1}): it has five fields, minute hour day month weekday, such as \
         `30 2 * * Mon-Fri`"
    )]
    Expression(String, String),
    /// The cron expression names no time that ever comes.
    #[error("the cron expression `{0}` names no time that ever comes")]
    Never(String),
    /// The time zone is unknown.
    #[error("the time zone `{0}` is unknown: names of the IANA database are accepted, such as `Europe/Berlin`")]
    TimeZone(String),
}

impl Schedule {
    /// Runs at a fixed period, counted from the first run.
    ///
    /// # Errors
    ///
    /// [`InvalidSchedule::Period`] for a period under one second or above [`MAX_DELAY`].
    pub fn every(period: Duration) -> Result<Self, InvalidSchedule> {
        let wrong = || InvalidSchedule::Period(period.as_secs_f64().to_string());
        if period < Duration::from_secs(1) || period > MAX_DELAY {
            return Err(wrong());
        }
        Ok(Schedule(Kind::Period(TimeDelta::from_std(period).map_err(|_| wrong())?)))
    }

    /// Does the same for the number in a row.
    pub(crate) fn every_seconds(period: i64) -> Result<Self, InvalidSchedule> {
        let seconds = u64::try_from(period).map_err(|_| InvalidSchedule::Period(period.to_string()))?;
        Self::every(Duration::from_secs(seconds)).map_err(|_| InvalidSchedule::Period(period.to_string()))
    }

    /// Runs at the local times that a cron expression names in a time zone of the IANA database.
    ///
    /// The expression has the five fields minute, hour, day, month and weekday. A field for seconds may stand before
    /// them, and then one for years after them. It may use names (`Mon-Fri`, `Jan`), steps (`*/15`), `L`, `W`, `#` and
    /// `@daily`. If both day and weekday are given, it is enough that one of them fits.
    ///
    /// The rules of the time zones are compiled into the program, so that all its processes agree.
    ///
    /// # Errors
    ///
    /// The expression or the name of the zone is wrong; the error says how.
    pub fn cron(expression: &str, time_zone: &str) -> Result<Self, InvalidSchedule> {
        let zone = time_zone.trim().parse().map_err(|_| InvalidSchedule::TimeZone(time_zone.to_owned()))?;
        let cron = expression.parse().map_err(|error: croner::errors::CronError| {
            let reason = error.to_string();
            InvalidSchedule::Expression(expression.to_owned(), reason.trim_end_matches('.').to_owned())
        })?;
        Ok(Schedule(Kind::Cron(Box::new(cron), zone)))
    }

    /// Returns the run that follows the one at `tick`. `None`: the schedule has ended.
    pub fn next(&self, tick: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match &self.0 {
            Kind::Period(period) => tick.checked_add_signed(*period),
            Kind::Cron(cron, zone) => next_in(cron, *zone, tick),
        }
    }

    /// Returns the first run after `now` of a schedule whose first run is at `tick`. `None`: the schedule has ended.
    pub fn next_after(&self, tick: DateTime<Utc>, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match &self.0 {
            _ if now < tick => Some(tick),
            Kind::Period(period) => tick.checked_add_signed(times(*period, runs_within(*period, now - tick) + 1)?),
            Kind::Cron(..) => self.next(now),
        }
    }

    /// Returns the next run after the one at `tick`, which ran at `now`; `missed` says what happens to missed runs. A
    /// run before its scheduled time is an additional one, and the one at `tick` is still to come.
    pub fn next_by(&self, missed: Missed, tick: DateTime<Utc>, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match missed {
            Missed::Once | Missed::Skip(_) => self.next_after(tick, now),
            Missed::All(most) if now >= tick => {
                self.oldest_of(most.max(1), tick, now).or_else(|| self.next_after(tick, now))
            }
            Missed::All(_) => Some(tick),
        }
    }

    /// Returns the runs after `tick`, one after the other.
    pub fn runs_after(&self, tick: DateTime<Utc>) -> impl Iterator<Item = DateTime<Utc>> + '_ {
        std::iter::successors(self.next(tick), |tick| self.next(*tick))
    }

    /// Tells whether a schedule that has no next run ever had one. Only an expression that names years can have ended.
    /// A search for the others would take a tenth of a second, because croner searches up to the year 5000.
    pub(crate) fn ever_ran(&self) -> bool {
        match &self.0 {
            Kind::Period(_) => true,
            Kind::Cron(cron, _) => {
                cron.as_str().split_whitespace().count() == 7 && self.next(DateTime::UNIX_EPOCH).is_some()
            }
        }
    }

    /// Returns the oldest of the last `most` runs after `tick` that are due.
    fn oldest_of(&self, most: u32, tick: DateTime<Utc>, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        if let Kind::Period(period) = &self.0 {
            let due = runs_within(*period, now - tick);
            let left_out = (due - i64::from(most)).max(0);
            return (due > 0).then(|| tick.checked_add_signed(times(*period, left_out + 1)?)).flatten();
        }
        // After a long time there may be millions of them, so the search goes back further and further.
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut reach = TimeDelta::hours(1);
        loop {
            let from = now.checked_sub_signed(reach).filter(|from| *from > tick).unwrap_or(tick);
            let mut last = VecDeque::new();
            for run in self.runs_after(from).take_while(|run| *run <= now) {
                last.push_back(run);
                if last.len() > most {
                    last.pop_front();
                }
            }
            if last.len() >= most || from == tick {
                return last.pop_front();
            }
            reach = reach.checked_mul(4).unwrap_or(TimeDelta::MAX);
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Period(period) => write!(f, "every {} s", period.as_seconds_f64()),
            Kind::Cron(cron, zone) => write!(f, "{} {zone}", cron.as_str()),
        }
    }
}

/// Returns how many runs there are within `time` after one.
fn runs_within(period: TimeDelta, time: TimeDelta) -> i64 {
    let micros = |time: TimeDelta| time.num_microseconds().unwrap_or(i64::MAX);
    (micros(time) / micros(period)).max(0)
}

fn times(period: TimeDelta, times: i64) -> Option<TimeDelta> {
    TimeDelta::try_seconds(period.num_seconds().checked_mul(times)?)?
        .checked_add(&TimeDelta::nanoseconds(i64::from(period.subsec_nanos()).checked_mul(times)?))
}

/// Returns the first instant after `after` at which a local time of the expression comes.
fn next_in(cron: &Cron, zone: Tz, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let mut local = after.with_timezone(&zone).naive_local().with_nanosecond(0)?;
    loop {
        // Local times have no gaps and no repetitions here. The loop skips a time that occurs twice the second time,
        // because its first instant has passed.
        local = cron.find_next_occurrence(&local, false).ok()?;
        let instant = first_instant_of(local, zone)?;
        if instant > after {
            return Some(instant);
        }
    }
}

/// Returns the first instant at which clocks show this time, or, if they never do, the first at which they have passed
/// it.
pub(crate) fn first_instant_of(local: NaiveDateTime, zone: Tz) -> Option<DateTime<Utc>> {
    match zone.from_local_datetime(&local) {
        MappedLocalTime::Single(time) => Some(time.to_utc()),
        MappedLocalTime::Ambiguous(one, other) => Some(one.to_utc().min(other.to_utc())),
        MappedLocalTime::None => Some(GapInfo::new(&local, &zone)?.end?.to_utc()),
    }
}

#[cfg(test)]
mod tests;

/// The schedule of a claimed row, and the attempt's place on it.
#[derive(Debug)]
pub(crate) struct Recurrence {
    /// The run after this one. `None`: the schedule has ended.
    pub(crate) next: Option<DateTime<Utc>>,
    tick: DateTime<Utc>,
    now: DateTime<Utc>,
    missed: Missed,
}

/// Why the columns of a row make no schedule. The text is written on the row.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoSchedule {
    #[error("the column `{0}` does not define a valid schedule: correct it and retry the row")]
    Invalid(&'static str, #[source] InvalidSchedule),
    #[error(
        "the row has a period of {seconds} s and the cron expression `{expression}`: set `{period}` or `{cron}` to null and \
         retry the row"
    )]
    Both { seconds: i64, expression: String, period: &'static str, cron: &'static str },
}

impl Recurrence {
    /// Reads the schedule of a row. `None`: the row has none, and runs once.
    pub(crate) fn of(columns: Periodic, details: &Details) -> Result<Option<Self>, NoSchedule> {
        let Some(schedule) = schedule_of(columns, details)? else { return Ok(None) };
        // A claim reads both together with the row.
        let (Some(now), Some(tick)) = (details.now, details.scheduled_time) else { return Ok(None) };
        let next = schedule.next_by(columns.missed, tick, now);
        if next.is_none() && !schedule.ever_ran() {
            let expression = details.cron.clone().unwrap_or_default();
            return Err(NoSchedule::Invalid(columns.cron, InvalidSchedule::Never(expression)));
        }
        Ok(Some(Recurrence { next, tick, now, missed: columns.missed }))
    }

    /// Decides whether a run that was due at `due` (if known) comes too late and is left out; returns the time of the
    /// next run if so. The last run of a schedule is never left out. Neither is a row that is due at another time than
    /// its schedule says: an operator wants it to run, its content has changed, or its run began in time and goes on.
    pub(crate) fn left_out_for(&self, due: Option<DateTime<Utc>>) -> Option<DateTime<Utc>> {
        let Missed::Skip(late) = self.missed else { return None };
        let late = TimeDelta::from_std(late).unwrap_or(TimeDelta::MAX);
        let is_on_schedule = due.is_none_or(|due| due == self.tick);
        self.next.filter(|_| is_on_schedule && self.now.signed_duration_since(self.tick) > late)
    }
}

fn schedule_of(columns: Periodic, details: &Details) -> Result<Option<Schedule>, NoSchedule> {
    let Periodic { period, cron, time_zone, .. } = columns;
    match (details.period, &details.cron) {
        (None, None) => Ok(None),
        (Some(seconds), Some(expression)) => {
            Err(NoSchedule::Both { seconds, expression: expression.clone(), period, cron })
        }
        (Some(seconds), None) => {
            Schedule::every_seconds(seconds).map(Some).map_err(|why| NoSchedule::Invalid(period, why))
        }
        (None, Some(expression)) => {
            let zone = details.time_zone.as_deref().unwrap_or("UTC");
            Schedule::cron(expression, zone).map(Some).map_err(|why| {
                let column = if matches!(why, InvalidSchedule::TimeZone(_)) { time_zone } else { cron };
                NoSchedule::Invalid(column, why)
            })
        }
    }
}
