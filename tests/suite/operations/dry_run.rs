//! A dry run shows what the call would do, for every call and every kind of row.

use std::time::Duration;

use chrono::DateTime;
use diesel::connection::{SimpleConnection, TransactionManager};
use diesel::prelude::*;
use queueable::Queueable;
use queueable::report::Preview;

use super::{Operated, Row, company, rows, rows_of_every_kind};
use crate::db::Conn;
use crate::suite::bank::{Payment, payment_queue, payments};

/// Rows of every kind, and also stopped rows, leased rows and old ones.
pub(super) fn rows_of_more_kinds() -> Operated {
    let mut operated = rows_of_every_kind();
    let mut connection = operated.connect();
    let add = |connection: &mut Conn, kind: i64, set: &str| {
        for company in [3345, 2] {
            let values = (payments::company_id.eq(company), payments::amount_cents.eq(kind));
            diesel::insert_into(payments::table).values(values).execute(connection).unwrap();
        }
        connection.batch_execute(&format!("UPDATE payments SET {set} WHERE amount_cents = {kind}")).unwrap();
    };
    let (past, future) = ("'2001-02-03 04:05:06.000'", "'2201-02-03 04:05:06.000'");
    add(&mut connection, 8, "last_attempt_error_message = 'queueable: stopped'");
    add(&mut connection, 9, "status = 'ERROR', try_count = 1, last_attempt_error_message = 'no route'");
    add(&mut connection, 10, &format!("status = 'IN_PROGRESS', try_count = 1, next_attempt_time = {future}"));
    add(&mut connection, 11, &format!("status = 'IN_PROGRESS', try_count = 1, next_attempt_time = {past}"));
    add(
        &mut connection,
        12,
        "status = 'IN_PROGRESS', try_count = 1, last_attempt_error_message = 'queueable: stopped'",
    );
    for (kind, status) in [(13, "SUCCESS"), (14, "FAILED"), (15, "SKIPPED")] {
        add(&mut connection, kind, &format!("status = '{status}', try_count = 1, last_attempt_time = {past}"));
    }
    // Finished, and made due again by the application: pending work, however old it is.
    let again = format!("status = 'SUCCESS', last_attempt_time = {past}, next_attempt_time = {past}");
    add(&mut connection, 16, &again);
    add(&mut connection, 17, &format!("last_attempt_time = {past}"));
    operated.before = rows(&mut connection);
    operated
}

fn ids(rows: &[Row]) -> Vec<i64> {
    rows.iter().map(|row| row.0).collect()
}

/// Makes the dry run and the call, and compares them: the number of rows, and the first five that have changed.
macro_rules! says_what_it_does {
    ($($operation:ident($($argument:expr),*) => $call:expr;)*) => {$({
        for pending_only in [false, true] {
            let operated = rows_of_more_kinds();
            let mut connection = operated.connect();
            let mut queue = company!();
            if pending_only {
                queue = queue.pending();
            }
            let asked: Preview<Payment> = queue.dry_run().$operation(&mut connection, $($argument),*).unwrap();
            let name = stringify!($operation);
            assert_eq!(rows(&mut connection), operated.before, "{name} is dry");
            let done: usize = $call(queue, &mut connection);
            assert_eq!(asked.rows, done, "{name}");
            let after = rows(&mut connection);
            let changed: Vec<_> = operated.before.iter().filter(|row| !after.contains(row)).cloned().collect();
            assert_eq!(changed.len(), done, "{name}");
            assert!(changed.iter().all(|row| row.1 == 3345), "{name} is for one company");
            let shown: Vec<_> = asked.some.iter().map(|row| row.key.parse::<i64>().unwrap()).collect();
            assert_eq!(shown, ids(&changed[..changed.len().min(5)]), "{name}");
            let skipped = |row: &&Row| row.3 == "SKIPPED";
            if !matches!(name, "delete" | "purge") {
                let skipped: Vec<_> = operated.before.iter().filter(skipped).collect();
                assert!(skipped.iter().all(|row| after.contains(row)), "{name} leaves skipped rows alone");
            }
        }
    })*};
}

#[test]
fn every_call_does_what_its_dry_run_says_and_leaves_skipped_rows_alone() {
    let (later, month) = (DateTime::UNIX_EPOCH + Duration::from_secs(5_000_000_000), Duration::from_secs(30 * 86_400));
    says_what_it_does! {
        retry_now() => |queue: queueable::QueueRows<_, _>, connection| queue.retry_now(connection).unwrap();
        postpone_until(later) => |queue: queueable::QueueRows<_, _>, connection| queue.postpone_until(connection, later).unwrap();
        stop() => |queue: queueable::QueueRows<_, _>, connection| queue.stop(connection).unwrap();
        restart() => |queue: queueable::QueueRows<_, _>, connection| queue.restart(connection).unwrap();
        rerun() => |queue: queueable::QueueRows<_, _>, connection| queue.rerun(connection).unwrap();
        skip() => |queue: queueable::QueueRows<_, _>, connection| queue.skip(connection).unwrap();
        delete() => |queue: queueable::QueueRows<_, _>, connection| queue.delete(connection).unwrap();
        purge(month) => |queue: queueable::QueueRows<_, _>, connection| queue.purge(connection, month).unwrap();
        enqueue_existing() => |queue: queueable::QueueRows<_, _>, connection| {
            queue.enqueue_existing().run(connection, |_| {}).unwrap()
        };
    }
}

