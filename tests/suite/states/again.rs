//! Work that is done again is done as a whole: all stages, and each time on a schedule once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use diesel::connection::SimpleConnection;
use diesel::deserialize::FromSqlRow;
use diesel::expression::AsExpression;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_migrations::MigrationHarness;
use queueable::{Failure, HandlerResult, Lease, Message, Migrations, Outcome, QueueState, Queueable, Stage, Status};

use crate::db::{AUTO_KEY, BIGINT, Conn, Database};

diesel::table! {
    works (id) {
        id -> BigInt,
        revision -> Nullable<BigInt>,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, AsExpression, FromSqlRow, Stage)]
#[diesel(sql_type = Text)]
enum Step {
    Cut,
    Sew,
    Press,
}

/// A work in one of the modes.
macro_rules! works {
    ($($name:ident, $module:ident($($settings:tt)*);)*) => {$(
        #[derive(Debug, Clone, Queryable, Selectable, Queueable)]
        #[diesel(table_name = works)]
        #[queue(module = $module, retry = fixed("1h"), max_tries = 3, timeout = "30s", $($settings)*)]
        #[expect(dead_code, reason = "its queue is looked at, not itself")]
        struct $name {
            id: i64,
            revision: Option<i64>,
        }
    )*};
}

works! {
    Dress, dress_queue(stage = Step, version = revision);
    DressInGroup, dress_in_group_queue(stage = Step, version = revision, group = 10);
    Daily, daily_queue(prefix = "daily_", periodic(missed = skip("1m")), rerun_on_change(revision));
    DailyInGroup, daily_in_group_queue(
        prefix = "daily_", periodic(missed = skip("1m")), rerun_on_change(revision), group = 10
    );
    DailyLeased, daily_leased_queue(
        prefix = "daily_", periodic(missed = skip("1m")), rerun_on_change(revision), lease = "60s"
    );
}

fn workshop() -> Database {
    let database = Database::new();
    let mut connection = database.connect();
    connection.batch_execute(&format!("CREATE TABLE works (id {AUTO_KEY} NOT NULL, revision {BIGINT})")).unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Dress>().entity::<Daily>()).unwrap();
    connection.batch_execute("INSERT INTO works (revision) VALUES (1)").unwrap();
    database
}

type Steps = Arc<Mutex<Vec<Step>>>;

fn step(steps: &Steps, message: &Message<'_, Conn>) -> HandlerResult {
    let stage: Step = message.stage();
    steps.lock().unwrap().push(stage);
    Ok(match stage {
        Step::Cut => Outcome::next(Step::Sew),
        Step::Sew => Outcome::next(Step::Press),
        Step::Press => Outcome::Done,
    })
}

/// Processes the due rows, and returns the steps.
fn sew(database: &Database, in_group: bool) -> Vec<Step> {
    let steps = Steps::default();
    let seen = steps.clone();
    let poller = match in_group {
        false => {
            Dress::poller(database.pool(3), move |_: &Dress, message: &mut Message<'_, Conn>| step(&seen, message))
        }
        true => DressInGroup::poller(database.pool(3), move |_: &DressInGroup, message: &mut Message<'_, Conn>| {
            step(&seen, message)
        }),
    };
    poller.workers(1).run_until_idle().unwrap();
    let steps = steps.lock().unwrap();
    steps.clone()
}

#[test]
fn a_staged_row_that_is_rerun_or_has_a_newer_version_passes_all_its_stages_again() {
    for in_group in [false, true] {
        let database = workshop();
        let mut connection = database.connect();
        diesel::update(works::table).set(Dress::due_now()).execute(&mut connection).unwrap();
        assert_eq!(sew(&database, in_group), [Step::Cut, Step::Sew, Step::Press]);
        assert_eq!(Dress::queue().filter(works::id.eq(1)).rerun(&mut connection).unwrap(), 1);
        assert_eq!(sew(&database, in_group), [Step::Cut, Step::Sew, Step::Press], "sent again");
        assert!(Dress::enqueue_if_newer(&mut connection, &1, 2).unwrap());
        assert_eq!(sew(&database, in_group), [Step::Cut, Step::Sew, Step::Press], "a newer version");
        assert!(!Dress::enqueue_if_newer(&mut connection, &1, 2).unwrap());
    }
}

#[test]
fn a_staged_row_that_has_failed_is_retried_in_its_stage() {
    let database = workshop();
    let mut connection = database.connect();
    diesel::update(works::table).set(Dress::due_now()).execute(&mut connection).unwrap();
    let fail = |_: &Dress, message: &mut Message<'_, Conn>| match message.stage::<Step>() {
        Step::Cut => Ok(Outcome::next(Step::Sew)),
        _ => Err(Failure::fatal("no thread")),
    };
    assert_eq!(Dress::poller(database.pool(3), fail).workers(1).run_until_idle().unwrap().failed, 1);
    assert_eq!(Dress::queue().filter(works::id.eq(1)).retry_now(&mut connection).unwrap(), 1);
    assert_eq!(sew(&database, false), [Step::Sew, Step::Press]);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Transaction,
    Group,
    Lease,
}

const MODES: [Mode; 3] = [Mode::Transaction, Mode::Group, Mode::Lease];

/// The times on the schedule for which the attempts ran.
type Runs = Arc<Mutex<Vec<Option<DateTime<Utc>>>>>;

