//! Promises that only MySQL and MariaDB make.

mod busy_table;
#[path = "chinook_pascal.rs"]
mod chinook;
mod group_locks;
mod hidden_index;
mod isolation;
mod low_water;
mod prepared_statements;
mod roles;
mod row_locks;
mod sql_modes;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use diesel::connection::SimpleConnection;
use diesel::dsl::{DuplicatedKeys, sql};
use diesel::prelude::*;
use diesel::r2d2::{self, ConnectionManager, CustomizeConnection, Pool};
use diesel::result::Error as DieselError;
use diesel::sql_types::{BigInt, Bool, Text};
use diesel_migrations::MigrationHarness;
use queue_core::internals::backend::Schema;
use queueable::{Error, Event, Lease, Message, Migrations, Outcome, QueueState, Queueable, Status};

use self::prepared_statements::kept;
use crate::db::{Conn, Database, PrivateServer, initialize, is_mariadb};
use crate::suite::bank::{Bank, NewPayment, Payment, book, payment_queue, payments};
use crate::suite::events::{PATIENCE, await_event, listener};
use crate::suite::group;
use crate::suite::keyed::erased;
use crate::suite::lease::{self, Charge};
use crate::suite::names::a_table_elsewhere_works;
use crate::suite::rerun_on_change::{Document, Library};
use crate::suite::warnings::{is_told, keep_warnings};

/// Payments whose reports are by company.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = reported_queue, report_index = company_id)]
#[allow(dead_code, reason = "no row of it is loaded")]
struct Reported {
    id: i64,
}

/// Writes the zero date, which strict mode refuses.
fn zero_date(bank: &Bank, id: i64) {
    bank.connect()
        .batch_execute(&format!(
            "SET SESSION sql_mode = ''; UPDATE payments SET next_attempt_time = '0000-00-00' WHERE id = {id}"
        ))
        .unwrap();
}

#[test]
fn a_zero_date_is_an_error_value() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    zero_date(&bank, id);
    let state = payments::table.find(id).select(Payment::queue_state()).get_result::<QueueState>(&mut bank.connect());
    assert!(matches!(state, Err(DieselError::DeserializationError(_))), "{state:?}");
}

#[test]
fn a_row_with_a_zero_date_fails_alone() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2]);
    zero_date(&bank, ids[0]);
    let tally = bank.run(book);
    assert_eq!((tally.succeeded, tally.retried), (1, 1));
    assert_eq!(bank.booked(), ids[1..]);
    assert_eq!(bank.state(ids[0]).status, Status::Error);
}

/// Returns how many statements the session has run.
fn questions(connection: &mut Conn) -> QueryResult<i64> {
    let room = if is_mariadb() { "information_schema" } else { "performance_schema" };
    let number =
        format!("(SELECT CAST(VARIABLE_VALUE AS SIGNED) FROM {room}.session_status WHERE VARIABLE_NAME = 'Questions')");
    diesel::select(sql::<BigInt>(&number)).get_result(connection)
}

/// From one handler to the next, with the one question that the handler asks. On MySQL the client announces four times whether
/// a text may have several statements.
#[test]
fn a_message_is_as_few_statements_as_ever() {
    let bank = Bank::new();
    bank.enqueue(1..=30);
    let counts = Arc::new(Mutex::new(Vec::new()));
    let seen = counts.clone();
    let handler = move |_: &Payment, message: &mut Message<'_, Conn>| {
        seen.lock().unwrap().push(questions(message.connection())?);
        Ok(Outcome::Done)
    };
    assert_eq!(bank.poller(handler).workers(1).run_until_idle().unwrap().succeeded, 30);
    let mut costs: Vec<_> = counts.lock().unwrap().windows(2).map(|pair| pair[1] - pair[0]).collect();
    costs.sort_unstable();
    assert_eq!(costs[costs.len() / 2], if is_mariadb() { 4 } else { 11 }, "{costs:?}");
}

/// With such a limit MySQL evaluates nothing in a `SELECT`, nor in a `DO`. The blocks by which messages end on MariaDB do not see
/// the limit: there it stays for the session's later messages.
#[test]
fn a_limit_of_no_rows_on_mysql_hides_neither_itself_nor_a_row_that_the_handler_has_changed() {
    if is_mariadb() {
        return;
    }
    let bank = Bank::new();
    let ids = bank.enqueue(1..=4);
    let handler = |payment: &Payment, message: &mut Message<'_, Conn>| {
        if payment.amount_cents < 3 {
            message.connection().batch_execute("SET SESSION sql_select_limit = 0")?;
        }
        if payment.amount_cents == 2 {
            let changed = diesel::update(payments::table.find(payment.id)).set(payment_queue::try_count.eq(7));
            changed.execute(message.connection())?;
        }
        book(payment, message)
    };
    let tally = bank.poller(handler).workers(1).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.retried), (3, 1), "{tally:?}");
    assert_eq!(bank.booked(), [ids[0], ids[2], ids[3]]);
}

