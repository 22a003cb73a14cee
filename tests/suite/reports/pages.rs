//! A page goes on where the last one ended: every row comes once, whatever its times are, and although rows go and come.

use std::collections::HashSet;
use std::fmt::Debug;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::bounds::{LoadsRows, Selection};
use queueable::report::{Cursor, Page};
use queueable::{Entity, Migrations, Queueable};

use super::odd_times::odd;
use crate::db::{AUTO_KEY, BIGINT, Conn, Database, NAME, TEXT};

diesel::table! {
    tickets (id) { id -> BigInt, company_id -> BigInt, }
}

diesel::table! {
    seats (hall, place) { hall -> Text, place -> BigInt, taken -> BigInt, }
}

/// A ticket whose failures have an index.
#[derive(Debug, Clone, PartialEq, Queryable, Selectable, Queueable)]
#[diesel(table_name = tickets)]
#[queue(report_index, timeout = "30s")]
pub(super) struct Ticket {
    pub(super) id: i64,
}

/// The same without one.
#[derive(Debug, Clone, PartialEq, Queryable, Selectable, Queueable)]
#[diesel(table_name = tickets)]
#[queue(prefix = "plain_")]
pub(super) struct Plain {
    id: i64,
}

/// A seat, whose key has two columns.
#[derive(Debug, Clone, PartialEq, Queryable, Selectable, Queueable)]
#[diesel(table_name = seats, primary_key(hall, place))]
#[queue(report_index)]
struct Seat {
    hall: String,
    place: i64,
}

/// Returns tickets of both queues.
pub(super) fn tickets_of() -> (Database, Conn) {
    let database = Database::new();
    let mut connection = database.connect();
    connection
        .batch_execute(&format!(
            "CREATE TABLE tickets (id {AUTO_KEY} NOT NULL, company_id {BIGINT} NOT NULL DEFAULT 7)"
        ))
        .unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Ticket>().entity::<Plain>()).unwrap();
    (database, connection)
}

/// Inserts rows in the same states into both queues: the status, the next and the last time, and the text.
pub(super) fn insert(connection: &mut Conn, rows: &[(&str, &str, &str, &str)]) {
    let values: Vec<_> = rows
        .iter()
        .map(|(status, next, last, text)| {
            format!("('{status}', {next}, 1, {last}, {text}, '{status}', {next}, 1, {last}, {text})")
        })
        .collect();
    // Strict mode refuses a zero date.
    let loosely = if NAME == "mysql" { "SET SESSION sql_mode = ''; " } else { "" };
    let columns = ["status", "next_attempt_time", "try_count", "last_attempt_time", "last_attempt_error_message"];
    let columns = [columns.join(", "), columns.map(|column| format!("plain_{column}")).join(", ")].join(", ");
    let strictly = if NAME == "mysql" { "; SET SESSION sql_mode = DEFAULT" } else { "" };
    connection
        .batch_execute(&format!("{loosely}INSERT INTO tickets ({columns}) VALUES {}{strictly}", values.join(", ")))
        .unwrap();
}

/// Rows in all states, many with equal times, some with odd ones or none.
pub(super) fn rows_of_all_kinds(connection: &mut Conn) {
    let times = [
        "'2026-03-01 12:00:00.000'",
        "'2026-03-01 12:00:00.000'",
        "'2026-03-02 12:00:00.123'",
        "'2100-01-01 00:00:00.000'",
        "NULL",
    ];
    let times: Vec<_> = times.into_iter().chain(odd().into_iter().map(|(sql, _)| sql)).collect();
    for status in ["NOT_ATTEMPTED", "IN_PROGRESS", "SUCCESS", "ERROR", "FAILED", "SKIPPED", "DONE"] {
        for text in ["NULL", "'no route'"] {
            let rows: Vec<_> = times
                .iter()
                .enumerate()
                .map(|(i, last)| (status, times[(i * 3 + 1) % times.len()], *last, text))
                .chain(times.iter().map(|last| (status, "NULL", *last, text)))
                .collect();
            insert(connection, &rows);
        }
    }
}

