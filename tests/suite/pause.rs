//! A hand on the queue while it runs: pauses in the control table, which pollers read once a second.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use chrono::{TimeDelta, Utc};
use diesel::connection::{Instrumentation, InstrumentationEvent, SimpleConnection};
use diesel::deserialize::FromSqlRow;
use diesel::expression::AsExpression;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Pool};
use diesel::sql_types::Text;
use diesel_migrations::{FileBasedMigrations, MigrationHarness};
use queueable::{
    Error, Explanation, HandlerResult, Lease, Message, Migrations, Outcome, Pause, Paused, Poller, PollerHandle,
    Queueable, Stage, Status, Tally,
};

use crate::db::{BIGINT, Conn, Database, NAME};
use crate::suite::bank::{Bank, Payment, companies, payment_queue, payments};
use crate::suite::lease::Charge;
use crate::suite::warnings::{await_warning, is_told, keep_warnings};

/// How long a test waits for a message before it fails.
const PATIENCE: Duration = Duration::from_secs(60);

const BY: &str = "ops@example.org";

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = 10, retry = fixed("1h"), timeout = "30s")]
struct Grouped {
    id: i64,
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = companies)]
#[queue(timeout = "30s")]
struct Company {
    id: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Transaction,
    Group,
    Lease,
}

const MODES: [Mode; 3] = [Mode::Transaction, Mode::Group, Mode::Lease];

/// What is done when an attempt begins, and inside its transaction.
trait Work: Clone + Send + Sync + 'static {
    fn begin(&self, id: i64);

    fn write(&self, _id: i64, _connection: &mut Conn) {}
}

/// Notes the payments whose attempts begin.
#[derive(Clone, Default)]
struct Note(Arc<Mutex<Vec<i64>>>);

impl Work for Note {
    fn begin(&self, id: i64) {
        self.0.lock().unwrap().push(id);
    }
}

impl Note {
    fn begun(&self) -> Vec<i64> {
        let mut begun = self.0.lock().unwrap().clone();
        begun.sort_unstable();
        begun
    }
}

/// A bank with a control table, and a queue on its companies.
fn bank() -> Bank {
    let bank = Bank::new();
    let migrations = Migrations::new().entity::<Company>().control();
    bank.connect().run_pending_migrations(migrations).unwrap();
    bank
}

/// Serves the payments in one of the modes.
fn serve(bank: &Bank, mode: Mode, work: impl Work) -> Poller<Conn> {
    let poller = Poller::new(bank.pool(1)).control().workers(1);
    match mode {
        Mode::Transaction => poller
            .serve::<Payment>(move |payment: &Payment, message: &mut Message<'_, Conn>| {
                work.begin(payment.id);
                work.write(payment.id, message.connection());
                Ok(Outcome::Done)
            })
            .prefetch_at_once(),
        Mode::Group => poller.serve::<Grouped>(move |payment: &Grouped, message: &mut Message<'_, Conn>| {
            work.begin(payment.id);
            work.write(payment.id, message.connection());
            Ok(Outcome::Done)
        }),
        Mode::Lease => {
            let caller = work.clone();
            let call = move |payment: &Charge, _: &Lease| {
                caller.begin(payment.id);
                Ok(())
            };
            let apply = move |payment: &Charge, (): &(), message: &mut Message<'_, Conn>| {
                work.write(payment.id, message.connection());
                Ok(Outcome::Done)
            };
            poller.serve::<Charge>((call, apply)).claim_batch(3)
        }
    }
}

fn pause(bank: &Bank, reason: &str) {
    Payment::pause(&mut bank.connect(), Pause::new(reason, BY)).unwrap();
}

/// Serves the companies too, and returns what tells of those that are handled.
fn with_companies(poller: Poller<Conn>) -> (Poller<Conn>, mpsc::Receiver<i64>) {
    let (sender, handled) = mpsc::channel();
    let handler = move |company: &Company, _: &mut Message<'_, Conn>| {
        sender.send(company.id)?;
        Ok(Outcome::Done)
    };
    (poller.serve::<Company>(handler), handled)
}

/// Waits until the poller has handled a company: it is at work, and has asked each of its entities.
fn await_company(bank: &Bank, handled: &mpsc::Receiver<i64>) {
    diesel::update(companies::table.find(1)).set(Company::due_now()).execute(&mut bank.connect()).unwrap();
    assert_eq!(handled.recv_timeout(PATIENCE), Ok(1));
}

