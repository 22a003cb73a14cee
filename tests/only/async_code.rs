//! Handlers that run async code on the message's connection, in the message's transaction.

use std::future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use diesel::prelude::*;
use diesel_async::{AsyncConnection, RunQueryDsl};
use queueable::{Failure, HandlerResult, Message, Outcome, Queueable, Status};

use crate::db::{AsyncConn, Conn, fail_quoting};
use crate::suite::bank::{Bank, Payment, companies, ledger, payments};

/// Books a payment by async statements.
async fn booked(connection: &mut AsyncConn, payment: i64, cents: i64) -> QueryResult<usize> {
    diesel::insert_into(ledger::table)
        .values((ledger::payment_id.eq(payment), ledger::amount_cents.eq(cents)))
        .execute(connection)
        .await
}

#[test]
fn what_an_async_handler_writes_commits_with_the_state() {
    let bank = Bank::new();
    let ids = bank.enqueue([100, 200, 300]);
    let tally = bank.run(|payment: &Payment, message: &mut Message<'_, Conn>| -> HandlerResult {
        message.connection().run(async |connection| {
            booked(connection, payment.id, payment.amount_cents).await?;
            // A handler may wait for the runtime's timer, in the middle of its transaction.
            tokio::time::sleep(Duration::from_millis(1)).await;
            diesel::update(companies::table.find(payment.company_id))
                .set(companies::balance_cents.eq(companies::balance_cents + payment.amount_cents))
                .execute(connection)
                .await?;
            Ok(Outcome::Done)
        })
    });
    assert_eq!((tally.succeeded, bank.booked(), bank.balance(1)), (3, ids.clone(), 600));
    assert!(ids.iter().all(|id| bank.state(*id).status == Status::Success));
}

#[test]
fn an_async_handler_that_fails_panics_or_meets_an_error_of_the_database_leaves_nothing() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2, 3, 4]);
    let tally = bank.run(|payment: &Payment, message: &mut Message<'_, Conn>| -> HandlerResult {
        message.connection().run(async |connection| {
            booked(connection, payment.id, payment.amount_cents).await?;
            match payment.amount_cents {
                1 => return Err(Failure::retry("no route to the bank")),
                2 => panic!("a payment of two"),
                3 => {
                    diesel::sql_query(fail_quoting("a payment of three")).execute(connection).await?;
                }
                _ => {}
            }
            Ok(Outcome::Done)
        })
    });
    assert_eq!((tally.succeeded, tally.retried), (1, 3));
    assert_eq!(bank.booked(), ids[3..]);
    let text = |id| bank.state(id).last_attempt_error_message.expect("it has failed");
    assert_eq!(text(ids[0]), "no route to the bank");
    assert!(text(ids[1]).contains("panicked: a payment of two"));
    assert!(text(ids[2]).contains("a payment of three"));
}

#[test]
fn a_nested_async_transaction_is_a_savepoint_of_the_messages() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2]);
    let tally = bank.run(|payment: &Payment, message: &mut Message<'_, Conn>| -> HandlerResult {
        let (id, cents) = (payment.id, payment.amount_cents);
        message.connection().run(async |connection| {
            let inner = connection.transaction(async move |connection| {
                booked(connection, id, cents).await?;
                if cents == 1 { Err(diesel::result::Error::RollbackTransaction) } else { Ok(()) }
            });
            Ok(if inner.await.is_ok() { Outcome::Done } else { Outcome::Skip })
        })
    });
    assert_eq!((tally.succeeded, tally.skipped), (1, 1));
    assert_eq!(bank.booked(), ids[1..]);
}

#[test]
fn an_async_handler_past_its_timeout_commits_nothing() {
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(module = hurried_queue, timeout = "500ms", retry = fixed("1h"))]
    struct Hurried {
        id: i64,
    }

    let bank = Bank::new();
    let ids = bank.enqueue([1]);
    let poller = Hurried::poller(bank.pool(1), |hurried: &Hurried, message: &mut Message<'_, Conn>| -> HandlerResult {
        message.connection().run(async |connection| {
            booked(connection, hurried.id, 0).await?;
            // Nobody ever answers.
            let _ = tokio::time::timeout(Duration::from_secs(2), future::pending::<()>()).await;
            Ok(Outcome::Done)
        })
    });
    poller.workers(1).run_until_idle().unwrap();
    assert!(bank.booked().is_empty());
    let state = bank.state(ids[0]);
    assert_eq!((state.status, state.try_count), (Status::Error, 1));
    assert!(state.last_attempt_error_message.unwrap().contains("longer than its timeout of 500ms"));
}

#[test]
fn a_session_may_be_dropped_on_a_thread_that_runs_async_tasks() {
    let session = Bank::new().connect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        drop(session);
        tokio::task::yield_now().await;
    });
}

#[test]
fn a_session_on_a_thread_that_runs_async_tasks_names_what_to_call_instead() {
    let bank = Bank::new();
    let mut session = bank.connect();
    let count = |session: &mut Conn| diesel::RunQueryDsl::get_result::<i64>(payments::table.count(), session);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let panic_of = |call: &mut dyn FnMut()| {
        let panic = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
        *panic.downcast::<String>().unwrap()
    };
    runtime.block_on(async {
        let error = Conn::establish(bank.database.url()).err().unwrap().to_string();
        assert!(error.contains("`tokio::task::spawn_blocking`"), "{error}");
        let panic = panic_of(&mut || drop(bank.poller(crate::suite::bank::book).start()));
        assert!(panic.contains("`start_async().await`"), "{panic}");
        let panic = panic_of(&mut || drop(count(&mut session)));
        assert!(panic.contains("`AsyncPgSession::on(connection, |session| ..).await`"), "{panic}");
    });
    // Nothing was sent.
    assert_eq!(count(&mut session), Ok(0));
}