/// Reads all pages.
fn all_pages<Q, F>(
    rows: &queueable::QueueRows<Q, F>,
    connection: &mut Conn,
    cursor: &Cursor<Q::Key>,
    size: u32,
) -> Vec<String>
where
    Q: Entity,
    F: Selection,
    Conn: LoadsRows<Q, F>,
{
    let (mut keys, mut cursor) = (Vec::new(), cursor.clone());
    loop {
        let Page { rows: page, next, .. } = rows.page(connection, &cursor, size).unwrap();
        assert!(page.len() <= size as usize && (next.is_none() || page.len() == size as usize));
        keys.extend(page.into_iter().map(|row| row.key));
        assert_eq!(keys.len(), keys.iter().collect::<HashSet<_>>().len(), "a row came twice: {keys:?}");
        match next {
            Some(next) => cursor = next,
            None => return keys,
        }
    }
}

fn cursors<K: Clone>() -> [(&'static str, Cursor<K>); 4] {
    [
        ("latest attempt", Cursor::latest_attempt()),
        ("next attempt", Cursor::next_attempt()),
        ("key", Cursor::key()),
        ("key descending", Cursor::key_descending()),
    ]
}

#[test]
fn the_pages_have_each_row_once_and_in_the_same_order_whatever_their_size() {
    fn check<Q: Queueable<Key = i64> + Debug + 'static>(connection: &mut Conn)
    where
        Conn: LoadsRows<Q, queueable::bounds::AllFilters>,
    {
        let all = Q::queue();
        let selections = [
            ("all", all.clone()),
            ("failed", all.clone().failed()),
            ("skipped", all.clone().skipped()),
            ("running", all.clone().running()),
            ("due", all.clone().due()),
            ("scheduled", all.clone().scheduled()),
            ("pending", all.clone().pending()),
            ("finished", all.clone().finished()),
            ("failed of late", all.failed().attempted_within(std::time::Duration::from_secs(86_400 * 365 * 50))),
        ];
        for (what, rows) in selections {
            let number = usize::try_from(rows.count(connection).unwrap()).unwrap();
            assert!(number > 1, "{what}: {number}");
            for (order, cursor) in cursors() {
                let whole = all_pages(&rows, connection, &cursor, 1_000);
                assert_eq!(whole.len(), number, "{what} by {order}");
                for size in [1, 3, 7] {
                    assert_eq!(all_pages(&rows, connection, &cursor, size), whole, "{what} by {order}, {size} a page");
                }
            }
        }
    }
    let (_database, mut connection) = tickets_of();
    rows_of_all_kinds(&mut connection);
    check::<Ticket>(&mut connection);
    check::<Plain>(&mut connection);
}

#[test]
fn the_rows_come_in_the_order_that_the_cursor_names() {
    let (_database, mut connection) = tickets_of();
    let [one, two, three] = ["'2026-03-01 12:00:00.000'", "'2026-03-02 12:00:00.000'", "'2026-03-03 12:00:00.000'"];
    let failed = |next, last| ("FAILED", next, last, "'no route'");
    insert(
        &mut connection,
        &[failed(three, one), failed(one, "NULL"), failed(two, three), failed("NULL", two), failed(one, three)],
    );
    let rows = Ticket::queue().failed();
    for (cursor, expected) in [
        (Cursor::latest_attempt(), ["5", "3", "4", "1", "2"]),
        (Cursor::next_attempt(), ["2", "5", "3", "1", "4"]),
        (Cursor::key(), ["1", "2", "3", "4", "5"]),
        (Cursor::key_descending(), ["5", "4", "3", "2", "1"]),
    ] {
        for size in [2, 5, 100] {
            assert_eq!(all_pages(&rows, &mut connection, &cursor, size), expected, "{cursor:?}");
        }
    }
    let domain = Ticket::queue().filter(tickets::id.gt(2)).failed();
    assert_eq!(all_pages(&domain, &mut connection, &Cursor::latest_attempt(), 2), ["5", "3", "4"]);
    // The rows are shown as they are.
    let page = rows.page(&mut connection, &Cursor::key(), 1).unwrap();
    assert_eq!((page.rows[0].status.as_str(), page.rows[0].try_count), ("FAILED", 1));
    assert_eq!((page.rows[0].entity.clone(), page.rows.len()), (Some(Ticket { id: 1 }), 1));
}

#[test]
fn a_cursor_outlives_its_row_and_does_not_see_what_comes_before_it() {
    let (_database, mut connection) = tickets_of();
    let time = "'2026-03-01 12:00:00.000'";
    insert(&mut connection, &[("FAILED", "NULL", time, "'no route'"); 6]);
    for (name, cursor) in cursors() {
        let rows = Ticket::queue().failed();
        let first = rows.page(&mut connection, &cursor, 2).unwrap();
        // It is kept as a text, and read back.
        let next: Cursor<i64> = serde_json::from_str(&serde_json::to_string(&first.next.unwrap()).unwrap()).unwrap();
        connection
            .transaction(|connection| {
                let gone: Vec<i64> = first.rows.iter().map(|row| row.entity.as_ref().unwrap().id).collect();
                diesel::delete(tickets::table.filter(tickets::id.eq_any(&gone))).execute(connection)?;
                let rest = all_pages(&rows, connection, &next, 2);
                assert_eq!(rest.len(), 4, "{name}: {rest:?}");
                assert!(gone.iter().all(|key| !rest.contains(&key.to_string())), "{name}");
                Err::<(), _>(diesel::result::Error::RollbackTransaction)
            })
            .unwrap_err();
    }
}

#[test]
fn a_key_of_two_columns_has_an_order_too() {
    let database = Database::new();
    let mut connection = database.connect();
    connection
        .batch_execute(&format!(
            "CREATE TABLE seats (hall {TEXT} NOT NULL, place {BIGINT} NOT NULL, taken {BIGINT} NOT NULL DEFAULT 0,
                 PRIMARY KEY (hall, place))"
        ))
        .unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Seat>()).unwrap();
    let seats = [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 10), ("c", 1)];
    for (hall, place) in seats {
        connection
            .batch_execute(&format!(
                "INSERT INTO seats (hall, place, status, last_attempt_time) VALUES
                 ('{hall}', {place}, 'FAILED', '2026-03-01 12:00:00.000')"
            ))
            .unwrap();
    }
    let expected: Vec<_> = seats.map(|(hall, place)| format!("(\"{hall}\", {place})")).into();
    let backwards: Vec<_> = expected.iter().rev().cloned().collect();
    let rows = Seat::queue().failed();
    for size in [1, 2, 4] {
        assert_eq!(all_pages(&rows, &mut connection, &Cursor::key(), size), expected);
        assert_eq!(all_pages(&rows, &mut connection, &Cursor::key_descending(), size), backwards);
        assert_eq!(all_pages(&rows, &mut connection, &Cursor::latest_attempt(), size), backwards);
    }
}

