//! The backlog counts every row in its state, by the queue's index.

use std::time::Duration;

use chrono::Utc;
use diesel::prelude::*;
use queue_core::internals::backend::{Sql, Statement};
use queue_core::internals::statement::{Condition, SplitBy, StateCondition, count_pending};
use queueable::report::Backlog;
use queueable::{Queueable, Status};

use super::{Invoice, NUMBERS, Order, Parcel, Shop, orders};
use crate::db::{self, Conn};
use crate::suite::keyed::queue;

type Backend = <Conn as diesel::Connection>::Backend;

/// The numbers of due, scheduled, running, held and failed rows.
fn counts(backlog: &Backlog) -> (i64, i64, Option<i64>, i64, i64) {
    (backlog.due, backlog.scheduled, backlog.running, backlog.held_back, backlog.failed)
}

/// A row in each state, for the queue with these columns.
fn rows_of_every_kind(shop: &Shop, prefix: &str, approved: i64) {
    let (past, future) = ("'2020-01-01 00:00:00.000'", "'2100-01-01 00:00:00.000'");
    let rows = [
        ("NOT_ATTEMPTED", past),
        ("ERROR", past),
        ("FAILED", past),
        ("SUCCESS", past),
        ("IN_PROGRESS", past),
        ("NOT_ATTEMPTED", future),
        ("ERROR", future),
        ("IN_PROGRESS", future),
        ("FAILED", "NULL"),
        ("SUCCESS", "NULL"),
        ("SKIPPED", "NULL"),
        ("NOT_ATTEMPTED", "NULL"),
        ("ERROR", "NULL"),
        ("DONE", past),
        ("DONE", future),
        ("DONE", "NULL"),
    ];
    let rows = rows.map(|(status, next)| format!("({approved}, '{status}', {next})"));
    shop.execute(&format!(
        "INSERT INTO orders (approved, {prefix}status, {prefix}next_attempt_time) VALUES {}",
        rows.join(", ")
    ));
}

#[test]
fn every_row_is_counted_where_it_belongs() {
    let shop = Shop::new();
    let mut connection = shop.connect();
    rows_of_every_kind(&shop, "", 0);
    let backlog = Order::queue().backlog(&mut connection).unwrap();
    // Outside lease mode, a running row cannot be told from one that waits.
    assert_eq!(counts(&backlog), (5, 3, None, 0, 1));
    rows_of_every_kind(&shop, "parcel_", 0);
    let backlog = Parcel::queue().backlog(&mut connection).unwrap();
    assert_eq!(counts(&backlog), (5, 2, Some(1), 0, 1));
}

#[test]
fn rows_whose_condition_is_false_are_not_due() {
    let shop = Shop::new();
    let mut connection = shop.connect();
    rows_of_every_kind(&shop, "invoice_", 0);
    let held_back = Invoice::queue().backlog(&mut connection).unwrap();
    assert_eq!(counts(&held_back), (0, 3, None, 5, 1));
    assert_eq!(held_back.oldest_due, None);
    rows_of_every_kind(&shop, "invoice_", 1);
    let backlog = Invoice::queue().backlog(&mut connection).unwrap();
    assert_eq!(counts(&backlog), (5, 6, None, 5, 2));
    assert!(backlog.oldest_due.is_some());
}

#[test]
fn an_empty_backlog_has_no_age() {
    let shop = Shop::new();
    let mut connection = shop.connect();
    assert_eq!(Order::queue().backlog(&mut connection).unwrap(), Backlog::default());
    assert_eq!(counts(&Parcel::queue().backlog(&mut connection).unwrap()), (0, 0, Some(0), 0, 0));
    assert_eq!(Order::queue().backlog_by(&mut connection, orders::company_id).unwrap().parts, []);
}

#[test]
fn the_age_is_that_of_the_oldest_due_row() {
    let shop = Shop::new();
    let mut connection = shop.connect();
    let hour = Duration::from_secs(3_600);
    let rows: Vec<_> = [0, 1, 2].into_iter().map(|hours| Order::due_at(Utc::now() - hour * hours)).collect();
    diesel::insert_into(orders::table).values(rows).execute(&mut connection).unwrap();
    diesel::insert_into(orders::table).values(Order::due_in(hour)).execute(&mut connection).unwrap();
    let backlog = Order::queue().backlog(&mut connection).unwrap();
    assert_eq!(counts(&backlog), (3, 1, None, 0, 0));
    let age = backlog.oldest_due.unwrap();
    assert!(age >= hour * 2 && age < hour * 3, "{age:?}");
}