/// As a pool does that makes a temporary table in each of its sessions.
#[derive(Debug)]
struct Shadowed;

impl CustomizeConnection<Conn, r2d2::Error> for Shadowed {
    fn on_acquire(&self, connection: &mut Conn) -> Result<(), r2d2::Error> {
        let shadow = "CREATE TEMPORARY TABLE payments SELECT * FROM payments";
        connection.batch_execute(shadow).map_err(r2d2::Error::QueryError)
    }
}

#[test]
fn a_temporary_table_before_that_of_the_queue_is_refused_at_start() {
    let bank = Bank::new();
    bank.enqueue([1]);
    let manager = ConnectionManager::<Conn>::new(bank.database.url());
    let pool = Pool::builder().max_size(5).connection_customizer(Box::new(Shadowed)).build(manager).unwrap();
    let found = match Payment::poller(pool, book).run_until_idle() {
        Err(Error::Unsafe(found)) => found,
        other => panic!("{other:?}"),
    };
    assert!(found[0].problem.contains("is a temporary table, and a queue needs an ordinary table"), "{found:?}");
}

#[test]
fn a_system_versioned_table_is_a_queue_like_any_other() {
    if !is_mariadb() {
        return;
    }
    let bank = Bank::before_the_queue();
    let mut connection = bank.connect();
    connection.batch_execute("ALTER TABLE payments ADD SYSTEM VERSIONING").unwrap();
    let migrations = || Migrations::new().entity::<Payment>();
    let error = connection.run_pending_migrations(migrations()).unwrap_err().to_string();
    assert!(error.contains("system_versioning_alter_history"), "the server says what to set: {error}");
    connection.batch_execute("SET SESSION system_versioning_alter_history = KEEP").unwrap();
    connection.run_pending_migrations(migrations()).unwrap();
    let ids = bank.enqueue([1, 2, 3]);
    let tally = bank.run(book);
    assert_eq!((tally.succeeded, tally.interrupted), (3, 0), "{tally:?}");
    assert_eq!(bank.booked(), ids);
}

/// MariaDB has no such state of a database.
#[test]
fn a_database_that_mysql_makes_read_only_costs_no_try() {
    if is_mariadb() {
        return;
    }
    keep_warnings();
    let bank = Arc::new(Bank::new());
    let name: String = diesel::select(sql::<Text>("DATABASE()")).get_result(&mut bank.connect()).unwrap();
    let make =
        move |bank: &Bank, state| bank.connect().batch_execute(&format!("ALTER DATABASE `{name}` READ ONLY = {state}"));
    make(&bank, 1).unwrap();
    let Err(Error::Unsafe(found)) = bank.poller(book).start() else { panic!("it started") };
    assert!(found[0].problem.starts_with("the database takes no writes: Schema '"), "{found:?}");
    make(&bank, 0).unwrap();

    // The server waits for the transaction of the first payment, which has all the locks that it needs, and lets no other one write
    // before it has changed the database.
    let ids = bank.enqueue([1, 2]);
    let (listener, heard) = listener();
    let (seen, change, changing) = (bank.clone(), make.clone(), Arc::new(Mutex::new(None)));
    let (changed, is_first) = (changing.clone(), AtomicBool::new(true));
    let handler = move |payment: &Payment, message: &mut Message<'_, Conn>| {
        let booked = book(payment, message);
        if is_first.swap(false, Ordering::SeqCst) {
            let (bank, change) = (seen.clone(), change.clone());
            let waiting = thread::spawn(move || change(&bank, 1));
            let mut connection = seen.connect();
            while diesel::select(sql::<BigInt>(CHANGE_WAITS)).get_result(&mut connection) != Ok(1_i64) {
                assert!(!waiting.is_finished(), "the change does not wait");
            }
            *changing.lock().unwrap() = Some(waiting);
        }
        booked
    };
    let handle = bank.poller(handler).workers(1).on_event(listener).start().unwrap();
    let succeeded = |event: &Event| matches!(event, Event::Succeeded(attempt) if attempt.try_number == 1);
    await_event(&heard, succeeded);
    changed.lock().unwrap().take().unwrap().join().unwrap().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !is_told(&["WARN", "no message can be claimed", "is in read only mode"]) {
        assert!(Instant::now() < deadline, "nobody is told");
        let _ = heard.recv_timeout(Duration::from_millis(20));
    }
    make(&bank, 0).unwrap();
    await_event(&heard, succeeded);
    handle.shutdown(PATIENCE);
    assert_eq!(bank.booked(), ids);
}

