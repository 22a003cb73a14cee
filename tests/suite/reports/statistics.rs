//! Statistics by the hour and the day: the same data give the same table on every database.

use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use queueable::report::{Counted, Interval, Statistics};
use queueable::{HandlerResult, Message, Outcome, Queueable};

use super::{Invoice, NUMBERS, Order, Shop, order_queue, orders};
use crate::db::Conn;
use crate::suite::thorough::times;

type Line = (&'static str, i64, i64, Option<[u64; 3]>);

/// The periods with their numbers, and mean, median and 95th percentile in milliseconds.
fn assert_is(statistics: &Statistics, expected: &[Line]) {
    let found: Vec<_> = statistics
        .periods
        .iter()
        .map(|period| {
            let durations = period.mean.zip(period.p50).zip(period.p95).map(|((mean, p50), p95)| [mean, p50, p95]);
            (period.start, period.succeeded, period.failed, durations)
        })
        .collect();
    let expected: Vec<_> = expected
        .iter()
        .map(|(start, succeeded, failed, durations)| {
            let start: DateTime<Utc> = start.parse().unwrap();
            (start, *succeeded, *failed, durations.map(|all| all.map(Duration::from_millis)))
        })
        .collect();
    assert_eq!(found, expected);
}

/// Orders that ended around midnight, with the durations of their attempts.
fn history() -> Shop {
    let shop = Shop::new();
    let mut rows = Vec::new();
    let mut row = |company: &str, region: &str, status: &str, begin: Option<&str>, end: &str| {
        let begin = begin.map_or("NULL".to_owned(), |begin| format!("'{begin}'"));
        rows.push(format!("({company}, {region}, '{status}', 1, '{end}', {begin}, '{end}')"));
    };
    // Twenty attempts of 1 to 20 seconds in the hour from nine.
    for seconds in 1..=20 {
        let (begin, end) = (format!("2026-03-01 08:59:{:02}.250", 60 - seconds), "2026-03-01 09:00:00.250");
        let company = if seconds % 2 == 0 { "2" } else { "1" };
        let status = if seconds > 18 { "FAILED" } else { "SUCCESS" };
        row(company, "'north'", status, Some(&begin), end);
    }
    // One in the last millisecond of the day, one in the first of the next day; and a failure of unknown duration.
    row("NULL", "'North'", "SUCCESS", Some("2026-03-01 23:59:59.978"), "2026-03-01 23:59:59.999");
    row("1", "NULL", "FAILED", Some("2026-03-01 23:59:59.000"), "2026-03-02 00:00:00.000");
    row("1", "NULL", "FAILED", None, "2026-03-02 00:59:59.999");
    shop.execute(&format!(
        "INSERT INTO orders (company_id, region, status, try_count, last_attempt_time, begin_time, end_time) VALUES {}",
        rows.join(", ")
    ));
    // Rows that have not ended, or that never began.
    shop.execute(
        "INSERT INTO orders (status, next_attempt_time, last_attempt_time, begin_time, end_time) VALUES
         ('ERROR', '2100-01-01 00:00:00.000', '2026-03-01 09:00:00.000', '2026-03-01 09:00:00.000', '2026-03-01 09:10:00.000'),
         ('SKIPPED', NULL, '2026-03-01 09:00:00.000', '2026-03-01 09:00:00.000', '2026-03-01 09:10:00.000'),
         ('SUCCESS', NULL, NULL, NULL, NULL), ('NOT_ATTEMPTED', NULL, NULL, NULL, NULL),
         ('DONE', NULL, '2026-03-01 09:00:00.000', NULL, NULL)",
    );
    shop
}

#[test]
fn finished_rows_are_counted_by_hour_and_by_day() {
    let shop = history();
    let mut connection = shop.connect();
    let hours = Order::queue().statistics(&mut connection, Interval::Hour).unwrap();
    // The tenth and the nineteenth of twenty: by nearest rank, a percentile is a measured value.
    assert_is(
        &hours,
        &[
            ("2026-03-01T09:00:00Z", 18, 2, Some([10_500, 10_000, 19_000])),
            ("2026-03-01T23:00:00Z", 1, 0, Some([21, 21, 21])),
            ("2026-03-02T00:00:00Z", 0, 2, Some([1_000, 1_000, 1_000])),
        ],
    );
    assert_eq!(hours.left_out, 0);
    let days = Order::queue().statistics(&mut connection, Interval::Day).unwrap();
    assert_is(
        &days,
        &[
            ("2026-03-01T00:00:00Z", 19, 2, Some([10_001, 10_000, 19_000])),
            ("2026-03-02T00:00:00Z", 0, 2, Some([1_000, 1_000, 1_000])),
        ],
    );
}

#[test]
fn statistics_are_split_by_a_domain_column() {
    let shop = history();
    let mut connection = shop.connect();
    let by = Order::queue().statistics_by(&mut connection, Interval::Day, orders::company_id).unwrap();
    assert_eq!(by.parts.iter().map(|part| part.value.as_deref()).collect::<Vec<_>>(), [None, Some("1"), Some("2")]);
    assert_is(&by.parts[0].report, &[("2026-03-01T00:00:00Z", 1, 0, Some([21, 21, 21]))]);
    assert_is(
        &by.parts[1].report,
        &[
            ("2026-03-01T00:00:00Z", 9, 1, Some([10_000, 9_000, 19_000])),
            ("2026-03-02T00:00:00Z", 0, 2, Some([1_000, 1_000, 1_000])),
        ],
    );
    assert_is(&by.parts[2].report, &[("2026-03-01T00:00:00Z", 9, 1, Some([11_000, 10_000, 20_000]))]);
    // Upper and lower case count, on every database.
    let by = Order::queue().statistics_by(&mut connection, Interval::Hour, orders::region).unwrap();
    let values: Vec<_> = by.parts.iter().map(|part| part.value.as_deref()).collect();
    assert_eq!(values, [None, Some("North"), Some("north")]);
    let filtered = Order::queue().filter(orders::region.is_null()).statistics(&mut connection, Interval::Hour).unwrap();
    assert_eq!(by.parts[0].report, filtered);
}

#[test]
fn a_filter_bounds_the_time() {
    let shop = history();
    let midnight: DateTime<Utc> = "2026-03-02T00:00:00Z".parse().unwrap();
    let since = order_queue::last_attempt_time.ge(queueable::columns::Instant::from(midnight));
    let hours = Order::queue().filter(since).statistics(&mut shop.connect(), Interval::Hour).unwrap();
    assert_is(&hours, &[("2026-03-02T00:00:00Z", 0, 2, Some([1_000, 1_000, 1_000]))]);
}

#[test]
fn without_metrics_rows_are_counted_alone() {
    let shop = Shop::new();
    shop.execute(
        "INSERT INTO orders (invoice_status, invoice_last_attempt_time) VALUES
         ('SUCCESS', '2026-03-01 09:00:00.000'), ('FAILED', '2026-03-01 09:00:00.000')",
    );
    let hours = Invoice::queue().statistics(&mut shop.connect(), Interval::Hour).unwrap();
    assert_is(&hours, &[("2026-03-01T09:00:00Z", 1, 1, None)]);
    let none = Order::queue().statistics(&mut shop.connect(), Interval::Hour).unwrap();
    assert_is(&none, &[]);
}

/// Every night there are more than a million rows, and else few.
#[test]
fn of_more_than_a_million_rows_the_newest_are_counted_and_the_report_says_so() {
    let shop = Shop::new();
    let (of_newest, rounds, succeeded) = times((false, 1, 1_000), (true, 10, 1_000_000));
    let insert = |status: &str, rows: i64| {
        shop.execute(&format!(
            "INSERT INTO orders (status, last_attempt_time) {NUMBERS}
             SELECT '{status}', '2026-03-01 09:00:00.000' FROM n WHERE n < {rows}"
        ));
    };
    // The oldest by key.
    insert("FAILED", 3);
    (0..rounds).for_each(|_| insert("SUCCESS", succeeded / rounds));
    let hours = Order::queue().statistics(&mut shop.connect(), Interval::Hour).unwrap();
    let failed = if of_newest { 0 } else { 3 };
    assert_is(&hours, &[("2026-03-01T09:00:00Z", succeeded, failed, None)]);
    assert_eq!(hours.counted, if of_newest { Counted::NewestRows } else { Counted::Rows });
    let word = "of the newest 1,000,000 rows; pollers with `minutes` count all attempts";
    assert_eq!(hours.to_string().contains(word), of_newest, "{hours}");
}

#[test]
fn what_a_poller_does_is_counted_with_its_durations() {
    let shop = Shop::new();
    let mut connection = shop.connect();
    let orders: Vec<_> = (1..=5).map(|id| (orders::id.eq(id), Order::due_now())).collect();
    diesel::insert_into(orders::table).values(orders).execute(&mut connection).unwrap();
    let done = |_: &Order, _: &mut Message<'_, Conn>| -> HandlerResult { Ok(Outcome::Done) };
    Order::poller(shop.0.pool(3), done).workers(1).run_until_idle().unwrap();
    let days = Order::queue().statistics(&mut connection, Interval::Day).unwrap();
    // Two days, if midnight has passed meanwhile.
    assert_eq!(days.periods.iter().map(|day| day.succeeded).sum::<i64>(), 5);
    for day in days.periods {
        assert!(day.mean.is_some() && day.p50 <= day.p95, "{day:?}");
    }
}
