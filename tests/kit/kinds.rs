//! Kinds of work in a test: what keeps rows back for a poller keeps them back in a drain, and the clock of the test moves all of
//! it.

use chrono::{DateTime, Timelike, Utc};
use diesel::connection::SimpleConnection;
use diesel::deserialize::FromSqlRow;
use diesel::expression::AsExpression;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_migrations::MigrationHarness;
use queueable::testing::{self, AttemptEnd, Drained, Kept, TestQueue, hours};
use queueable::{Error, Failure, Message, Migrations, Outcome, Pause, Queueable, Stage};

use crate::db::{BIGINT, Conn, Database};

diesel::table! {
    jobs (id) {
        id -> BigInt,
        company_id -> BigInt,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, AsExpression, FromSqlRow, Stage)]
#[diesel(sql_type = Text)]
enum Step {
    Render,
    Send,
}

macro_rules! jobs {
    ($($name:ident($($key:tt)*);)*) => {$(
        #[derive(Debug, Clone, Queryable, Selectable, Queueable)]
        #[diesel(table_name = jobs)]
        #[queue($($key)*)]
        #[allow(dead_code, reason = "not each handler looks at its row")]
        struct $name {
            id: i64,
            company_id: i64,
        }
    )*};
}

jobs! {
    Plain();
    Nightly(window = "02:00-04:00 UTC");
    Nowhere(window = "02:00-04:00 Europe/Berlni");
    Staged(stage = Step);
    InTurn(serial_by = company_id, retry = fixed("1h"));
    Strict(serial_by(company_id, strict), retry = fixed("1h"));
    AtMost(at_most(1, by = company_id), retry = fixed("1h"));
    Alone(exclusive, retry = fixed("1h"));
    Periodic(periodic);
    Ordered(order_by = company_id);
    Conditional(claim_if = "jobs::company_id.gt(5_i64)");
    Timed(timestamps);
}

/// A database with the jobs of one entity, and the control table, in a test transaction.
fn desk(
    migrations: Migrations<<Conn as Connection>::Backend>,
    of_companies: &[i64],
    due: impl Fn(&mut Conn, i64, i64),
) -> (Conn, Database) {
    let database = Database::new();
    let mut connection = database.connect();
    let table = format!("CREATE TABLE jobs (id {BIGINT} PRIMARY KEY NOT NULL, company_id {BIGINT} NOT NULL)");
    connection.batch_execute(&table).unwrap();
    connection.run_pending_migrations(migrations.control()).unwrap();
    connection.begin_test_transaction().unwrap();
    for (id, company) in (1..).zip(of_companies) {
        due(&mut connection, id, *company);
    }
    (connection, database)
}

macro_rules! desk {
    ($entity:ty, $companies:expr) => {
        desk(Migrations::new().entity::<$entity>(), $companies, |connection, id, company| {
            diesel::insert_into(jobs::table)
                .values((jobs::id.eq(id), jobs::company_id.eq(company), <$entity>::due_now()))
                .execute(connection)
                .unwrap();
        })
    };
}

fn keys(drained: &Drained) -> Vec<&str> {
    drained.attempts.iter().map(|attempt| &*attempt.key).collect()
}

#[test]
fn a_window_keeps_rows_back_until_the_clock_is_in_it() {
    let (mut connection, _database) = desk!(Nightly, &[1]);
    let noon: DateTime<Utc> = "2031-05-06T12:00:00Z".parse().unwrap();
    let done = |_: &Nightly, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    testing::travel_to(&mut connection, noon).unwrap();
    let drained = Nightly::drain(&mut connection, &done).unwrap();
    let opens: DateTime<Utc> = "2031-05-07T02:00:00Z".parse().unwrap();
    assert!(
        matches!(&drained.kept[..], [Kept::OutsideWindow { opens: found, .. }] if *found == Some(opens)),
        "{drained}"
    );
    assert_eq!(drained.attempts, []);
    let drained = Nightly::drain_until_idle(&mut connection, &done).unwrap();
    assert_eq!((drained.succeeded(), &drained.kept[..]), (1, &[][..]), "{drained}");
    assert_eq!(testing::now(&mut connection).unwrap().hour(), 2);
}