#[test]
fn a_paused_queue_begins_nothing_until_it_is_resumed() {
    for mode in MODES {
        let bank = bank();
        let ids = bank.enqueue([1, 2, 3, 4]);
        let before = bank.state(ids[0]);
        pause(&bank, "bank down");
        let work = Note::default();
        assert_eq!(serve(&bank, mode, work.clone()).run_until_idle().unwrap(), Tally::default(), "{mode:?}");
        assert_eq!(bank.state(ids[0]), before, "nothing is written on the row");
        assert!(Payment::resume(&mut bank.connect()).unwrap());
        assert!(!Payment::resume(&mut bank.connect()).unwrap(), "it was resumed already");
        assert_eq!(serve(&bank, mode, work.clone()).run_until_idle().unwrap().succeeded, 4, "{mode:?}");
        assert_eq!(work.begun(), ids);
    }
}

#[test]
fn run_until_idle_tells_what_it_leaves_because_of_a_pause() {
    keep_warnings();
    let bank = bank();
    bank.enqueue([1]);
    pause(&bank, "left for another day");
    serve(&bank, Mode::Transaction, Note::default()).run_until_idle().unwrap();
    assert!(is_told(&["WARN", "due rows are left alone", BY, "left for another day"]));
}

/// The first payment pauses its own queue, and the second waits until the poller knows.
#[derive(Clone)]
struct PausesItself {
    note: Note,
    first: i64,
    reason: String,
}

impl Work for PausesItself {
    fn begin(&self, id: i64) {
        self.note.begin(id);
        if id == self.first + 1 {
            await_warning(&["INFO", "paused", &self.reason, BY]);
        }
    }

    fn write(&self, id: i64, connection: &mut Conn) {
        if id == self.first {
            Payment::pause(connection, Pause::new(self.reason.as_str(), BY)).unwrap();
        }
    }
}

#[test]
fn a_worker_that_goes_from_row_to_row_stops_at_a_pause_and_goes_on_at_its_end() {
    keep_warnings();
    for mode in MODES {
        let bank = bank();
        let ids = bank.enqueue(1..=6);
        let due = bank.state(ids[5]).next_attempt_time;
        let reason = format!("stops at once in {mode:?} mode");
        let note = Note::default();
        let work = PausesItself { note: note.clone(), first: ids[0], reason: reason.clone() };
        let (poller, handled) = with_companies(serve(&bank, mode, work));
        let handle = poller.start().unwrap();
        await_warning(&["INFO", "paused", &reason]);
        await_company(&bank, &handled);
        let later = bank.enqueue([7])[0];
        await_company(&bank, &handled);
        assert_eq!(note.begun(), ids[..2], "{mode:?}");
        for id in ids[2..].iter().copied().chain([later]) {
            let state = bank.state(id);
            assert_eq!((state.status, state.try_count), (Status::NotAttempted, 0), "{mode:?} {id}");
        }
        assert_eq!(bank.state(ids[5]).next_attempt_time, due, "nothing is written on the row");
        Payment::resume(&mut bank.connect()).unwrap();
        await_warning(&["INFO", "no longer paused", &reason]);
        await_successes(&bank, 7);
        assert_eq!(note.begun().len(), 7, "{mode:?}");
        drop(handle);
    }
}

/// Waits until this many payments are done.
fn await_successes(bank: &Bank, number: i64) {
    let done = payments::table.filter(payment_queue::status.eq(Status::Success)).count();
    await_true(|| done.get_result(&mut bank.connect()) == Ok(number));
}

fn await_true(is_it: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !is_it() {
        assert!(std::time::Instant::now() < deadline, "it never came true");
        std::thread::yield_now();
    }
}

#[test]
fn a_pause_ends_at_its_end_by_the_databases_clock() {
    keep_warnings();
    let bank = bank();
    let pause = Pause::new("a short break", BY).lasting(Duration::from_secs(2));
    Payment::pause(&mut bank.connect(), pause).unwrap();
    let (sender, begun) = mpsc::channel();
    let handler = move |payment: &Payment, message: &mut Message<'_, Conn>| {
        sender.send((payment.id, queueable::pauses(message.connection())?.len()))?;
        Ok(Outcome::Done)
    };
    let handle = Payment::poller(bank.pool(1), handler).workers(1).control().start().unwrap();
    let id = bank.enqueue([1])[0];
    await_warning(&["INFO", "paused", "a short break"]);
    assert_eq!(begun.recv_timeout(PATIENCE), Ok((id, 0)), "by then it is no pause any more");
    await_warning(&["INFO", "no longer paused", "a short break"]);
    drop(handle);
}

