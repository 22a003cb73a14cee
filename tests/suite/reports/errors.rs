//! Errors, grouped by the common parts of their texts, and the retry of one group.

use std::sync::{Mutex, mpsc};

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use queueable::report::{ErrorGroup, ErrorReport};
use queueable::{CrashAccounting, Failure, Message, Outcome, Queueable, Status};

use super::{NUMBERS, Order, Shop, order_queue, orders};
use crate::db::Conn;

fn at(time: &str) -> Option<DateTime<Utc>> {
    Some(time.parse().unwrap())
}

fn patterns<K>(report: &ErrorReport<K>) -> Vec<(&str, i64)> {
    report.groups.iter().map(|group| (group.pattern.as_str(), group.rows)).collect()
}

fn group<'a>(report: &'a ErrorReport<i64>, pattern: &str) -> &'a ErrorGroup<i64> {
    report.groups.iter().find(|group| group.pattern == pattern).unwrap_or_else(|| panic!("no {pattern} in {report}"))
}

fn states(connection: &mut Conn) -> Vec<(i64, Status, i32, bool)> {
    let rows: Vec<(i64, Status, i32, Option<queueable::columns::Instant>)> = orders::table
        .order(orders::id)
        .select((orders::id, order_queue::status, order_queue::try_count, order_queue::next_attempt_time))
        .load(connection)
        .unwrap();
    rows.into_iter().map(|(id, status, tries, next)| (id, status, tries, next.is_some())).collect()
}

/// Rows that have failed in three ways, and rows that have a text but do not count.
fn troubled() -> Shop {
    let shop = Shop::new();
    shop.execute(
        "INSERT INTO orders (id, company_id, status, next_attempt_time, try_count, last_attempt_time,
             last_attempt_error_message) VALUES
         (1, 3345, 'ERROR', '2100-01-01 00:00:00.000', 1, '2026-03-01 12:00:00.000', 'order 1: no route'),
         (2, 3345, 'FAILED', NULL, 3, '2026-03-01 13:00:00.000', 'order 2: no route'),
         (3, 7, 'FAILED', NULL, 3, '2026-03-01 11:00:00.000', 'order 3: no route'),
         (4, 7, 'FAILED', NULL, 3, NULL, 'order 3: no route'),
         (5, 7, 'ERROR', '2100-01-01 00:00:00.000', 1, '2026-03-01 12:00:00.000', 'Order 5: no route'),
         (6, NULL, 'FAILED', NULL, 1, '2026-03-01 12:00:00.000', 'no account ''O-17'' at 2026-01-02T03:04:05Z'),
         (7, NULL, 'FAILED', NULL, 1, '2026-03-01 12:00:00.000', 'no account ''O-18'' at 2026-01-02T03:04:06Z'),
         (8, 3345, 'ERROR', NULL, 1, '2026-03-01 12:00:00.000', 'order 8: no route '),
         (9, 3345, 'NOT_ATTEMPTED', '2100-01-01 00:00:00.000', 0, '2026-03-01 12:00:00.000', 'order 9: no route'),
         (10, 3345, 'SKIPPED', NULL, 1, '2026-03-01 12:00:00.000', 'order 10: no route'),
         (11, 3345, 'NOT_ATTEMPTED', NULL, 0, NULL, 'queueable: stopped'),
         (12, 3345, 'SUCCESS', NULL, 1, '2026-03-01 12:00:00.000', NULL),
         (13, 3345, 'NOT_ATTEMPTED', NULL, 0, NULL, NULL)",
    );
    shop
}

#[test]
fn texts_that_differ_in_values_are_one_group() {
    let shop = troubled();
    let report = Order::queue().errors(&mut shop.connect()).unwrap();
    let expected = [
        ("order <number>: no route", 5),
        ("no account '<value>' at <time>", 2),
        ("Order <number>: no route", 1),
        ("order <number>: no route ", 1),
    ];
    assert_eq!(patterns(&report), expected);
    assert_eq!(report.left_out, 0);
    let largest = &report.groups[0];
    assert_eq!((largest.retrying, largest.failed, largest.texts), (1, 3, 4));
    assert_eq!((largest.first, largest.last), (at("2026-03-01T11:00:00Z"), at("2026-03-01T13:00:00Z")));
    // The text that most rows have, and the first row that has it.
    assert_eq!((&largest.examples[..], largest.example_text.as_str()), (&[3, 1, 2][..], "order 3: no route"));
}

