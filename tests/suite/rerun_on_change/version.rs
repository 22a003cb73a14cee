//! Enqueueing by version: news that arrives late or twice changes nothing.

use std::sync::{Arc, Mutex};

use chrono::{NaiveDate, NaiveDateTime, TimeDelta};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use queueable::{Lease, Message, Migrations, Outcome, Queueable, Status};

use crate::db::{BIGINT, Conn, Database};

diesel::table! {
    parcels (id) {
        id -> BigInt,
        revision -> Nullable<BigInt>,
    }
}

diesel::table! {
    letters (id) {
        id -> BigInt,
        changed_at -> Timestamp,
    }
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = parcels)]
#[queue(version = revision, timestamps(updated), timeout = "30s")]
struct Parcel {
    id: i64,
    revision: Option<i64>,
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = parcels)]
#[queue(version = revision, timestamps(updated), module = leased_parcel_queue, lease = "60s")]
struct LeasedParcel {
    id: i64,
    revision: Option<i64>,
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = letters)]
#[queue(version = changed_at)]
#[expect(dead_code, reason = "it is enqueued, and never read")]
struct Letter {
    id: i64,
}

fn parcels() -> Database {
    let database = Database::new();
    let mut connection = database.connect();
    connection
        .batch_execute(&format!("CREATE TABLE parcels (id {BIGINT} PRIMARY KEY NOT NULL, revision {BIGINT})"))
        .unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Parcel>()).unwrap();
    connection.batch_execute("INSERT INTO parcels (id) VALUES (1), (2)").unwrap();
    database
}

fn state(connection: &mut Conn, id: i64) -> queueable::QueueState {
    parcels::table.find(id).select(Parcel::queue_state()).get_result(connection).unwrap()
}

#[test]
fn a_newer_version_makes_a_row_due_and_an_older_or_the_same_changes_nothing() {
    let database = parcels();
    let mut connection = database.connect();
    assert!(Parcel::enqueue_if_newer(&mut connection, &1, 5).unwrap());
    connection.batch_execute("UPDATE parcels SET status = 'FAILED', try_count = 7, next_attempt_time = NULL").unwrap();
    let before = state(&mut connection, 1);
    for old in [5, 4, -1] {
        assert!(!Parcel::enqueue_if_newer(&mut connection, &1, old).unwrap());
        assert_eq!(state(&mut connection, 1), before);
    }
    assert!(Parcel::enqueue_if_newer(&mut connection, &1, 6).unwrap());
    let now = state(&mut connection, 1);
    assert_eq!((now.status, now.try_count, now.next_attempt_time.is_some()), (Status::NotAttempted, 0, true));
    assert!(!Parcel::enqueue_if_newer(&mut connection, &3, 6).unwrap(), "there is no such row");
    let touched: Vec<i64> = parcels::table
        .filter(parcel_queue::updated_time.is_not_null())
        .select(parcels::id)
        .load(&mut connection)
        .unwrap();
    assert_eq!(touched, [1]);
}

#[test]
fn the_insert_of_a_row_that_is_there_already_changes_nothing() {
    let database = parcels();
    let mut connection = database.connect();
    let add = |connection: &mut Conn| {
        let values = (parcels::id.eq(3), parcels::revision.eq(1), Parcel::due_now());
        diesel::insert_into(parcels::table).values(values).on_conflict_do_nothing().execute(connection).unwrap();
    };
    let run = || {
        let done = |_: &Parcel, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
        Parcel::poller(database.pool(3), done).workers(1).run_until_idle().unwrap().succeeded
    };
    add(&mut connection);
    add(&mut connection);
    assert_eq!(run(), 1);
    let before = state(&mut connection, 3);
    add(&mut connection);
    assert_eq!(run(), 0);
    assert_eq!((state(&mut connection, 3), before.status), (before, Status::Success));
}

#[test]
fn a_skipped_row_stays_skipped() {
    let database = parcels();
    let mut connection = database.connect();
    Parcel::queue().filter(parcels::id.eq(1)).skip(&mut connection).unwrap();
    assert!(!Parcel::enqueue_if_newer(&mut connection, &1, 5).unwrap());
    assert_eq!(state(&mut connection, 1).status, Status::Skipped);
}

