//! Promises that only SQLite makes.

#[path = "chinook_pascal.rs"]
mod chinook;
mod returning;
mod stored_types;
mod transactional_ddl;

use std::fs;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::r2d2::{self, ConnectionManager, CustomizeConnection, Pool};
use diesel::result::Error as DieselError;
use diesel::sql_types::Text;
use diesel_migrations::MigrationHarness;
use queueable::{Entity, Message, Migrations, Outcome, QueueState, Queueable, Stage, Status};

use crate::db::{Conn, Database};
use crate::suite::bank::{Bank, NewPayment, Payment, book, payments};
use crate::suite::names::a_table_elsewhere_works;

/// How long a poller may take to notice a change.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_time_that_is_none_is_an_error_value() {
    let bank = Bank::new();
    bank.enqueue([1]);
    let mut connection = bank.connect();
    for garbage in ["'soon'", "''", "'2026-13-45 99:99:99'", "'1700000000'", "x'ff00'"] {
        connection.batch_execute(&format!("UPDATE payments SET next_attempt_time = {garbage}")).unwrap();
        let state = payments::table.find(1).select(Payment::queue_state()).get_result::<QueueState>(&mut connection);
        assert!(matches!(state, Err(DieselError::DeserializationError(_))), "{garbage}: {state:?}");
    }
}

#[test]
fn a_row_whose_time_is_none_fails_alone() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2, 3]);
    // In the index, each of these stands before every valid time.
    bank.connect()
        .batch_execute(
            "UPDATE payments SET next_attempt_time = '' WHERE id = 1;
             UPDATE payments SET next_attempt_time = '1999-99-99' WHERE id = 2",
        )
        .unwrap();
    let tally = bank.run(book);
    assert_eq!((tally.succeeded, tally.retried), (1, 2));
    assert_eq!(bank.booked(), ids[2..]);
    assert_eq!(bank.state(ids[0]).status, Status::Error);
}

mod loose {
    use diesel::prelude::*;
    use queueable::Queueable;

    diesel::table! {
        letters (id) { id -> Text, }
    }

    #[derive(Debug, Queryable, Selectable, Queueable)]
    #[diesel(table_name = letters)]
    pub(super) struct Letter {
        #[expect(dead_code, reason = "only its queue is worked")]
        id: String,
    }
}

/// Such keys are alike, and none of the rows can be told from the others.
#[test]
fn rows_without_a_key_fail_together_and_keep_no_other() {
    let database = Database::new();
    let mut connection = database.connect();
    connection.batch_execute("CREATE TABLE letters (id TEXT PRIMARY KEY)").unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<loose::Letter>()).unwrap();
    let due = "strftime('%Y-%m-%d %H:%M:%f', 'now'";
    let insert = format!(
        "INSERT INTO letters (id, next_attempt_time)
         VALUES (NULL, {due}, '-1 minute')), (NULL, {due}, '-1 minute')), ('a', {due}))"
    );
    connection.batch_execute(&insert).unwrap();
    let handler = |_: &loose::Letter, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let tally = loose::Letter::poller(database.pool(2), handler).workers(1).run_until_idle().unwrap();
    assert_eq!(tally.succeeded, 1, "{tally:?}");
    let left = sql::<Text>("SELECT COALESCE(id, '') || ' ' || status FROM letters ORDER BY id");
    assert_eq!(left.load::<String>(&mut connection).unwrap(), [" FAILED", " FAILED", "a SUCCESS"]);
}

/// Attaches a second file to every connection.
#[derive(Debug)]
struct Attached(String);

impl CustomizeConnection<Conn, r2d2::Error> for Attached {
    fn on_acquire(&self, connection: &mut Conn) -> Result<(), r2d2::Error> {
        let attach = format!("PRAGMA busy_timeout = 5000; ATTACH '{}' AS queueable_elsewhere", self.0);
        connection.batch_execute(&attach).map_err(r2d2::Error::QueryError)
    }
}

#[test]
fn a_table_in_an_attached_database_works() {
    let (main, attached) = (Database::new(), Database::new());
    let pool = Pool::builder()
        .max_size(4)
        .connection_customizer(Box::new(Attached(attached.url().to_owned())))
        .build(ConnectionManager::new(main.url()))
        .unwrap();
    a_table_elsewhere_works(&pool);
}

#[test]
fn a_poller_goes_on_in_the_file_that_is_put_in_the_place_of_its_own() {
    let bank = Bank::new();
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let handler = move |payment: &Payment, message: &mut Message<'_, Conn>| {
        let booked = book(payment, message);
        let _ = tell.lock().unwrap().send(payment.amount_cents);
        booked
    };
    let poller = Payment::poller(bank.pool(2), handler).workers(2).poll_interval(Duration::from_millis(50));
    let handle = poller.start().unwrap();
    bank.enqueue([1]);
    assert_eq!(told.recv_timeout(PATIENCE), Ok(1));
    // The handler reports before its message is committed.
    let (_nobody, pace) = mpsc::channel::<()>();
    while handle.tally().succeeded < 1 {
        let _ = pace.recv_timeout(Duration::from_millis(10));
    }

    let restored = format!("{}.restored", bank.database.url());
    bank.connect().batch_execute(&format!("VACUUM INTO '{restored}'")).unwrap();
    let due = (NewPayment { company_id: 1, amount_cents: 2 }, Payment::due_now());
    diesel::insert_into(payments::table).values(due).execute(&mut Conn::establish(&restored).unwrap()).unwrap();
    for beside in ["-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{beside}", bank.database.url()));
    }
    fs::rename(&restored, bank.database.url()).unwrap();
    assert_eq!(told.recv_timeout(PATIENCE), Ok(2), "it is in the new file only");
    bank.enqueue([3]);
    assert_eq!(told.recv_timeout(PATIENCE), Ok(3));
    handle.shutdown(PATIENCE);
    assert_eq!(bank.booked().len(), 3);
}