#[test]
fn a_backlog_is_split_by_a_domain_column() {
    let shop = Shop::new();
    let mut connection = shop.connect();
    shop.execute(
        "INSERT INTO orders (company_id, region, status, next_attempt_time) VALUES
         (7, 'a', 'NOT_ATTEMPTED', '2020-01-01 00:00:00.000'), (7, 'A', 'ERROR', '2100-01-01 00:00:00.000'),
         (NULL, 'a', 'ERROR', '2020-01-01 00:00:00.000'), (3345, 'a ', 'FAILED', NULL), (1, 'a', 'SUCCESS', NULL)",
    );
    let by = Order::queue().backlog_by(&mut connection, orders::company_id).unwrap();
    let parts: Vec<_> = by.parts.iter().map(|part| (part.value.as_deref(), counts(&part.report))).collect();
    let expected = [(None, (1, 0, None, 0, 0)), (Some("7"), (1, 1, None, 0, 0)), (Some("3345"), (0, 0, None, 0, 1))];
    assert_eq!(parts, expected);
    assert_eq!(by.left_out, 0);
    assert!(by.of("7").unwrap().oldest_due.is_some() && by.of("3345").unwrap().oldest_due.is_none());
    // Upper and lower case, and blanks, count on every database.
    let by = Order::queue().backlog_by(&mut connection, orders::region).unwrap();
    assert_eq!(by.parts.iter().map(|part| part.value.as_deref().unwrap()).collect::<Vec<_>>(), ["A", "a", "a "]);
    assert_eq!(counts(by.of("a").unwrap()), (2, 0, None, 0, 0));
    let company = Order::queue().filter(orders::company_id.eq(7)).backlog(&mut connection).unwrap();
    assert_eq!(counts(&company), (1, 1, None, 0, 0));
}

#[test]
fn of_very_many_values_some_are_left_out_and_counted() {
    let shop = Shop::new();
    shop.execute(&format!(
        "INSERT INTO orders (company_id, next_attempt_time) {NUMBERS}
         SELECT n, '2020-01-01 00:00:00.000' FROM n WHERE n < 10007"
    ));
    let by = Order::queue().backlog_by(&mut shop.connect(), orders::company_id).unwrap();
    assert_eq!((by.parts.len(), by.left_out), (10_000, 7));
}

fn plan_of(connection: &mut Conn, statement: &impl Statement<Backend>) -> String {
    let sql = diesel::debug_query::<Backend, _>(&Sql::new(statement)).to_string();
    let (sql, _) = sql.split_once(" -- binds: []").expect("the statement is planned as it is run");
    db::plan(connection, sql)
}

#[test]
fn the_backlog_is_counted_by_the_queues_index() {
    let shop = Shop::new();
    shop.execute(&format!(
        "INSERT INTO orders (status) {NUMBERS} SELECT 'SUCCESS' FROM n WHERE n < 50000;
         INSERT INTO orders (next_attempt_time) {NUMBERS} SELECT '2020-01-01 00:00:00.000' FROM n WHERE n < 300;
         INSERT INTO orders (next_attempt_time) {NUMBERS} SELECT '2100-01-01 00:00:00.000' FROM n WHERE n < 300;
         {}",
        db::ANALYZE.replace("payments", "orders"),
    ));
    let mut connection = shop.connect();
    assert_eq!(counts(&Order::queue().backlog(&mut connection).unwrap()), (300, 300, None, 0, 0));
    let pending = [StateCondition::Pending, StateCondition::In(&Status::ALL)];
    let all = count_pending(Condition::new(queue::<Order>(), None, &pending), None, 10);
    let split = Some(SplitBy::Column("company_id"));
    let by = count_pending(Condition::new(queue::<Order>(), None, &pending), split, 10);
    for (name, plan) in [("all", plan_of(&mut connection, &all)), ("by company", plan_of(&mut connection, &by))] {
        assert!(plan.contains("queueable_orders_"), "{name}:\n{plan}");
        // PostgreSQL, MySQL and SQLite, in this order. MySQL reads the two rows of the inner queries in the same words.
        let inner = if name == "all" { 2 } else { 0 };
        for (scan, allowed) in [("Seq Scan", 0), ("type ALL key None", inner), ("SCAN orders\n", 0)] {
            assert!(format!("{plan}\n").matches(scan).count() <= allowed, "{name}:\n{plan}");
        }
    }
}

#[test]
fn a_row_in_a_stage_that_the_entity_does_not_have_is_held_back() {
    let shop = Shop::new();
    shop.execute(
        "INSERT INTO orders (delivery_status, delivery_next_attempt_time, delivery_stage) VALUES
         ('NOT_ATTEMPTED', '2020-01-01 00:00:00.000', 'PACK'),
         ('NOT_ATTEMPTED', '2020-01-01 00:00:00.000', 'WRAP')",
    );
    let backlog = super::Delivery::queue().backlog(&mut shop.connect()).unwrap();
    assert_eq!(counts(&backlog), (1, 0, None, 1, 0));
}
