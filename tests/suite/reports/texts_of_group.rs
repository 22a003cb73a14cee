//! The rows of an error group as texts, page by page, in the order in which they failed.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queue_core::internals::by_name::{GroupTexts, Holds, PageOrder, TextColumn, TextPage};
use queueable::Queueable;

use super::NUMBERS;
use super::backwards::{key, page};
use super::by_name::{plan_of, sent_by, sql_of};
use super::pages::{Plain, Ticket, insert, tickets, tickets_of};
use crate::db::{self, Conn};

type Backend = <Conn as diesel::Connection>::Backend;

fn latest(keys: &[TextColumn], after: Option<(Option<String>, i64)>, limit: usize) -> TextPage<'_, Backend> {
    page(keys, PageOrder::LatestAttempt, false, after, limit)
}

fn keys(of: &GroupTexts<i64>) -> Vec<i64> {
    of.rows.iter().map(|row| row.key).collect()
}

#[test]
fn a_page_has_the_rows_of_the_group_and_no_others_the_latest_first() {
    let (_database, mut connection) = tickets_of();
    let [one, two, three] = ["'2026-03-01 12:00:00.000'", "'2026-03-02 12:00:00.000'", "'2026-03-03 12:00:00.000'"];
    let failed = |last, text| ("FAILED", "NULL", last, text);
    insert(
        &mut connection,
        &[
            failed(one, "'no route to 7'"),
            failed(three, "'no route to 8'"),
            failed(three, "'no route to x'"),
            ("ERROR", two, two, "'no route to 7'"),
            ("SKIPPED", "NULL", two, "'no route to 7'"),
            failed("NULL", "'no route to 9'"),
            failed(two, "'No route to 7'"),
            failed(one, "'7 is no route'"),
            failed(one, "'''a'' is no route'"),
            failed(two, "'''b'' is no route'"),
            failed(one, "'\u{1f600}\u{e9} 3%'"),
            failed(one, "'\u{1f600}\u{c9} 3%'"),
            failed(one, "NULL"),
        ],
    );
    let id = key();
    for (pattern, expected) in [
        ("no route to <number>", vec![2, 4, 1, 6]),
        ("No route to <number>", vec![7]),
        ("no route to x", vec![3]),
        ("no route to ", vec![]),
        ("<number> is no route", vec![8]),
        ("'<value>' is no route", vec![10, 9]),
        ("\u{1f600}\u{e9} <number>%", vec![11]),
        ("no such group", vec![]),
        ("", vec![]),
    ] {
        let with = Ticket::queue().texts_of_group(&mut connection, pattern, latest(&id, None, 10)).unwrap();
        assert_eq!((keys(&with), &with.stopped_at), (expected, &None), "{pattern}");
        let without = Plain::queue().texts_of_group(&mut connection, pattern, latest(&id, None, 10)).unwrap();
        assert_eq!(without, with, "{pattern}");
    }
    let narrow = Ticket::queue().filter(tickets::id.gt(1)).failed();
    let narrow = narrow.texts_of_group(&mut connection, "no route to <number>", latest(&id, None, 10)).unwrap();
    assert_eq!(keys(&narrow), [2, 6]);
    let back = page(&id, PageOrder::LatestAttempt, true, None, 10);
    let back = Ticket::queue().texts_of_group(&mut connection, "no route to <number>", back).unwrap();
    assert_eq!(keys(&back), [6, 1, 4, 2]);
}

#[test]
fn the_next_page_of_a_group_begins_where_the_last_one_stopped() {
    let (_database, mut connection) = tickets_of();
    insert(&mut connection, &[("FAILED", "NULL", "'2026-03-01 12:00:00.000'", "'no route to 7'"); 7]);
    let id = key();
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = latest(&id, after.take(), 3);
        let found = Ticket::queue().texts_of_group(&mut connection, "no route to <number>", page).unwrap();
        seen.extend(keys(&found));
        match found.stopped_at {
            Some(row) => after = Some((row.time, row.key)),
            None => break,
        }
    }
    assert_eq!(seen, [7, 6, 5, 4, 3, 2, 1]);
}

#[test]
fn values_are_cut_as_they_were_asked_for_and_the_failure_is_read_far_enough() {
    let (_database, mut connection) = tickets_of();
    let text = format!("'{} 7'", "\u{e9}".repeat(300));
    insert(&mut connection, &[("FAILED", "NULL", "'2026-03-01 12:00:00.000'", &text)]);
    let id = key();
    let message = TextColumn { name: "last_attempt_error_message".to_owned(), holds: Holds::Texts };
    let columns = [id[0].clone(), message];
    let pattern = format!("{} <number>", "\u{e9}".repeat(300));
    let page = TextPage { columns: &columns, longest: 5, ..latest(&id, None, 10) };
    let found = Ticket::queue().texts_of_group(&mut connection, &pattern, page).unwrap();
    let [row] = &found.rows[..] else { panic!("one row: {found:?}") };
    assert_eq!(row.values, [Some("1".to_owned()), Some("\u{e9}".repeat(5))]);
    assert_eq!(row.parts, [Some("1".to_owned())]);
}

#[test]
fn a_rare_group_among_similar_texts_is_searched_in_bounded_steps() {
    let (_database, mut connection) = tickets_of();
    insert(&mut connection, &[("FAILED", "NULL", "'2026-03-01 12:00:00.000'", "'no route to 7'")]);
    connection
        .batch_execute(&format!(
            "INSERT INTO tickets (status, last_attempt_time, last_attempt_error_message) {NUMBERS}
                 SELECT 'FAILED', '2026-03-02 12:00:00.000', 'no route to x' FROM n WHERE n < 25000;
             INSERT INTO tickets (status, last_attempt_time) {NUMBERS} SELECT 'SUCCESS', '2026-03-02 12:00:00.000' FROM n WHERE n < 50000;
             {}",
            db::ANALYZE.replace("payments", "tickets"),
        ))
        .unwrap();
    let id = key();
    let rows = Ticket::queue().failed();
    let search = |connection: &mut Conn, after| {
        rows.texts_of_group(connection, "no route to <number>", latest(&id, after, 10)).unwrap()
    };
    let first = search(&mut connection, None);
    let stopped_at = first.stopped_at.clone().expect("there are more rows than it reads at once");
    assert_eq!((keys(&first).len(), stopped_at.key), (0, 25_001 - 20_010 + 1));
    let second = search(&mut connection, Some((stopped_at.time, stopped_at.key)));
    assert_eq!((keys(&second), second.stopped_at), (vec![1], None));
    let sql = sent_by(&mut connection, |connection| _ = search(connection, None));
    let plan = plan_of(&mut connection, &sql[0]);
    assert!(plan.contains("queueable_report_"), "{plan}");
    sql_of("texts_of_group", ["the first portion", "the next"], &sql[..2]);
}
