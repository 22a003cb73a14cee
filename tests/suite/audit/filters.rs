//! The conditions of a call as a person reads them, whatever the values are.

use std::time::Duration;

use chrono::DateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Text};
use queueable::report::ErrorGroup;
use queueable::{Queueable, Status};

use super::{BY, REASON, bank, only_row, quoted};
use crate::db::{Conn, NAME};
use crate::suite::bank::{Payment, payment_queue, payments};

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = kept_and_audited_queue, keep(success = "30d"))]
#[expect(dead_code, reason = "no row of it is loaded")]
struct Kept {
    id: i64,
}

/// Returns how the audit shows the rows of a call.
macro_rules! shown {
    ($queue:expr) => {{
        let bank = bank();
        let connection: &mut Conn = &mut bank.connect();
        $queue.by(BY, REASON).skip(connection).unwrap();
        only_row(connection).1
    }};
}

#[test]
fn a_filter_is_shown_with_its_values_in_their_places() {
    let [company, amount, message] =
        ["payments.company_id", "payments.amount_cents", "payments.last_attempt_error_message"].map(quoted);
    assert_eq!(shown!(Payment::queue().filter(payments::company_id.eq(3345))), format!("({company} = 3345)"));
    let several = Payment::queue()
        .filter(payments::company_id.eq(3345).or(payments::company_id.eq(2)))
        .filter(payments::amount_cents.gt(-5))
        .failed();
    assert_eq!(
        shown!(several),
        format!("((({company} = 3345) OR ({company} = 2))) AND (({amount} > -5)); status FAILED")
    );
    let quote = Payment::queue().filter(payment_queue::last_attempt_error_message.eq("O'Brien? \"$1\""));
    assert_eq!(shown!(quote), format!("({message} = 'O''Brien? \"$1\"')"));
    let status = Payment::queue().filter(payment_queue::status.eq(Status::Error)).pending();
    let shown = shown!(status);
    assert!(shown.ends_with(" = Error); pending"), "{shown}");
    let time = Payment::queue().filter(payment_queue::next_attempt_time.lt(DateTime::UNIX_EPOCH));
    let shown = shown!(time);
    assert!(shown.contains("1970-01-01T00:00:00Z"), "{shown}");
    let some = shown!(Payment::queue().filter(payments::id.eq_any([1_i64, 2])));
    let id = quoted("payments.id");
    let expected = if NAME == "postgres" { format!("({id} = ANY([1, 2]))") } else { format!("({id} IN (1, 2))") };
    assert_eq!(some, expected);
}

#[test]
fn the_states_are_shown_in_words() {
    let all = || Payment::queue().all_rows();
    assert_eq!(shown!(all().finished()), "all rows; status SUCCESS or FAILED or SKIPPED; not pending");
    assert_eq!(shown!(all().due().skipped()), "all rows; due; status SKIPPED");
    assert_eq!(
        shown!(all().scheduled().attempted_within(Duration::from_secs(3600))),
        "all rows; scheduled; attempted within 3600s"
    );
    assert_eq!(shown!(Kept::queue().all_rows().expired()), "all rows; expired");
}

#[test]
fn hostile_values_are_shown_and_obeyed_by_nobody() {
    let hostile = "'; DELETE FROM payments; --\u{1b}[2J\u{202e}\r\n ? $1 \\ \"";
    let shown = shown!(Payment::queue().filter(payment_queue::last_attempt_error_message.eq(hostile)));
    let expected = r#"'''; DELETE FROM payments; --\u{1b}[2J\u{202e}\r\n ? $1 \\ "')"#;
    assert!(shown.ends_with(expected), "{shown}");
    // What the application writes itself may hide where the places are.
    let sql =
        diesel::dsl::sql::<Bool>("'it''s ?' <> ").bind::<Text, _>("a").sql(" /* ? */ AND 1 = ").bind::<BigInt, _>(2);
    let shown = shown!(Payment::queue().filter(sql));
    assert!(shown.starts_with("'it''s ?' <> ") && shown.ends_with(" -- binds: ['a', 2]"), "{shown}");
    let sql = diesel::dsl::sql::<Bool>("'\u{7}\u{1b}' = '$1 ?' OR 1 = ").bind::<BigInt, _>(2);
    assert_eq!(shown!(Payment::queue().filter(sql)), "'\\u{7}\\u{1b}' = '$1 ?' OR 1 = 2");
}

#[test]
fn a_long_filter_is_cut_and_the_states_are_not() {
    let ids: Vec<i64> = (0..20_000).collect();
    let shown = shown!(Payment::queue().filter(payments::id.eq_any(ids)).failed());
    let (filter, rest) = shown.split_at(4_000);
    assert!(filter.ends_with(" [...]"), "{filter}");
    assert!(
        filter.contains(" 0, 1, 2, 3") || filter.contains("[0, 1, 2, 3") || filter.contains("(0, 1, 2, 3"),
        "{filter}"
    );
    assert_eq!(rest, "; status FAILED");
    let shown = shown!(Payment::queue().filter(payment_queue::last_attempt_error_message.eq("ü".repeat(100_000))));
    assert!(shown.len() <= 4_000 && shown.ends_with("üü [...]"), "{}", shown.len());
}

#[test]
fn a_pattern_that_somebody_has_made_up_is_cut_too() {
    let bank = bank();
    let connection: &mut Conn = &mut bank.connect();
    let json = serde_json::json!({
        "pattern": format!("\u{1b}[2J{}", "x".repeat(1_000_000)), "rows": 1, "retrying": 0, "failed": 1, "texts": 1,
        "first": null, "last": null, "examples": [], "example_text": "",
    });
    let group: ErrorGroup<i64> = serde_json::from_value(json).unwrap();
    assert_eq!(Payment::queue().all_rows().by(BY, REASON).retry_error_group(connection, &group).unwrap(), 0);
    let (action, filter, rows) = only_row(connection);
    assert_eq!((action.as_str(), rows), ("retry_error_group", 0));
    assert!(filter.starts_with("all rows; error `\\u{1b}[2Jxxx") && filter.ends_with("x [...]"), "{filter}");
    assert!(filter.len() < 5_000);
}
