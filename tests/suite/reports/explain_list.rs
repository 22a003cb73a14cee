//! Why the rows of a selection do not run: each reason with the number of rows, and one of them.

use diesel::connection::TransactionManager;
use diesel::prelude::*;
use queue_core::internals::backend::Sql;
use queue_core::internals::statement::{Condition, inspect_pending};
use queueable::report::Explanations;
use queueable::{Explanation, Queueable};

use super::{Delivery, Entry, Invoice, NUMBERS, Order, Parcel, Shop, order_queue, orders};
use crate::db::{self, Conn, NAME};
use crate::suite::keyed::queue;

const PAST: &str = "next_attempt_time = '2020-01-01 00:00:00.000'";
const FUTURE: &str = "next_attempt_time = '2100-01-01 00:00:00.000'";

/// A shop with so many orders, numbered from 1.
fn shop_with(orders: usize) -> Shop {
    let shop = Shop::new();
    shop.execute(&format!("INSERT INTO orders (approved) {NUMBERS} SELECT 1 FROM n WHERE n < {orders}"));
    shop
}

/// Returns the number of rows and the example of each reason.
fn lines(found: &Explanations) -> Vec<(usize, &str, String)> {
    let line = |reason: &queueable::report::ExplainedRows| (reason.rows, reason.explanation.to_string());
    found
        .reasons
        .iter()
        .map(|reason| (line(reason), reason.example.as_str()))
        .map(|((n, why), of)| (n, of, why))
        .collect()
}

#[test]
fn each_reason_has_its_number_of_rows_and_an_example() {
    let shop = shop_with(12);
    let mut connection = shop.connect();
    assert_eq!(Order::queue().explain(&mut connection).unwrap().to_string(), "no row is pending\n");
    shop.execute(&format!("UPDATE orders SET {PAST}, company_id = 1 WHERE id <= 9"));
    shop.execute("UPDATE orders SET status = 'DONE' WHERE id IN (7, 8)");
    shop.execute("UPDATE orders SET status = 'done' WHERE id = 9");
    shop.execute(&format!("UPDATE orders SET {FUTURE} WHERE id IN (10, 11)"));
    shop.execute("UPDATE orders SET status = 'SUCCESS' WHERE id = 12");
    let found = Order::queue().explain(&mut connection).unwrap();
    let mut expected = vec![
        (6, "due".to_owned()),
        (2, "the status `DONE` is unknown".to_owned()),
        (2, "scheduled for 2100-01-01 00:00:00 UTC".to_owned()),
        (1, "the status `done` is unknown".to_owned()),
    ];
    let mut rows: Vec<_> = lines(&found).into_iter().map(|(rows, _, why)| (rows, why)).collect();
    rows.sort();
    expected.sort();
    assert_eq!((rows, found.more), (expected, false));
    assert_eq!(found.reasons[0].rows, 6, "the reason of most rows comes first");
    // Only rows of the filter count.
    let found = Order::queue().filter(orders::id.gt(9)).explain(&mut connection).unwrap();
    assert_eq!(found.reasons.iter().map(|reason| reason.rows).collect::<Vec<_>>(), [2]);
    let found = Order::queue().filter(orders::company_id.eq(1)).due().explain(&mut connection).unwrap();
    assert_eq!(found.reasons.iter().map(|reason| reason.rows).sum::<usize>(), 9);
}

#[test]
fn conditions_stages_and_leases_are_reasons() {
    let shop = shop_with(6);
    let mut connection = shop.connect();
    shop.execute(&format!("UPDATE orders SET invoice_{PAST}, approved = id % 2"));
    let found = Invoice::queue().explain(&mut connection).unwrap();
    let condition = "its condition (`claim_if`) is not true".to_owned();
    let mut found = lines(&found);
    found.sort_by_key(|(_, _, why)| why.clone());
    assert_eq!(
        found.iter().map(|(rows, _, why)| (*rows, why.clone())).collect::<Vec<_>>(),
        [(3, "due".to_owned()), (3, condition)]
    );
    assert!(["1", "3", "5"].contains(&found[0].1) && ["2", "4", "6"].contains(&found[1].1), "{found:?}");
    shop.execute(&format!(
        "UPDATE orders SET delivery_{PAST}, delivery_stage = CASE WHEN id = 6 THEN 'load' ELSE 'LOAD' END"
    ));
    let found = Delivery::queue().explain(&mut connection).unwrap();
    assert_eq!(found.reasons[0].rows, 5);
    assert_eq!(lines(&found)[1], (1, "6", "the stage `load` is unknown".to_owned()));
    shop.execute(&format!("UPDATE orders SET parcel_{FUTURE}, parcel_status = 'IN_PROGRESS', parcel_last_attempt_time = '2026-03-01 12:00:00.000' WHERE id <= 2"));
    let found = Parcel::queue().explain(&mut connection).unwrap();
    assert_eq!(
        (lines(&found)[0].0, lines(&found)[0].2.as_str()),
        (2, "held by a worker since 2026-03-01 12:00:00 UTC")
    );
}