#[test]
fn a_pause_whose_end_has_come_is_none() {
    let bank = bank();
    let ids = bank.enqueue([1]);
    Payment::pause(&mut bank.connect(), Pause::new("over", BY).until(Utc::now() + TimeDelta::hours(1))).unwrap();
    let mut connection = bank.connect();
    let paused = queueable::pauses(&mut connection).unwrap();
    assert_eq!((paused.len(), paused[0].until.is_some()), (1, true));
    let past = "UPDATE queueable_control SET paused_at = '2020-01-01 00:00:00', paused_until = '2020-01-02 00:00:00'";
    connection.batch_execute(past).unwrap();
    assert_eq!(queueable::pauses(&mut connection).unwrap(), []);
    assert_eq!(Payment::explain(&mut connection, &ids[0]).unwrap(), Explanation::Due);
    assert_eq!(serve(&bank, Mode::Transaction, Note::default()).run_until_idle().unwrap().succeeded, 1);
}

#[test]
fn everybody_is_told_who_has_paused_a_queue_when_and_why() {
    let bank = bank();
    let ids = bank.enqueue([1]);
    let mut connection = bank.connect();
    assert_eq!(Payment::explain(&mut connection, &ids[0]).unwrap(), Explanation::Due);
    assert_eq!(Payment::queue().backlog(&mut connection).unwrap().paused, []);
    let began = Utc::now() - TimeDelta::seconds(1);
    pause(&bank, "first");
    // The second takes the first one's place.
    let until = Utc::now() + TimeDelta::days(3);
    Payment::pause(&mut connection, Pause::new("bänk down", BY).until(until)).unwrap();
    let paused: Vec<Paused> = queueable::pauses(&mut connection).unwrap();
    let [paused] = paused.as_slice() else { panic!("{paused:?}") };
    assert_eq!(
        (paused.queue.as_str(), paused.by.as_str(), paused.reason.as_str()),
        ("payments.status", BY, "bänk down")
    );
    assert!(paused.since >= began && paused.since <= Utc::now() + TimeDelta::seconds(1), "{paused:?}");
    assert!((paused.until.unwrap() - until).abs() < TimeDelta::milliseconds(2), "{paused:?}");
    let explained = Payment::explain(&mut connection, &ids[0]).unwrap();
    assert_eq!(explained, Explanation::Paused { pause: paused.clone() });
    assert!(explained.to_string().ends_with("by ops@example.org: bänk down"), "{explained}");
    let backlog = Payment::queue().backlog(&mut connection).unwrap();
    assert_eq!((backlog.due, backlog.paused.as_slice()), (1, std::slice::from_ref(paused)));
    assert!(backlog.to_string().ends_with("by ops@example.org: bänk down\n"), "{backlog}");
    assert_eq!(Company::queue().backlog(&mut connection).unwrap().paused, [], "another queue");
}

#[test]
fn a_pause_that_makes_no_sense_is_refused() {
    let bank = bank();
    let mut connection = bank.connect();
    let mut refused = |pause: Pause<Payment>| match Payment::pause(&mut connection, pause) {
        Err(Error::Setting { setting, .. }) => setting,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(Pause::new(" ", BY)), "the reason of a pause");
    assert_eq!(refused(Pause::new("x".repeat(1001), BY)), "the reason of a pause");
    assert_eq!(refused(Pause::new("two\nlines", BY)), "the reason of a pause");
    assert_eq!(refused(Pause::new("\0", BY)), "the reason of a pause");
    assert_eq!(refused(Pause::new("bank down", "")), "who asks for a pause");
    assert_eq!(refused(Pause::new("bank down", "y".repeat(256))), "who asks for a pause");
    let of = || Pause::new("bank down", BY);
    assert_eq!(refused(of().lasting(Duration::ZERO)), "how long a pause lasts");
    assert_eq!(refused(of().lasting(Duration::MAX)), "how long a pause lasts");
    assert_eq!(refused(of().until(Utc::now() - TimeDelta::hours(1))), "the end of a pause");
    assert_eq!(refused(of().until(chrono::DateTime::<Utc>::MAX_UTC)), "the end of a pause");
    assert_eq!(queueable::pauses(&mut connection).unwrap(), []);
    let longest = Pause::new("ü".repeat(1000), "ö".repeat(255)).lasting(queueable::MAX_DELAY);
    Payment::pause(&mut connection, longest).unwrap();
    assert_eq!(queueable::pauses(&mut connection).unwrap().len(), 1);
}

