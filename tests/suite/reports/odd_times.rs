//! A time column may hold a value that is no time, or a time that cannot be represented. Such a value is shown as it
//! is, and only in its own place.

use chrono::{DateTime, Utc};
use queueable::report::Interval;
use queueable::{Explanation, Queueable, Status};

use super::{Order, Parcel, Shop, orders};
use crate::db::NAME;

/// Values that the queue never writes as a time, as SQL, and how reports show each.
pub(crate) fn odd() -> Vec<(&'static str, &'static str)> {
    match NAME {
        "postgres" => vec![
            ("'infinity'", "infinity"),
            ("'-infinity'", "-infinity"),
            ("'294276-12-31 23:59:59.999999+00'", "294276-12-31 23:59:59.999999+00"),
        ],
        "mysql" => vec![
            ("'0000-00-00 00:00:00'", "0000-00-00 00:00:00.000000"),
            ("'2026-00-00 00:00:00'", "2026-00-00 00:00:00.000000"),
        ],
        _ => vec![
            ("'tomorrow'", "tomorrow"),
            ("''", ""),
            ("1764000000", "1764000000"),
            ("12", "12"),
            ("1.5e300", "1.5e+300"),
            ("x'74c3a4'", "tä"),
            ("x'ff'", "\u{fffd}"),
            ("CAST(x'74ff' AS TEXT)", "t\u{fffd}"),
        ],
    }
}

/// The last time that the database can represent, which is an ordinary time.
const LAST: &str = match NAME.as_bytes() {
    b"postgres" => "'9999-12-31 23:59:59.999999+00'",
    b"mysql" => "'9999-12-31 23:59:59.999999'",
    _ => "'9999-12-31 23:59:59.999'",
};

fn execute(shop: &Shop, sql: &str) {
    // Strict mode refuses a zero date.
    shop.execute(&format!("{}{sql}", if NAME == "mysql" { "SET SESSION sql_mode = ''; " } else { "" }));
}

/// Two rows with ordinary times that have failed, and one that has `time` in every time column.
fn shop_with(time: &str) -> Shop {
    let shop = Shop::new();
    execute(
        &shop,
        &format!(
            "INSERT INTO orders (id, company_id, status, next_attempt_time, try_count, last_attempt_time, begin_time,
                 end_time, last_attempt_error_message) VALUES
             (1, 7, 'FAILED', NULL, 3, '2026-03-01 12:00:00.000', '2026-03-01 11:59:59.000', '2026-03-01 12:00:00.000',
                 'order 1: no route'),
             (2, 7, 'FAILED', NULL, 3, '2026-03-01 13:00:00.000', '2026-03-01 12:59:57.000', '2026-03-01 13:00:00.000',
                 'order 2: no route'),
             (3, 8, 'FAILED', NULL, 3, {time}, {time}, {time}, 'order 3: no route'),
             (4, 8, 'ERROR', {time}, 1, {time}, {time}, {time}, 'order 4: no route'),
             (5, 8, 'SUCCESS', NULL, 1, {time}, {time}, {time}, NULL);
             UPDATE orders SET parcel_status = 'IN_PROGRESS', parcel_next_attempt_time = '2100-01-01 00:00:00.000',
                 parcel_last_attempt_time = {time} WHERE id = 3"
        ),
    );
    shop
}

fn at(time: &str) -> DateTime<Utc> {
    time.parse().unwrap()
}

#[test]
fn an_odd_time_is_shown_among_the_errors_and_breaks_none_of_them() {
    for (time, shown) in odd() {
        let shop = shop_with(time);
        let mut connection = shop.connect();
        let report = Order::queue().errors(&mut connection).unwrap_or_else(|error| panic!("{time}: {error}"));
        let [group] = &report.groups[..] else { panic!("{time}: {report}") };
        assert_eq!((group.rows, group.retrying, group.failed), (4, 1, 3), "{time}");
        assert_eq!(group.first, Some(at("2026-03-01T12:00:00Z")), "{time}");
        assert_eq!(group.last, Some(at("2026-03-01T13:00:00Z")), "{time}");
        let odd_times = group.odd_times.as_ref().unwrap_or_else(|| panic!("{time}: {report}"));
        assert_eq!((odd_times.rows, odd_times.example.as_str()), (2, shown), "{time}");
        assert!(report.to_string().contains(&format!("{shown} (2)")), "{report}");
        let by = Order::queue().errors_by(&mut connection, orders::company_id).unwrap();
        assert_eq!(by.parts.len(), 2, "{time}");
        let preview = Order::queue().all_rows().dry_run().retry_error_group(&mut connection, group).unwrap();
        assert_eq!(preview.rows, 4, "{time}");
        assert_eq!(Order::queue().all_rows().retry_error_group(&mut connection, group).unwrap(), 4, "{time}");
        assert_eq!(Order::queue().due().count(&mut connection).unwrap(), 4, "{time}");
    }
}