#[test]
fn the_priority_of_skipped_rows_stays_and_the_dry_run_says_so() {
    use diesel_migrations::MigrationHarness;

    #[derive(Debug, Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(module = urgent_queue, priority)]
    struct Urgent {
        id: i64,
    }

    let operated = rows_of_more_kinds();
    let mut connection = operated.connect();
    connection.run_pending_migrations(queueable::Migrations::new().entity::<Urgent>()).unwrap();
    let company = Urgent::queue().filter(payments::company_id.eq(3345));
    let asked = company.dry_run().set_priority(&mut connection, 7).unwrap();
    let urgent = |connection: &mut Conn| -> Vec<i64> {
        let urgent = payments::table.filter(urgent_queue::priority.eq(7)).order(payments::id);
        urgent.select(payments::id).load(connection).unwrap()
    };
    assert_eq!((asked.rows, urgent(&mut connection)), (16, vec![]));
    assert_eq!(company.set_priority(&mut connection, 7).unwrap(), 16);
    let changed = urgent(&mut connection);
    let shown: Vec<_> = asked.some.iter().map(|row| row.entity.as_ref().unwrap().id).collect();
    assert_eq!(shown, changed[..5]);
    let skipped: i64 = company.filter(urgent_queue::priority.eq(0)).count(&mut connection).unwrap();
    assert_eq!(skipped, 2);
}

#[test]
fn the_dry_run_of_a_group_of_errors_says_what_its_retry_does() {
    let operated = rows_of_more_kinds();
    let mut connection = operated.connect();
    let report = company!().errors(&mut connection).unwrap();
    assert!(report.groups.len() >= 2, "{report}");
    for group in &report.groups {
        let asked = company!().dry_run().retry_error_group(&mut connection, group).unwrap();
        let done = company!().retry_error_group(&mut connection, group).unwrap();
        assert_eq!((asked.rows, asked.some.len()), (done, done), "{}", group.pattern);
    }
    assert_eq!(operated.changed(), ["error", "failed"]);
}

#[test]
fn a_preview_shows_some_rows_with_their_state_and_reads_well() {
    let operated = rows_of_more_kinds();
    let mut connection = operated.connect();
    let pattern = "UPDATE payments SET next_attempt_time = '2026-03-04 05:06:07.000' WHERE amount_cents < 2";
    connection.batch_execute(pattern).unwrap();
    let preview = company!().filter(payments::amount_cents.lt(8)).dry_run().skip(&mut connection).unwrap();
    let first = &preview.some[0];
    let payment = first.entity.as_ref().unwrap();
    assert_eq!((preview.rows, preview.some.len(), payment.amount_cents), (6, 5, 0));
    let shown: Vec<_> = preview.some.iter().map(|row| (row.status.as_str(), row.try_count)).collect();
    let expected = [("NOT_ATTEMPTED", 0), ("NOT_ATTEMPTED", 0), ("ERROR", 2), ("FAILED", 3), ("NOT_ATTEMPTED", 0)];
    assert_eq!(shown, expected);
    let text = preview.to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "6 rows, the first 5:");
    let key = &first.key;
    assert_eq!(lines[1], format!("  {key}  NOT_ATTEMPTED  due 2026-03-04 05:06:07 UTC, 0 tries  {payment:?}"));
    assert!(lines[4].contains("FAILED         not pending, 3 tries, \"no account\"  Payment {"), "{text}");

    // It also shows a status that is not the queue's, and a row that cannot be decoded.
    let foreign = company!().filter(payment_queue::status.eq("DONE")).dry_run().delete(&mut connection).unwrap();
    assert_eq!((foreign.rows, foreign.some[0].status.as_str()), (1, "DONE"));
    let none = company!().filter(payments::id.eq(-1)).dry_run().delete(&mut connection).unwrap();
    assert_eq!((none.to_string().as_str(), none.rows), ("0 rows", 0));
}

#[test]
fn a_dry_run_waits_for_nobody() {
    let operated = rows_of_every_kind();
    let mut holder = operated.connect();
    <Conn as Connection>::TransactionManager::begin_transaction(&mut holder).unwrap();
    diesel::update(payments::table).set(payments::amount_cents.eq(99)).execute(&mut holder).unwrap();
    let asked = company!().wait(Duration::from_millis(1)).dry_run().delete(&mut operated.connect()).unwrap();
    assert_eq!(asked.rows, 8);
    <Conn as Connection>::TransactionManager::rollback_transaction(&mut holder).unwrap();
}

#[test]
fn a_preview_is_read_and_written_as_json() {
    #[derive(Debug, PartialEq, ::serde::Serialize, ::serde::Deserialize, Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(module = told_queue)]
    struct Told {
        id: i64,
    }

    let operated = rows_of_every_kind();
    let mut connection = operated.connect();
    let preview = Told::queue().filter(payments::company_id.eq(3345)).dry_run().stop(&mut connection).unwrap();
    let json = serde_json::to_string(&preview).unwrap();
    assert_eq!(serde_json::from_str::<Preview<Told>>(&json).unwrap(), preview);
    assert!(json.contains(r#""rows":3"#), "{json}");
}
