//! Failures, crashes and invalid values: one row's trouble does not affect others, and its schedule goes on.

use queue_core::internals::statement::Scope;
use queueable::{Failure, Status};

use super::*;

const HOUR: TimeDelta = TimeDelta::hours(1);

fn fail(_: i64) -> HandlerResult {
    Err(Failure::retry("no paper"))
}

fn fail_for_good(_: i64) -> HandlerResult {
    Err(Failure::fatal("no such report"))
}

#[test]
fn a_failing_run_is_retried_by_the_policy_and_stays_the_run_that_it_was() {
    for mode in MODES {
        let desk = Desk::new();
        let tick = ago(HOUR * 3 + TimeDelta::minutes(7));
        (1..=3).for_each(|id| desk.insert(id, tick, every(3600)));
        assert_eq!(desk.run(mode, Missed::Once, fail).retried, 3, "{mode:?}");
        let state = desk.state(1);
        assert_eq!((state.status, state.try_count), (Status::Error, 1));
        let delay = state.next_attempt_time.unwrap() - Utc::now();
        assert!(delay > TimeDelta::minutes(58) && delay < TimeDelta::minutes(61), "{delay}");
        assert_eq!(desk.scheduled_time(1), Some(tick), "{mode:?}");
        desk.runs();
        desk.make_due();
        assert_eq!(desk.run(mode, Missed::Once, done).succeeded, 3, "{mode:?}");
        assert!(desk.runs().iter().all(|run| (run.1, run.2) == (2, Some(tick))), "{mode:?}");
        let state = desk.state(1);
        assert_eq!((state.status, state.try_count, state.last_attempt_error_message), (Status::Success, 2, None));
        assert_eq!(desk.next(1), Some(tick + HOUR * 4));
    }
}

#[test]
fn a_run_that_fails_for_good_leaves_its_text_and_the_schedule_goes_on() {
    for mode in MODES {
        let desk = Desk::new();
        let tick = ago(HOUR * 3 + TimeDelta::minutes(7));
        (1..=3).for_each(|id| desk.insert(id, tick, every(3600)));
        let tally = desk.run(mode, Missed::Once, fail_for_good);
        assert_eq!((tally.failed, tally.retried), (3, 0), "{mode:?}");
        // Or the row has no try left.
        desk.insert(4, tick, every(3600));
        diesel::update(reports::table.find(4))
            .set((once_queue::status.eq(Status::Error), once_queue::try_count.eq(2)))
            .execute(&mut desk.connect())
            .unwrap();
        assert_eq!(desk.run(mode, Missed::Once, fail).failed, 1);
        for (id, text) in [(1, "no such report"), (4, "no paper")] {
            let state = desk.state(id);
            assert_eq!((state.status, state.try_count), (Status::Error, 0), "{mode:?}");
            assert_eq!(state.last_attempt_error_message.as_deref(), Some(text));
            assert!(state.last_attempt_time.is_some());
            assert_eq!(desk.next(id), Some(tick + HOUR * 4), "{mode:?}");
        }
        desk.runs();
        desk.make_due();
        assert_eq!(desk.run(mode, Missed::Once, done).succeeded, 4);
        assert!(desk.runs().iter().all(|run| run.1 == 1), "the tries begin anew");
        assert_eq!(desk.state(1).last_attempt_error_message, None);
    }
}

#[test]
fn a_handler_may_end_the_schedule() {
    for mode in MODES {
        let desk = Desk::new();
        (1..=4).for_each(|id| desk.insert(id, ago(HOUR), every(3600)));
        let tally = desk.run(mode, Missed::Once, |id| Ok(if id % 2 == 0 { Outcome::Skip } else { Outcome::Delete }));
        assert_eq!((tally.skipped, tally.succeeded), (2, 2), "{mode:?}");
        let left: Vec<i64> = reports::table.select(reports::id).load(&mut desk.connect()).unwrap();
        assert_eq!(left, [2, 4]);
        let state = desk.state(2);
        assert_eq!((state.status, state.next_attempt_time), (Status::Skipped, None));
    }
}

