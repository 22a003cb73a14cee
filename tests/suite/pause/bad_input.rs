//! Pauses that make no sense, and nonsense that somebody has written into the control table.

use std::time::Duration;

use chrono::{TimeDelta, Utc};
use diesel::connection::SimpleConnection;
use queueable::{Error, Pause, Queueable};

use super::{BY, Mode, Note, bank, serve};
use crate::db::NAME;
use crate::suite::bank::Payment;
use crate::suite::warnings::{is_told, keep_warnings};

#[test]
fn a_pause_that_makes_no_sense_is_refused() {
    let bank = bank();
    let mut connection = bank.connect();
    let mut refused = |pause: Pause<Payment>| match Payment::pause(&mut connection, pause) {
        Err(Error::Setting { setting, .. }) => setting,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(Pause::new(" ", BY)), "the reason of a pause");
    assert_eq!(refused(Pause::new("x".repeat(1001), BY)), "the reason of a pause");
    assert_eq!(refused(Pause::new("two\nlines", BY)), "the reason of a pause");
    assert_eq!(refused(Pause::new("\0", BY)), "the reason of a pause");
    assert_eq!(refused(Pause::new("bank down", "")), "who asks for a pause");
    assert_eq!(refused(Pause::new("bank down", "y".repeat(256))), "who asks for a pause");
    let of = || Pause::new("bank down", BY);
    assert_eq!(refused(of().lasting(Duration::ZERO)), "how long a pause lasts");
    assert_eq!(refused(of().lasting(Duration::MAX)), "how long a pause lasts");
    assert_eq!(refused(of().until(Utc::now() - TimeDelta::hours(1))), "the end of a pause");
    assert_eq!(refused(of().until(chrono::DateTime::<Utc>::MAX_UTC)), "the end of a pause");
    assert_eq!(queueable::pauses(&mut connection).unwrap(), []);
    let longest = Pause::new("ü".repeat(1000), "ö".repeat(255)).lasting(queueable::columns::MAX_DELAY);
    Payment::pause(&mut connection, longest).unwrap();
    assert_eq!(queueable::pauses(&mut connection).unwrap().len(), 1);
}

#[test]
fn the_table_refuses_what_can_be_no_pause() {
    let bank = bank();
    let mut connection = bank.connect();
    let mut insert = |queue: &str, at: &str, until: &str, by: &str, reason: &str| {
        connection.batch_execute(&format!(
            "INSERT INTO queueable_control (queue, scope, paused_at, paused_until, paused_by, pause_reason) \
             VALUES ({queue}, '', {at}, {until}, {by}, {reason})"
        ))
    };
    let (queue, at, until, by, reason) = ("'q'", "'2026-01-01 00:00:00'", "'2026-01-02 00:00:00'", "'a'", "'b'");
    assert!(insert("''", at, until, by, reason).is_err());
    assert!(insert("NULL", at, until, by, reason).is_err());
    assert!(insert(queue, at, at, by, reason).is_err(), "it ends when it begins");
    assert!(insert(queue, at, until, "' '", reason).is_err());
    assert!(insert(queue, at, until, "NULL", reason).is_err());
    assert!(insert(queue, at, until, by, "''").is_err());
    assert!(insert(queue, at, until, by, "NULL").is_err());
    assert!(insert(queue, "NULL", "NULL", by, reason).is_err());
    assert!(insert(queue, "NULL", until, "NULL", "NULL").is_err());
    assert!(insert(queue, "'soon'", "NULL", by, reason).is_err());
    assert!(insert(queue, at, "'later'", by, reason).is_err());
    if NAME == "postgres" {
        assert!(insert(queue, at, "'infinity'", by, reason).is_err());
    }
    insert(queue, "NULL", "NULL", "NULL", "NULL").unwrap();
    insert("'p'", at, "NULL", by, reason).unwrap();
    insert("'r'", at, until, by, reason).unwrap();
}

#[test]
fn nonsense_that_somebody_has_written_is_ignored_with_one_warning() {
    keep_warnings();
    let bank = bank();
    bank.enqueue([1, 2]);
    let write = |scope: &str| {
        let sql = format!(
            "INSERT INTO queueable_control (queue, scope, paused_at, paused_by, pause_reason) \
             VALUES ('payments.status', '{scope}', '2026-01-01 00:00:00', 'somebody', 'nonsense')"
        );
        bank.connect().batch_execute(&sql).unwrap();
    };
    write("every second");
    write("stage SORTED");
    for _ in 0..2 {
        bank.enqueue([3]);
        let tally = serve(&bank, Mode::Transaction, Note::default()).run_until_idle().unwrap();
        assert!(tally.succeeded > 0);
    }
    assert!(is_told(&["WARN", "ignoring a row of the control table", "scope `every second`"]));
    assert!(is_told(&["WARN", "ignoring a row of the control table", "no stage `SORTED`"]));
}
