//! Periods, cron expressions, and the hours of daylight saving.

use proptest::prelude::*;

use super::*;

fn at(time: &str) -> DateTime<Utc> {
    DateTime::parse_from_rfc3339(time).unwrap_or_else(|error| panic!("{time}: {error}")).to_utc()
}

/// The runs after a time, each as the clocks of its zone show it.
fn runs(expression: &str, zone: &str, after: &str, number: usize) -> Vec<String> {
    let schedule = Schedule::cron(expression, zone).expect("the test gives a sound one");
    let zone: Tz = zone.parse().expect("the test gives a sound one");
    let runs = schedule.runs_after(at(after)).take(number);
    runs.map(|run| run.with_timezone(&zone).format("%Y-%m-%dT%H:%M:%S%:z").to_string()).collect()
}

/// Real nights: zone, expression, a time before, and the runs after it.
#[rustfmt::skip]
const NIGHTS: &[(&str, &str, &str, &[&str])] = &[
    // The clocks skip an hour, on the last Sunday of March.
    ("Europe/Berlin", "30 2 * * *", "2026-03-28T12:00:00+01:00",
        &["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]),
    ("Europe/Berlin", "30 2 * * *", "2024-03-30T12:00:00+01:00",
        &["2024-03-31T03:00:00+02:00", "2024-04-01T02:30:00+02:00"]),
    // All times of the gap make one run, with the time at its end.
    ("Europe/Berlin", "*/20 1-3 * * *", "2026-03-29T01:30:00+01:00",
        &["2026-03-29T01:40:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T03:20:00+02:00"]),
    // An hour occurs twice, on the last Sunday of October: only the first one counts.
    ("Europe/Berlin", "30 2 * * *", "2026-10-24T12:00:00+02:00",
        &["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]),
    ("Europe/Berlin", "*/20 2 * * *", "2026-10-25T00:00:00+02:00",
        &["2026-10-25T02:00:00+02:00", "2026-10-25T02:20:00+02:00", "2026-10-25T02:40:00+02:00", "2026-10-26T02:00:00+01:00"]),
    // Start times in the second of the two hours, between them, and at the end.
    ("Europe/Berlin", "*/20 * * * *", "2026-10-25T02:10:00+01:00", &["2026-10-25T03:00:00+01:00"]),
    ("Europe/Berlin", "*/20 * * * *", "2026-10-25T02:50:00+02:00", &["2026-10-25T03:00:00+01:00"]),
    ("Europe/Berlin", "0 3 * * *", "2026-10-25T02:59:59+01:00", &["2026-10-25T03:00:00+01:00", "2026-10-26T03:00:00+01:00"]),
    // Before there was daylight saving.
    ("Europe/Berlin", "0 12 * * *", "1975-06-01T12:00:00+01:00", &["1975-06-02T12:00:00+01:00"]),
    ("Europe/London", "30 1 * * *", "2026-10-24T12:00:00+01:00",
        &["2026-10-25T01:30:00+01:00", "2026-10-26T01:30:00+00:00"]),
    ("America/New_York", "30 2 * * *", "2026-03-07T12:00:00-05:00",
        &["2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"]),
    ("America/New_York", "30 1 * * *", "2026-10-31T12:00:00-04:00",
        &["2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"]),
    // The law of 2005: in 2006 the first Sunday of April.
    ("America/New_York", "30 2 * * *", "2006-04-01T12:00:00-05:00", &["2006-04-02T03:00:00-04:00"]),
    ("America/New_York", "30 2 * * *", "2006-03-11T12:00:00-05:00", &["2006-03-12T02:30:00-05:00"]),
    // At midnight: the day begins at one o'clock, and a day's last hour occurs twice.
    ("America/Santiago", "0 0 * * *", "2025-09-06T12:00:00-04:00",
        &["2025-09-07T01:00:00-03:00", "2025-09-08T00:00:00-03:00"]),
    ("America/Santiago", "30 23 * * *", "2025-04-05T12:00:00-03:00",
        &["2025-04-05T23:30:00-03:00", "2025-04-06T23:30:00-04:00"]),
    ("America/Havana", "0 0 * * *", "2025-03-08T12:00:00-05:00", &["2025-03-09T01:00:00-04:00", "2025-03-10T00:00:00-04:00"]),
    ("America/Sao_Paulo", "0 0 * * *", "2018-11-03T12:00:00-03:00", &["2018-11-04T01:00:00-02:00"]),
    // No summer time, and minutes in the offset.
    ("Asia/Kathmandu", "0 6 * * *", "2026-03-28T12:00:00+05:45",
        &["2026-03-29T06:00:00+05:45", "2026-03-30T06:00:00+05:45"]),
    ("Asia/Kathmandu", "5 0 * * *", "1985-12-31T12:00:00+05:30", &["1986-01-01T00:15:00+05:45"]),
    // Half an hour of summer time.
    ("Australia/Lord_Howe", "15 2 * * *", "2025-10-04T12:00:00+10:30",
        &["2025-10-05T02:30:00+11:00", "2025-10-06T02:15:00+11:00"]),
    ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04T12:00:00+11:00",
        &["2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"]),
    // Summer time is interrupted in Ramadan.
    ("Africa/Casablanca", "30 2 * * *", "2025-02-22T12:00:00+01:00",
        &["2025-02-23T02:30:00+01:00", "2025-02-24T02:30:00+00:00"]),
    ("Africa/Casablanca", "30 2 * * *", "2025-04-05T12:00:00+00:00",
        &["2025-04-06T03:00:00+01:00", "2025-04-07T02:30:00+01:00"]),
    ("Africa/Cairo", "0 0 * * *", "2025-04-24T12:00:00+02:00",
        &["2025-04-25T01:00:00+03:00", "2025-04-26T00:00:00+03:00"]),
    ("Africa/Cairo", "30 23 * * *", "2025-10-30T12:00:00+03:00",
        &["2025-10-30T23:30:00+03:00", "2025-10-31T23:30:00+02:00"]),
    // The zone skips a day: 30 December 2011. Its runs come with the next day's first moment, once.
    ("Pacific/Apia", "0 12 * * *", "2011-12-29T00:00:00-10:00",
        &["2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T12:00:00+14:00"]),
    ("Pacific/Apia", "0 0 * * *", "2011-12-29T12:00:00-10:00",
        &["2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00"]),
    // A day occurs twice.
    ("Pacific/Kwajalein", "0 12 * * *", "1969-09-29T12:30:00+11:00",
        &["1969-09-30T12:00:00+11:00", "1969-10-01T12:00:00-12:00"]),
    // Summer time at midnight, until it was abolished.
    ("Asia/Tehran", "30 0 * * *", "2022-03-21T12:00:00+03:30", &["2022-03-22T01:00:00+04:30", "2022-03-23T00:30:00+04:30"]),
    ("Asia/Tehran", "30 0 * * *", "2023-03-21T12:00:00+03:30", &["2023-03-22T00:30:00+03:30"]),
    ("UTC", "30 2 * * *", "2026-03-28T12:00:00Z", &["2026-03-29T02:30:00+00:00", "2026-03-30T02:30:00+00:00"]),
    // Leap days, last days, weekdays.
    ("UTC", "0 0 29 2 *", "2026-01-01T00:00:00Z", &["2028-02-29T00:00:00+00:00", "2032-02-29T00:00:00+00:00"]),
    ("UTC", "0 0 29 2 *", "2099-01-01T00:00:00Z", &["2104-02-29T00:00:00+00:00"]),
    ("Europe/Berlin", "0 18 L * *", "2026-02-10T00:00:00+01:00",
        &["2026-02-28T18:00:00+01:00", "2026-03-31T18:00:00+02:00"]),
    ("Europe/Berlin", "0 9 * * Mon-Fri", "2026-03-27T10:00:00+01:00", &["2026-03-30T09:00:00+02:00"]),
    ("UTC", "0 9 13 * Fri", "2026-03-09T00:00:00Z", &["2026-03-13T09:00:00+00:00", "2026-03-20T09:00:00+00:00"]),
    ("UTC", "30 0 0 * * *", "2026-03-09T00:00:00Z", &["2026-03-09T00:00:30+00:00"]),
    ("UTC", "0 0 0 1 1 * 2030", "2026-03-09T00:00:00Z", &["2030-01-01T00:00:00+00:00"]),
    ("UTC", "@hourly", "2026-03-09T00:00:00Z", &["2026-03-09T01:00:00+00:00"]),
];

#[test]
fn a_time_that_comes_twice_runs_once_and_one_that_is_left_out_runs_at_the_next_instant() {
    for (zone, expression, after, expected) in NIGHTS {
        assert_eq!(runs(expression, zone, after, expected.len()), *expected, "{expression} in {zone} after {after}");
    }
}

#[test]
fn a_schedule_with_years_comes_to_its_end() {
    let schedule = Schedule::cron("0 0 0 1 1 * 2030", "UTC").expect("the test gives a sound one");
    assert_eq!(schedule.runs_after(at("2026-01-01T00:00:00Z")).count(), 1);
    assert!(schedule.ever_ran());
}

#[test]
fn a_period_does_not_drift_and_makes_up_for_missed_runs_as_it_is_told() {
    let schedule = Schedule::every(Duration::from_secs(3600)).expect("the test gives a sound one");
    let tick = at("2026-03-28T00:00:07.25Z");
    let next = |missed, now| schedule.next_by(missed, tick, at(now)).expect("the test gives a sound one").to_rfc3339();
    // On time, all three agree.
    for missed in [Missed::Once, Missed::Skip(Duration::from_secs(60)), Missed::All(3)] {
        assert_eq!(next(missed, "2026-03-28T00:00:09Z"), "2026-03-28T01:00:07.250+00:00");
        // A run before its scheduled time leaves the schedule as it is.
        assert_eq!(next(missed, "2026-03-27T23:00:00Z"), "2026-03-28T00:00:07.250+00:00");
    }
    // Ten hours late.
    assert_eq!(next(Missed::Once, "2026-03-28T10:30:00Z"), "2026-03-28T11:00:07.250+00:00");
    assert_eq!(next(Missed::Skip(Duration::ZERO), "2026-03-28T10:30:00Z"), "2026-03-28T11:00:07.250+00:00");
    assert_eq!(next(Missed::All(100), "2026-03-28T10:30:00Z"), "2026-03-28T01:00:07.250+00:00");
    assert_eq!(next(Missed::All(3), "2026-03-28T10:30:00Z"), "2026-03-28T08:00:07.250+00:00");
    assert_eq!(next(Missed::All(1), "2026-03-28T10:30:00Z"), "2026-03-28T10:00:07.250+00:00");
    // To the exact instant: a run at `now` is due, and the next one is not.
    assert_eq!(next(Missed::Once, "2026-03-28T01:00:07.25Z"), "2026-03-28T02:00:07.250+00:00");
    assert_eq!(next(Missed::All(9), "2026-03-28T01:00:07.25Z"), "2026-03-28T01:00:07.250+00:00");
}

#[test]
fn a_cron_expression_makes_up_for_missed_runs_as_it_is_told() {
    let schedule = Schedule::cron("0 * * * *", "Europe/Berlin").expect("the test gives a sound one");
    let tick = at("2026-03-28T00:00:00Z");
    let next = |missed, now| schedule.next_by(missed, tick, at(now)).expect("the test gives a sound one").to_rfc3339();
    assert_eq!(next(Missed::Once, "2026-03-28T10:30:00Z"), "2026-03-28T11:00:00+00:00");
    assert_eq!(next(Missed::All(100), "2026-03-28T10:30:00Z"), "2026-03-28T01:00:00+00:00");
    assert_eq!(next(Missed::All(3), "2026-03-28T10:30:00Z"), "2026-03-28T08:00:00+00:00");
    assert_eq!(next(Missed::All(3), "2026-03-28T00:30:00Z"), "2026-03-28T01:00:00+00:00");
    // After ten years of a run every second, the last ones are found without walking over all of them.
    let schedule = Schedule::cron("* * * * * *", "UTC").expect("the test gives a sound one");
    let next =
        schedule.next_by(Missed::All(5000), tick, at("2036-03-28T00:00:00Z")).expect("the test gives a sound one");
    assert_eq!(next, at("2036-03-28T00:00:00Z") - TimeDelta::seconds(4999));
}

#[test]
fn what_is_no_schedule_says_what_is_accepted() {
    let text = |error: InvalidSchedule| error.to_string();
    let period = |seconds| Schedule::every(Duration::from_secs(seconds)).map_err(text).unwrap_err();
    assert!(period(0).contains("the period 0 is out of range"), "{}", period(0));
    assert!(period(u64::MAX).contains("1 to 3153600000 seconds"), "{}", period(u64::MAX));
    let cron = |expression, zone| Schedule::cron(expression, zone).map_err(text).unwrap_err();
    for expression in
        ["", "x", "* * * *", "61 * * * *", "* 25 * * *", "* * * * * * * *", "5-1 * * * *", "*/0 * * * *", "@never"]
    {
        let text = cron(expression, "UTC");
        assert!(text.contains(&format!("the cron expression `{expression}` cannot be read")), "{text}");
    }
    assert!(cron("* * * * *", "Europe/Berlni").contains("the time zone `Europe/Berlni` is unknown"));
    assert!(cron("* * * * *", "").contains("the time zone `` is unknown"));
    for expression in ["0 0 30 2 *", "0 0 0 30 2 * 2030"] {
        assert!(!Schedule::cron(expression, "UTC").expect("the test gives a sound one").ever_ran());
    }
}

fn instants() -> impl Strategy<Value = DateTime<Utc>> {
    (-2_000_000_000_i64..6_000_000_000, 0_u32..1_000_000).prop_map(|(seconds, micros)| {
        DateTime::from_timestamp(seconds, micros * 1000).expect("the test gives a sound one")
    })
}

fn zones() -> impl Strategy<Value = Tz> {
    proptest::sample::select(chrono_tz::TZ_VARIANTS.to_vec())
}

fn expressions() -> impl Strategy<Value = String> {
    let field = |most: u32| {
        prop_oneof![
            Just("*".to_owned()),
            (0..=most).prop_map(|value| value.to_string()),
            (1..=most).prop_map(|step| format!("*/{step}")),
        ]
    };
    (field(59), field(23)).prop_map(|(minute, hour)| format!("{minute} {hour} * * *"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_next_run_is_always_later_and_none_lies_between(zone in zones(), expression in expressions(), after in instants()) {
        let schedule = Schedule::cron(&expression, zone.name()).expect("the test gives a sound one");
        let run = schedule.next(after).expect("the test gives a sound one");
        prop_assert!(run > after, "{run} after {after}");
        // The answer is the same from every start time on the way.
        for part in 1..4 {
            let between = after + (run - after) * part / 4;
            if between < run {
                prop_assert_eq!(schedule.next(between), Some(run));
            }
        }
        let runs: Vec<_> = schedule.runs_after(after).take(30).collect();
        prop_assert!(runs.is_sorted_by(|one, next| one < next), "{runs:?}");
    }

    #[test]
    fn a_local_time_that_clocks_show_is_the_time_of_its_run(zone in zones(), hour in 0..24_u32, after in instants()) {
        let schedule = Schedule::cron(&format!("17 {hour} * * *"), zone.name()).expect("the test gives a sound one");
        let run = schedule.next(after).expect("the test gives a sound one").with_timezone(&zone);
        let shown = run.naive_local();
        let asked = shown.date().and_hms_opt(hour, 17, 0).expect("the test gives a sound one");
        // Otherwise the clocks skipped the run's local time.
        prop_assert!(shown == asked || first_instant_of(asked, zone) == Some(run.to_utc())
            || zone.from_local_datetime(&(asked - TimeDelta::days(1))).earliest().is_none(), "{run}");
    }

    #[test]
    fn missed_runs_are_on_the_schedule_and_never_before_the_last(
        zone in zones(), expression in expressions(), tick in instants(), late in 0..100_000_i64, most in 1..5_u32,
    ) {
        let now = tick + TimeDelta::seconds(late);
        for schedule in [
            Schedule::cron(&expression, zone.name()).expect("the test gives a sound one"),
            Schedule::every(Duration::from_secs(777)).expect("the test gives a sound one"),
        ] {
            let due: Vec<_> = schedule.runs_after(tick).take_while(|run| *run <= now).collect();
            let left_out = due.len().saturating_sub(most as usize);
            let oldest = due.get(left_out).copied();
            let first_after = schedule.runs_after(tick).find(|run| *run > now);
            prop_assert_eq!(schedule.next_by(Missed::All(most), tick, now), oldest.or(first_after));
            prop_assert_eq!(schedule.next_by(Missed::Once, tick, now), first_after);
        }
    }

    #[test]
    fn no_text_makes_it_panic(expression in "\\PC{0,30}|[0-9*/,# LW?@+A-Z-]{0,30}", zone in "\\PC{0,12}") {
        let _ = Schedule::cron(&expression, &zone);
        if let Ok(schedule) = Schedule::cron(&expression, "Europe/Berlin") {
            let _ = schedule.next(DateTime::UNIX_EPOCH);
        }
    }
}

/// What a schedule means for an attempt.
mod recurrence {
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
