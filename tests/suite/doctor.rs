//! The doctor: each planted ill is found, with what mends it, and a healthy queue has none.

use chrono::{Timelike, Utc};
use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_migrations::MigrationHarness;
use queue_core::internals::by_name::{plans, settings, sizes, version};
use queueable::bounds::QueueOn;
use queueable::report::{Ill, IllKind, Severity, examine};
use queueable::{Migrations, Pause, Queueable, Status};

use crate::db::{AUTO_KEY, Conn, NAME, TEXT};
use crate::suite::bank::{Bank, Payment, payments};
use crate::suite::stages::{Invoice, InvoiceStage, one_invoice};

/// Long ago, as each database reads it.
const LONG_AGO: &str = "'2020-01-01 00:00:00.000'";

fn execute(bank: &Bank, sql: &str) {
    bank.connect().batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Examines the payments, and returns the only ill of this kind.
pub(crate) fn found(bank: &Bank, kind: IllKind) -> Ill {
    only(Payment::examine(&mut bank.connect()).unwrap(), kind)
}

fn has(ills: &[Ill], kind: IllKind) -> bool {
    ills.iter().any(|ill| ill.kind == kind)
}

/// Returns the only ill of this kind.
pub(crate) fn only(ills: Vec<Ill>, kind: IllKind) -> Ill {
    assert!(ills.is_sorted(), "the worst comes first: {ills:#?}");
    let of_kind: Vec<_> = ills.iter().filter(|ill| ill.kind == kind).collect();
    let [ill] = of_kind.as_slice() else { panic!("not one {kind}: {ills:#?}") };
    assert!(!ill.problem.is_empty() && !ill.mend.is_empty(), "{ill:?}");
    assert!(![&ill.problem, &ill.mend].into_iter().any(|text| text.contains('{')), "a name has no value: {ill:?}");
    assert!(ill.to_string().starts_with(&format!("{}: {kind}: ", ill.severity)), "{ill}");
    let json = serde_json::to_string(ill).unwrap();
    assert!(json.contains(&format!("\"kind\":\"{kind}\"")), "{json}");
    assert_eq!(serde_json::from_str::<Ill>(&json).unwrap(), **ill);
    Ill::clone(ill)
}

/// Runs the SQL that mends an ill, one statement after the other.
pub(crate) fn mend(connection: &mut Conn, ill: &Ill) {
    for statement in ill.mend.split("; ") {
        connection.batch_execute(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}

/// Finds an ill, mends it as it says, and sees that it is gone.
fn is_mended(bank: &Bank, kind: IllKind) {
    let ill = found(bank, kind);
    assert_eq!(ill.queue.as_deref(), Some("payments.status"));
    mend(&mut bank.connect(), &ill);
    is_gone(bank, kind);
}

fn is_gone(bank: &Bank, kind: IllKind) {
    let ills = Payment::examine(&mut bank.connect()).unwrap();
    assert!(ills.iter().all(|ill| ill.kind != kind), "{ills:#?}");
}

#[test]
fn a_healthy_queue_has_no_ill() {
    let bank = Bank::new();
    assert_eq!(Payment::examine(&mut bank.connect()).unwrap(), []);
    bank.connect().run_pending_migrations(Migrations::new().pollers().control().minutes().audit()).unwrap();
    bank.enqueue([1, 2, 3]);
    assert_eq!(Payment::examine(&mut bank.connect()).unwrap(), []);
}

#[test]
fn a_row_with_an_unknown_status_is_found_and_mended() {
    let bank = Bank::new();
    bank.enqueue([1, 2, 3, 4]);
    // MySQL compares this text as equal to one of the queue's.
    execute(&bank, "UPDATE payments SET status = 'ERROR '");
    execute(&bank, "UPDATE payments SET next_attempt_time = NULL WHERE amount_cents = 3");
    execute(&bank, "UPDATE payments SET status = 'ERROR' WHERE amount_cents = 4");
    let ill = found(&bank, IllKind::UnknownStatus);
    assert!(
        ill.problem.starts_with("2 rows ") && ill.problem.contains(" such as 1, have the status `ERROR `"),
        "{ill}"
    );
    assert_eq!(ill.severity, Severity::Error);
    is_mended(&bank, IllKind::UnknownStatus);
    let statuses = payments::table.select(sql::<Text>("status")).order(payments::amount_cents);
    let statuses: Vec<String> = statuses.load(&mut bank.connect()).unwrap();
    assert_eq!(statuses, ["NOT_ATTEMPTED", "NOT_ATTEMPTED", "ERROR ", "ERROR"], "the other rows stay as they are");
}

#[test]
fn a_row_in_an_unknown_stage_is_found_and_mended() {
    let bank = Bank::new();
    let mut connection = bank.connect();
    connection
        .batch_execute(&format!("CREATE TABLE invoices (id {AUTO_KEY} NOT NULL, amount_cents BIGINT NOT NULL)"))
        .unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Invoice>()).unwrap();
    assert_eq!(Invoice::examine(&mut connection).unwrap(), []);
    connection
        .batch_execute(&format!(
            "INSERT INTO invoices (amount_cents, stage, next_attempt_time) VALUES (1, 'PRAY', {LONG_AGO})"
        ))
        .unwrap();
    let ill = only(Invoice::examine(&mut connection).unwrap(), IllKind::UnknownStage);
    assert!(ill.problem.contains("`PRAY`"), "{ill}");
    mend(&mut connection, &ill);
    let ills = Invoice::examine(&mut connection).unwrap();
    assert!(ills.iter().all(|ill| ill.kind != IllKind::UnknownStage), "{ills:#?}");
}

#[test]
fn a_lease_that_ended_long_ago_is_found() {
    let bank = Bank::new();
    bank.enqueue([1]);
    execute(&bank, &format!("UPDATE payments SET status = 'IN_PROGRESS', next_attempt_time = {LONG_AGO}"));
    assert_eq!(found(&bank, IllKind::StuckLease).severity, Severity::Warning);
}

#[test]
fn retries_without_an_end_are_found() {
    let bank = Bank::new();
    bank.enqueue([1, 2]);
    execute(&bank, "UPDATE payments SET status = 'ERROR', try_count = 4711 WHERE amount_cents = 2");
    assert!(found(&bank, IllKind::EndlessRetries).problem.starts_with("1 row "));
}

#[test]
fn rows_that_ended_their_process_are_found() {
    let bank = Bank::new();
    bank.enqueue([1, 2]);
    execute(
        &bank,
        "UPDATE payments SET status = 'FAILED', next_attempt_time = NULL, \
         last_attempt_error_message = 'the process ended 3 times while this message was handled: it is set aside' WHERE amount_cents = 1",
    );
    assert!(found(&bank, IllKind::PoisonRow).problem.starts_with("1 of "));
}

#[test]
fn a_row_that_has_been_due_for_long_is_found_and_that_nobody_serves_its_queue() {
    let bank = Bank::new();
    bank.enqueue([1]);
    execute(&bank, &format!("UPDATE payments SET next_attempt_time = {LONG_AGO}"));
    assert_eq!(found(&bank, IllKind::OldDueRow).severity, Severity::Warning);
    bank.connect().run_pending_migrations(Migrations::new().pollers().control()).unwrap();
    let ill = found(&bank, IllKind::NoPoller);
    assert_eq!(ill.severity, Severity::Error);
    assert!(ill.problem.starts_with("no registered poller serves payments.status, and "), "{ill}");
    is_gone(&bank, IllKind::OldDueRow);
    register(&bank, 1, "0.1.0", "running", "{}");
    is_gone(&bank, IllKind::NoPoller);
    found(&bank, IllKind::OldDueRow);
    Payment::pause(&mut bank.connect(), Pause::new("bank down", "ops")).unwrap();
    is_gone(&bank, IllKind::OldDueRow);
}

#[test]
fn a_row_of_a_paused_stage_has_not_been_due_for_too_long() {
    let database = one_invoice();
    let mut connection = database.connect();
    connection.run_pending_migrations(Migrations::new().control()).unwrap();
    connection.batch_execute(&format!("UPDATE invoices SET next_attempt_time = {LONG_AGO}")).unwrap();
    only(Invoice::examine(&mut connection).unwrap(), IllKind::OldDueRow);
    let pause = |connection: &mut Conn, stage| {
        Invoice::pause(connection, Pause::new("printer down", "ops").stage(stage)).unwrap();
    };
    let is_found = |connection: &mut Conn| has(&Invoice::examine(connection).unwrap(), IllKind::OldDueRow);
    pause(&mut connection, InvoiceStage::Render);
    assert!(!is_found(&mut connection));
    let insert = format!("INSERT INTO invoices (id, stage, next_attempt_time) VALUES (2, 'SEND', {LONG_AGO})");
    connection.batch_execute(&insert).unwrap();
    assert!(is_found(&mut connection), "the other stage is not paused");
    pause(&mut connection, InvoiceStage::Send);
    pause(&mut connection, InvoiceStage::Book);
    assert!(!is_found(&mut connection));
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(window = "00:00-12:00 UTC")]
#[allow(dead_code, reason = "only its table is looked at")]
struct BeforeNoon {
    id: i64,
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(window = "12:00-24:00 UTC")]
#[allow(dead_code, reason = "only its table is looked at")]
struct AfterNoon {
    id: i64,
}

#[test]
fn a_row_outside_the_window_has_not_been_due_for_too_long() {
    let bank = Bank::new();
    bank.enqueue([1]);
    execute(&bank, &format!("UPDATE payments SET next_attempt_time = {LONG_AGO}"));
    let mut connection = bank.connect();
    // Repeats the look if the clock has passed noon or midnight meanwhile.
    let (half, found) = loop {
        let half = Utc::now().hour() / 12;
        let ills = [BeforeNoon::examine(&mut connection).unwrap(), AfterNoon::examine(&mut connection).unwrap()];
        if half == Utc::now().hour() / 12 {
            break (half, ills.map(|ills| has(&ills, IllKind::OldDueRow)));
        }
    };
    assert_eq!(found, [half == 0, half == 1]);
}

#[test]
fn a_missing_index_is_found_and_mended() {
    let bank = Bank::new();
    let index = <Payment as QueueOn<Conn>>::QUEUE.target().unwrap().index();
    let on = if NAME == "mysql" { " ON payments" } else { "" };
    execute(&bank, &format!("DROP INDEX {index}{on}"));
    let ill = found(&bank, IllKind::Index);
    assert_eq!(ill.severity, Severity::Error);
    assert!(ill.problem.contains(&index), "{ill}");
    is_mended(&bank, IllKind::Index);
    assert_eq!(Payment::examine(&mut bank.connect()).unwrap(), []);
}

#[test]
fn a_missing_column_is_found_and_mended() {
    let bank = Bank::new();
    execute(&bank, "ALTER TABLE payments DROP COLUMN last_attempt_time");
    is_mended(&bank, IllKind::Schema);
    assert_eq!(Payment::examine(&mut bank.connect()).unwrap(), []);
}

#[test]
fn a_generated_column_is_found() {
    let bank = Bank::new();
    execute(&bank, "ALTER TABLE payments DROP COLUMN try_count");
    let kept = if NAME == "sqlite" { "VIRTUAL" } else { "STORED" };
    execute(&bank, &format!("ALTER TABLE payments ADD COLUMN try_count INTEGER GENERATED ALWAYS AS (1) {kept}"));
    let ills = Payment::examine(&mut bank.connect()).unwrap();
    let ill =
        ills.iter().find(|ill| ill.problem.contains("try_count is generated")).unwrap_or_else(|| panic!("{ills:#?}"));
    assert_eq!((ill.kind, ill.severity), (IllKind::Schema, Severity::Error));
    // The column is gone then, as one that the queue lacks.
    execute(&bank, &ill.mend);
    is_mended(&bank, IllKind::Schema);
}

diesel::table! {
    notes (id) {
        id -> BigInt,
        title -> Text,
    }
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[queue(order_by = title)]
#[diesel(table_name = notes)]
#[allow(dead_code, reason = "only its table is looked at")]
struct Note {
    id: i64,
    title: String,
}

#[test]
fn long_texts_by_which_rows_are_ordered_are_found() {
    let bank = Bank::new();
    let mut connection = bank.connect();
    connection.batch_execute(&format!("CREATE TABLE notes (id {AUTO_KEY} NOT NULL, title {TEXT} NOT NULL)")).unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Note>()).unwrap();
    let insert = |connection: &mut Conn, title: &str| {
        diesel::insert_into(notes::table)
            .values((notes::title.eq(title), Note::due_now()))
            .execute(connection)
            .unwrap();
    };
    insert(&mut connection, "short");
    assert_eq!(Note::examine(&mut connection).unwrap(), []);
    insert(&mut connection, &"long".repeat(60));
    let ill = only(Note::examine(&mut connection).unwrap(), IllKind::LongTexts);
    assert!(ill.problem.contains("240 characters"), "{ill}");
}

/// Writes what a poller says of itself.
fn register(bank: &Bank, id: i64, version: &str, state: &str, settings: &str) {
    let queues =
        format!(r#"[{{"queue": "payments.status", "entity": "Payment", "settings": {settings}, "differs": []}}]"#);
    execute(
        bank,
        &format!(
            "INSERT INTO queueable_pollers (id, host, pid, version, application, state, workers, queues, running, started_at, \
             seen_at) VALUES ({id}, 'web-{id}', {id}, '{version}', '', '{state}', 1, '{queues}', '[]', CURRENT_TIMESTAMP, \
             CURRENT_TIMESTAMP)"
        ),
    );
}

#[test]
fn processes_that_differ_are_found() {
    let bank = Bank::new();
    bank.connect().run_pending_migrations(Migrations::new().pollers()).unwrap();
    let of_kind = |kind| only(examine(&mut bank.connect()).unwrap(), kind);
    register(&bank, 1, "0.1.0", "running", r#"{"max_tries": "5"}"#);
    let ills = examine(&mut bank.connect()).unwrap();
    assert!(ills.iter().all(|ill| ill.kind != IllKind::Unread), "the account may read everything: {ills:#?}");
    register(&bank, 2, "0.1.0", "running", r#"{"max_tries": "5"}"#);
    register(&bank, 3, "0.2.0", "without_connection", r#"{"max_tries": "9"}"#);
    let ill = of_kind(IllKind::DifferentSettings);
    assert_eq!(ill.queue.as_deref(), Some("payments.status"));
    assert!(ill.problem.contains("web-3 (pid 3)") && ill.problem.ends_with("max_tries = 9"), "{ill}");
    let ill = of_kind(IllKind::DifferentVersions);
    assert!(ill.problem.ends_with("0.1.0, 0.2.0"), "{ill}");
    assert!(of_kind(IllKind::PollerWithoutConnection).problem.contains("web-3"));
}

#[test]
fn what_operators_have_left_behind_is_found() {
    let bank = Bank::new();
    bank.connect().run_pending_migrations(Migrations::new().pollers().control()).unwrap();
    let of_kind = |kind| only(examine(&mut bank.connect()).unwrap(), kind);
    Payment::pause(&mut bank.connect(), Pause::new("bank down", "ops")).unwrap();
    execute(&bank, &format!("UPDATE queueable_control SET paused_at = {LONG_AGO}"));
    let ill = of_kind(IllKind::LongPause);
    assert!(ill.problem.ends_with("by ops: bank down"), "{ill}");
    execute(
        &bank,
        "INSERT INTO queueable_control (queue, scope, paused_at, paused_by, pause_reason) \
         VALUES ('payments.status', 'odd', CURRENT_TIMESTAMP, 'ops', 'none')",
    );
    assert!(of_kind(IllKind::ControlRow).problem.contains("`odd`"));
    execute(&bank, "ALTER TABLE queueable_pollers DROP COLUMN application");
    assert!(of_kind(IllKind::OwnTable).problem.contains("application"));
}

#[test]
fn a_session_that_may_only_read_examines_too_and_stays_as_it_was() {
    let bank = Bank::new();
    bank.enqueue([1]);
    execute(&bank, "UPDATE payments SET status = 'WAITING'");
    let mut connection = bank.connect();
    let limits = match NAME {
        "sqlite" => "PRAGMA query_only = 1",
        "mysql" => "SET SESSION TRANSACTION READ ONLY",
        _ => "SET default_transaction_read_only = on",
    };
    connection.batch_execute(limits).unwrap();
    let kinds = |ills: Vec<Ill>| ills.into_iter().map(|ill| ill.kind).collect::<Vec<_>>();
    assert_eq!(kinds(Payment::examine(&mut connection).unwrap()), [IllKind::UnknownStatus]);
    examine(&mut connection).unwrap();
    // In a transaction of the caller's, which goes on.
    let within = connection.transaction(|connection| {
        let ills = kinds(Payment::examine(connection)?);
        examine(connection)?;
        connection.batch_execute("SELECT 1")?;
        Ok::<_, queueable::Error>(ills)
    });
    assert_eq!(within.unwrap(), [IllKind::UnknownStatus]);
    execute(&bank, "UPDATE payments SET status = 'NOT_ATTEMPTED'");
}

#[test]
fn an_examination_waits_for_no_worker() {
    let bank = Bank::new();
    bank.enqueue([1, 2, 3]);
    let mut worker = bank.connect();
    worker
        .transaction(|worker| {
            worker.batch_execute("UPDATE payments SET status = 'WAITING'")?;
            // On SQLite, readers see what was committed, if the journal is a write-ahead log.
            if NAME != "sqlite" {
                assert_eq!(Payment::examine(&mut bank.connect()).unwrap(), []);
            }
            QueryResult::Ok(())
        })
        .unwrap();
}

#[test]
fn the_database_explains_the_statements_that_find_rows_and_runs_none() {
    let bank = Bank::new();
    let connection = &mut bank.connect();
    let key = bank.enqueue([7])[0];
    let plans = plans::<Payment, Conn>(connection).unwrap();
    for name in ["claim", "probe", "oldest_due"] {
        assert!(plans[name].contains("queueable_payments_3d307857d9304fe5"), "{name}: {}", plans[name]);
    }
    assert_eq!(bank.state(key).status, Status::NotAttempted);
    assert!(sizes::<Payment, Conn>(connection).unwrap()[0].bytes.is_some_and(|bytes| bytes > 0));
    assert!(version(connection).unwrap().contains('.'));
    assert!(settings(connection).unwrap().len() >= 5);
}
