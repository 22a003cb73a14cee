//! Operations by domain filter: which rows they touch and which they leave alone.

mod dry_run;
mod existing;
mod purge;

use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{Bool, Nullable};
use queueable::columns::Instant;
use queueable::{Error, QueueRows, QueueState, Queueable, Status};

use crate::db::Conn;
use crate::suite::bank::{Bank, NewPayment, Payment, payment_queue, payments};

/// One row in each possible state. A row's amount is its place in this list.
const KINDS: [&str; 8] = ["due", "scheduled", "error", "failed", "success", "skipped", "history", "foreign"];

/// The company whose rows the operations are for, and one with the same rows that no operation may touch.
const COMPANIES: [i64; 2] = [3345, 2];

type Row = (i64, i64, i64, String, Option<Instant>, i32, Option<String>);

pub(super) struct Operated {
    bank: Bank,
    before: Vec<Row>,
}

/// A row of every kind for each company.
pub(super) fn rows_of_every_kind() -> Operated {
    let bank = Bank::new();
    let mut connection = bank.connect();
    let new = |kind: i64, company_id| NewPayment { company_id, amount_cents: kind };
    for company in COMPANIES {
        let later = Duration::from_secs(3600);
        let rows = [Payment::due_in(Duration::ZERO), Payment::due_in(later), Payment::due_in(later)];
        let rows: Vec<_> = (0..).zip(rows).map(|(kind, due)| (new(kind, company), due)).collect();
        diesel::insert_into(payments::table).values(rows).execute(&mut connection).unwrap();
        for kind in 3..8 {
            diesel::insert_into(payments::table).values(new(kind, company)).execute(&mut connection).unwrap();
        }
    }
    connection
        .batch_execute(
            "UPDATE payments SET status = 'ERROR', try_count = 2, last_attempt_error_message = 'no route'
                 WHERE amount_cents = 2;
             UPDATE payments SET status = 'FAILED', try_count = 3, last_attempt_error_message = 'no account'
                 WHERE amount_cents = 3;
             UPDATE payments SET status = 'SUCCESS', try_count = 1 WHERE amount_cents = 4;
             UPDATE payments SET status = 'SKIPPED' WHERE amount_cents = 5;
             UPDATE payments SET status = 'DONE' WHERE amount_cents = 7",
        )
        .unwrap();
    let before = rows(&mut connection);
    Operated { bank, before }
}

fn rows(connection: &mut Conn) -> Vec<Row> {
    payments::table
        .order(payments::id)
        .select((
            payments::id,
            payments::company_id,
            payments::amount_cents,
            payment_queue::status,
            payment_queue::next_attempt_time,
            payment_queue::try_count,
            payment_queue::last_attempt_error_message,
        ))
        .load(connection)
        .unwrap()
}

impl Operated {
    pub(super) fn connect(&self) -> Conn {
        self.bank.connect()
    }

    /// Returns the kinds of the company's rows that have changed, and checks that the other company's rows have not.
    pub(super) fn changed(&self) -> Vec<&'static str> {
        let after = rows(&mut self.connect());
        let changed = self.before.iter().filter(|row| !after.contains(row));
        changed
            .map(|row| {
                assert_eq!(row.1, COMPANIES[0], "a row of another company was changed: {row:?}");
                KINDS[usize::try_from(row.2).unwrap()]
            })
            .collect()
    }

    pub(super) fn state(&self, kind: &str) -> QueueState {
        let place = KINDS.iter().position(|known| *known == kind).expect("a known kind");
        payments::table
            .filter(payments::company_id.eq(COMPANIES[0]))
            .filter(payments::amount_cents.eq(i64::try_from(place).unwrap()))
            .select(Payment::queue_state())
            .get_result(&mut self.connect())
            .unwrap()
    }
}

/// Returns the company's rows, picked by a boxed condition.
macro_rules! company {
    () => {
        Payment::queue().filter(payments::company_id.eq(3345_i64))
    };
}
pub(super) use company;

