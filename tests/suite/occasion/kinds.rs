//! What begins a new occasion of a row besides an enqueue: stages, schedules, versions, contents, archives.

use std::sync::Mutex;

use diesel::connection::SimpleConnection;
use diesel::deserialize::FromSqlRow;
use diesel::expression::AsExpression;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_migrations::MigrationHarness;
use queueable::{Failure, HandlerResult, Lease, Message, Migrations, Outcome, Queueable, Stage};

use super::run;
use crate::db::{BIGINT, Conn, Database, TEXT};

diesel::table! {
    things (id) { id -> BigInt, revision -> Nullable<BigInt>, title -> Text, }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, AsExpression, FromSqlRow, Stage)]
#[diesel(sql_type = Text)]
pub(super) enum Step {
    Render,
    #[stage(name = "send it: now")]
    Send,
}

macro_rules! things {
    ($($name:ident($($key:tt)*);)*) => {$(
        #[derive(Debug, Clone, Queryable, Selectable, Queueable)]
        #[diesel(table_name = things)]
        #[queue(retry = fixed("1h"), timeout = "30s", $($key)*)]
        pub(super) struct $name {
            #[expect(dead_code, reason = "its key is the message's")]
            id: i64,
        }
    )*};
}

things! {
    Staged(stage = Step);
    StagedInGroup(module = staged_in_group_queue, stage = Step, group(10));
    StagedLeased(module = staged_leased_queue, stage = Step, lease = "60s");
    Circling(stage = Step, occasion);
    Periodic(periodic, max_tries = 2);
    PeriodicInGroup(module = periodic_in_group_queue, periodic, max_tries = 2, group(10));
    PeriodicLeased(module = periodic_leased_queue, periodic, max_tries = 2, lease = "60s");
    Versioned(version = revision);
    VersionedLeased(module = versioned_leased_queue, version = revision, lease = "60s");
    Changing(rerun_on_change(title));
    ChangingInGroup(module = changing_in_group_queue, rerun_on_change(title), group(10));
    ChangingLeased(module = changing_leased_queue, rerun_on_change(title), lease = "60s");
    Archived(occasion, archive(success = things_done, failed = things_failed));
    Whole(prefix = "q_", stage = Step, version = revision, occasion = "round");
}

/// Makes a database with one thing that is enqueued in this way.
macro_rules! one {
    ($entity:ident, $due:expr) => {{
        let database = Database::new();
        let mut connection = database.connect();
        let columns = format!("id {BIGINT} PRIMARY KEY NOT NULL, revision {BIGINT}, title {TEXT} NOT NULL DEFAULT 'a'");
        connection.batch_execute(&format!("CREATE TABLE things ({columns})")).unwrap();
        connection.run_pending_migrations(Migrations::new().entity::<$entity>()).unwrap();
        connection.batch_execute("INSERT INTO things (id) VALUES (7)").unwrap();
        ($due)(&mut connection);
        database
    }};
}

/// Makes the thing due by the application's own SQL.
macro_rules! make_due {
    ($module:ident) => {
        |connection: &mut Conn| {
            diesel::update(things::table)
                .set($module::next_attempt_time.eq(queueable::columns::Now))
                .execute(connection)
                .unwrap();
        }
    };
}

/// Processes the due rows of an entity, and returns the keys.
macro_rules! keys {
    ($entity:ident on $database:expr, $work:expr) => {{
        let seen: &'static Mutex<Vec<String>> = Box::leak(Box::default());
        let handler = move |_: &$entity, message: &mut Message<'_, Conn>| -> HandlerResult {
            seen.lock().unwrap().push(message.idempotency_key().to_owned());
            $work(seen.lock().unwrap().len())
        };
        run($entity::poller($database.pool(4), handler));
        seen.lock().unwrap().clone()
    }};
    ($entity:ident leased on $database:expr, $work:expr) => {{
        let seen: &'static Mutex<Vec<String>> = Box::leak(Box::default());
        let call = move |_: &$entity, lease: &Lease| -> Result<Outcome, Failure> {
            seen.lock().unwrap().push(lease.idempotency_key().to_owned());
            $work(seen.lock().unwrap().len())
        };
        let apply = |_: &$entity, outcome: &Outcome, _: &mut Message<'_, Conn>| Ok(*outcome);
        run($entity::poller($database.pool(4), (call, apply)));
        seen.lock().unwrap().clone()
    }};
}

fn fails(_: usize) -> HandlerResult {
    Err(Failure::retry("not now"))
}

fn succeeds(_: usize) -> HandlerResult {
    Ok(Outcome::Done)
}

#[test]
fn each_stage_has_its_key() {
    macro_rules! pass {
        ($($entity:tt)*) => {{
            let database = one!(Staged, make_due!(staged_queue));
            assert_eq!(keys!($($entity)* on database, fails), ["things.status:7:stage=RENDER"]);
            make_due!(staged_queue)(&mut database.connect());
            let passes = |run| if run == 1 { Ok(Outcome::next(Step::Send)) } else { Err(Failure::retry("not yet")) };
            let both = ["things.status:7:stage=RENDER", "things.status:7:stage=send%20it%3A%20now"];
            assert_eq!(keys!($($entity)* on database, passes), both);
            make_due!(staged_queue)(&mut database.connect());
            assert_eq!(keys!($($entity)* on database, succeeds), both[1..]);
        }};
    }
    pass!(Staged);
    pass!(StagedInGroup);
    pass!(StagedLeased leased);
}