/// Counts the changes of the test's database that wait for transactions.
const CHANGE_WAITS: &str = "(SELECT COUNT(*) FROM information_schema.processlist \
     WHERE db = DATABASE() AND state LIKE 'Waiting for%metadata lock' AND info LIKE 'ALTER DATABASE%')";

diesel::table! {
    visits (id) {
        id -> BigInt,
    }
}

diesel::table! {
    visits_done (id) {
        id -> BigInt,
    }
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = visits)]
#[queue(archive(success = visits_done), timeout = "30s")]
struct Visit {
    #[expect(dead_code, reason = "nobody asks for it")]
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = visits)]
#[queue(prefix = "round_", periodic, timeout = "30s")]
struct Round {
    #[expect(dead_code, reason = "nobody asks for it")]
    id: i64,
}

/// An application that is not strict stores zero dates, in columns that are no business of the queue's.
#[test]
fn a_zero_date_of_the_applications_own_keeps_no_row_from_its_end() {
    let database = Database::new();
    let mut connection = database.connect();
    let table = "CREATE TABLE visits (id BIGINT PRIMARY KEY, seen DATETIME NOT NULL, left_at DATETIME NOT NULL)";
    connection.batch_execute(table).unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Visit>().entity::<Round>()).unwrap();
    connection
        .batch_execute(
            "SET SESSION sql_mode = '';
             INSERT INTO visits (id, seen, left_at, next_attempt_time, round_next_attempt_time)
             VALUES (1, '0000-00-00', '2026-00-00', '2026-01-01', '2026-01-01')",
        )
        .unwrap();
    let round = Round::poller(database.pool(2), |_: &Round, _: &mut Message<'_, Conn>| Ok(Outcome::Done));
    assert_eq!(round.workers(1).run_until_idle().unwrap().succeeded, 1);
    let visit = Visit::poller(database.pool(2), |_: &Visit, _: &mut Message<'_, Conn>| Ok(Outcome::Done));
    assert_eq!(visit.workers(1).run_until_idle().unwrap().succeeded, 1);
    let moved = visits_done::table.filter(sql::<Bool>("seen = 0 AND CAST(left_at AS CHAR) LIKE '2026-00-00%'"));
    assert_eq!(moved.count().get_result::<i64>(&mut connection), Ok(1));
}

#[test]
fn a_conflict_leaves_the_row_alone_or_enqueues_it_anew() {
    let bank = Bank::new();
    let mut connection = bank.connect();
    let id = bank.enqueue([100])[0];
    diesel::update(payments::table.find(id))
        .set((payment_queue::status.eq(Status::Error), payment_queue::try_count.eq(7)))
        .execute(&mut connection)
        .unwrap();
    let row = (payments::id.eq(id), NewPayment { company_id: 1, amount_cents: 200 }, Payment::due_now());
    let ignored = diesel::insert_or_ignore_into(payments::table).values(row.clone()).execute(&mut connection);
    assert_eq!((ignored, bank.state(id).try_count), (Ok(0), 7));
    diesel::insert_into(payments::table)
        .values(row)
        .on_conflict(DuplicatedKeys)
        .do_update()
        .set((payments::amount_cents.eq(200), Payment::due_now()))
        .execute(&mut connection)
        .unwrap();
    assert_eq!((bank.state(id).status, bank.state(id).try_count), (Status::NotAttempted, 0));
}

#[test]
fn a_time_beyond_datetime_is_refused_without_strict_mode_too() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    let before = bank.state(id);
    let mut connection = bank.connect();
    connection.batch_execute("SET SESSION sql_mode = ''").unwrap();
    for time in [DateTime::<Utc>::MAX_UTC, DateTime::<Utc>::MIN_UTC] {
        let written = diesel::update(payments::table.find(id)).set(Payment::due_at(time)).execute(&mut connection);
        assert!(matches!(written, Err(DieselError::SerializationError(_))), "{time}: {written:?}");
    }
    assert_eq!(bank.state(id), before);
}

