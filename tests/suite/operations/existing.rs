//! The back-fill: rows that were never enqueued, in small transactions, resumable.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queueable::report::Progress;
use queueable::{Queueable, Status};

use super::dry_run::rows_of_more_kinds;
use super::{company, rows_of_every_kind};
use crate::suite::bank::{Bank, Payment, book, payments};

#[test]
fn only_rows_that_were_never_enqueued_are() {
    let operated = rows_of_more_kinds();
    let mut connection = operated.connect();
    let mut seen = Vec::new();
    let enqueued = company!().enqueue_existing().run(&mut connection, |progress| seen.push(progress)).unwrap();
    assert_eq!(enqueued, 1);
    assert_eq!(operated.changed(), ["history"]);
    let history = operated.state("history");
    assert_eq!((history.status, history.try_count), (Status::NotAttempted, 0));
    assert!(history.next_attempt_time.is_some());
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].done, seen[0].total), (1, 1));
    assert_eq!(seen[0].to_string(), "1 of 1 rows enqueued (100 %)");
    let json = serde_json::to_string(&seen[0]).unwrap();
    assert_eq!(serde_json::from_str::<Progress>(&json).unwrap(), seen[0]);
    assert_eq!(company!().enqueue_existing().run(&mut connection, |_| {}).unwrap(), 0);
}

/// Rows as they are in a table to which a queue was added.
fn history(rows: usize) -> Bank {
    let bank = Bank::new();
    let values: Vec<_> = (0..rows).map(|_| (payments::company_id.eq(1), payments::amount_cents.eq(1))).collect();
    diesel::insert_into(payments::table).values(values).execute(&mut bank.connect()).unwrap();
    bank
}

#[test]
fn it_goes_on_where_it_was_cut_short_and_enqueues_none_twice() {
    let bank = history(45);
    // The run is cut short: the transactions up to here are committed, and the rest is as it was.
    let cut = std::panic::catch_unwind(|| {
        let back_fill = Payment::queue().all_rows().enqueue_existing().batch(10);
        back_fill.run(&mut bank.connect(), |progress| assert!(progress.done < 20))
    });
    assert!(cut.is_err());
    let mut connection = bank.connect();
    assert_eq!(Payment::queue().pending().count(&mut connection).unwrap(), 20);
    assert_eq!(bank.run(book).succeeded, 20);

    let mut seen = Vec::new();
    let back_fill = Payment::queue().all_rows().enqueue_existing().batch(10);
    let enqueued = back_fill.run(&mut connection, |progress| seen.push((progress.done, progress.total))).unwrap();
    assert_eq!(enqueued, 25);
    assert_eq!(seen, [(10, 25), (20, 25), (25, 25)]);
    assert_eq!(bank.run(book).succeeded, 25);
    assert_eq!(bank.booked().len(), 45, "each once");
}

#[test]
fn a_batch_is_as_large_as_requested_and_no_larger_than_the_pace() {
    let bank = history(25);
    let mut steps = Vec::new();
    let mut before = 0;
    let back_fill = Payment::queue().all_rows().enqueue_existing().per_second(10_000).batch(5);
    back_fill
        .run(&mut bank.connect(), |progress| {
            steps.push(progress.done - before);
            before = progress.done;
        })
        .unwrap();
    assert_eq!(steps, [5; 5]);
    // A batch is at most the number of rows for one second.
    let bank = history(12);
    let mut most = 0;
    let back_fill = Payment::queue().all_rows().enqueue_existing().per_second(11);
    let first = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        back_fill.run(&mut bank.connect(), |progress| {
            most = progress.done;
            panic!("the first will do");
        })
    }));
    assert!(first.is_err());
    assert_eq!(most, 11);
}

#[test]
fn an_error_in_between_says_how_far_it_was() {
    let bank = history(30);
    let mut connection = bank.connect();
    let twentieth: i64 =
        payments::table.order(payments::id).offset(19).select(payments::id).first(&mut connection).unwrap();
    connection.batch_execute(&crate::db::refuse_update_of(twentieth)).unwrap();
    let back_fill = Payment::queue().all_rows().enqueue_existing().batch(7);
    let error = back_fill.run(&mut connection, |_| {}).unwrap_err();
    assert!(matches!(error, queueable::Error::Interrupted { rows: 14, .. }), "{error:?}");
    assert!(error.to_string().starts_with("stopped after 14 rows: "), "{error}");
}

#[test]
fn two_back_fills_at_once_enqueue_each_row_once() {
    let bank = history(60);
    let enqueued: usize = std::thread::scope(|scope| {
        let fill = || {
            let back_fill = Payment::queue().all_rows().enqueue_existing().batch(9);
            back_fill.run(&mut bank.connect(), |_| {}).unwrap()
        };
        let runs: Vec<_> = (0..3).map(|_| scope.spawn(fill)).collect();
        runs.into_iter().map(|run| run.join().unwrap()).sum()
    });
    assert_eq!(enqueued, 60);
    assert_eq!(Payment::queue().pending().count(&mut bank.connect()).unwrap(), 60);
}

#[test]
fn more_rows_than_keys_are_read_at_a_time() {
    let bank = history(400);
    let mut connection = bank.connect();
    let double = "INSERT INTO payments (company_id, amount_cents) SELECT company_id, amount_cents + 1 FROM payments";
    for _ in 0..5 {
        connection.batch_execute(double).unwrap();
    }
    let back_fill = Payment::queue().filter(payments::amount_cents.ne(5)).enqueue_existing().batch(5_000);
    let expected = payments::table.filter(payments::amount_cents.ne(5)).count().get_result::<i64>(&mut connection);
    let enqueued = back_fill.run(&mut connection, |_| {}).unwrap();
    assert_eq!(enqueued, usize::try_from(expected.unwrap()).unwrap());
    assert!(enqueued > 10_000);
    assert_eq!(Payment::queue().pending().count(&mut connection).unwrap(), i64::try_from(enqueued).unwrap());
}

#[test]
fn a_back_fill_is_for_the_rows_of_its_filter() {
    let operated = rows_of_every_kind();
    let mut connection = operated.connect();
    let back_fill = Payment::queue().filter(payments::company_id.eq(7)).enqueue_existing();
    assert_eq!(back_fill.run(&mut connection, |_| panic!("no batch")).unwrap(), 0);
    assert_eq!(operated.changed(), [""; 0]);
}
