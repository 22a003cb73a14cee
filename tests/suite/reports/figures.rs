//! Rows are counted, and columns summed that are known by their names alone, from a bounded number of rows.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queue_core::internals::by_name::{Figure, Figures};
use queueable::Queueable;

use super::NUMBERS;
use super::by_name::{plan_of, sent_by, sql_of};
use super::pages::{Plain, Ticket, insert, tickets, tickets_of};
use crate::db::{self, NAME};

fn sum_and_distinct(column: &str) -> [Figure; 2] {
    [Figure::Sum(column.to_owned()), Figure::Distinct(column.to_owned())]
}

fn texts(of: &[&str]) -> Vec<Option<String>> {
    of.iter().map(|text| Some((*text).to_owned())).collect()
}

#[test]
fn figures_are_over_all_rows_of_the_selection_or_there_are_none() {
    let (_database, mut connection) = tickets_of();
    let failed = ("FAILED", "NULL", "'2026-03-01 12:00:00.000'", "'no route'");
    insert(&mut connection, &[failed, failed, failed, failed, ("SUCCESS", "NULL", "NULL", "NULL")]);
    connection.batch_execute("UPDATE tickets SET company_id = id * 10 WHERE id > 2").unwrap();
    let of = sum_and_distinct("company_id");
    // 7, 7, 30 and 40.
    let all = Figures { rows: 4, more: false, figures: texts(&["84", "3"]) };
    let failed = Ticket::queue().failed();
    for most in [4, 5, i64::MAX] {
        assert_eq!(failed.figures(&mut connection, &of, most).unwrap(), all, "{most}");
    }
    for most in [1, 3] {
        let more = Figures { rows: most, more: true, figures: vec![None, None] };
        assert_eq!(failed.figures(&mut connection, &of, most).unwrap(), more);
    }
    let nothing_asked = Figures { rows: 0, more: true, figures: vec![None, None] };
    assert_eq!(failed.figures(&mut connection, &of, -1).unwrap(), nothing_asked);
    let plain = Plain::queue().filter(tickets::company_id.gt(7)).failed();
    let two = Figures { rows: 2, more: false, figures: texts(&["70", "2"]) };
    assert_eq!(plain.figures(&mut connection, &of, 10).unwrap(), two);
    let none = Ticket::queue().filter(tickets::company_id.gt(1_000));
    let nothing = Figures { rows: 0, more: false, figures: vec![None, Some("0".to_owned())] };
    assert_eq!(none.figures(&mut connection, &of, 10).unwrap(), nothing);
    let count = Figures { rows: 5, more: false, figures: Vec::new() };
    assert_eq!(Ticket::queue().figures(&mut connection, &[], 10).unwrap(), count);
}

#[test]
fn a_sum_that_is_too_large_for_the_database_takes_away_no_count() {
    let (_database, mut connection) = tickets_of();
    connection
        .batch_execute(&format!("INSERT INTO tickets (company_id) VALUES ({0}), ({0}), (NULLIF(1, 0))", i64::MAX))
        .unwrap();
    let figures = Ticket::queue().figures(&mut connection, &sum_and_distinct("company_id"), 10).unwrap();
    let expected = match NAME {
        "sqlite" => vec![None, None],
        _ => texts(&["18446744073709551615", "2"]),
    };
    assert_eq!(figures, Figures { rows: 3, more: false, figures: expected });
}

#[test]
fn figures_read_no_more_rows_than_they_may_and_sort_none() {
    let (_database, mut connection) = tickets_of();
    connection
        .batch_execute(&format!(
            "INSERT INTO tickets (status, last_attempt_time) {NUMBERS} SELECT 'SUCCESS', '2026-03-01 12:00:00.000' FROM n WHERE n < 50000;
             INSERT INTO tickets (status, last_attempt_time) {NUMBERS} SELECT 'FAILED', '2026-03-01 12:00:00.000' FROM n WHERE n < 300;
             INSERT INTO tickets (next_attempt_time) {NUMBERS} SELECT '2020-01-01 00:00:00.000' FROM n WHERE n < 300;
             {}",
            db::ANALYZE.replace("payments", "tickets"),
        ))
        .unwrap();
    let of = [Figure::Sum("company_id".to_owned())];
    let sql = sent_by(&mut connection, |connection| {
        Ticket::queue().failed().figures(connection, &of, 100).unwrap();
        Ticket::queue().due().figures(connection, &of, 100).unwrap();
    });
    for (sql, index) in sql.iter().zip(["queueable_report_", "queueable_tickets_"]) {
        let plan = plan_of(&mut connection, sql);
        assert!(plan.contains(index), "{sql}:\n{plan}");
        for sorts in ["Sort", "filesort", "ORDER BY"] {
            assert!(!plan.contains(sorts), "{sql}:\n{plan}");
        }
    }
}

#[test]
fn the_sql_of_figures() {
    let (_database, mut connection) = tickets_of();
    let sql = sent_by(&mut connection, |connection| {
        let of = sum_and_distinct("company_id");
        Ticket::queue().figures(connection, &[], 10).unwrap();
        Ticket::queue().filter(tickets::company_id.eq(3345)).failed().figures(connection, &of, 1_000).unwrap();
    });
    sql_of("figures", ["count", "figures of a filter"], &sql);
}