/// Runs the daily work once it is due, and returns the times. The first attempt also does this.
fn run(database: &Database, mode: Mode, first: fn(&mut Conn) -> HandlerResult) -> Vec<Option<DateTime<Utc>>> {
    let runs = Runs::default();
    let seen = runs.clone();
    let work = move |time: Option<DateTime<Utc>>, connection: &mut Conn| {
        seen.lock().unwrap().push(time);
        let runs = seen.lock().unwrap().len();
        if runs == 1 { first(connection) } else { Ok(Outcome::Done) }
    };
    let pool = database.pool(3);
    let poller = match mode {
        Mode::Transaction => Daily::poller(pool, move |_: &Daily, message: &mut Message<'_, Conn>| {
            work(message.scheduled_for(), message.connection())
        }),
        Mode::Group => DailyInGroup::poller(pool, move |_: &DailyInGroup, message: &mut Message<'_, Conn>| {
            work(message.scheduled_for(), message.connection())
        }),
        Mode::Lease => DailyLeased::poller(
            pool,
            (
                |_: &DailyLeased, _: &Lease| Ok(()),
                move |_: &DailyLeased, _: &(), message: &mut Message<'_, Conn>| {
                    work(message.scheduled_for(), message.connection())
                },
            ),
        ),
    };
    poller.workers(1).run_until_idle().unwrap();
    let runs = runs.lock().unwrap();
    runs.clone()
}

/// Makes the work due every hour, from this time on.
fn every_hour_from(database: &Database, time: DateTime<Utc>) {
    diesel::update(works::table)
        .set((Daily::due_at(time), daily_queue::period.eq(3600)))
        .execute(&mut database.connect())
        .unwrap();
}

fn state(database: &Database) -> QueueState {
    works::table.find(1).select(Daily::queue_state()).get_result(&mut database.connect()).unwrap()
}

#[test]
fn a_run_that_comes_too_late_is_left_out() {
    for mode in MODES {
        let database = workshop();
        every_hour_from(&database, Utc::now() - TimeDelta::minutes(5));
        assert!(run(&database, mode, |_| Ok(Outcome::Done)).is_empty(), "{mode:?}");
        assert_eq!(state(&database).status, Status::NotAttempted, "{mode:?}");
    }
}

#[test]
fn what_is_due_for_another_reason_than_its_schedule_is_no_missed_run() {
    let queue = || Daily::queue().filter(works::id.eq(1));
    let ago = |minutes| Utc::now() - TimeDelta::minutes(minutes);
    // Each run is due some minutes before a worker comes. A clock cannot be set back, so the due time is.
    type Change<'a> = (&'a str, &'a dyn Fn(&mut Conn));
    let wanted: [Change<'_>; 4] = [
        ("postponed into the past", &|connection| {
            assert_eq!(queue().postpone_until(connection, ago(3)).unwrap(), 1);
        }),
        ("retried", &|connection| {
            assert_eq!(queue().retry_now(connection).unwrap(), 1);
            set_back(connection, ago(3));
        }),
        ("run again", &|connection| {
            connection.batch_execute("UPDATE works SET daily_status = 'SUCCESS'").unwrap();
            assert_eq!(queue().rerun(connection).unwrap(), 1);
            set_back(connection, ago(3));
        }),
        ("changed", &|connection| {
            connection.batch_execute("UPDATE works SET revision = 7").unwrap();
            set_back(connection, ago(3));
        }),
    ];
    for (what, want) in wanted {
        for mode in MODES {
            let database = workshop();
            every_hour_from(&database, Utc::now() + TimeDelta::minutes(30));
            want(&mut database.connect());
            assert_eq!(run(&database, mode, |_| Ok(Outcome::Done)).len(), 1, "{what}, {mode:?}");
        }
    }
}

fn set_back(connection: &mut Conn, time: DateTime<Utc>) {
    let set = daily_queue::next_attempt_time.eq(queueable::columns::Instant::from(time));
    assert_eq!(diesel::update(works::table).set(set).execute(connection).unwrap(), 1);
}

#[test]
fn a_run_that_began_in_time_and_goes_on_later_is_not_left_out() {
    for mode in MODES {
        let database = workshop();
        every_hour_from(&database, Utc::now());
        let first = run(&database, mode, |_| Ok(Outcome::again_in(Duration::from_secs(600))));
        assert_eq!(first.len(), 1, "{mode:?}");
        // Ten minutes and another five have passed, in the row's view.
        set_back(&mut database.connect(), Utc::now() - TimeDelta::minutes(5));
        assert_eq!(run(&database, mode, |_| Ok(Outcome::Done)), first, "{mode:?}: for the same time");
    }
}

#[test]
fn each_time_on_a_schedule_has_one_success() {
    for mode in MODES {
        let database = workshop();
        let time = Utc::now() - TimeDelta::seconds(10);
        every_hour_from(&database, time);
        let runs = run(&database, mode, |connection| {
            // Within the message's own transaction, because another one would wait for it.
            diesel::update(works::table).set(works::revision.eq(9_i64)).execute(connection)?;
            Ok(Outcome::Done)
        });
        assert_eq!(runs.len(), 2, "{mode:?}");
        assert!(runs[0].is_some() && runs[1].is_none(), "{mode:?}: {runs:?}");
        let next = state(&database).next_attempt_time.unwrap() - time;
        assert!((next - TimeDelta::hours(1)).abs() < TimeDelta::seconds(1), "{mode:?}: {next}");
    }
}
