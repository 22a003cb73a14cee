//! The way back through the pages has the rows of the way there, the other way round, and finds them along the same index.

use std::rc::Rc;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use queue_core::internals::by_name::{Holds, PageOrder, TextColumn, TextPage, TextRow};
use queueable::bounds::{AllFilters, LoadsRows, QueueOn};
use queueable::{QueueRows, Queueable};

use super::NUMBERS;
use super::by_name::{plan_of, sent_by, sql_of};
use super::pages::{Plain, Ticket, rows_of_all_kinds, tickets, tickets_of};
use crate::db::{self, Conn};

type Backend = <Conn as diesel::Connection>::Backend;

const ORDERS: [PageOrder; 4] =
    [PageOrder::LatestAttempt, PageOrder::NextAttempt, PageOrder::Key, PageOrder::KeyDescending];

pub(super) fn key() -> [TextColumn; 1] {
    [TextColumn { name: "id".to_owned(), holds: Holds::Integers(8) }]
}

/// A page of tickets after one with this time and key.
pub(super) fn page<'a>(
    keys: &'a [TextColumn],
    order: PageOrder,
    backwards: bool,
    after: Option<(Option<String>, i64)>,
    limit: usize,
) -> TextPage<'a, Backend> {
    let beyond = |key: i64| match order.descends(backwards) {
        true => Rc::new(tickets::id.lt(key)) as Rc<dyn QueryFragment<Backend>>,
        false => Rc::new(tickets::id.gt(key)),
    };
    let after = after.map(|(time, key)| (time, beyond(key)));
    TextPage { keys, columns: &[], longest: 10, order, backwards, after, limit }
}

fn keys(rows: &[TextRow<i64>]) -> Vec<i64> {
    rows.iter().map(|row| row.key).collect()
}

#[test]
fn the_way_back_has_the_rows_before_a_row_the_nearest_first() {
    fn check<Q: Queueable<Key = i64> + QueueOn<Conn> + 'static>(connection: &mut Conn)
    where
        Conn: LoadsRows<Q, AllFilters>,
    {
        let all = Q::queue();
        let selections = [
            ("all", all.clone()),
            ("failed", all.clone().failed()),
            ("due", all.clone().due()),
            ("finished", all.finished()),
        ];
        for (what, rows) in selections {
            for order in ORDERS {
                check_order(connection, &rows, order, what);
            }
        }
    }
    fn check_order<Q: Queueable<Key = i64> + QueueOn<Conn> + 'static>(
        connection: &mut Conn,
        rows: &QueueRows<Q, AllFilters>,
        order: PageOrder,
        what: &str,
    ) where
        Conn: LoadsRows<Q, AllFilters>,
    {
        let id = key();
        let there = rows.texts(connection, page(&id, order, false, None, 1_000)).unwrap();
        let mut back = rows.texts(connection, page(&id, order, true, None, 1_000)).unwrap();
        back.reverse();
        assert!(there.len() > 5, "{what}: {}", there.len());
        assert_eq!(back, there, "{what} by {order:?}");
        for (place, row) in there.iter().enumerate() {
            let after = Some((row.time.clone(), row.key));
            let mut before = rows.texts(connection, page(&id, order, true, after, 3)).unwrap();
            before.reverse();
            assert_eq!(
                keys(&before),
                keys(&there[place.saturating_sub(3)..place]),
                "{what} by {order:?}, before {row:?}"
            );
        }
    }
    let (_database, mut connection) = tickets_of();
    rows_of_all_kinds(&mut connection);
    check::<Ticket>(&mut connection);
    check::<Plain>(&mut connection);
}

/// Reads the first page of failed and of due tickets and of all of them, and a page after a row in their middle.
fn pages_of(connection: &mut Conn, backwards: bool) -> Vec<String> {
    let id = key();
    let time = Some("2026-03-01 12:00:00.000".to_owned());
    sent_by(connection, |connection| {
        for (rows, order, time) in [
            (Ticket::queue().failed(), PageOrder::LatestAttempt, time.clone()),
            (Ticket::queue().due(), PageOrder::NextAttempt, time),
            (Ticket::queue(), PageOrder::Key, None),
        ] {
            // So that none goes on with rows without a time.
            rows.texts(connection, page(&id, order, backwards, Some((time, 50_500)), 3)).unwrap();
        }
    })
}

#[test]
fn the_way_back_finds_its_rows_as_the_way_there_does() {
    let (_database, mut connection) = tickets_of();
    let time = "'2026-03-01 12:00:00.000'";
    connection
        .batch_execute(&format!(
            "INSERT INTO tickets (status, last_attempt_time) {NUMBERS} SELECT 'SUCCESS', {time} FROM n WHERE n < 50000;
             INSERT INTO tickets (company_id, status, last_attempt_time) {NUMBERS} SELECT n, 'FAILED', {time} FROM n WHERE n < 1000;
             INSERT INTO tickets (company_id, next_attempt_time) {NUMBERS} SELECT n, {time} FROM n WHERE n < 1000;
             UPDATE tickets SET last_attempt_time = '2026-02-01 12:00:00.000' WHERE status = 'FAILED' AND company_id < 200;
             UPDATE tickets SET last_attempt_time = '2026-04-01 12:00:00.000' WHERE status = 'FAILED' AND company_id > 800;
             UPDATE tickets SET next_attempt_time = '2026-02-01 12:00:00.000' WHERE next_attempt_time IS NOT NULL AND company_id < 200;
             UPDATE tickets SET next_attempt_time = '2026-04-01 12:00:00.000' WHERE next_attempt_time IS NOT NULL AND company_id > 800;
             {}",
            db::ANALYZE.replace("payments", "tickets"),
        ))
        .unwrap();
    let (there, back) = (pages_of(&mut connection, false), pages_of(&mut connection, true));
    assert_eq!((there.len(), back.len()), (3, 3), "{there:#?}{back:#?}");
    for (place, index) in ["queueable_report_", "queueable_tickets_", ""].into_iter().enumerate() {
        let plans = [&there, &back].map(|sql| plan_of(&mut connection, &sql[place]));
        let [there, back] = &plans;
        for plan in &plans {
            assert!(plan.contains(index), "{plan}");
            // PostgreSQL, MySQL and SQLite, in this order.
            for scan in ["Seq Scan", "type ALL", "SCAN tickets\n"] {
                assert!(!format!("{plan}\n").contains(scan), "{plan}");
            }
        }
        for sorts in ["Sort", "filesort", "TEMP B-TREE"] {
            let number = |plan: &String| plan.matches(sorts).count();
            assert_eq!(number(back), number(there), "{there}\n\n{back}");
        }
    }
}

#[test]
fn the_sql_of_pages_by_name() {
    let (_database, mut connection) = tickets_of();
    let mut sql = pages_of(&mut connection, false);
    // After the rows with a time come those without.
    assert_eq!(sql.len(), 5, "{sql:#?}");
    sql.extend(pages_of(&mut connection, true));
    let titles = [
        "by the latest attempt",
        "the same without a time",
        "by the next attempt",
        "the same without a time",
        "by key",
        "by the latest attempt, backwards",
        "by the next attempt, backwards",
        "by key, backwards",
    ];
    sql_of("pages_by_name", titles, &sql);
}
