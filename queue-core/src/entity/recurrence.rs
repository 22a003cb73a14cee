//! What a periodic row's schedule means for its attempt: for which time it runs, and when the row runs next.

use chrono::{DateTime, TimeDelta, Utc};

use super::schedule::{InvalidSchedule, Schedule};
use crate::row::{Details, Missed, Periodic};

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::row::failure_text;

    const COLUMNS: Periodic = Periodic {
        period: "period",
        cron: "cron",
        time_zone: "time_zone",
        scheduled_time: "scheduled_time",
        missed: Missed::Skip(Duration::from_secs(60)),
    };

    fn at(seconds: i64) -> Option<DateTime<Utc>> {
        DateTime::from_timestamp(seconds, 0)
    }

    fn row(period: Option<i64>, cron: Option<&str>, time_zone: Option<&str>) -> Details {
        Details {
            now: at(1000),
            period,
            cron: cron.map(str::to_owned),
            time_zone: time_zone.map(str::to_owned),
            scheduled_time: at(960),
            ..Details::default()
        }
    }

    #[test]
    fn a_row_without_a_schedule_has_none_and_one_with_a_wrong_one_says_what_is_wrong() {
        assert!(Recurrence::of(COLUMNS, &row(None, None, Some("nowhere"))).expect("there is one").is_none());
        let text = |row| failure_text(&Recurrence::of(COLUMNS, &row).unwrap_err(), 1000);
        for (row, expected) in [
            (
                row(Some(0), None, None),
                "the column `period` does not define a valid schedule: correct it and retry the row: the period 0 is",
            ),
            (row(Some(-7), None, None), "the period -7 is out of range: 1 to 3153600000 seconds"),
            (row(Some(i64::MAX), None, None), "the period 9223372036854775807 is out of range"),
            (
                row(Some(60), Some("@daily"), None),
                "a period of 60 s and the cron expression `@daily`: set `period` or `cron`",
            ),
            (row(None, Some("every day"), None), "the cron expression `every day` cannot be read"),
            (row(None, Some("0 0 31 4 *"), None), "the cron expression `0 0 31 4 *` names no time that ever comes"),
            (row(None, Some("@daily"), Some("Mars")), "the column `time_zone` does not define a valid schedule"),
            (row(None, Some("@daily"), Some("Mars")), "the time zone `Mars` is unknown"),
        ] {
            let text = text(row);
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn a_run_is_left_out_when_it_comes_later_than_it_may() {
        let run = |now| {
            let row = Details { now: at(now), ..row(Some(30), None, None) };
            Recurrence::of(COLUMNS, &row).expect("it can be read").expect("there is one")
        };
        assert_eq!(run(1000).next, at(1020));
        assert_eq!(run(1020).left_out_for(at(960)), None);
        assert_eq!(run(1021).left_out_for(at(960)), at(1050));
        assert_eq!(run(1021).left_out_for(None), at(1050), "the time on the schedule counts, which is 960");
        for made_due in [0, 959, 961, 1021] {
            assert_eq!(run(1021).left_out_for(at(made_due)), None, "it was made due at {made_due}");
        }
        let columns = Periodic { missed: Missed::Once, ..COLUMNS };
        let run = Recurrence::of(columns, &row(Some(30), None, None)).expect("it can be read").expect("there is one");
        assert_eq!(run.left_out_for(at(0)), None);
    }
}