#[test]
fn rows_are_counted_by_state_and_an_unknown_status_as_unknown() {
    let operated = rows_of_every_kind();
    let mut connection = operated.connect();
    let company = company!();
    let mut count = |queue: QueueRows<Payment, _>| queue.count(&mut connection).unwrap();
    assert_eq!(count(company.clone()), 8);
    assert_eq!(count(company.clone().due()), 1);
    assert_eq!(count(company.clone().scheduled()), 2);
    assert_eq!(count(company.clone().pending()), 3);
    assert_eq!(count(company.clone().failed()), 1);
    assert_eq!(count(company.clone().finished()), 3);
    assert_eq!(Payment::queue().count(&mut connection).unwrap(), 16);
    let counts = company.counts_by_status(&mut connection).unwrap();
    assert_eq!((counts.of(Status::NotAttempted), counts.of(Status::Error), counts.of(Status::Failed)), (3, 1, 1));
    assert_eq!((counts.of(Status::Success), counts.of(Status::Skipped), counts.unknown), (1, 1, 1));
    assert_eq!(counts.total(), 8);
}

#[test]
fn filters_are_boxed_nullable_and_added_up() {
    let operated = rows_of_every_kind();
    let mut connection = operated.connect();
    type Backend = <Conn as diesel::Connection>::Backend;
    type Boxed<T> = Box<dyn BoxableExpression<payments::table, Backend, SqlType = T>>;
    let boxed: Boxed<Bool> = Box::new(payments::company_id.eq(3345).or(payments::company_id.eq(7)));
    assert_eq!(Payment::queue().filter(boxed).pending().count(&mut connection).unwrap(), 3);
    let nullable: Boxed<Nullable<Bool>> = Box::new(payment_queue::last_attempt_error_message.like("no %"));
    assert_eq!(Payment::queue().filter(nullable).count(&mut connection).unwrap(), 4);
    // A null is neither like the pattern nor unlike it.
    let unlike = payment_queue::last_attempt_error_message.not_like("%route");
    let queue = company!().filter(unlike).filter(payments::amount_cents.lt(100));
    assert_eq!(queue.count(&mut connection).unwrap(), 1);
    // Each filter stays whole, whatever joins it to others.
    let either = payments::amount_cents.eq(0).or(payments::amount_cents.eq(1));
    assert_eq!(company!().filter(either).retry_now(&mut connection).unwrap(), 2);
    operated.changed();
}

#[test]
fn rows_are_loaded_with_their_state_in_the_order_of_the_key() {
    let operated = rows_of_every_kind();
    let mut connection = operated.connect();
    let loaded = company!().pending().load(&mut connection).unwrap();
    let kinds: Vec<_> = loaded.iter().map(|(payment, state)| (payment.amount_cents, state.try_count)).collect();
    assert_eq!(kinds, [(0, 0), (1, 0), (2, 2)]);
    assert_eq!(company!().load_some(&mut connection, 2).unwrap().len(), 2);
    let with_a_foreign_one = company!().load(&mut connection);
    assert!(matches!(with_a_foreign_one, Err(Error::Database(_))), "{with_a_foreign_one:?}");
}

#[test]
fn retry_now_makes_pending_and_failed_rows_due() {
    let operated = rows_of_every_kind();
    let mut connection = operated.connect();
    assert_eq!(company!().retry_now(&mut connection).unwrap(), 4);
    assert_eq!(operated.changed(), ["due", "scheduled", "error", "failed"]);
    assert_eq!(company!().due().count(&mut connection).unwrap(), 4);
    let (error, failed) = (operated.state("error"), operated.state("failed"));
    assert_eq!((error.status, error.try_count), (Status::Error, 2));
    assert_eq!((failed.status, failed.try_count), (Status::NotAttempted, 0));
}

#[test]
fn retry_now_of_failed_rows_leaves_pending_ones() {
    let operated = rows_of_every_kind();
    assert_eq!(company!().failed().retry_now(&mut operated.connect()).unwrap(), 1);
    assert_eq!(operated.changed(), ["failed"]);
}

#[test]
fn postpone_until_moves_pending_rows() {
    let operated = rows_of_every_kind();
    let time: DateTime<Utc> = "2100-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(company!().postpone_until(&mut operated.connect(), time).unwrap(), 3);
    assert_eq!(operated.changed(), ["due", "scheduled", "error"]);
    assert_eq!(operated.state("due").next_attempt_time, Some(time));
    assert_eq!(operated.state("error").try_count, 2);
}

