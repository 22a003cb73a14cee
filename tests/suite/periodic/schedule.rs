//! When a row runs next: its schedule decides, not its last run.

use queueable::__derive::Missed as Policy;
use queueable::{Explanation, Schedule, Status};

use super::*;

const HOUR: TimeDelta = TimeDelta::hours(1);

#[test]
fn a_run_that_comes_late_is_followed_by_the_next_one_on_the_schedule() {
    for mode in MODES {
        let desk = Desk::new();
        // Ten runs were missed.
        let tick = ago(HOUR * 10 + TimeDelta::minutes(7));
        let ids: Vec<i64> = (1..=5).collect();
        ids.iter().for_each(|id| desk.insert(*id, tick, every(3600)));
        let tally = desk.run(mode, Missed::Once, done);
        assert_eq!(tally.succeeded, 5, "{mode:?}");
        let mut runs = desk.runs();
        runs.sort();
        assert_eq!(runs, ids.iter().map(|id| (*id, 1, Some(tick))).collect::<Vec<_>>(), "{mode:?}");
        for id in ids {
            let state = desk.state(id);
            assert_eq!((state.status, state.try_count, state.last_attempt_error_message), (Status::Success, 1, None));
            assert_eq!(desk.next(id), Some(tick + HOUR * 11), "{mode:?}");
        }
        // The next run also comes late, and begins anew.
        desk.make_due();
        let scheduled = tick + HOUR * 9;
        diesel::update(reports::table)
            .set(once_queue::scheduled_time.eq(Some(Instant::from(scheduled))))
            .execute(&mut desk.connect())
            .unwrap();
        assert_eq!(desk.run(mode, Missed::Once, done).succeeded, 5);
        assert!(desk.runs().iter().all(|run| (run.1, run.2) == (1, Some(scheduled))), "{mode:?}");
        assert_eq!((desk.next(1), desk.state(1).try_count), (Some(tick + HOUR * 11), 1));
    }
}

#[test]
fn missed_runs_are_made_up_for_one_by_one_up_to_the_cap() {
    for mode in MODES {
        let desk = Desk::new();
        let tick = ago(HOUR * 10 + TimeDelta::minutes(7));
        desk.insert(1, tick, every(3600));
        assert_eq!(desk.run(mode, Missed::All, done).succeeded, 4, "{mode:?}");
        // The run that was due, and the last three of the ten that were missed.
        let times = [0, 8, 9, 10].map(|hours| (1, 1, Some(tick + HOUR * hours)));
        assert_eq!(desk.runs(), times, "{mode:?}");
        assert_eq!(desk.next(1), Some(tick + HOUR * 11));
    }
}

#[test]
fn a_run_that_could_not_begin_in_time_is_left_out() {
    for mode in MODES {
        let desk = Desk::new();
        let (early, late) = (ago(TimeDelta::zero()), ago(HOUR * 10 + TimeDelta::minutes(7)));
        (1..=3).for_each(|id| desk.insert(id, late, every(3600)));
        (4..=6).for_each(|id| desk.insert(id, early, every(3600)));
        let tally = desk.run(mode, Missed::Skip, done);
        assert_eq!((tally.again, tally.succeeded), (3, 3), "{mode:?}");
        let mut runs = desk.runs();
        runs.sort();
        assert_eq!(runs, [4, 5, 6].map(|id| (id, 1, Some(early))), "{mode:?}");
        let state = desk.state(1);
        assert_eq!(
            (state.status, state.try_count, state.last_attempt_time.is_some()),
            (Status::NotAttempted, 0, false),
            "{mode:?}: nothing has been attempted"
        );
        assert_eq!((desk.next(1), desk.next(4)), (Some(late + HOUR * 11), Some(early + HOUR)), "{mode:?}");
    }
}

#[test]
fn a_run_that_an_operator_asks_for_is_not_left_out() {
    for mode in MODES {
        let desk = Desk::new();
        let tick = ago(HOUR * 10 + TimeDelta::minutes(7));
        desk.insert(1, tick, every(3600));
        assert_eq!(Once::queue().all_rows().retry_now(&mut desk.connect()).unwrap(), 1);
        assert_eq!(desk.run(mode, Missed::Skip, done).succeeded, 1, "{mode:?}");
        assert_eq!((desk.runs(), desk.next(1)), (vec![(1, 1, Some(tick))], Some(tick + HOUR * 11)));
    }
}

#[test]
fn a_retry_is_never_left_out() {
    for mode in MODES {
        let desk = Desk::new();
        let tick = ago(HOUR * 10);
        desk.insert(1, tick, every(24 * 3600));
        diesel::update(reports::table)
            .set((once_queue::status.eq(Status::Error), once_queue::try_count.eq(1)))
            .execute(&mut desk.connect())
            .unwrap();
        assert_eq!(desk.run(mode, Missed::Skip, done).succeeded, 1, "{mode:?}");
        assert_eq!(desk.runs(), [(1, 2, Some(tick))]);
    }
}

