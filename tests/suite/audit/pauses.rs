//! Pauses know who asks for them, so they leave a row wherever there is a table for it.

use std::time::Duration;

use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::control::{Limits, adopt_environment};
use queueable::{Error, Migrations, Pause, Queueable};

use super::{BY, bank, rows};
use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, payments};
use crate::suite::stages::{Invoice, InvoiceStage, one_invoice};

fn lines(connection: &mut Conn) -> Vec<String> {
    let line = |row: queueable::control::Audited| {
        format!("{} {} {}: {}, {} ({})", row.queue, row.action, row.filter, row.rows, row.by, row.reason)
    };
    rows(connection).into_iter().map(line).collect()
}

#[test]
fn a_pause_and_its_end_leave_a_row_each() {
    let bank = bank();
    let connection = &mut bank.connect();
    connection.run_pending_migrations(Migrations::new().control()).unwrap();
    Payment::pause(connection, Pause::new("bank down", BY)).unwrap();
    // It takes the place of the first.
    let end = "2100-01-01T00:00:00Z".parse().unwrap();
    Payment::pause(connection, Pause::new("still down", BY).until(end)).unwrap();
    assert!(Payment::unpause_by(connection, BY, "bank up").unwrap());
    assert!(!Payment::unpause_by(connection, BY, "once more").unwrap());
    Payment::pause(connection, Pause::new("again", BY).lasting(Duration::from_secs(60))).unwrap();
    // It does not say who asks.
    assert!(Payment::unpause(connection).unwrap());
    assert_eq!(
        lines(connection),
        [
            "payments.status pause the whole queue: 1, ops@example.org (bank down)",
            "payments.status pause until 2100-01-01 00:00:00 UTC the whole queue: 1, ops@example.org (still down)",
            "payments.status unpause the whole queue: 1, ops@example.org (bank up)",
            "payments.status unpause the whole queue: 0, ops@example.org (once more)",
            "payments.status pause for 60s the whole queue: 1, ops@example.org (again)",
        ]
    );
    let database = one_invoice();
    let connection = &mut database.connect();
    connection.run_pending_migrations(Migrations::new().control().audit()).unwrap();
    Invoice::pause(connection, Pause::new("mail server moves", BY).stage(InvoiceStage::Send)).unwrap();
    assert!(Invoice::unpause_stage_by(connection, InvoiceStage::Send, BY, "moved").unwrap());
    let lines = lines(connection);
    assert!(lines[0].ends_with(" pause stage SEND: 1, ops@example.org (mail server moves)"), "{lines:?}");
    assert!(lines[1].ends_with(" unpause stage SEND: 1, ops@example.org (moved)"), "{lines:?}");
}

#[test]
fn without_the_table_pauses_are_as_before() {
    let bank = Bank::new();
    let connection = &mut bank.connect();
    connection.run_pending_migrations(Migrations::new().control()).unwrap();
    Payment::pause(connection, Pause::new("bank down", BY)).unwrap();
    assert_eq!(queueable::pauses(connection).unwrap().len(), 1);
    assert!(Payment::unpause_by(connection, BY, "bank up").unwrap());
    assert_eq!(queueable::pauses(connection).unwrap(), []);
}

#[test]
fn a_pause_that_is_rolled_back_or_refused_leaves_no_row() {
    let bank = bank();
    let connection = &mut bank.connect();
    let missing = Payment::pause(connection, Pause::new("bank down", BY));
    assert!(
        matches!(&missing, Err(Error::Control(text)) if text.contains("Migrations::new().control()")),
        "{missing:?}"
    );
    connection.run_pending_migrations(Migrations::new().control()).unwrap();
    let rolled_back = connection.transaction(|connection| {
        Payment::pause(connection, Pause::new("never mind", BY)).unwrap();
        assert_eq!(rows(connection).len(), 1);
        Err::<(), _>(diesel::result::Error::RollbackTransaction)
    });
    assert!(rolled_back.is_err());
    for pause in [Pause::new("two\nlines", BY), Pause::new("bank down", BY).lasting(Duration::ZERO)] {
        let refused = Payment::pause(connection, pause);
        assert!(matches!(refused, Err(Error::Setting { .. })), "{refused:?}");
    }
    let refused = Payment::unpause_by(connection, "", "bank up");
    assert!(matches!(refused, Err(Error::Setting { setting: "who asks for a change", .. })), "{refused:?}");
    assert_eq!(rows(connection), []);
    assert_eq!(queueable::pauses(connection).unwrap(), []);
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = fair_audit_queue, fair_by = company_id, report_index)]
#[allow(dead_code, reason = "no test attempts it")]
struct Fair {
    id: i64,
}

#[test]
fn limits_pauses_of_a_value_and_adoptions_leave_a_row_each() {
    let bank = bank();
    let connection = &mut bank.connect();
    connection.run_pending_migrations(Migrations::new().control()).unwrap();
    Fair::pause_where(connection, payments::company_id, 3345, Pause::new("their bank is down", BY)).unwrap();
    assert!(Fair::unpause_where_by(connection, payments::company_id, 3345, BY, "it is up").unwrap());
    let limits = Limits::new("bank is slow", BY).workers(2).retry_delay(Duration::from_secs(60));
    Fair::set_limits(connection, limits).unwrap();
    assert!(Fair::end_limits_by(connection, BY, "it is fast").unwrap());
    adopt_environment(connection, "staging", BY, "a copy").unwrap();
    // These do not say who asks.
    Fair::pause_where(connection, payments::company_id, 1, Pause::new("one more", BY)).unwrap();
    Fair::unpause_where(connection, payments::company_id, 1).unwrap();
    Fair::end_limits(connection).unwrap();
    assert_eq!(
        lines(connection),
        [
            "payments.status pause company_id = 3345: 1, ops@example.org (their bank is down)",
            "payments.status unpause company_id = 3345: 1, ops@example.org (it is up)",
            "payments.status set_limits 2 workers in each process, retries after 1m the whole queue: 1, ops@example.org \
             (bank is slow)",
            "payments.status end_limits the whole queue: 1, ops@example.org (it is fast)",
            "queueable adopt_environment staging the database: 1, ops@example.org (a copy)",
            "payments.status pause company_id = 1: 1, ops@example.org (one more)",
        ]
    );
    let refused = adopt_environment(connection, "staging", " ", "a copy");
    assert!(matches!(refused, Err(Error::Setting { setting: "who asks for a change", .. })), "{refused:?}");
}