#[test]
fn errors_are_split_by_a_domain_column() {
    let shop = troubled();
    let mut connection = shop.connect();
    let by = Order::queue().errors_by(&mut connection, orders::company_id).unwrap();
    let values: Vec<_> = by.parts.iter().map(|part| (part.value.as_deref(), patterns(&part.report))).collect();
    let expected: [(_, Vec<(&str, i64)>); 3] = [
        (None, vec![("no account '<value>' at <time>", 2)]),
        (Some("7"), vec![("order <number>: no route", 2), ("Order <number>: no route", 1)]),
        (Some("3345"), vec![("order <number>: no route", 3), ("order <number>: no route ", 1)]),
    ];
    assert_eq!(values, expected);
    assert_eq!((by.column.as_str(), by.left_out), ("company_id", 0));
    // A filter selects a part, and a queue's own column can split the report as well.
    let filtered = Order::queue().filter(orders::company_id.eq(7)).errors(&mut connection).unwrap();
    assert_eq!(by.of("7"), Some(&filtered));
    let by = Order::queue().errors_by(&mut connection, order_queue::status).unwrap();
    assert_eq!(patterns(by.of("NOT_ATTEMPTED").unwrap()), [("order <number>: no route", 1)]);
    // A condition on the state selects a part too.
    let failed = Order::queue().failed().errors(&mut connection).unwrap();
    assert_eq!(patterns(&failed), [("order <number>: no route", 3), ("no account '<value>' at <time>", 2)]);
}

#[test]
fn one_group_is_retried_and_no_other_row() {
    let shop = troubled();
    let mut connection = shop.connect();
    let report = Order::queue().errors(&mut connection).unwrap();
    let before = states(&mut connection);
    let no_route = group(&report, "order <number>: no route");
    assert_eq!(
        Order::queue().filter(orders::company_id.eq(7)).retry_error_group(&mut connection, no_route).unwrap(),
        2
    );
    let company = Order::queue().filter(orders::company_id.eq(3345));
    assert_eq!(company.clone().failed().retry_error_group(&mut connection, no_route).unwrap(), 1);
    let anew = |id| (id, Status::NotAttempted, 0, true);
    let mut expected = before.clone();
    (expected[1], expected[2], expected[3]) = (anew(2), anew(3), anew(4));
    assert_eq!(states(&mut connection), expected);
    assert_eq!(Order::queue().due().count(&mut connection).unwrap(), 3);
    let preview = company.dry_run().retry_error_group(&mut connection, no_route).unwrap();
    assert_eq!((preview.rows, preview.some[0].key.as_str(), preview.some.len()), (3, "1", 3));
    // The rows that wait for a retry keep their state and are due.
    assert_eq!(company.retry_error_group(&mut connection, no_route).unwrap(), 3);
    assert_eq!(states(&mut connection), expected);
    assert_eq!(Order::queue().due().count(&mut connection).unwrap(), 5);
    assert_eq!(
        Order::queue()
            .all_rows()
            .retry_error_group(&mut connection, group(&report, "no account '<value>' at <time>"))
            .unwrap(),
        2
    );
    assert_eq!(Order::queue().due().count(&mut connection).unwrap(), 7);
}

#[test]
fn a_group_is_retried_in_the_callers_transaction() {
    let shop = troubled();
    let mut connection = shop.connect();
    let report = Order::queue().errors(&mut connection).unwrap();
    let before = states(&mut connection);
    let rolled_back = connection.transaction(|connection| {
        let retried = Order::queue().all_rows().retry_error_group(connection, &report.groups[0]).unwrap();
        assert_eq!(retried, 5);
        Err::<(), _>(diesel::result::Error::RollbackTransaction)
    });
    assert!(rolled_back.is_err());
    assert_eq!(states(&mut connection), before);
    assert_eq!(Order::queue().due().count(&mut connection).unwrap(), 0);
}

#[test]
fn what_handlers_fail_with_is_reported() {
    let shop = Shop::new();
    let mut connection = shop.connect();
    let orders: Vec<_> = (1..=6).map(|id| (orders::id.eq(id), Order::due_now())).collect();
    diesel::insert_into(orders::table).values(orders).execute(&mut connection).unwrap();
    let pool = shop.0.pool(3);
    let tally = Order::poller(pool, |order: &Order, _: &mut Message<'_, Conn>| match order.id % 2 {
        0 => Err(Failure::fatal(format!("order {}: no account", order.id))),
        _ => Err(Failure::retry(format!("{}\n at line {}", "é".repeat(2000), order.id))),
    })
    .workers(1)
    .run_until_idle()
    .unwrap();
    assert_eq!((tally.failed, tally.retried), (3, 3));
    let report = Order::queue().errors(&mut connection).unwrap();
    let long = "é".repeat(400);
    assert_eq!(patterns(&report), [("order <number>: no account", 3), (long.as_str(), 3)]);
    assert_eq!((report.groups[1].texts, report.groups[1].retrying), (1, 3));
    assert!(report.groups[1].first <= report.groups[1].last);
    assert_eq!(report.groups[1].example_text, "é".repeat(1000));
    assert_eq!(Order::queue().all_rows().retry_error_group(&mut connection, &report.groups[1]).unwrap(), 3);
    assert_eq!(Order::queue().due().count(&mut connection).unwrap(), 3);
}