#[test]
fn a_stopped_row_takes_the_version_and_waits_to_be_restarted() {
    let database = parcels();
    let mut connection = database.connect();
    for before in [
        "status = 'NOT_ATTEMPTED', last_attempt_error_message = NULL",
        "status = 'ERROR', try_count = 2, last_attempt_error_message = 'no route'",
        "status = 'IN_PROGRESS', last_attempt_error_message = NULL",
    ] {
        connection
            .batch_execute(&format!(
                "UPDATE parcels SET revision = NULL, next_attempt_time = '2030-01-01 12:00:00', {before}"
            ))
            .unwrap();
        Parcel::queue().all_rows().stop(&mut connection).unwrap();
        assert!(Parcel::enqueue_if_newer(&mut connection, &1, 5).unwrap());
        let stopped = state(&mut connection, 1);
        assert_eq!((stopped.status, stopped.try_count, stopped.next_attempt_time), (Status::NotAttempted, 0, None));
        assert!(!Parcel::enqueue_if_newer(&mut connection, &1, 5).unwrap());
        assert_eq!(Parcel::queue().filter(parcels::id.eq(1)).restart(&mut connection).unwrap(), 1);
        assert!(state(&mut connection, 1).next_attempt_time.is_some());
    }
}

#[test]
fn in_whatever_order_versions_arrive_the_newest_is_worked_last() {
    let database = parcels();
    let pool = database.pool(3);
    let mut runner = TestRunner::new(Config { cases: 12, ..Config::default() });
    let arrivals = prop::collection::vec((any::<bool>(), 1i64..8, any::<bool>()), 1..10);
    let result = runner.run(&arrivals, |arrivals| {
        let mut connection = database.connect();
        connection.batch_execute("DELETE FROM parcels; INSERT INTO parcels (id) VALUES (1), (2)").unwrap();
        let worked = Arc::new(Mutex::new([Vec::new(), Vec::new()]));
        let work = || {
            let worked = worked.clone();
            Parcel::poller(pool.clone(), move |parcel: &Parcel, _: &mut Message<'_, Conn>| {
                worked.lock().unwrap()[usize::from(parcel.id == 2)].push(parcel.revision);
                Ok(Outcome::Done)
            })
            .workers(1)
            .run_until_idle()
            .unwrap();
        };
        let mut newest = [None, None];
        for (second, version, works) in arrivals {
            let newest = &mut newest[usize::from(second)];
            let enqueued = Parcel::enqueue_if_newer(&mut connection, &(1 + i64::from(second)), version).unwrap();
            prop_assert_eq!(enqueued, newest.is_none_or(|newest| version > newest));
            *newest = (*newest).max(Some(version));
            if works {
                work();
            }
        }
        work();
        for (worked, newest) in worked.lock().unwrap().iter().zip(newest) {
            prop_assert_eq!(worked.last().copied().flatten(), newest);
            prop_assert!(worked.is_sorted_by(|one, next| one < next), "an old version after a new one: {:?}", worked);
        }
        Ok(())
    });
    result.unwrap();
}

#[test]
fn a_lease_on_an_older_version_is_lost_and_its_answer_is_not_written() {
    let database = Arc::new(parcels());
    let mut connection = database.connect();
    assert!(LeasedParcel::enqueue_if_newer(&mut connection, &1, 1).unwrap());
    let (within, written) = (database.clone(), Arc::new(Mutex::new(Vec::new())));
    let applied = written.clone();
    let handler = (
        move |parcel: &LeasedParcel, _: &Lease| {
            if parcel.revision == Some(1) {
                assert!(LeasedParcel::enqueue_if_newer(&mut within.connect(), &parcel.id, 2)?);
            }
            Ok(())
        },
        move |parcel: &LeasedParcel, _: &(), _: &mut Message<'_, Conn>| {
            applied.lock().unwrap().push(parcel.revision);
            Ok(Outcome::Done)
        },
    );
    let tally = LeasedParcel::poller(database.pool(3), handler).workers(1).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.lost), (1, 1));
    assert_eq!(*written.lock().unwrap(), [Some(2)]);
    assert_eq!((state(&mut connection, 1).status, state(&mut connection, 1).try_count), (Status::Success, 1));
}

#[test]
fn a_version_may_be_a_time() {
    let database = Database::new();
    let mut connection = database.connect();
    connection
        .batch_execute(&format!(
            "CREATE TABLE letters (id {BIGINT} PRIMARY KEY NOT NULL, changed_at TIMESTAMP NOT NULL);
             INSERT INTO letters VALUES (1, '2026-03-01 12:00:00')"
        ))
        .unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Letter>()).unwrap();
    let noon: NaiveDateTime = NaiveDate::from_ymd_opt(2026, 3, 1).unwrap().and_hms_opt(12, 0, 0).unwrap();
    assert!(!Letter::enqueue_if_newer(&mut connection, &1, noon - TimeDelta::hours(1)).unwrap());
    assert!(Letter::enqueue_if_newer(&mut connection, &1, noon + TimeDelta::hours(1)).unwrap());
    assert!(!Letter::enqueue_if_newer(&mut connection, &1, noon + TimeDelta::hours(1)).unwrap());
}