#[test]
fn the_table_refuses_what_can_be_no_pause() {
    let bank = bank();
    let mut connection = bank.connect();
    let mut insert = |queue: &str, at: &str, until: &str, by: &str, reason: &str| {
        connection.batch_execute(&format!(
            "INSERT INTO queueable_control (queue, scope, paused_at, paused_until, paused_by, pause_reason) \
             VALUES ({queue}, '', {at}, {until}, {by}, {reason})"
        ))
    };
    let (queue, at, until, by, reason) = ("'q'", "'2026-01-01 00:00:00'", "'2026-01-02 00:00:00'", "'a'", "'b'");
    assert!(insert("''", at, until, by, reason).is_err());
    assert!(insert("NULL", at, until, by, reason).is_err());
    assert!(insert(queue, at, at, by, reason).is_err(), "it ends when it begins");
    assert!(insert(queue, at, until, "' '", reason).is_err());
    assert!(insert(queue, at, until, "NULL", reason).is_err());
    assert!(insert(queue, at, until, by, "''").is_err());
    assert!(insert(queue, at, until, by, "NULL").is_err());
    assert!(insert(queue, "NULL", "NULL", by, reason).is_err());
    assert!(insert(queue, "NULL", until, "NULL", "NULL").is_err());
    assert!(insert(queue, "'soon'", "NULL", by, reason).is_err());
    assert!(insert(queue, at, "'later'", by, reason).is_err());
    if NAME == "postgres" {
        assert!(insert(queue, at, "'infinity'", by, reason).is_err());
    }
    insert(queue, "NULL", "NULL", "NULL", "NULL").unwrap();
    insert("'p'", at, "NULL", by, reason).unwrap();
    insert("'r'", at, until, by, reason).unwrap();
}

#[test]
fn nonsense_that_somebody_has_written_is_ignored_with_one_warning() {
    keep_warnings();
    let bank = bank();
    bank.enqueue([1, 2]);
    let write = |scope: &str| {
        let sql = format!(
            "INSERT INTO queueable_control (queue, scope, paused_at, paused_by, pause_reason) \
             VALUES ('payments.status', '{scope}', '2026-01-01 00:00:00', 'somebody', 'nonsense')"
        );
        bank.connect().batch_execute(&sql).unwrap();
    };
    write("every second");
    write("stage SORTED");
    for _ in 0..2 {
        bank.enqueue([3]);
        let tally = serve(&bank, Mode::Transaction, Note::default()).run_until_idle().unwrap();
        assert!(tally.succeeded > 0);
    }
    assert!(is_told(&["WARN", "a row of the control table is ignored", "scope `every second`"]));
    assert!(is_told(&["WARN", "a row of the control table is ignored", "no stage `SORTED`"]));
}

#[test]
fn what_is_paused_stays_paused_when_the_table_is_gone() {
    keep_warnings();
    let bank = bank();
    let note = Note::default();
    let (poller, handled) = with_companies(serve(&bank, Mode::Transaction, note.clone()));
    let handle = poller.start().unwrap();
    pause(&bank, "before the table goes");
    await_warning(&["INFO", "paused", "before the table goes"]);
    bank.connect().batch_execute("ALTER TABLE queueable_control RENAME TO taken_away").unwrap();
    await_warning(&["WARN", "the control table cannot be read, what was paused stays paused"]);
    bank.enqueue([1]);
    await_company(&bank, &handled);
    assert_eq!(note.begun(), Vec::<i64>::new());
    let mut connection = bank.connect();
    connection.batch_execute("ALTER TABLE taken_away RENAME TO queueable_control").unwrap();
    Payment::resume(&mut connection).unwrap();
    await_successes(&bank, 1);
    await_warning(&["INFO", "no longer paused", "before the table goes"]);
    await_warning(&["INFO", "the control table can be read again"]);
    drop(handle);
}

/// Counts the queries of a pool's connections.
#[derive(Debug, Clone, Default)]
struct Queries(Arc<AtomicUsize>);