#[test]
fn of_very_many_texts_some_are_left_out_and_counted() {
    let shop = Shop::new();
    shop.execute(&format!(
        "INSERT INTO orders (status, last_attempt_error_message) {NUMBERS}
         SELECT 'FAILED', CONCAT(CASE WHEN n % 200 = 0 THEN 'no account ' ELSE 'no route ' END, n) FROM n WHERE n < 20100"
    ));
    let mut connection = shop.connect();
    let report = Order::queue().errors(&mut connection).unwrap();
    assert_eq!(report.left_out, 100);
    assert_eq!(report.groups.iter().map(|group| group.rows).sum::<i64>(), 20_000);
    // The retry leaves no row out.
    let no_account = group(&report, "no account <number>");
    let all = Order::queue().all_rows();
    assert_eq!(all.dry_run().retry_error_group(&mut connection, no_account).unwrap().rows, 101);
    assert_eq!(all.retry_error_group(&mut connection, no_account).unwrap(), 101);
    assert_eq!(Order::queue().due().count(&mut connection).unwrap(), 101);
}

#[test]
fn the_rows_of_a_group_are_stopped_and_skipped_as_a_dry_run_says() {
    let shop = Shop::new();
    let soon = "'2100-01-01 00:00:00.000'";
    shop.execute(&format!(
        "INSERT INTO orders (company_id, status, next_attempt_time, last_attempt_error_message) VALUES
         (7, 'ERROR', {soon}, 'no route to 1'), (7, 'ERROR', {soon}, 'no route to 2'), (8, 'ERROR', {soon}, 'no route to 3'),
         (7, 'FAILED', NULL, 'no route to 4'), (7, 'ERROR', {soon}, 'no account 5')"
    ));
    let mut connection = shop.connect();
    let company = Order::queue().filter(orders::company_id.eq(7));
    let report = company.errors(&mut connection).unwrap();
    let no_route = group(&report, "no route to <number>");
    // A failed row has nothing to stop.
    assert_eq!(company.dry_run().stop_error_group(&mut connection, no_route).unwrap().rows, 2);
    assert_eq!(company.stop_error_group(&mut connection, no_route).unwrap(), 2);
    let left = |connection: &mut Conn| Order::queue().scheduled().count(connection).unwrap();
    assert_eq!(left(&mut connection), 2);
    assert_eq!(company.dry_run().skip_error_group(&mut connection, no_route).unwrap().rows, 3);
    assert_eq!(company.skip_error_group(&mut connection, no_route).unwrap(), 3);
    assert_eq!(Order::queue().skipped().count(&mut connection).unwrap(), 3);
    assert_eq!(
        patterns(&Order::queue().errors(&mut connection).unwrap()).len(),
        2,
        "the other company's, and the other group"
    );
    assert_eq!(left(&mut connection), 2);
}

#[test]
fn texts_that_differ_late_are_told_apart() {
    let shop = Shop::new();
    // The first 350 characters are more than a thousand bytes.
    let alike = "€".repeat(350);
    shop.execute(&format!(
        "INSERT INTO orders (id, status, last_attempt_error_message) VALUES
         (1, 'FAILED', '{alike} no route'), (2, 'FAILED', '{alike} no account'), (3, 'FAILED', '{alike} no account')"
    ));
    let mut connection = shop.connect();
    let report = Order::queue().errors(&mut connection).unwrap();
    let (route, account) = (format!("{alike} no route"), format!("{alike} no account"));
    assert_eq!(patterns(&report), [(account.as_str(), 2), (route.as_str(), 1)]);
    let all = Order::queue().all_rows();
    assert_eq!(all.retry_error_group(&mut connection, group(&report, &route)).unwrap(), 1);
    assert_eq!(all.retry_error_group(&mut connection, group(&report, &account)).unwrap(), 2);
}

#[test]
fn a_row_that_is_handled_under_strict_accounts_is_no_failure() {
    let shop = Shop::new();
    let values = (orders::id.eq(1), Order::due_now());
    diesel::insert_into(orders::table).values(values).execute(&mut shop.connect()).unwrap();
    let (reader, (tell, told)) = (Mutex::new(shop.connect()), mpsc::channel());
    let tally = Order::poller(shop.0.pool(3), move |_: &Order, _: &mut Message<'_, Conn>| {
        let mut reader = reader.lock().unwrap();
        let text =
            orders::table.select(order_queue::last_attempt_error_message).get_result::<Option<String>>(&mut *reader);
        tell.send((text?.is_some(), Order::queue().errors(&mut *reader).unwrap().groups)).unwrap();
        Ok(Outcome::Done)
    })
    .crash_accounting(CrashAccounting::Strict)
    .workers(1)
    .run_until_idle()
    .unwrap();
    assert_eq!(tally.succeeded, 1);
    assert_eq!(told.recv().unwrap(), (true, Vec::new()));
}

#[test]
fn a_stopped_row_is_not_retrying() {
    let shop = Shop::new();
    shop.execute(
        "INSERT INTO orders (status, next_attempt_time, try_count, last_attempt_error_message) VALUES
         ('ERROR', '2100-01-01 00:00:00.000', 1, 'no route'), ('ERROR', NULL, 1, 'no route')",
    );
    let report = Order::queue().errors(&mut shop.connect()).unwrap();
    let group = group(&report, "no route");
    assert_eq!((group.rows, group.retrying, group.failed), (2, 1, 0));
}
