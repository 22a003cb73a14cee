//! Each call that changes rows leaves one row of the audit if it names its author, and none without.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::connection::{Instrumentation, InstrumentationEvent, SimpleConnection, TransactionManager};
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::control::Audited;
use queueable::{Error, Migrations, QueueRows, Queueable};

use super::{BY, REASON, add_table, bank, only_row, rows};
use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, payments};
use crate::suite::lease::Charge;
use crate::suite::on_finish::{self, Mode, Moved};
use crate::suite::operations::{company, rows_of_every_kind};

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = ranked_queue, priority)]
#[expect(dead_code, reason = "it is decoded, not read")]
struct Ranked {
    id: i64,
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = audited_group_queue, group = 10)]
#[expect(dead_code, reason = "it is decoded, not read")]
struct AuditedGroup {
    id: i64,
}

const YEARS_AGO: &str = "'2001-02-03 04:05:06.000'";

/// Each call with how it looks in the audit, and how many of three rows it changes.
type Call = (&'static str, fn(&QueueRows<Payment, queueable::bounds::EveryRow>, &mut Conn) -> Result<usize, Error>);

const CALLS: [Call; 8] = [
    ("postpone_until 2100-01-01 00:00:00 UTC", |queue, connection| {
        queue.postpone_until(connection, "2100-01-01T00:00:00Z".parse::<DateTime<Utc>>().unwrap())
    }),
    ("retry_now", |queue, connection| queue.retry_now(connection)),
    ("stop", |queue, connection| queue.stop(connection)),
    ("restart", |queue, connection| queue.restart(connection)),
    ("skip", |queue, connection| queue.skip(connection)),
    ("rerun", |queue, connection| {
        connection.batch_execute("UPDATE payments SET status = 'SUCCESS'").unwrap();
        queue.rerun(connection)
    }),
    ("enqueue_existing", |queue, connection| {
        connection
            .batch_execute("UPDATE payments SET next_attempt_time = NULL, last_attempt_error_message = NULL")
            .unwrap();
        queue.clone().enqueue_existing().run(connection, |_| {})
    }),
    ("purge 3600s", |queue, connection| {
        connection
            .batch_execute(&format!(
                "UPDATE payments SET status = 'FAILED', next_attempt_time = NULL, last_attempt_time = {YEARS_AGO}"
            ))
            .unwrap();
        queue.purge(connection, Duration::from_secs(3600))
    }),
];

#[test]
fn each_call_leaves_who_when_what_and_how_many() {
    let bank = bank();
    bank.enqueue([1, 2, 3]);
    let connection = &mut bank.connect();
    let before = Utc::now() - Duration::from_secs(60);
    for (action, call) in CALLS {
        assert_eq!(call(&Payment::queue().all_rows().by(BY, REASON), connection).unwrap(), 3, "{action}");
    }
    bank.enqueue([4, 5, 6]);
    assert_eq!(Payment::queue().all_rows().by(BY, REASON).delete(connection).unwrap(), 3);
    let rows = rows(connection);
    let actions: Vec<_> = rows.iter().map(|row| row.action.as_str()).collect();
    assert_eq!(actions, CALLS.map(|(action, _)| action).into_iter().chain(["delete"]).collect::<Vec<_>>());
    for Audited { at, by, reason, queue, filter, rows, .. } in rows {
        assert!(at > before && at < Utc::now() + Duration::from_secs(60), "{at}");
        assert_eq!([&by, &reason, &queue, &filter], [BY, REASON, "payments.status", "all rows"]);
        assert_eq!(rows, 3);
    }
}

#[test]
fn priorities_are_audited_with_their_number() {
    let bank = bank();
    bank.connect().run_pending_migrations(Migrations::new().entity::<Ranked>()).unwrap();
    bank.enqueue([1, 2]);
    let connection = &mut bank.connect();
    Ranked::queue().all_rows().pending().by(BY, REASON).set_priority(connection, -7).unwrap();
    assert_eq!(only_row(connection), ("set_priority -7".to_owned(), "all rows; pending".to_owned(), 2));
}

#[test]
fn rows_that_move_to_an_archive_and_back_are_audited() {
    let bank = on_finish::bank();
    let connection = &mut bank.connect();
    add_table(connection);
    bank.enqueue([5, -1, 6, -2, -3]);
    Mode::Transaction.run(&bank);
    let queue = || Moved::queue().all_rows().by(BY, REASON);
    assert_eq!(queue().redrive(connection).unwrap().rows, 3);
    assert_eq!(queue().redrive_succeeded(connection).unwrap().rows, 2);
    connection.batch_execute("UPDATE payments SET status = 'SUCCESS', next_attempt_time = NULL").unwrap();
    assert_eq!(queue().archive(connection).unwrap(), 5);
    let rows: Vec<_> = rows(connection).into_iter().map(|row| (row.action, row.rows)).collect();
    let expected = [("redrive", 3), ("redrive_succeeded", 2), ("archive", 5)];
    assert_eq!(rows, expected.map(|(action, rows)| (action.to_owned(), rows)));
}

#[test]
fn a_group_of_errors_is_audited_with_its_pattern() {
    let operated = rows_of_every_kind();
    let connection = &mut operated.connect();
    add_table(connection);
    let company = company!().by(BY, REASON);
    let report = company.errors(connection).unwrap();
    let group = report.groups.iter().find(|group| group.pattern == "no route").unwrap();
    assert_eq!(company.retry_error_group(connection, group).unwrap(), 1);
    assert_eq!(company.stop_error_group(connection, group).unwrap(), 1);
    assert_eq!(company.skip_error_group(connection, group).unwrap(), 1);
    let rows = rows(connection);
    let actions: Vec<_> = rows.iter().map(|row| (row.action.as_str(), row.rows)).collect();
    assert_eq!(actions, [("retry_error_group", 1), ("stop_error_group", 1), ("skip_error_group", 1)]);
    assert!(rows.iter().all(|row| row.filter.ends_with(" = 3345); error `no route`")), "{rows:?}");
}

#[test]
fn in_the_other_modes_rows_are_audited_too() {
    let bank = bank();
    bank.enqueue([1, 2]);
    let connection = &mut bank.connect();
    assert_eq!(AuditedGroup::queue().all_rows().due().by(BY, REASON).stop(connection).unwrap(), 2);
    assert_eq!(Charge::queue().all_rows().by(BY, REASON).restart(connection).unwrap(), 2);
    diesel::update(payments::table.filter(payments::amount_cents.eq(1)))
        .set(Charge::due_in(Duration::from_secs(600)))
        .execute(connection)
        .unwrap();
    connection.batch_execute("UPDATE payments SET status = 'IN_PROGRESS' WHERE amount_cents = 1").unwrap();
    assert_eq!(Charge::queue().all_rows().running().by(BY, REASON).skip(connection).unwrap(), 1);
    let rows = rows(connection);
    let filters: Vec<_> = rows.iter().map(|row| (row.filter.as_str(), row.rows)).collect();
    assert_eq!(filters, [("all rows; due", 2), ("all rows", 2), ("all rows; status IN_PROGRESS; scheduled", 1)]);
}

#[test]
fn a_call_that_changes_nothing_leaves_a_row_that_says_so() {
    let bank = bank();
    let connection = &mut bank.connect();
    let queue = Payment::queue().all_rows().by(BY, REASON);
    assert_eq!(queue.skip(connection).unwrap(), 0);
    assert_eq!(queue.purge(connection, Duration::ZERO).unwrap(), 0);
    assert_eq!(queue.clone().enqueue_existing().run(connection, |_| {}).unwrap(), 0);
    let rows: Vec<_> = rows(connection).into_iter().map(|row| (row.action, row.rows)).collect();
    let expected = ["skip", "purge 0ns", "enqueue_existing"];
    assert_eq!(rows, expected.map(|action| (action.to_owned(), 0)));
}

#[test]
fn the_row_belongs_to_the_callers_transaction() {
    let bank = bank();
    let ids = bank.enqueue([1]);
    let connection = &mut bank.connect();
    let rolled_back = connection.transaction(|connection| {
        let queue = Payment::queue().all_rows().by(BY, REASON);
        assert_eq!(queue.skip(connection).unwrap(), 1);
        assert_eq!(queue.purge(connection, Duration::ZERO).unwrap(), 0);
        assert_eq!(rows(connection).len(), 2);
        Err::<(), _>(diesel::result::Error::RollbackTransaction)
    });
    assert!(rolled_back.is_err());
    assert_eq!(rows(connection), []);
    assert!(bank.state(ids[0]).next_attempt_time.is_some());
}

#[test]
fn dry_runs_and_reports_leave_no_row() {
    let operated = rows_of_every_kind();
    let connection = &mut operated.connect();
    add_table(connection);
    let company = company!().by(BY, REASON);
    assert_eq!(company.dry_run().skip(connection).unwrap().rows, 6);
    assert_eq!(company.dry_run().purge(connection, Duration::ZERO).unwrap().rows, 0);
    assert_eq!(company.count(connection).unwrap(), 8);
    company.errors(connection).unwrap();
    assert_eq!(rows(connection), []);
    assert_eq!(operated.changed(), [""; 0]);
}

#[test]
fn a_call_that_was_held_up_leaves_no_row() {
    let bank = bank();
    bank.enqueue([1]);
    let mut holder = bank.connect();
    <Conn as Connection>::TransactionManager::begin_transaction(&mut holder).unwrap();
    diesel::update(payments::table).set(payments::amount_cents.eq(2)).execute(&mut holder).unwrap();
    let connection = &mut bank.connect();
    let refused = Payment::queue().all_rows().by(BY, REASON).wait(Duration::from_millis(50)).skip(connection);
    assert!(matches!(refused, Err(Error::Held(_))), "{refused:?}");
    <Conn as Connection>::TransactionManager::rollback_transaction(&mut holder).unwrap();
    assert_eq!(rows(connection), []);
}

#[test]
fn an_author_that_makes_no_sense_is_refused_and_nothing_is_changed() {
    let bank = bank();
    let ids = bank.enqueue([1]);
    let connection = &mut bank.connect();
    let mut refused = |by: &str, reason: &str| {
        let queue = Payment::queue().all_rows().by(by, reason);
        let results = [queue.skip(connection), queue.purge(connection, Duration::ZERO)];
        results.map(|result| match result {
            Err(Error::Setting { setting, expected, .. }) => (setting, expected),
            other => panic!("{other:?}"),
        })
    };
    let by = ("who asks for a change", "1 to 255 characters, in one line");
    let reason = ("the reason of a change", "1 to 1,000 characters, in one line");
    for text in ["", " ", "two\nlines", "\0", "\u{1b}[2J", &"y".repeat(256)] {
        assert_eq!(refused(text, REASON), [by; 2]);
    }
    for text in ["", "\t", "two\r\nlines", &"y".repeat(1_001)] {
        assert_eq!(refused(BY, text), [reason; 2]);
    }
    assert_eq!(rows(connection), []);
    assert!(bank.state(ids[0]).next_attempt_time.is_some());
    let (by, reason) = ("ü".repeat(255), "\u{1F980}".repeat(1_000));
    assert_eq!(Payment::queue().all_rows().by(by.as_str(), reason.as_str()).skip(connection).unwrap(), 1);
    let row = rows(connection).remove(0);
    assert_eq!((row.by, row.reason), (by, reason));
}

/// Notes what is sent to the database.
#[derive(Clone, Default)]
struct Sent(Arc<Mutex<Vec<String>>>);

impl Instrumentation for Sent {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        if let InstrumentationEvent::StartQuery { query, .. } = event {
            self.0.lock().unwrap().push(query.to_string());
        }
    }
}

#[test]
fn without_an_author_a_call_sends_what_it_sent_before() {
    let sent = |bank: &Bank| {
        bank.enqueue([1, 2, 3]);
        let connection = &mut bank.connect();
        let (queue, sent) = (Payment::queue().all_rows(), Sent::default());
        connection.set_instrumentation(sent.clone());
        CALLS.iter().for_each(|(action, call)| assert_eq!(call(&queue, connection).unwrap(), 3, "{action}"));
        let sent = sent.0.lock().unwrap().clone();
        assert!(sent.len() >= 8 && !sent.iter().any(|statement| statement.contains("audit")), "{sent:?}");
        sent.len()
    };
    assert_eq!(sent(&bank()), sent(&Bank::new()));
}