#[test]
fn an_odd_time_is_counted_by_the_statistics_and_belongs_to_no_period() {
    for (time, shown) in odd() {
        let shop = shop_with(time);
        let mut connection = shop.connect();
        for interval in [Interval::Hour, Interval::Day] {
            let statistics = Order::queue().statistics(&mut connection, interval);
            let statistics = statistics.unwrap_or_else(|error| panic!("{time}: {error}"));
            let failed: i64 = statistics.periods.iter().map(|period| period.failed).sum();
            let succeeded: i64 = statistics.periods.iter().map(|period| period.succeeded).sum();
            assert_eq!((failed, succeeded, statistics.left_out), (2, 0, 0), "{time}: {statistics}");
            let odd_times = statistics.odd_times.as_ref().unwrap_or_else(|| panic!("{time}: {statistics}"));
            assert_eq!((odd_times.rows, odd_times.example.as_str()), (2, shown), "{time}");
            assert!(statistics.to_string().ends_with(&format!("odd times, as `{shown}`\n")), "{statistics}");
        }
        let by = Order::queue().statistics_by(&mut connection, Interval::Day, orders::company_id).unwrap();
        assert_eq!(by.parts.len(), 2, "{time}: {by}");
        Order::queue().backlog(&mut connection).unwrap_or_else(|error| panic!("{time}: {error}"));
    }
}

#[test]
fn the_latest_time_of_all_is_a_time() {
    let shop = shop_with(LAST);
    let mut connection = shop.connect();
    let report = Order::queue().errors(&mut connection).unwrap();
    assert_eq!(
        report.groups[0].last.map(|last| last.to_rfc3339()[..19].to_owned()).as_deref(),
        Some("9999-12-31T23:59:59")
    );
    let statistics = Order::queue().statistics(&mut connection, Interval::Hour).unwrap();
    assert_eq!(statistics.periods.len(), 3, "{statistics}");
    assert_eq!(Order::queue().backlog(&mut connection).unwrap().scheduled, 1);
    assert!(matches!(Order::explain(&mut connection, &4).unwrap(), Explanation::ScheduledFor { .. }));
}

/// A thousand rows whose attempts took very long.
#[test]
fn the_durations_of_ages_have_a_mean() {
    let shop = Shop::new();
    let begin = if NAME == "mysql" { "'1000-01-01 00:00:00'" } else { "'0001-01-01 00:00:00.000'" };
    let rows = vec![format!("('SUCCESS', 1, {LAST}, {begin}, {LAST})"); 1_000].join(", ");
    shop.execute(&format!(
        "INSERT INTO orders (status, try_count, last_attempt_time, begin_time, end_time) VALUES {rows}"
    ));
    let statistics = Order::queue().statistics(&mut shop.connect(), Interval::Day).unwrap();
    assert_eq!(statistics.periods.len(), 1);
    let (mean, median) = (statistics.periods[0].mean.unwrap(), statistics.periods[0].p50.unwrap());
    assert!(mean.abs_diff(median) < std::time::Duration::from_millis(1), "{mean:?}, {median:?}");
}

#[test]
fn an_odd_time_is_explained() {
    for (time, shown) in odd() {
        let shop = shop_with(time);
        let mut connection = shop.connect();
        for id in 1..=5 {
            Order::explain(&mut connection, &id).unwrap_or_else(|error| panic!("{time}: {error}"));
        }
        let held = Parcel::explain(&mut connection, &3).unwrap_or_else(|error| panic!("{time}: {error}"));
        let text = shown.to_owned();
        assert_eq!(held, Explanation::OddTime { column: "parcel_last_attempt_time".to_owned(), text }, "{time}");
        let pending = Order::explain(&mut connection, &4).unwrap();
        // A time that the database sorts before the present is due.
        let text = shown.to_owned();
        let expected = [Explanation::Due, Explanation::OddTime { column: "next_attempt_time".to_owned(), text }];
        assert!(expected.contains(&pending), "{time}: {pending}");
        let is_due = ["'-infinity'", "'0000-00-00 00:00:00'", "''", "1764000000", "12", "1.5e300"].contains(&time);
        assert!(!is_due || pending == Explanation::Due, "{time}: {pending}");
    }
}

#[test]
fn an_operation_is_stopped_by_no_odd_time() {
    for (time, _) in odd() {
        let shop = shop_with(time);
        let mut connection = shop.connect();
        let all = Order::queue().all_rows();
        let preview = all.dry_run().retry_now(&mut connection).unwrap_or_else(|error| panic!("{time}: {error}"));
        assert_eq!(preview.rows, 4, "{time}");
        assert_eq!(all.clone().failed().retry_now(&mut connection).unwrap(), 3, "{time}");
        assert_eq!(all.stop(&mut connection).unwrap(), 4, "{time}");
        assert_eq!(all.restart(&mut connection).unwrap(), 4, "{time}");
        assert_eq!(all.rerun(&mut connection).unwrap(), 1, "{time}");
        // The rows keep their odd last attempt times.
        all.purge(&mut connection, std::time::Duration::from_secs(1)).unwrap();
        assert_eq!(all.skip(&mut connection).unwrap(), 5, "{time}");
        assert_eq!(Order::queue().counts_by_status(&mut connection).unwrap().of(Status::Skipped), 5, "{time}");
    }
}