#[test]
fn a_window_that_no_poller_would_start_with_is_an_error() {
    let (mut connection, _database) = desk!(Nowhere, &[1]);
    let done = |_: &Nowhere, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let error = Nowhere::drain(&mut connection, &done).unwrap_err();
    assert!(matches!(&error, Error::Unsafe(findings) if findings[0].mend.contains("window = ")), "{error}");
    assert_eq!(Nowhere::queue().due().counts_by_status(&mut connection).unwrap().total(), 1);
}

#[test]
fn a_pause_keeps_rows_back_until_it_ends() {
    let (mut connection, _database) = desk!(Plain, &[1, 2]);
    let done = |_: &Plain, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    Plain::pause(
        &mut connection,
        Pause::new("the bank is away", "ops@example.org").lasting(std::time::Duration::from_secs(3600)),
    )
    .unwrap();
    let drained = Plain::drain(&mut connection, &done).unwrap();
    assert_eq!(drained.to_string(), "Plain: not worked, paused by ops@example.org: the bank is away\n");
    testing::travel(&mut connection, hours(2));
    assert_eq!(Plain::drain(&mut connection, &done).unwrap().succeeded(), 2);
}

#[test]
fn stages_follow_one_another_and_a_paused_stage_stands() {
    let (mut connection, _database) = desk!(Staged, &[1]);
    let handler = |_: &Staged, message: &mut Message<'_, Conn>| match message.stage() {
        Step::Send => Ok(Outcome::Done),
        Step::Render => Ok(Outcome::next(Step::Send)),
    };
    let pause = Pause::new("no paper", "ops@example.org").stage(Step::Send);
    Staged::pause(&mut connection, pause).unwrap();
    let drained = Staged::drain(&mut connection, &handler).unwrap();
    assert_eq!(
        drained.attempts.iter().map(|attempt| (attempt.stage, attempt.end)).collect::<Vec<_>>(),
        [(Some("RENDER"), AttemptEnd::Advanced)]
    );
    testing::freeze(&mut connection).unwrap();
    assert_eq!(Staged::drain(&mut connection, &handler).unwrap().attempts, []);
}

#[test]
fn turns_and_places_are_kept_while_a_row_waits_for_its_retry() {
    // Two rows of company 1, whose first one fails, and one of company 2.
    let (mut connection, _database) = desk!(InTurn, &[1, 1, 2]);
    let fails = |row: &InTurn, _: &mut Message<'_, Conn>| match row.id {
        1 => Err(Failure::retry(std::io::Error::other("not yet"))),
        _ => Ok(Outcome::Done),
    };
    let drained = InTurn::drain(&mut connection, &fails).unwrap();
    assert_eq!(keys(&drained).iter().filter(|key| **key == "1").count(), 1, "{drained}");
    assert!(keys(&drained).contains(&"3"), "{drained}");
    let (mut connection, _database) = desk!(AtMost, &[1, 1, 2]);
    let done = |_: &AtMost, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    assert_eq!(AtMost::drain(&mut connection, &done).unwrap().succeeded(), 3);
    let (mut connection, _database) = desk!(Alone, &[1, 1, 2]);
    let done = |_: &Alone, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    assert_eq!(keys(&Alone::drain(&mut connection, &done).unwrap()), ["1", "2", "3"]);
}

#[test]
fn an_order_and_a_condition_decide_which_rows_come() {
    let (mut connection, _database) = desk!(Ordered, &[30, 10, 20]);
    let done = |_: &Ordered, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    assert_eq!(keys(&Ordered::drain(&mut connection, &done).unwrap()), ["2", "3", "1"]);
    let (mut connection, _database) = desk!(Conditional, &[3, 7]);
    let done = |_: &Conditional, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    assert_eq!(keys(&Conditional::drain(&mut connection, &done).unwrap()), ["2"]);
}