impl CustomizeConnection<Conn, diesel::r2d2::Error> for Queries {
    fn on_acquire(&self, connection: &mut Conn) -> Result<(), diesel::r2d2::Error> {
        connection.set_instrumentation(self.clone());
        Ok(())
    }
}

impl Instrumentation for Queries {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        if let InstrumentationEvent::StartQuery { .. } = event {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_paused_queue_with_due_rows_is_not_asked_for_in_a_loop() {
    // An entity of its own: other tests of this process enqueue payments, and that wakes pollers.
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(module = counted_queue)]
    #[expect(dead_code, reason = "it is only counted")]
    struct Counted {
        id: i64,
    }

    keep_warnings();
    let bank = bank();
    bank.enqueue(1..=100);
    let queries = Queries::default();
    let pool = Pool::builder()
        .max_size(6)
        .min_idle(Some(0))
        .connection_customizer(Box::new(queries.clone()))
        .build(ConnectionManager::<Conn>::new(bank.database.url()))
        .unwrap();
    let pause = Pause::new("as quiet as can be", BY).lasting(Duration::from_secs(6));
    Counted::pause(&mut bank.connect(), pause).unwrap();
    let (sender, begun) = mpsc::channel();
    let count = queries.clone();
    let handler = move |_: &Counted, _: &mut Message<'_, Conn>| {
        sender.send(count.0.load(Ordering::Relaxed))?;
        Ok(Outcome::Done)
    };
    let handle = Counted::poller(pool, handler).workers(4).control().start().unwrap();
    await_warning(&["INFO", "paused", "as quiet as can be"]);
    let before = queries.0.load(Ordering::Relaxed);
    let asked = begun.recv_timeout(PATIENCE).unwrap() - before;
    // The first attempts after the pause are among them.
    assert!(asked < 60, "{asked} queries in 6 seconds");
    drop(handle);
}

fn refusal(started: Result<PollerHandle, Error>) -> String {
    match started {
        Err(Error::Unsafe(findings)) => findings.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_the_table_a_poller_that_asks_for_it_is_refused_and_others_know_nothing_of_it() {
    let bank = Bank::new();
    bank.enqueue([1]);
    let poller =
        || Payment::poller(bank.pool(1), |_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done)).workers(1);
    let refused = refusal(poller().control().start());
    assert!(refused.contains("there is no table queueable_control"), "{refused}");
    assert!(refused.contains("`Migrations::new().control()`"), "{refused}");
    let mut connection = bank.connect();
    for error in [
        Payment::pause(&mut connection, Pause::new("bank down", BY)).unwrap_err(),
        Payment::resume(&mut connection).unwrap_err(),
        queueable::pauses(&mut connection).unwrap_err(),
    ] {
        assert!(matches!(&error, Error::Control(text) if text.contains("Migrations::new().control()")), "{error:?}");
    }
    assert_eq!(Payment::queue().backlog(&mut connection).unwrap().paused, []);
    assert_eq!(poller().run_until_idle().unwrap().succeeded, 1);
}

#[test]
fn a_poller_without_control_heeds_no_pause() {
    let bank = bank();
    bank.enqueue([1]);
    pause(&bank, "not heeded");
    let tally = bank.run(|_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done));
    assert_eq!(tally.succeeded, 1);
}

#[test]
fn a_pause_belongs_to_the_callers_transaction() {
    let bank = bank();
    let mut connection = bank.connect();
    let rolled_back = connection.transaction(|connection| {
        Payment::pause(connection, Pause::new("never mind", BY)).unwrap();
        Err::<(), _>(diesel::result::Error::RollbackTransaction)
    });
    assert!(rolled_back.is_err());
    assert_eq!(queueable::pauses(&mut connection).unwrap(), []);
}

#[test]
fn the_migration_adds_the_table_once_and_takes_it_away() {
    let database = Database::new();
    let mut connection = database.connect();
    let source = || Migrations::<<Conn as diesel::Connection>::Backend>::new().control();
    connection.run_pending_migrations(source()).unwrap();
    assert!(!connection.has_pending_migration(source()).unwrap());
    // The table may be there although the migration is not known, as after an interruption.
    connection.batch_execute("DELETE FROM __diesel_schema_migrations").unwrap();
    connection.run_pending_migrations(source()).unwrap();
    assert_eq!(queueable::pauses(&mut connection).unwrap(), []);
    connection.revert_last_migration(source()).unwrap();
    assert!(matches!(queueable::pauses(&mut connection), Err(Error::Control(_))));
    connection.batch_execute("CREATE TABLE queueable_control (queue VARCHAR(20), scope VARCHAR(20))").unwrap();
    let refused = connection.run_pending_migrations(source()).unwrap_err().to_string();
    assert!(refused.contains("there is a table queueable_control that is not the queue's"), "{refused}");
    assert!(refused.contains("no column paused_at, paused_until"), "{refused}");
}

