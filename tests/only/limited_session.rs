//! A server ends a statement of a session that only reports, if it takes too long.

use std::time::Duration;

use diesel::dsl::sql;
use diesel::sql_types::Bool;
use queue_core::internals::by_name::{Figure, is_timeout, limit_session};
use queueable::{Error, Queueable};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment};

/// A condition that takes ten billion steps.
fn endless() -> String {
    let digits: Vec<_> = (0..10).map(|digit| format!("SELECT {digit} AS i")).collect();
    let tables: Vec<_> = (0..10).map(|table| format!("d t{table}")).collect();
    let sum: Vec<_> = (0..10).map(|table| format!("t{table}.i")).collect();
    format!(
        "EXISTS (WITH d AS ({}) SELECT 1 FROM {} WHERE {} = -1)",
        digits.join(" UNION ALL "),
        tables.join(" CROSS JOIN "),
        sum.join(" + ")
    )
}

#[test]
fn a_statement_that_takes_longer_than_its_session_allows_is_ended_and_known() {
    let bank = Bank::new();
    bank.enqueue([1]);
    let mut connection = bank.connect();
    limit_session(&mut connection, Duration::from_secs(2), Duration::from_secs(60)).unwrap();
    let endless = Payment::queue().filter(sql::<Bool>(&endless()));
    let error = endless.count(&mut connection).unwrap_err();
    assert!(is_timeout::<Conn>(&error), "{error}");
    // It is not repeated without the sum.
    let error = endless.figures(&mut connection, &[Figure::Sum("amount_cents".to_owned())], 10).unwrap_err();
    assert!(is_timeout::<Conn>(&error), "{error}");
    let interrupted = Error::Interrupted { rows: 1, source: Box::new(error) };
    assert!(is_timeout::<Conn>(&interrupted));
    // The session is of use all the same.
    assert_eq!(Payment::queue().count(&mut connection).unwrap(), 1);
    let error = Payment::queue().filter(sql::<Bool>("no_such_column = 1")).count(&mut connection).unwrap_err();
    assert!(!is_timeout::<Conn>(&error), "{error}");
}