#[test]
fn a_row_that_is_to_run_again_stays_the_run_that_it_was() {
    for mode in MODES {
        let desk = Desk::new();
        let tick = ago(HOUR * 3 + TimeDelta::minutes(7));
        desk.insert(1, tick, every(3600));
        assert_eq!(
            desk.run(mode, Missed::Once, |_| Ok(Outcome::again_in(std::time::Duration::from_secs(60)))).again,
            1
        );
        assert_eq!(desk.scheduled_time(1), Some(tick));
        desk.make_due();
        desk.run(mode, Missed::Once, done);
        assert_eq!(desk.runs(), [(1, 1, Some(tick)); 2]);
    }
}

#[test]
fn a_row_whose_schedule_is_none_fails_alone_and_says_what_to_do() {
    for mode in MODES {
        let desk = Desk::new();
        let wrong = [
            (
                every(0),
                "the column `period` does not define a valid schedule: correct it and retry the row: the period 0 is out \
                 of range",
            ),
            (every(-1), "the period -1 is out of range: 1 to 3153600000 seconds are accepted"),
            (every(i64::MAX), "out of range"),
            (by("every day", "UTC"), "the cron expression `every day` cannot be read"),
            (by("0 0 30 2 *", "UTC"), "the cron expression `0 0 30 2 *` names no time that ever comes"),
            (by("0 3 * * *", "Europe/Berlni"), "the column `time_zone` does not define a valid schedule"),
            (by("", "UTC"), "the column `cron` does not define a valid schedule"),
            (Row { period: Some(60), ..by("0 3 * * *", "UTC") }, "set `period` or `cron` to null and retry the row"),
        ];
        for (id, (row, _)) in (1..).zip(&wrong) {
            desk.insert(id, ago(HOUR), *row);
        }
        let last = ago(TimeDelta::zero());
        desk.insert(100, last, every(3600));
        let tally = desk.run(mode, Missed::Once, done);
        assert_eq!((tally.failed, tally.succeeded), (wrong.len() as u64, 1), "{mode:?}");
        assert_eq!(desk.runs(), [(100, 1, Some(last))], "no handler ran for the others");
        for (id, (row, text)) in (1..).zip(wrong) {
            let state = desk.state(id);
            assert_eq!((state.status, state.next_attempt_time), (Status::Failed, None), "{row:?}");
            let found = state.last_attempt_error_message.unwrap();
            assert!(found.contains(text), "{mode:?} {row:?}: {found}");
        }
        // The correction that the text names.
        diesel::update(reports::table.find(1))
            .set(once_queue::period.eq(Some(3600)))
            .execute(&mut desk.connect())
            .unwrap();
        assert_eq!(Once::queue().filter(reports::id.eq(1)).retry_now(&mut desk.connect()).unwrap(), 1);
        assert_eq!(desk.run(mode, Missed::Once, done).succeeded, 1);
        assert!(desk.next(1).unwrap() > Utc::now());
    }
}

#[test]
fn a_row_whose_scheduled_time_cannot_be_read_fails_alone() {
    let unreadable = match crate::db::NAME {
        "postgres" => "UPDATE reports SET scheduled_time = '-infinity' WHERE id = 1",
        "mysql" => "SET sql_mode = ''; UPDATE reports SET scheduled_time = '0000-00-00' WHERE id = 1",
        _ => "UPDATE reports SET scheduled_time = 'soon' WHERE id = 1",
    };
    for mode in MODES {
        let desk = Desk::new();
        desk.insert(1, ago(HOUR), every(3600));
        desk.insert(2, ago(HOUR), every(3600));
        unreadable.split("; ").for_each({
            let mut connection = desk.connect();
            move |statement| connection.batch_execute(statement).unwrap()
        });
        let tally = desk.run(mode, Missed::Once, done);
        assert_eq!((tally.succeeded, tally.retried), (1, 1), "{mode:?}");
        assert_eq!(desk.state(2).status, Status::Success);
        let state = desk.state(1);
        assert_eq!((state.status, state.try_count), (Status::Error, 1), "{mode:?}");
        let text = state.last_attempt_error_message.unwrap();
        assert!(text.starts_with("the row cannot be decoded: "), "{text}");
    }
}