diesel::table! { reports (id) { id -> BigInt, team -> BigInt, body -> Text, } }

macro_rules! report {
    ($name:ident, $module:ident, $($settings:tt)*) => {
        #[derive(Debug, Queryable, Selectable, Queueable)]
        #[diesel(table_name = reports)]
        #[queue(module = $module, $($settings)*)]
        struct $name {
            #[allow(dead_code, reason = "nobody reads it but the queue")]
            id: i64,
        }
    };
}

report!(Plain, plain_queue, retry = fixed("1h"));
report!(Periodic, periodic_queue, periodic);
report!(Rerun, rerun_queue, rerun_on_change(body));
report!(Occasional, occasional_queue, occasion, timestamps);
report!(Urgent, urgent_queue, priority);
report!(Staged, staged_queue, stage = ReportStage);
report!(Serial, serial_queue, serial_by(team, strict));
report!(Archived, archived_queue, archive(success = reports_done));

#[derive(Debug, Clone, Copy, PartialEq, Eq, Stage)]
enum ReportStage {
    Write,
}

diesel::table! { reports_done (id) { id -> BigInt, team -> BigInt, body -> Text, } }

/// STRICT tables know five types only.
#[test]
fn a_strict_table_is_any_kind_of_queue() {
    macro_rules! works {
        ($($entity:ident)*) => {$({
            let database = Database::new();
            let mut connection = database.connect();
            let table = "CREATE TABLE reports (id INTEGER PRIMARY KEY NOT NULL, team INTEGER NOT NULL, body TEXT NOT NULL) STRICT";
            connection.batch_execute(table).unwrap();
            let migrations = || Migrations::new().entity::<$entity>();
            connection.run_pending_migrations(migrations()).unwrap_or_else(|error| panic!("{}: {error}", $entity::ENTITY));
            let row = (reports::id.eq(1), reports::team.eq(7), reports::body.eq("draft"), $entity::due_now());
            diesel::insert_into(reports::table).values(row).execute(&mut connection).unwrap();
            let handler = |_: &$entity, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
            let tally = $entity::poller(database.pool(2), handler).workers(1).run_until_idle().unwrap();
            assert_eq!((tally.succeeded, tally.failed, tally.retried), (1, 0, 0), "{}: {tally:?}", $entity::ENTITY);
            connection.revert_last_migration(migrations()).unwrap();
        })*};
    }
    works!(Plain Periodic Rerun Occasional Urgent Staged Serial Archived);
}

#[test]
fn what_a_check_recommends_for_a_strict_table_can_be_run() {
    let database = Database::new();
    let mut connection = database.connect();
    let table =
        "CREATE TABLE reports (id INTEGER PRIMARY KEY NOT NULL, team INTEGER NOT NULL, body TEXT NOT NULL) STRICT";
    connection.batch_execute(table).unwrap();
    for finding in Periodic::check_schema(&mut connection).unwrap() {
        connection.batch_execute(&finding.mend).unwrap_or_else(|error| panic!("{finding:?}: {error}"));
    }
    assert_eq!(Periodic::check_schema(&mut connection).unwrap(), []);
}

diesel::table! { parcels (id) { id -> BigInt, zip -> Text, } }

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = parcels)]
#[queue(serial_by = zip)]
struct Parcel {
    #[allow(dead_code, reason = "nobody reads it but the queue")]
    id: i64,
}

/// A column of type STRING has the affinity of numbers, which turns the text into one.
#[test]
fn a_text_by_which_rows_are_scheduled_may_be_stored_as_a_number() {
    let database = Database::new();
    let mut connection = database.connect();
    connection.batch_execute("CREATE TABLE parcels (id INTEGER PRIMARY KEY NOT NULL, zip STRING NOT NULL)").unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Parcel>()).unwrap();
    for (id, zip) in [(1, "8010"), (2, "007"), (3, "1.5"), (4, "A-8010")] {
        let row = (parcels::id.eq(id), parcels::zip.eq(zip), Parcel::due_now());
        diesel::insert_into(parcels::table).values(row).execute(&mut connection).unwrap();
    }
    let handler = |_: &Parcel, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let tally = Parcel::poller(database.pool(2), handler).workers(1).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.failed), (4, 0), "{tally:?}");
}

mod unequal {
    use diesel::prelude::*;
    use queueable::Queueable;

    diesel::table! {
        visits (id) { id -> BigInt, code -> Text, }
    }

    #[derive(Debug, Queryable, Selectable, Queueable)]
    #[diesel(table_name = visits)]
    #[queue(fair_by = code)]
    pub(super) struct Visit {
        #[expect(dead_code, reason = "only its queue is checked")]
        id: i64,
    }
}

/// A pause of one of them would not be one of the other, and a claim of one would take both.
#[test]
fn rows_take_no_turns_by_texts_that_a_collation_calls_equal() {
    let database = Database::new();
    let mut connection = database.connect();
    let create = "CREATE TABLE visits (id INTEGER PRIMARY KEY, code TEXT NOT NULL COLLATE NOCASE)";
    connection.batch_execute(create).unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<unequal::Visit>()).unwrap();
    let handler = |_: &unequal::Visit, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let refused = unequal::Visit::poller(database.pool(2), handler).workers(1).run_until_idle().unwrap_err();
    assert!(refused.to_string().contains("the column code, by which the rows of"), "{refused}");
    assert!(refused.to_string().contains("NOCASE"), "{refused}");
}
