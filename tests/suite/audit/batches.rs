//! A call that works in batches says with each batch how many rows it has changed so far.

use std::panic::{AssertUnwindSafe, catch_unwind};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queueable::Queueable;

use super::{BY, REASON, bank, only_row, rows};
use crate::suite::bank::{Bank, Payment, payment_queue, payments};

/// Rows that were never enqueued.
fn history(rows: usize) -> Bank {
    let bank = bank();
    let values: Vec<_> = (0..rows).map(|_| (payments::company_id.eq(1), payments::amount_cents.eq(1))).collect();
    diesel::insert_into(payments::table).values(values).execute(&mut bank.connect()).unwrap();
    bank
}

#[test]
fn whoever_is_killed_in_the_middle_leaves_the_true_number() {
    let bank = history(45);
    let back_fill = Payment::queue().all_rows().by(BY, REASON).enqueue_existing().batch(10);
    let cut = catch_unwind(AssertUnwindSafe(|| {
        back_fill.run(&mut bank.connect(), |progress| {
            // Another session sees the same number as the rows themselves show.
            let connection = &mut bank.connect();
            assert_eq!(only_row(connection), ("enqueue_existing".to_owned(), "all rows".to_owned(), progress.done));
            assert_eq!(Payment::queue().pending().count(connection).unwrap(), progress.done as i64);
            assert!(progress.done < 20, "cut short");
        })
    }));
    let message = *cut.unwrap_err().downcast::<&str>().unwrap();
    assert_eq!(message, "cut short");
    let connection = &mut bank.connect();
    assert_eq!(only_row(connection).2, 20);
    // The rest is another call.
    assert_eq!(back_fill.run(connection, |_| {}).unwrap(), 25);
    assert_eq!(rows(connection).iter().map(|row| row.rows).collect::<Vec<_>>(), [20, 25]);
}

#[test]
fn an_error_in_the_middle_leaves_the_true_number() {
    let bank = bank();
    let ids = bank.enqueue([1, 2, 3, 7, 4, 5]);
    let connection = &mut bank.connect();
    connection
        .batch_execute(
            "UPDATE payments SET status = 'FAILED', next_attempt_time = NULL, \
             last_attempt_time = '2001-02-03 04:05:06.000'",
        )
        .unwrap();
    connection.batch_execute(&crate::db::refuse_removal_of(ids[3])).unwrap();
    let queue = Payment::queue().all_rows().by(BY, REASON).batch(1);
    queue.purge(connection, std::time::Duration::from_secs(3600)).unwrap_err();
    let left: i64 = payments::table.count().get_result(connection).unwrap();
    assert_eq!(only_row(connection).2 as i64, 6 - left);
    assert!(left < 6);
}

#[test]
fn a_row_that_somebody_removes_meanwhile_is_written_anew() {
    let bank = history(30);
    let back_fill = Payment::queue().all_rows().by(BY, REASON).enqueue_existing().batch(10);
    let remove = |done| {
        if done == 10 {
            bank.connect().batch_execute("DELETE FROM queueable_audit").unwrap();
        }
    };
    let enqueued = back_fill.run(&mut bank.connect(), |progress| remove(progress.done)).unwrap();
    assert_eq!((enqueued, only_row(&mut bank.connect()).2), (30, 30));
}

#[test]
fn a_group_of_very_many_texts_is_one_row() {
    let bank = bank();
    bank.enqueue(0..1_100);
    let connection = &mut bank.connect();
    let text = if crate::db::NAME == "mysql" {
        "CONCAT('no account ', CAST(amount_cents AS CHAR))"
    } else {
        "'no account ' || CAST(amount_cents AS TEXT)"
    };
    connection.batch_execute(&format!("UPDATE payments SET last_attempt_error_message = {text}")).unwrap();
    let queue = Payment::queue().filter(payment_queue::try_count.eq(0)).by(BY, REASON);
    let report = queue.errors(connection).unwrap();
    let [group] = report.groups.as_slice() else { panic!("{report:?}") };
    assert_eq!(queue.stop_error_group(connection, group).unwrap(), 1_100);
    let (action, filter, rows) = only_row(connection);
    assert_eq!((action.as_str(), rows), ("stop_error_group", 1_100));
    assert!(filter.ends_with("; error `no account <number>`"), "{filter}");
}