#[test]
fn all_rows_but_one_wait_for_their_turn_in_an_exclusive_queue() {
    let shop = shop_with(5);
    shop.execute(&format!("UPDATE orders SET entry_{PAST}"));
    let mut connection = shop.connect();
    let found = Entry::queue().explain(&mut connection).unwrap();
    let waits = "another row's turn comes first".to_owned();
    assert_eq!(
        lines(&found).into_iter().map(|(rows, _, why)| (rows, why)).collect::<Vec<_>>(),
        [(4, waits.clone()), (1, "due".to_owned())]
    );
    // The first one is not among these.
    let found = Entry::queue().filter(orders::id.gt(1)).explain(&mut connection).unwrap();
    assert_eq!(lines(&found).into_iter().map(|(rows, _, why)| (rows, why)).collect::<Vec<_>>(), [(4, waits)]);
}

#[test]
fn rows_that_others_hold_are_told_from_those_that_are_free() {
    let shop = shop_with(300);
    shop.execute(&format!("UPDATE orders SET {PAST}"));
    let mut connection = shop.connect();
    let mut holder = shop.connect();
    <Conn as Connection>::TransactionManager::begin_transaction(&mut holder).unwrap();
    diesel::update(orders::table.filter(orders::id.eq_any([7, 250])))
        .set(orders::region.eq("north"))
        .execute(&mut holder)
        .unwrap();
    let found = Order::queue().explain(&mut connection).unwrap();
    let held: usize = found
        .reasons
        .iter()
        .filter(|reason| reason.explanation == Explanation::Held { since: None, by: None })
        .map(|reason| reason.rows)
        .sum();
    // SQLite has one lock for all.
    assert_eq!(held, if NAME == "sqlite" { 300 } else { 2 });
    <Conn as Connection>::TransactionManager::rollback_transaction(&mut holder).unwrap();
    let found = Order::queue().explain(&mut connection).unwrap();
    assert_eq!(
        lines(&found).into_iter().map(|(rows, _, why)| (rows, why)).collect::<Vec<_>>(),
        [(300, "due".to_owned())]
    );
    // Nothing stays locked, also inside a transaction.
    connection
        .transaction(|connection| {
            assert_eq!(lines(&Order::queue().explain(connection).unwrap())[0].0, 300);
            assert_eq!(lines(&Order::queue().explain(&mut shop.connect()).unwrap())[0].0, 300);
            QueryResult::Ok(())
        })
        .unwrap();
}

#[test]
fn a_thousand_rows_are_read_and_no_finished_one() {
    let shop = shop_with(1_500);
    shop.execute(&format!("UPDATE orders SET {PAST} WHERE id <= 1200"));
    let mut connection = shop.connect();
    let found = Order::queue().explain(&mut connection).unwrap();
    assert!(found.more);
    assert_eq!(found.reasons.iter().map(|reason| reason.rows).collect::<Vec<_>>(), [1_000]);
    assert!(found.to_string().ends_with("and there are more rows\n"), "{found}");
    shop.execute(&format!(
        "INSERT INTO orders (status) {NUMBERS} SELECT 'SUCCESS' FROM n WHERE n < 50000; {}",
        db::ANALYZE.replace("payments", "orders")
    ));
    let condition = Condition::new(queue::<Order>(), None, &[]);
    let sql = diesel::debug_query::<<Conn as Connection>::Backend, _>(&Sql::new(&inspect_pending(condition, 1_001)))
        .to_string();
    let (sql, _) = sql.split_once(" -- binds: []").expect("the statement is planned as it is run");
    let plan = db::plan(&mut connection, sql);
    assert!(plan.contains("queueable_orders_"), "{plan}");
    for scan in ["Seq Scan", "type ALL key None", "SCAN orders\n"] {
        assert!(!format!("{plan}\n").contains(scan), "{plan}");
    }
}

/// They are shown in terminals: what an application, a user or a stranger has written into a row must not be obeyed there.
#[test]
fn hostile_texts_are_shown_and_not_obeyed() {
    const HOSTILE: &str = "<script>alert(1)</script>\u{1b}[2J\u{202e}\r\nFAILED";
    let shop = shop_with(4);
    let mut connection = shop.connect();
    let hostile = "\u{1b}]0;owned\u{7}";
    shop.execute(&format!(
        "UPDATE orders SET {PAST}, status = 'FAILED' WHERE id = 1; UPDATE orders SET {PAST} WHERE id = 2"
    ));
    shop.execute("UPDATE orders SET next_attempt_time = NULL WHERE id = 1");
    let texts = (order_queue::last_attempt_error_message.eq(HOSTILE), orders::region.eq(HOSTILE));
    diesel::update(orders::table.find(1)).set(texts).execute(&mut connection).unwrap();
    diesel::update(orders::table.find(2)).set(order_queue::status.eq(hostile)).execute(&mut connection).unwrap();
    let reports = [
        Order::queue().explain(&mut connection).unwrap().to_string(),
        Order::queue().errors(&mut connection).unwrap().to_string(),
        Order::queue().errors_by(&mut connection, orders::region).unwrap().to_string(),
        Order::queue().backlog_by(&mut connection, orders::region).unwrap().to_string(),
        Order::explain(&mut connection, &1).unwrap().to_string(),
        Order::explain(&mut connection, &2).unwrap().to_string(),
    ];
    for report in &reports {
        let obeyed = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!report.contains(obeyed), "{report:?}");
    }
    assert!(reports[1].contains("<script>alert(<number>)</script>\\u{1b}["), "{}", reports[1]);
    assert!(reports[4].contains("\\u{1b}[2J\\u{202e}\\r\nFAILED"), "{}", reports[4]);
    assert!(reports[5].contains("\\u{1b}]0;owned\\u{7}"), "{}", reports[5]);
}