#[test]
fn a_table_that_is_locked_as_a_whole_is_not_waited_for_without_bound() {
    let bank = Bank::new();
    bank.enqueue([1]);
    let mut holder = bank.connect();
    holder.batch_execute("LOCK TABLES payments READ").unwrap();
    let refused = Payment::queue().all_rows().wait(Duration::from_millis(50)).retry_now(&mut bank.connect());
    assert!(matches!(refused, Err(Error::Held(_))), "{refused:?}");
    drop(holder);
    assert_eq!(Payment::queue().all_rows().retry_now(&mut bank.connect()).unwrap(), 1);
}

#[test]
fn an_engine_without_transactions_is_named_and_mended() {
    let bank = Bank::new();
    let mut connection = bank.connect();
    connection.batch_execute("ALTER TABLE payments ENGINE = MyISAM").unwrap();
    let Err(Error::Unsafe(found)) = bank.poller(book).start() else { panic!("it started") };
    assert_eq!(found.len(), 1);
    assert!(found[0].problem.ends_with("uses the engine MyISAM, which has no transactions"), "{found:?}");
    connection.batch_execute(&found[0].mend).unwrap();
    bank.enqueue([1]);
    assert_eq!(bank.run(book).succeeded, 1);
}

/// A second database beside the test's own, dropped with the value.
struct Elsewhere<'a>(&'a Database);

impl Drop for Elsewhere<'_> {
    fn drop(&mut self) {
        let _ = self.0.connect().batch_execute("DROP DATABASE IF EXISTS queueable_elsewhere");
    }
}

#[test]
fn a_table_in_another_database_works() {
    let database = Database::new();
    let elsewhere = Elsewhere(&database);
    database
        .connect()
        .batch_execute("DROP DATABASE IF EXISTS queueable_elsewhere; CREATE DATABASE queueable_elsewhere")
        .unwrap();
    a_table_elsewhere_works(&database.pool(4));
    drop(elsewhere);
}

#[test]
fn columns_are_added_at_once_and_the_index_without_a_lock() {
    let bank = Bank::before_the_queue();
    let steps = Conn::steps(&erased::<Payment>().target().unwrap());
    let mut connection = bank.connect();
    // The server refuses an algorithm with which it cannot run the statement.
    connection.batch_execute(&format!("{}, ALGORITHM=INSTANT", steps[0].up[0])).unwrap();
    connection.batch_execute(&format!("{} LOCK=NONE", steps[1].up[0])).unwrap();
    connection.batch_execute(&steps[1].down[0]).unwrap();
    connection.batch_execute(&format!("{}, ALGORITHM=INSTANT", steps[0].down[0])).unwrap();
}

#[test]
fn sessions_neither_end_nor_stop_reading_by_the_servers_limits() {
    let server = PrivateServer::start();
    let bank = Bank::in_database(Database::on(&server));
    bank.enqueue([1]);
    bank.connect().batch_execute("SET GLOBAL wait_timeout = 1, GLOBAL sql_select_limit = 1").unwrap();
    let handler = |payment: &Payment, message: &mut Message<'_, Conn>| {
        // While a session on MySQL is at work, it has the handler's timeout and a second.
        let idle = if is_mariadb() { 1000 } else { 30 };
        let limits = format!("@@SESSION.wait_timeout > {idle} AND @@SESSION.sql_select_limit > 1000000");
        assert!(diesel::select(sql::<Bool>(&limits)).get_result::<bool>(message.connection())?);
        book(payment, message)
    };
    assert_eq!(bank.run(handler).succeeded, 1);
}

#[test]
fn a_server_that_logs_statements_is_refused_with_the_setting_that_mends_it() {
    let arguments = ["--log-bin=changes", "--server-id=1", "--binlog-format=STATEMENT"].map(str::to_owned);
    let server = PrivateServer::start_with(initialize, arguments.into());
    let bank = Bank::in_database(Database::on(&server));
    bank.enqueue([1]);
    let Err(Error::Unsafe(found)) = bank.poller(book).start() else { panic!("it started") };
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].problem.contains("binlog_format is STATEMENT"), "{found:?}");
    bank.connect().batch_execute(&found[0].mend).unwrap();
    assert_eq!(bank.run(book).succeeded, 1);
}

