//! The audit is read page by page, the newest first, while it grows.

use diesel::connection::SimpleConnection;
use queueable::control::{Audit, AuditPage};
use queueable::{Error, Migrations, Pause, Queueable};

use super::{BY, Company, REASON, bank, rows};
use crate::db::{Conn, NAME};
use crate::suite::bank::Payment;
use diesel_migrations::MigrationHarness;

fn reasons(page: &AuditPage) -> Vec<&str> {
    page.rows.iter().map(|row| row.reason.as_str()).collect()
}

/// Writes a row by hand.
fn write(connection: &mut Conn, at: &str, id: i64, reason: &str) -> diesel::QueryResult<()> {
    connection.batch_execute(&format!(
        "INSERT INTO queueable_audit (changed_at, id, changed_by, reason, queue, action, filter, row_count)
         VALUES ({at}, {id}, 'somebody', {reason}, 'payments.status', 'mystify', 'all', 3)"
    ))
}

#[test]
fn each_row_is_on_one_page_whatever_is_added_meanwhile() {
    let bank = bank();
    let connection = &mut bank.connect();
    // Equal times, whose order the number decides, and times between them.
    for (day, id) in [(1, 5), (2, 1), (2, 2), (2, 3), (3, 4)] {
        write(connection, &format!("'2026-01-0{day} 00:00:00.000'"), id, &format!("'{day} {id}'")).unwrap();
    }
    let first = queueable::control::audit(connection, &Audit::new().limit(2)).unwrap();
    assert_eq!(reasons(&first), ["3 4", "2 3"]);
    Payment::queue().all_rows().by(BY, "later").skip(connection).unwrap();
    // The cursor can be sent and read back.
    let next = serde_json::to_string(&first.next.unwrap()).unwrap();
    let second = queueable::control::audit(connection, &serde_json::from_str(&next).unwrap()).unwrap();
    assert_eq!(reasons(&second), ["2 2", "2 1"]);
    let third = queueable::control::audit(connection, &second.next.clone().unwrap()).unwrap();
    assert_eq!((reasons(&third), &third.next), (vec!["1 5"], &None));
    assert_eq!(serde_json::from_str::<AuditPage>(&serde_json::to_string(&second).unwrap()).unwrap(), second);
    assert_eq!(rows(connection).last().unwrap().reason, "later");
}

#[test]
fn a_page_has_a_hundred_rows_or_as_many_as_one_asks_for() {
    let bank = bank();
    let connection = &mut bank.connect();
    for id in 0..1_002 {
        write(connection, "'2026-01-01 00:00:00.000'", id, "'many'").unwrap();
    }
    let mut page = |audit: Audit| queueable::control::audit(connection, &audit).unwrap();
    let first = page(Audit::new());
    assert_eq!(first.rows.len(), 100);
    assert_eq!(page(first.next.unwrap()).rows.len(), 100);
    assert_eq!(page(Audit::new().limit(0)).rows.len(), 1);
    let longest = page(Audit::new().limit(u32::MAX));
    assert_eq!((longest.rows.len(), page(longest.next.unwrap()).rows.len()), (1_000, 2));
}

#[test]
fn one_queue_is_read_by_its_entity_or_its_name() {
    let bank = bank();
    let connection = &mut bank.connect();
    connection.run_pending_migrations(Migrations::new().entity::<Company>().control()).unwrap();
    Company::queue().all_rows().by(BY, "companies").stop(connection).unwrap();
    Payment::queue().all_rows().by(BY, REASON).stop(connection).unwrap();
    Company::pause(connection, Pause::new("closed", BY)).unwrap();
    let of_companies = Company::audit(connection, &Audit::new().limit(1)).unwrap();
    assert_eq!(reasons(&of_companies), ["closed"]);
    let next = queueable::control::audit(connection, &of_companies.next.unwrap()).unwrap();
    assert_eq!((reasons(&next), next.next.is_none()), (vec!["companies"], true));
    assert_eq!(reasons(&Payment::audit(connection, &Audit::new()).unwrap()), [REASON]);
    let named = queueable::control::audit(connection, &Audit::new().queue("payments.status")).unwrap();
    assert_eq!(reasons(&named), [REASON]);
    assert_eq!(reasons(&queueable::control::audit(connection, &Audit::new().queue("' OR 1 = 1")).unwrap()), [""; 0]);
}

#[test]
fn rows_that_somebody_has_written_are_read_as_they_are_and_odd_times_are_left_out() {
    let bank = bank();
    let connection = &mut bank.connect();
    let at = "'2026-01-01 00:00:00.000'";
    assert!(write(connection, at, 1, "' '").is_err(), "no reason");
    assert!(write(connection, at, 1, "NULL").is_err(), "no reason");
    assert!(write(connection, "NULL", 1, "'a'").is_err(), "no time");
    let columns = "changed_at, id, changed_by, reason, queue, action, filter, row_count";
    let insert = format!("INSERT INTO queueable_audit ({columns}) VALUES ({at}, 1, ");
    for rest in ["'', 'b', 'q', 'c', 'd', 0)", "'a', 'b', 'q', 'c', 'd', -1)", "'a', 'b', 'q', 'c', 'd', 'many')"] {
        assert!(connection.batch_execute(&format!("{insert}{rest}")).is_err(), "{rest}");
    }
    let odd = match NAME {
        "postgres" => "'infinity'",
        "mysql" => "'0000-00-00 00:00:00'",
        _ => "'soon'",
    };
    if NAME == "mysql" {
        connection.batch_execute("SET sql_mode = ''").unwrap();
    }
    for id in 0..3 {
        write(connection, odd, id, "'odd'").unwrap();
    }
    write(connection, at, 7, "'two\nlines \u{1b}[2J'").unwrap();
    if NAME == "sqlite" {
        write(connection, at, 6, "CAST(X'41FF42' AS TEXT)").unwrap();
    }
    let page = queueable::control::audit(connection, &Audit::new().limit(10)).unwrap();
    let expected: &[_] =
        if NAME == "sqlite" { &["two\nlines \u{1b}[2J", "A\u{fffd}B"] } else { &["two\nlines \u{1b}[2J"] };
    assert_eq!(reasons(&page), expected);
    let line = "2026-01-01 00:00:00 UTC somebody: mystify of payments.status, 3 rows: all (two\\nlines \\u{1b}[2J)";
    assert_eq!(page.rows[0].to_string(), line);
    // Made up, and no place in the table.
    let made_up = serde_json::from_str(r#"{"after": ["soon", 3]}"#).unwrap();
    match queueable::control::audit(connection, &made_up) {
        Ok(page) => assert!(page.next.is_none()),
        Err(error) => assert!(matches!(error, Error::Database(_)), "{error:?}"),
    }
}
