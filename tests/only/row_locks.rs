//! Promises on the databases with row locks, PostgreSQL and MySQL. SQLite has one lock for the whole file.

use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use diesel::connection::{SimpleConnection, TransactionManager};
use diesel::prelude::*;
use queue_core::internals::RowKey;
use queue_core::internals::statement::Scope;
use queueable::{HandlerResult, Lease, Message, Outcome, Poller, Queueable};

use crate::db::{Conn, LOCK_WAITS};
use crate::suite::bank::{Bank, NewPayment, Payment, payment_queue, payments};
use crate::suite::keyed::erased;
use crate::suite::low_water::due_at;
use crate::suite::modes::Grouped;

/// The session's settings that an operation changes for itself.
fn lock_waits(connection: &mut crate::db::Conn) -> Vec<String> {
    LOCK_WAITS
        .iter()
        .map(|setting| {
            diesel::select(diesel::dsl::sql::<diesel::sql_types::Text>(setting)).get_result(connection).unwrap()
        })
        .collect()
}

#[test]
fn a_held_row_that_the_filter_does_not_pick_is_not_waited_for() {
    let bank = Bank::new();
    let mut connection = bank.connect();
    bank.enqueue([1, 2]);
    let other = NewPayment { company_id: 3345, amount_cents: 3 };
    diesel::insert_into(payments::table).values((&other, Payment::due_now())).execute(&mut connection).unwrap();

    let mut holder = bank.connect();
    <Conn as Connection>::TransactionManager::begin_transaction(&mut holder).unwrap();
    diesel::update(payments::table.find(1)).set(payments::amount_cents.eq(9)).execute(&mut holder).unwrap();
    let third = Payment::queue().filter(payments::company_id.eq(3345)).wait(Duration::from_millis(50));
    assert_eq!(third.retry_now(&mut connection).unwrap(), 1);
    assert_eq!(third.stop(&mut connection).unwrap(), 1);
    // Nor do inserts wait for an operation.
    connection
        .transaction(|connection| {
            assert_eq!(third.restart(connection).unwrap(), 1);
            bank.enqueue([4]);
            QueryResult::Ok(())
        })
        .unwrap();
    <Conn as Connection>::TransactionManager::rollback_transaction(&mut holder).unwrap();
}

#[test]
fn an_operation_leaves_the_sessions_settings_as_they_were() {
    let bank = Bank::new();
    bank.enqueue([1]);
    let mut connection = bank.connect();
    let before = lock_waits(&mut connection);
    let all = Payment::queue().all_rows().wait(Duration::from_millis(50));
    assert_eq!(all.retry_now(&mut connection).unwrap(), 1);
    assert_eq!(lock_waits(&mut connection), before);
    connection
        .transaction(|connection| {
            assert_eq!(all.stop(connection).unwrap(), 1);
            assert_eq!(lock_waits(connection), before);
            QueryResult::Ok(())
        })
        .unwrap();

    let mut holder = bank.connect();
    <Conn as Connection>::TransactionManager::begin_transaction(&mut holder).unwrap();
    diesel::update(payments::table).set(payments::amount_cents.eq(9)).execute(&mut holder).unwrap();
    connection
        .transaction(|connection| {
            assert!(all.restart(connection).is_err());
            assert_eq!(lock_waits(connection), before);
            QueryResult::Ok(())
        })
        .unwrap();
    assert!(all.restart(&mut connection).is_err());
    assert_eq!(lock_waits(&mut connection), before);
}

#[test]
fn a_row_of_another_company_is_not_waited_for_however_many_rows_are_finished() {
    let bank = Bank::new();
    bank.enqueue(0..2000);
    diesel::update(payments::table)
        .set(payment_queue::next_attempt_time.eq(None::<queueable::columns::Instant>))
        .execute(&mut bank.connect())
        .unwrap();
    let held = bank.enqueue([1])[0];
    let ours = bank.enqueue([1])[0];
    let mut connection = bank.connect();
    diesel::update(payments::table.find(ours)).set(payments::company_id.eq(3345)).execute(&mut connection).unwrap();
    connection.batch_execute(crate::db::ANALYZE).unwrap();
    let mut holder = bank.connect();
    <Conn as Connection>::TransactionManager::begin_transaction(&mut holder).unwrap();
    diesel::update(payments::table.find(held)).set(payments::amount_cents.eq(2)).execute(&mut holder).unwrap();
    let retried =
        Payment::queue().filter(payments::company_id.eq(3345)).wait(Duration::from_secs(1)).retry_now(&mut connection);
    assert_eq!(retried.unwrap(), 1);
}