#[test]
fn the_table_can_be_added_by_files() {
    let directory = tempfile::tempdir().unwrap();
    let source = || Migrations::<<Conn as diesel::Connection>::Backend>::new().control();
    let written = source().write_to(directory.path()).unwrap();
    assert_eq!(written.len(), 1);
    assert!(written[0].to_string_lossy().ends_with("_queue_control_of_queueable_control"), "{written:?}");
    assert!(source().write_to(directory.path()).unwrap().is_empty());
    let database = Database::new();
    let mut connection = database.connect();
    let files = || FileBasedMigrations::from_path(directory.path()).unwrap();
    connection.run_pending_migrations(files()).unwrap();
    assert_eq!(queueable::pauses(&mut connection).unwrap(), []);
    connection.revert_last_migration(files()).unwrap();
    assert!(matches!(queueable::pauses(&mut connection), Err(Error::Control(_))));
}

diesel::table! {
    letters (id) { id -> BigInt, }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, AsExpression, FromSqlRow, Stage)]
#[diesel(sql_type = Text)]
enum LetterStage {
    Write,
    Send,
}

macro_rules! letters {
    ($($name:ident($($key:tt)*);)*) => {$(
        #[derive(Debug, Clone, Queryable, Selectable, Queueable)]
        #[diesel(table_name = letters)]
        #[queue(stage = LetterStage, timeout = "30s", $($key)*)]
        struct $name {
            id: i64,
        }
    )*};
}

letters! {
    Letter();
    LetterInGroup(group(10));
}

#[derive(Debug, Clone, Queryable, Selectable, Queueable)]
#[diesel(table_name = letters)]
#[queue(stage = LetterStage, lease = "60s")]
struct LetterLeased {
    id: i64,
}

/// Makes letters that are due, the first half in the second stage.
fn office(number: i64) -> Database {
    let database = Database::new();
    let mut connection = database.connect();
    connection.batch_execute(&format!("CREATE TABLE letters (id {BIGINT} PRIMARY KEY NOT NULL)")).unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Letter>().control()).unwrap();
    let rows: Vec<_> = (1..=number).map(|id| (letters::id.eq(id), Letter::due_now())).collect();
    diesel::insert_into(letters::table).values(rows).execute(&mut connection).unwrap();
    diesel::update(letters::table.filter(letters::id.le(number / 2)))
        .set(letter_queue::stage.eq(LetterStage::Send))
        .execute(&mut connection)
        .unwrap();
    database
}

/// What is done when a letter's attempt begins, and inside its transaction.
trait Errand: Clone + Send + Sync + 'static {
    fn begin(&self, id: i64, stage: LetterStage);

    fn write(&self, _id: i64, _connection: &mut Conn) {}
}

/// Notes the stages in which attempts begin.
#[derive(Clone, Default)]
struct NoteStages(Arc<Mutex<Vec<LetterStage>>>);

impl Errand for NoteStages {
    fn begin(&self, _: i64, stage: LetterStage) {
        self.0.lock().unwrap().push(stage);
    }
}

/// Serves the letters in one of the modes. Each passes through its stages.
fn post(database: &Database, mode: Mode, errand: impl Errand) -> Poller<Conn> {
    fn outcome(stage: LetterStage) -> HandlerResult {
        Ok(if stage == LetterStage::Write { Outcome::next(LetterStage::Send) } else { Outcome::Done })
    }
    let poller = Poller::new(database.pool(3)).control().workers(1);
    match mode {
        Mode::Transaction => poller.serve::<Letter>(move |letter: &Letter, message: &mut Message<'_, Conn>| {
            errand.begin(letter.id, message.stage());
            errand.write(letter.id, message.connection());
            outcome(message.stage())
        }),
        Mode::Group => poller.serve::<LetterInGroup>(move |letter: &LetterInGroup, message: &mut Message<'_, Conn>| {
            errand.begin(letter.id, message.stage());
            errand.write(letter.id, message.connection());
            outcome(message.stage())
        }),
        Mode::Lease => {
            let caller = errand.clone();
            let call = move |letter: &LetterLeased, lease: &Lease| {
                caller.begin(letter.id, lease.stage());
                Ok(lease.stage::<LetterStage>())
            };
            let apply = move |letter: &LetterLeased, stage: &LetterStage, message: &mut Message<'_, Conn>| {
                errand.write(letter.id, message.connection());
                outcome(*stage)
            };
            poller.serve::<LetterLeased>((call, apply)).claim_batch(3)
        }
    }
}