#[test]
fn a_cron_expression_is_of_its_time_zone() {
    for mode in MODES {
        let desk = Desk::new();
        let rows = [
            (1, by("30 2 * * *", "Europe/Berlin")),
            (2, by("0 9 * * Mon-Fri", "America/New_York")),
            (3, Row { cron: Some("*/20 * * * *"), ..Row::default() }),
        ];
        let tick = ago(HOUR);
        rows.iter().for_each(|(id, row)| desk.insert(*id, tick, *row));
        let before = Utc::now();
        assert_eq!(desk.run(mode, Missed::Once, done).succeeded, 3);
        let after = Utc::now();
        for (id, row) in rows {
            let schedule = Schedule::cron(row.cron.unwrap(), row.time_zone.unwrap_or("UTC")).unwrap();
            // Two answers are right if the time has come meanwhile.
            let expected = [before, after].map(|now| schedule.next_by(Policy::Once, tick, now));
            assert!(expected.contains(&desk.next(id)), "{mode:?} {row:?}: {expected:?}");
        }
    }
}

#[test]
fn a_row_without_a_schedule_runs_once() {
    for mode in MODES {
        let desk = Desk::new();
        (1..=3).for_each(|id| desk.insert(id, ago(HOUR * 100), Row { time_zone: Some("nowhere"), ..Row::default() }));
        for missed in [Missed::Skip, Missed::All, Missed::Once] {
            let tally = desk.run(mode, missed, done);
            assert_eq!(tally.succeeded, if matches!(missed, Missed::Skip) { 3 } else { 0 }, "{mode:?}");
        }
        assert!(desk.runs().iter().all(|run| run.2.is_none()));
        let state = desk.state(1);
        assert_eq!((state.status, state.next_attempt_time), (Status::Success, None));
    }
}

#[test]
fn a_schedule_that_has_come_to_its_end_leaves_a_finished_row() {
    for mode in MODES {
        let desk = Desk::new();
        desk.insert(1, ago(HOUR), by("0 0 0 1 1 * 2020", "UTC"));
        assert_eq!(desk.run(mode, Missed::Once, done).succeeded, 1, "{mode:?}");
        let state = desk.state(1);
        assert_eq!((state.status, state.next_attempt_time), (Status::Success, None));
    }
}

#[test]
fn a_stopped_schedule_is_restarted() {
    for mode in MODES {
        let desk = Desk::new();
        let tick = ago(TimeDelta::minutes(20));
        desk.insert(1, tick, every(3600));
        assert_eq!(desk.run(mode, Missed::Skip, done).again, 1);
        desk.insert(2, tick, every(3600));
        assert_eq!(desk.run(mode, Missed::Once, done).succeeded, 1);
        let rows = Once::queue().all_rows();
        assert_eq!(rows.stop(&mut desk.connect()).unwrap(), 2);
        assert_eq!(desk.state(2).next_attempt_time, None);
        assert_eq!(Once::explain(&mut desk.connect(), &2).unwrap(), Explanation::Stopped);
        assert_eq!(rows.restart(&mut desk.connect()).unwrap(), 2, "{mode:?}");
        desk.runs();
        assert_eq!(desk.run(mode, Missed::Once, done).succeeded, 2);
        assert_eq!((desk.next(1), desk.next(2)), (Some(tick + HOUR), Some(tick + HOUR)), "{mode:?}");
    }
}

#[test]
fn a_run_that_an_operator_asks_for_does_not_move_the_schedule() {
    for (mode, policies) in MODES.into_iter().zip([
        [Missed::Once, Missed::All],
        [Missed::Skip, Missed::All],
        [Missed::Once, Missed::Skip],
        [Missed::Skip, Missed::All],
    ]) {
        for missed in policies {
            let desk = Desk::new();
            let (first, tick) = (ago(-HOUR), ago(HOUR * -2));
            // One row that has run before, and one that waits for its first run.
            desk.insert(1, ago(HOUR), every(3600));
            desk.insert(2, first, every(3600));
            let scheduled = (once_queue::scheduled_time.eq(Some(Instant::from(tick))), Once::due_at(tick));
            diesel::update(reports::table.find(1)).set(scheduled).execute(&mut desk.connect()).unwrap();
            assert_eq!(Once::queue().all_rows().retry_now(&mut desk.connect()).unwrap(), 2);
            assert_eq!(desk.run(mode, missed, done).succeeded, 2, "{mode:?} {missed:?}");
            let mut runs = desk.runs();
            runs.sort();
            assert_eq!(runs, [(1, 1, None), (2, 1, None)], "they are runs of no time on the schedule");
            assert_eq!((desk.next(1), desk.next(2)), (Some(tick), Some(first)), "{mode:?} {missed:?}");
        }
    }
}