#[test]
fn work_in_batches_passes_over_rows_that_others_hold() {
    let bank = Bank::new();
    let finished = bank.enqueue([1, 2, 3]);
    let mut connection = bank.connect();
    connection
        .batch_execute(
            "UPDATE payments SET status = 'SUCCESS', next_attempt_time = NULL, last_attempt_time = '2001-02-03 04:05:06'",
        )
        .unwrap();
    let values = [4, 5, 6].map(|amount| (payments::company_id.eq(1), payments::amount_cents.eq(amount)));
    diesel::insert_into(payments::table).values(values.to_vec()).execute(&mut connection).unwrap();
    let mut holder = bank.connect();
    <Conn as Connection>::TransactionManager::begin_transaction(&mut holder).unwrap();
    // One by one, by their keys: MySQL would lock every row that it reads.
    for held in [2, 5] {
        let id = payments::table.filter(payments::amount_cents.eq(held)).select(payments::id);
        let id: i64 = id.get_result(&mut connection).unwrap();
        diesel::update(payments::table.find(id)).set(payments::company_id.eq(2)).execute(&mut holder).unwrap();
    }

    let all = Payment::queue().all_rows().wait(Duration::from_millis(50));
    assert_eq!(all.batch(2).purge(&mut connection, Duration::from_secs(60)).unwrap(), 2);
    let all = Payment::queue().all_rows().wait(Duration::from_millis(50));
    assert_eq!(all.enqueue_existing().batch(2).run(&mut connection, |_| {}).unwrap(), 2);
    <Conn as Connection>::TransactionManager::rollback_transaction(&mut holder).unwrap();
    let left: Vec<i64> = payments::table.order(payments::id).select(payments::id).load(&mut connection).unwrap();
    assert_eq!(left.len(), 4);
    assert_eq!(left[0], finished[1]);
    let all = Payment::queue().all_rows();
    assert_eq!(all.purge(&mut connection, Duration::from_secs(60)).unwrap(), 1);
    assert_eq!(all.enqueue_existing().run(&mut connection, |_| {}).unwrap(), 1);
}

#[test]
fn a_lease_is_extended_although_somebody_holds_its_neighbours() {
    #[derive(Debug, Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(module = brief_queue, lease = "30s", retry = fixed("1h"))]
    struct Brief {
        id: i64,
        amount_cents: i64,
    }

    let bank = std::sync::Arc::new(Bank::new());
    bank.enqueue([1, 1, 1, 2]);
    let seen = bank.clone();
    let handler = (
        move |brief: &Brief, lease: &Lease| {
            lease.extend(Duration::from_secs(60))?;
            let mut holder = seen.connect();
            <Conn as Connection>::TransactionManager::begin_transaction(&mut holder)?;
            if brief.amount_cents == 1 {
                let row = diesel::update(payments::table.find(brief.id));
                row.set(payments::company_id.eq(2)).execute(&mut holder)?;
            }
            let begun = Instant::now();
            let (_nobody, pace) = std::sync::mpsc::channel::<()>();
            while begun.elapsed() < Duration::from_secs(16) {
                let _ = pace.recv_timeout(Duration::from_millis(10));
            }
            let lost = lease.lease_lost();
            <Conn as Connection>::TransactionManager::rollback_transaction(&mut holder)?;
            assert_eq!(lost, brief.amount_cents == 1, "only those whose rows are held are told");
            Ok(())
        },
        |_: &Brief, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done),
    );
    let tally = Brief::poller(bank.pool(4), handler).workers(4).run_until_idle().unwrap();
    assert_eq!(tally.retried, 0);
}

/// A poller for payments with one worker, in transaction mode or in group mode.
type InMode = fn(&Bank, Handle) -> Poller<Conn>;
type Handle = Box<dyn Fn(i64) -> HandlerResult + Send + Sync>;

#[test]
fn who_holds_a_row_settles_it_while_the_handler_runs_that_passed_it() {
    let in_modes: [InMode; 2] = [
        |bank, handle| {
            Payment::poller(bank.pool(1), move |row: &Payment, _: &mut Message<'_, Conn>| handle(row.amount_cents))
        },
        |bank, handle| {
            Grouped::poller(bank.pool(1), move |row: &Grouped, _: &mut Message<'_, Conn>| handle(row.amount_cents))
        },
    ];
    for in_mode in in_modes {
        let bank = Bank::new();
        let held = due_at(&bank, 10);
        due_at(&bank, 20);
        let mut holder = bank.connect();
        <Conn as Connection>::TransactionManager::begin_transaction(&mut holder).unwrap();
        let claimed =
            erased::<Payment>().claim_keys(&mut holder, &[RowKey::new(held, held.to_string())], 1, Scope::ALL).unwrap();
        assert_eq!(claimed.len(), 1);
        let (say, said) = mpsc::channel();
        let (go, may_go) = mpsc::channel();
        let (say, may_go) = (Mutex::new(say), Mutex::new(may_go));
        let handle: Handle = Box::new(move |amount| {
            say.lock().unwrap().send(amount).unwrap();
            // The test drops it to let all of them go on.
            let _ = may_go.lock().unwrap().recv();
            Ok(Outcome::Done)
        });
        let running = in_mode(&bank, handle).workers(1).start().unwrap();
        assert_eq!(said.recv(), Ok(20));
        let settled = payment_queue::next_attempt_time.eq(None::<queueable::columns::Instant>);
        assert_eq!(diesel::update(payments::table.find(held)).set(settled).execute(&mut holder), Ok(1));
        <Conn as Connection>::TransactionManager::commit_transaction(&mut holder).unwrap();
        drop::<mpsc::Sender<()>>(go);
        assert_eq!(running.shutdown(Duration::from_secs(60)).tally.succeeded, 1);
    }
}