#[test]
fn a_row_that_comes_to_a_stage_again_has_another_key_where_occasions_are_counted() {
    let database = one!(Circling, make_due!(circling_queue));
    let circles = |run| match run {
        1 => Ok(Outcome::next(Step::Send)),
        2 => Ok(Outcome::next(Step::Render)),
        _ => Ok(Outcome::Done),
    };
    assert_eq!(
        keys!(Circling on database, circles),
        [
            "things.status:7:stage=RENDER",
            "things.status:7:stage=send%20it%3A%20now:occasion=1",
            "things.status:7:stage=RENDER:occasion=2"
        ]
    );
}

#[test]
fn each_run_of_a_schedule_has_its_key() {
    macro_rules! ticks {
        ($($entity:tt)*) => {{
            let database = one!(Periodic, |connection: &mut Conn| {
                let scheduled = (periodic_queue::period.eq(3600_i64), Periodic::due_now());
                diesel::update(things::table).set(scheduled).execute(connection).unwrap();
            });
            let due = make_due!(periodic_queue);
            let first = ["things.status:7"];
            assert_eq!(keys!($($entity)* on database, fails), first);
            due(&mut database.connect());
            assert_eq!(keys!($($entity)* on database, succeeds), first, "the same run");
            due(&mut database.connect());
            let second = ["things.status:7:occasion=1"];
            assert_eq!(keys!($($entity)* on database, fails), second);
            due(&mut database.connect());
            // The run has failed for good, and the schedule goes on.
            assert_eq!(keys!($($entity)* on database, fails), second);
            due(&mut database.connect());
            assert_eq!(keys!($($entity)* on database, succeeds), ["things.status:7:occasion=2"]);
        }};
    }
    ticks!(Periodic);
    ticks!(PeriodicInGroup);
    ticks!(PeriodicLeased leased);
}

#[test]
fn each_version_has_its_key() {
    macro_rules! renew {
        ($($entity:tt)*) => {{
            let database = one!(Versioned, make_due!(versioned_queue));
            let mut connection = database.connect();
            assert_eq!(keys!($($entity)* on database, succeeds), ["things.status:7"], "no version");
            assert!(Versioned::enqueue_if_newer(&mut connection, &7, 3_i64).unwrap());
            assert_eq!(keys!($($entity)* on database, fails), ["things.status:7:version=3"]);
            assert!(!Versioned::enqueue_if_newer(&mut connection, &7, 3_i64).unwrap());
            make_due!(versioned_queue)(&mut connection);
            assert_eq!(keys!($($entity)* on database, succeeds), ["things.status:7:version=3"]);
            assert!(Versioned::enqueue_if_newer(&mut connection, &7, 4_i64).unwrap());
            assert_eq!(keys!($($entity)* on database, succeeds), ["things.status:7:version=4"]);
        }};
    }
    renew!(Versioned);
    renew!(VersionedLeased leased);
}

#[test]
fn each_content_has_its_key() {
    macro_rules! change {
        ($($entity:tt)*) => {{
            let database = one!(Changing, make_due!(changing_queue));
            let mut connection = database.connect();
            assert_eq!(keys!($($entity)* on database, succeeds), ["things.status:7"]);
            connection.batch_execute("UPDATE things SET title = 'b'").unwrap();
            assert_eq!(keys!($($entity)* on database, fails), ["things.status:7:content=1"]);
            make_due!(changing_queue)(&mut connection);
            assert_eq!(keys!($($entity)* on database, succeeds), ["things.status:7:content=1"]);
            connection.batch_execute("UPDATE things SET title = 'a'").unwrap();
            assert_eq!(keys!($($entity)* on database, succeeds), ["things.status:7:content=2"]);
        }};
    }
    change!(Changing);
    change!(ChangingInGroup);
    change!(ChangingLeased leased);
}

#[test]
fn a_failure_comes_back_from_its_archive_as_the_same_occasion_and_a_success_as_another() {
    let database = one!(Archived, make_due!(archived_queue));
    let gives_up = |_| Err(Failure::fatal("never"));
    assert_eq!(keys!(Archived on database, gives_up), ["things.status:7"]);
    assert_eq!(Archived::queue().filter(things::id.eq(7)).redrive(&mut database.connect()).unwrap().rows, 1);
    assert_eq!(keys!(Archived on database, succeeds), ["things.status:7"]);
    assert_eq!(Archived::queue().filter(things::id.eq(7)).redrive_succeeded(&mut database.connect()).unwrap().rows, 1);
    assert_eq!(keys!(Archived on database, succeeds), ["things.status:7:occasion=2"]);
}

#[test]
fn an_entity_may_have_all_of_it_under_names_of_its_own() {
    let database = one!(Whole, make_due!(whole_queue));
    let mut connection = database.connect();
    let set = diesel::update(things::table).set(whole_queue::occasion.eq(5_i64)).execute(&mut connection);
    assert_eq!(set, Ok(1));
    assert!(Whole::enqueue_if_newer(&mut connection, &7, 12_i64).unwrap());
    assert_eq!(keys!(Whole on database, succeeds), ["things.q_status:7:stage=RENDER:version=12:occasion=6"]);
    let occasion: i64 = things::table.select(whole_queue::occasion).first(&mut connection).unwrap();
    assert_eq!(occasion, 7);
    assert_eq!(Whole::queue().filter(things::id.eq(7)).rerun(&mut connection).unwrap(), 1);
    // The application may write the column too, by its name.
    connection.batch_execute("UPDATE things SET round = round + 1").unwrap();
    assert_eq!(keys!(Whole on database, succeeds), ["things.q_status:7:stage=RENDER:version=12:occasion=9"]);
}