#[test]
fn content_is_watched_where_an_empty_text_is_a_null() {
    // MySQL has no such mode.
    if !is_mariadb() {
        return;
    }
    let library = Library::new();
    let mut session = library.connect();
    session.batch_execute("SET SESSION sql_mode = CONCAT(@@SESSION.sql_mode, ',EMPTY_STRING_IS_NULL')").unwrap();
    session.revert_last_migration(Migrations::new().entity::<Document>()).unwrap();
    session.run_pending_migrations(Migrations::new().entity::<Document>()).unwrap();
    let id = library.enqueue(["one"])[0];
    library.run(|_: &Document, _: &mut Message<'_, Conn>| Ok(Outcome::Done));
    library.write("UPDATE documents SET body = 'new'");
    assert_eq!((library.change_count(id), library.state(id).status), (1, Status::NotAttempted));
}

#[test]
fn a_poller_tells_of_a_column_that_each_write_of_the_queue_sets() {
    keep_warnings();
    let bank = Bank::new();
    let add = |name: &str| {
        let add = format!("ALTER TABLE payments ADD COLUMN {name} TIMESTAMP NULL ON UPDATE CURRENT_TIMESTAMP");
        bank.connect().batch_execute(&add).unwrap();
    };
    add("moved_by_queue");
    add("kept_by_trigger");
    let keep = "CREATE TRIGGER keep BEFORE UPDATE ON payments FOR EACH ROW SET NEW.kept_by_trigger = \
                IF(NEW.amount_cents <=> OLD.amount_cents, OLD.kept_by_trigger, NEW.kept_by_trigger)";
    bank.connect().batch_execute(keep).unwrap();
    let id = bank.enqueue([1])[0];
    assert_eq!(bank.run(book).succeeded, 1);
    assert!(is_told(&["INFO", "sets the column moved_by_queue", "into-your-application.md"]));
    assert!(!is_told(&["kept_by_trigger"]), "the trigger keeps its time");
    let times = sql::<Bool>(&format!(
        "SELECT moved_by_queue IS NOT NULL AND kept_by_trigger IS NULL FROM payments WHERE id = {id}"
    ));
    assert!(times.get_result::<bool>(&mut bank.connect()).unwrap());
}

/// No statement of the handler says what a trigger does, so the first end of a message in a session compares the settings, and all
/// that follow once one has differed.
#[test]
fn what_a_trigger_sets_ends_with_its_message() {
    for mode in ["transaction", "group", "lease"] {
        let bank = Bank::new();
        let trigger =
            "CREATE TRIGGER sets BEFORE INSERT ON ledger FOR EACH ROW SET SESSION group_concat_max_len = 4097";
        bank.connect().batch_execute(trigger).unwrap();
        let ids = bank.enqueue([1; 6]);
        let found: Arc<Mutex<Vec<i64>>> = Arc::default();
        let seen = found.clone();
        let look = move |connection: &mut Conn| -> QueryResult<()> {
            let length = sql::<BigInt>("CAST(@@group_concat_max_len AS SIGNED)");
            seen.lock().unwrap().push(diesel::select(length).get_result(connection)?);
            Ok(())
        };
        let tally = match mode {
            "transaction" => bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
                look(message.connection())?;
                book(payment, message)
            }),
            "group" => {
                group::run::<group::Grouped>(&bank, move |row: &group::Grouped, message: &mut Message<'_, Conn>| {
                    look(message.connection())?;
                    book(&row.payment(), message)
                })
            }
            _ => {
                let apply = move |charge: &Charge, receipt: &i64, message: &mut Message<'_, Conn>| {
                    look(message.connection())?;
                    lease::apply(charge, receipt, message)
                };
                lease::poller(&bank, (|charge: &Charge, _: &Lease| Ok(charge.id), apply)).run_until_idle().unwrap()
            }
        };
        assert_eq!((tally.succeeded, bank.booked()), (6, ids), "{mode}");
        let found = found.lock().unwrap();
        // A group is undone, whose other handlers have seen it, and its rows run one by one.
        let last = &found[found.len() - 5..];
        assert!(last.iter().all(|length| *length != 4097), "{mode}: {found:?}");
    }
}

/// Run once more, such a statement would compute the generated columns of each row that it finds along the index.
#[test]
fn a_session_keeps_no_statement_of_a_report() {
    let bank = Bank::before_the_queue();
    let mut connection = bank.connect();
    connection.run_pending_migrations(Migrations::new().entity::<Reported>()).unwrap();
    bank.enqueue([1, 2]);
    let before = kept(&mut connection);
    for _ in 0..2 {
        Reported::queue().backlog_by(&mut connection, payments::company_id).unwrap();
        Reported::queue().errors(&mut connection).unwrap();
    }
    assert_eq!(kept(&mut connection), before);
}