#[test]
fn a_cursor_from_somebody_else_reads_no_more_than_it_may() {
    let (_database, mut connection) = tickets_of();
    insert(&mut connection, &[("FAILED", "NULL", "'2026-03-01 12:00:00.000'", "'no route'"); 3]);
    for time in ["' OR 1 = 1 --", "tomorrow", "", "\u{1f600}", "2026-03-01 12:00:00\\"] {
        let cursor: Cursor<i64> =
            serde_json::from_value(serde_json::json!({ "order": "latest_attempt", "last": [time, 2] })).unwrap();
        match Ticket::queue().filter(tickets::id.ne(1)).failed().page(&mut connection, &cursor, 10) {
            Ok(page) => assert!(page.rows.iter().all(|row| row.key != "1"), "{time}"),
            Err(error) => assert!(matches!(error, queueable::Error::Database(_)), "{time}: {error}"),
        }
    }
    assert_eq!(Ticket::queue().count(&mut connection).unwrap(), 3);
    // A page has at least one row, and no more than a thousand.
    assert_eq!(Ticket::queue().page(&mut connection, &Cursor::key(), 0).unwrap().rows.len(), 1);
    assert_eq!(Ticket::queue().page(&mut connection, &Cursor::key(), u32::MAX).unwrap().next, None);
}