#[test]
fn a_session_that_dies_with_its_claim_leaves_the_run_to_the_next_worker() {
    let desk = Desk::new();
    let tick = ago(HOUR * 3 + TimeDelta::minutes(7));
    desk.insert(1, tick, every(3600));
    let mut dying = desk.connect();
    dying.batch_execute(if crate::db::NAME == "sqlite" { "BEGIN IMMEDIATE" } else { "BEGIN" }).unwrap();
    assert!(queue_core::internals::claim_one(erased::<Once>(), &mut dying, Scope::ALL).unwrap().is_some());
    drop(dying);
    assert_eq!(desk.run(Mode::Transaction, Missed::Once, done).succeeded, 1);
    assert_eq!(desk.runs(), [(1, 1, Some(tick))]);
    assert_eq!(desk.next(1), Some(tick + HOUR * 4));
}

#[test]
fn a_run_whose_worker_is_gone_is_run_again_and_one_without_a_try_left_is_followed_by_the_next() {
    for mode in [Mode::Lease, Mode::LeaseByUpdate] {
        let desk = Desk::new();
        let tick = ago(HOUR * 3 + TimeDelta::minutes(7));
        for (id, tries) in [(1, 1), (2, 3)] {
            desk.insert(id, tick, every(3600));
            let leased = (
                once_queue::status.eq(Status::InProgress),
                once_queue::try_count.eq(tries),
                once_queue::next_attempt_time.eq(Some(Instant::from(ago(TimeDelta::seconds(5))))),
                once_queue::scheduled_time.eq(Some(Instant::from(tick))),
            );
            diesel::update(reports::table.find(id)).set(leased).execute(&mut desk.connect()).unwrap();
        }
        let tally = desk.run(mode, Missed::Skip, done);
        assert_eq!((tally.succeeded, tally.failed), (1, 1), "{mode:?}");
        assert_eq!(desk.runs(), [(1, 2, Some(tick))]);
        assert_eq!((desk.next(1), desk.next(2)), (Some(tick + HOUR * 4), Some(tick + HOUR * 4)));
        let state = desk.state(2);
        assert_eq!((state.status, state.try_count), (Status::Error, 0));
        assert_eq!(state.last_attempt_error_message.as_deref(), Some("queueable: lease expired in attempt 3"));
    }
}

#[test]
fn a_leased_row_keeps_the_time_on_its_schedule() {
    // The claim overwrites the time at which the row was due with the end of the lease.
    for mode in [Mode::Lease, Mode::LeaseByUpdate] {
        let desk = Arc::new(Desk::new());
        let tick = ago(HOUR * 3 + TimeDelta::minutes(7));
        desk.insert(1, tick, every(3600));
        let seen = desk.clone();
        let call = move |_: &OnceLeased, _: &Lease| {
            assert_eq!(seen.scheduled_time(1), Some(tick));
            Ok(())
        };
        let apply = |_: &OnceLeased, (): &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done);
        let style = if mode == Mode::Lease { ClaimStyle::Auto } else { ClaimStyle::UpdateThenSelect };
        let poller = OnceLeased::poller(desk.database.pool(3), (call, apply)).claim_style(style).workers(1);
        assert_eq!(poller.run_until_idle().unwrap().succeeded, 1, "{mode:?}: {:?}", desk.state(1));
    }
}
use crate::suite::keyed::erased;
