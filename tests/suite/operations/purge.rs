//! Old rows are removed when their work has ended, and only then.

use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queueable::{Error, Queueable, Status};

use super::company;
use super::dry_run::rows_of_more_kinds;
use crate::db::BIGINT;
use crate::suite::bank::{Bank, Payment, book, payment_queue, payments};

const MONTH: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Returns the kinds of the company's rows that are left.
fn left(connection: &mut crate::db::Conn) -> Vec<i64> {
    payments::table
        .filter(payments::company_id.eq(3345))
        .order(payments::amount_cents)
        .select(payments::amount_cents)
        .load(connection)
        .unwrap()
}

#[test]
fn purge_deletes_old_finished_rows_and_never_pending_work() {
    let operated = rows_of_more_kinds();
    let mut connection = operated.connect();
    assert_eq!(company!().purge(&mut connection, MONTH).unwrap(), 3);
    let expected: Vec<i64> = (0..18).filter(|kind| !(13..=15).contains(kind)).collect();
    assert_eq!(left(&mut connection), expected, "old SUCCESS, FAILED and SKIPPED are gone");
    let others = payments::table.filter(payments::company_id.eq(2)).count().get_result::<i64>(&mut connection);
    assert_eq!(others.unwrap(), 18);
    // No row is so old, and no age makes pending work old.
    assert_eq!(company!().purge(&mut connection, Duration::MAX).unwrap(), 0);
    assert_eq!(company!().purge(&mut connection, Duration::ZERO).unwrap(), 0);
}

#[test]
fn the_age_of_a_row_is_that_of_its_last_attempt_by_the_databases_clock() {
    let bank = Bank::new();
    bank.enqueue([1, 2]);
    assert_eq!(bank.run(book).succeeded, 2);
    let mut connection = bank.connect();
    let queue = Payment::queue().all_rows();
    assert_eq!(queue.purge(&mut connection, Duration::from_secs(3600)).unwrap(), 0);
    assert_eq!(queue.purge(&mut connection, Duration::ZERO).unwrap(), 2);
}

#[test]
fn purge_works_in_batches_of_any_size() {
    for batch in [0, 1, 7, 100, u32::MAX] {
        let bank = Bank::new();
        let ids = bank.enqueue(0..20);
        let mut connection = bank.connect();
        connection
            .batch_execute(
                "UPDATE payments SET status = 'SUCCESS', next_attempt_time = NULL, \
                 last_attempt_time = '2001-02-03 04:05:06.000' WHERE amount_cents <> 5",
            )
            .unwrap();
        let queue = Payment::queue().all_rows().batch(batch);
        assert_eq!(queue.purge(&mut connection, MONTH).unwrap(), 19, "batches of {batch}");
        let left: Vec<i64> = payments::table.select(payments::id).load(&mut connection).unwrap();
        assert_eq!(left, [ids[5]]);
    }
}

#[test]
fn purge_by_a_filter_and_a_state_deletes_no_others() {
    let operated = rows_of_more_kinds();
    let mut connection = operated.connect();
    let successes = company!().filter(payment_queue::status.eq(Status::Success));
    assert_eq!(successes.purge(&mut connection, MONTH).unwrap(), 1);
    assert_eq!(company!().failed().purge(&mut connection, MONTH).unwrap(), 1);
    assert_eq!(left(&mut connection), (0..18).filter(|kind| !(13..=14).contains(kind)).collect::<Vec<i64>>());
}

#[test]
fn a_purge_in_the_callers_transaction_is_rolled_back_with_it() {
    let operated = rows_of_more_kinds();
    let mut connection = operated.connect();
    let rolled_back = connection.transaction(|connection| {
        assert_eq!(company!().batch(1).purge(connection, MONTH).unwrap(), 3);
        Err::<(), _>(diesel::result::Error::RollbackTransaction)
    });
    assert!(rolled_back.is_err());
    assert_eq!(left(&mut connection).len(), 18);
}

#[test]
fn rows_to_which_others_refer_stay_and_keep_no_others() {
    for batch in [1, 7, 100] {
        let bank = Bank::new();
        let ids = bank.enqueue(0..20);
        let mut connection = bank.connect();
        connection
            .batch_execute(&format!(
                "UPDATE payments SET status = 'SUCCESS', next_attempt_time = NULL, \
                     last_attempt_time = '2001-02-03 04:05:06.000';
                 UPDATE payments SET status = 'FAILED' WHERE amount_cents < 10;
                 CREATE TABLE receipts (payment_id {BIGINT} NOT NULL,
                     FOREIGN KEY (payment_id) REFERENCES payments (id));
                 INSERT INTO receipts (payment_id) VALUES ({}), ({})",
                ids[0], ids[15]
            ))
            .unwrap();
        let queue = Payment::queue().all_rows().batch(batch);
        let purged = queue.purge(&mut connection, MONTH);
        let Err(Error::Interrupted { rows: 18, source }) = purged else { panic!("batches of {batch}: {purged:?}") };
        assert!(matches!(*source, Error::Refused { rows: 2, .. }), "{source:?}");
        let left: Vec<i64> = payments::table.order(payments::id).select(payments::id).load(&mut connection).unwrap();
        assert_eq!(left, [ids[0], ids[15]]);
        let again = queue.purge(&mut connection, MONTH);
        assert!(matches!(again, Err(Error::Refused { rows: 2, .. })), "{again:?}");
    }
}