#[test]
fn stopped_rows_keep_their_state_and_are_restarted() {
    let operated = rows_of_every_kind();
    let mut connection = operated.connect();
    assert_eq!(company!().restart(&mut connection).unwrap(), 0);
    assert_eq!(company!().stop(&mut connection).unwrap(), 3);
    assert_eq!(operated.changed(), ["due", "scheduled", "error"]);
    assert_eq!(company!().pending().count(&mut connection).unwrap(), 0);
    let error = operated.state("error");
    assert_eq!((error.status, error.try_count), (Status::Error, 2));
    assert_eq!(error.last_attempt_error_message.as_deref(), Some("no route"));

    assert_eq!(company!().stop(&mut connection).unwrap(), 0);
    assert_eq!(company!().restart(&mut connection).unwrap(), 3);
    assert_eq!(company!().due().count(&mut connection).unwrap(), 3);
    assert_eq!(company!().restart(&mut connection).unwrap(), 0);
    assert_eq!(operated.changed(), ["due", "scheduled", "error"]);
}

#[test]
fn rerun_enqueues_finished_rows_again() {
    let operated = rows_of_every_kind();
    assert_eq!(company!().rerun(&mut operated.connect()).unwrap(), 2);
    assert_eq!(operated.changed(), ["failed", "success"]);
    let sent = operated.state("success");
    assert_eq!((sent.status, sent.try_count), (Status::NotAttempted, 0));
    assert!(sent.next_attempt_time.is_some());
}

#[test]
fn skip_takes_rows_out_of_the_queue() {
    let operated = rows_of_every_kind();
    let mut connection = operated.connect();
    assert_eq!(company!().skip(&mut connection).unwrap(), 6);
    assert_eq!(operated.changed(), ["due", "scheduled", "error", "failed", "history", "foreign"]);
    let counts = company!().counts_by_status(&mut connection).unwrap();
    assert_eq!((counts.of(Status::Success), counts.of(Status::Skipped)), (1, 7));
    assert_eq!(company!().pending().count(&mut connection).unwrap(), 0);
}

#[test]
fn delete_removes_the_rows_themselves() {
    let operated = rows_of_every_kind();
    let mut connection = operated.connect();
    assert_eq!(company!().finished().delete(&mut connection).unwrap(), 3);
    assert_eq!(operated.changed(), ["failed", "success", "skipped"]);
    assert_eq!(company!().delete(&mut connection).unwrap(), 5);
    assert_eq!(Payment::queue().count(&mut connection).unwrap(), 8);
}

#[test]
fn no_operation_enqueues_history() {
    type Operation = fn(&QueueRows<Payment, queueable::bounds::EveryRow>, &mut Conn) -> Result<usize, Error>;
    let operations: [Operation; 7] = [
        |queue, connection| queue.retry_now(connection),
        |queue, connection| queue.postpone_until(connection, DateTime::UNIX_EPOCH),
        |queue, connection| queue.stop(connection),
        |queue, connection| queue.restart(connection),
        |queue, connection| queue.rerun(connection),
        |queue, connection| queue.retry_now(connection),
        |queue, connection| queue.skip(connection),
    ];
    let operated = rows_of_every_kind();
    let mut connection = operated.connect();
    for (place, operation) in operations.into_iter().enumerate() {
        operation(&Payment::queue().all_rows(), &mut connection).unwrap();
        assert_eq!(operated.state("history").next_attempt_time, None, "operation {place}");
    }
}

#[test]
fn an_operation_belongs_to_the_callers_transaction() {
    let operated = rows_of_every_kind();
    let mut connection = operated.connect();
    let rolled_back = connection.transaction(|connection| {
        assert_eq!(company!().skip(connection).unwrap(), 6);
        assert_eq!(company!().delete(connection).unwrap(), 8);
        Err::<(), _>(diesel::result::Error::RollbackTransaction)
    });
    assert!(rolled_back.is_err());
    assert_eq!(operated.changed(), [""; 0]);
}

#[test]
fn any_wait_will_do() {
    let operated = rows_of_every_kind();
    let mut connection = operated.connect();
    for wait in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(86_400 * 365), Duration::MAX] {
        assert_eq!(company!().wait(wait).failed().postpone_until(&mut connection, Utc::now()).unwrap(), 0);
        assert_eq!(company!().wait(wait).filter(payments::id.eq(-1)).delete(&mut connection).unwrap(), 0);
    }
}