#[test]
fn a_paused_stage_waits_and_the_others_go_on() {
    for mode in MODES {
        let database = office(6);
        let mut connection = database.connect();
        Letter::pause(&mut connection, Pause::new("no stamps", BY).stage(LetterStage::Send)).unwrap();
        let errand = NoteStages::default();
        let run = || post(&database, mode, errand.clone()).run_until_idle().unwrap();
        let tally = run();
        assert_eq!((tally.advanced, tally.succeeded), (3, 0), "{mode:?}");
        assert_eq!(*errand.0.lock().unwrap(), [LetterStage::Write; 3]);
        let explained = Letter::explain(&mut connection, &1).unwrap();
        assert!(
            matches!(&explained, Explanation::Paused { pause } if pause.stage.as_deref() == Some("SEND")),
            "{explained}"
        );
        assert_eq!(Letter::queue().backlog(&mut connection).unwrap().paused.len(), 1);
        assert!(!Letter::resume(&mut connection).unwrap(), "the whole queue is not paused");
        assert!(!Letter::resume_stage(&mut connection, LetterStage::Write).unwrap());
        assert!(Letter::resume_stage(&mut connection, LetterStage::Send).unwrap());
        assert_eq!(run().succeeded, 6, "{mode:?}");
    }
}

#[test]
fn a_queue_whose_stages_are_all_paused_is_paused() {
    for mode in MODES {
        let database = office(4);
        let mut connection = database.connect();
        for stage in [LetterStage::Write, LetterStage::Send] {
            Letter::pause(&mut connection, Pause::new("closed", BY).stage(stage)).unwrap();
        }
        let run = || post(&database, mode, NoteStages::default()).run_until_idle().unwrap();
        assert_eq!(run(), Tally::default(), "{mode:?}");
        Letter::resume_stage(&mut connection, LetterStage::Write).unwrap();
        assert_eq!((run().advanced, run().succeeded), (2, 0), "{mode:?}");
        assert!(matches!(Letter::explain(&mut connection, &4).unwrap(), Explanation::Paused { .. }));
    }
}

/// The first letter to send pauses its own stage, and the second waits until the poller knows.
#[derive(Clone)]
struct PausesItsStage {
    begun: Arc<Mutex<Vec<(i64, LetterStage)>>>,
    reason: String,
}

impl Errand for PausesItsStage {
    fn begin(&self, id: i64, stage: LetterStage) {
        self.begun.lock().unwrap().push((id, stage));
        if id == 2 && stage == LetterStage::Send {
            await_warning(&["INFO", "paused", &self.reason, "SEND"]);
        }
    }

    fn write(&self, id: i64, connection: &mut Conn) {
        if id == 1 {
            Letter::pause(connection, Pause::new(self.reason.as_str(), BY).stage(LetterStage::Send)).unwrap();
        }
    }
}

#[test]
fn a_stage_is_paused_and_resumed_while_its_poller_runs() {
    keep_warnings();
    for mode in MODES {
        // Twelve letters to send come first, and then twelve to write.
        let database = office(24);
        let reason = format!("no stamps in {mode:?} mode");
        let errand = PausesItsStage { begun: Arc::default(), reason: reason.clone() };
        let handle = post(&database, mode, errand.clone()).start().unwrap();
        await_true(|| handle.tally().advanced == 12);
        let begun = errand.begun.lock().unwrap().clone();
        let sent: Vec<_> = begun.iter().filter(|(_, stage)| *stage == LetterStage::Send).map(|(id, _)| *id).collect();
        assert_eq!(sent, [1, 2], "{mode:?}");
        Letter::resume_stage(&mut database.connect(), LetterStage::Send).unwrap();
        await_true(|| handle.tally().succeeded == 24);
        await_warning(&["INFO", "no longer paused", &reason]);
        drop(handle);
    }
}