#[test]
fn a_schedule_runs_as_often_as_its_times_come() {
    let migrations = Migrations::new().entity::<Periodic>();
    let (mut connection, _database) = desk(migrations, &[1], |connection, id, company| {
        testing::travel_to(connection, "2031-05-06T12:00:00Z".parse::<DateTime<Utc>>().unwrap()).unwrap();
        diesel::insert_into(jobs::table)
            .values((
                (jobs::id.eq(id), jobs::company_id.eq(company), Periodic::due_now()),
                (periodic_queue::cron.eq("0 3 * * *"), periodic_queue::time_zone.eq("Europe/Berlin")),
            ))
            .execute(connection)
            .unwrap();
    });
    let done = |_: &Periodic, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let week: DateTime<Utc> = "2031-05-09T12:00:00Z".parse().unwrap();
    let drained =
        testing::on(&mut connection).serve::<Periodic>(&done).unwrap().until(week).drain_until_idle().unwrap();
    let next: Vec<_> = drained.attempts.iter().map(|attempt| attempt.next.unwrap().to_rfc3339()).collect();
    assert_eq!(next, [7, 8, 9, 10].map(|day| format!("2031-05-{day:02}T01:00:00+00:00")), "{drained}");
}

#[test]
fn stored_times_are_those_of_the_clock() {
    let (mut connection, _database) = desk!(Timed, &[1]);
    let then: DateTime<Utc> = "2031-05-06T12:00:00Z".parse().unwrap();
    testing::travel_to(&mut connection, then).unwrap();
    testing::freeze(&mut connection).unwrap();
    let now = testing::now(&mut connection).unwrap();
    let done = |_: &Timed, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    assert_eq!(Timed::drain(&mut connection, &done).unwrap().succeeded(), 1);
    let times =
        (timed_queue::last_attempt_time, timed_queue::begin_time, timed_queue::end_time, timed_queue::updated_time);
    type Stored = Option<DateTime<Utc>>;
    let stored: (Stored, Stored, Stored, Stored) = jobs::table.select(times).get_result(&mut connection).unwrap();
    assert_eq!([stored.0, stored.1, stored.2, stored.3], [Some(now); 4]);
}

#[test]
fn a_row_that_is_asked_for_is_worked_and_no_other_one_of_its_lane_in_its_place() {
    let (mut connection, _database) = desk!(InTurn, &[1, 1, 1, 2]);
    let done = |_: &InTurn, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let attempted = InTurn::attempt(&mut connection, &done, &2).unwrap();
    assert_eq!((&*attempted.attempt.key, attempted.before.0.id), ("2", 2));
    assert_eq!(keys(&InTurn::drain_where(&mut connection, &done, jobs::id.eq(3)).unwrap()), ["3"]);
    assert_eq!(InTurn::queue().due().count(&mut connection).unwrap(), 2);
}

#[test]
fn a_claim_that_finds_nothing_in_a_lane_commits_nothing() {
    let (mut connection, database) = desk!(Strict, &[1, 1, 2]);
    let fails = |row: &Strict, _: &mut Message<'_, Conn>| match row.id {
        1 => Err(Failure::retry(std::io::Error::other("not yet"))),
        _ => Ok(Outcome::Done),
    };
    let drained = Strict::drain(&mut connection, &fails).unwrap();
    assert_eq!((drained.retried(), drained.succeeded()), (1, 1), "{drained}");
    // Again, with nothing but the row that waits behind the first one.
    assert_eq!(Strict::drain(&mut connection, &fails).unwrap().attempts, []);
    connection.batch_execute("ROLLBACK").unwrap();
    assert_eq!(Strict::queue().count(&mut database.connect()).unwrap(), 0);
}

#[test]
fn a_row_that_a_handler_takes_from_the_next_claim_commits_nothing() {
    let (mut connection, database) = desk!(Plain, &[1, 2, 3]);
    let removes = |row: &Plain, message: &mut Message<'_, Conn>| {
        diesel::delete(jobs::table.find(row.id + 1)).execute(message.connection())?;
        Ok(Outcome::Done)
    };
    assert_eq!(keys(&Plain::drain(&mut connection, &removes).unwrap()), ["1", "3"]);
    connection.batch_execute("ROLLBACK").unwrap();
    assert_eq!(Plain::queue().count(&mut database.connect()).unwrap(), 0);
}

#[test]
fn windows_that_are_never_open_together_do_not_go_round() {
    let (mut connection, _database) = desk!(Nightly, &[]);
    let noon: DateTime<Utc> = "2031-05-06T12:00:00Z".parse().unwrap();
    testing::travel_to(&mut connection, noon).unwrap();
    let done = |_: &Nightly, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    assert_eq!(Nightly::drain_until_idle(&mut connection, &done).unwrap().attempts, []);
    assert_eq!(testing::now(&mut connection).unwrap().hour(), 12, "no row waits for the window");
}
