//! The queue's calls from async code, on a connection of the application's pool.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use diesel::connection::{Connection, SimpleConnection};
use diesel::prelude::*;
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use queueable::{AsyncPgSession, Error, Explanation, Queueable, Status, assert_schema};
use tokio::runtime::{Builder, Runtime};

use crate::db::WAITS;
use crate::suite::bank::{Bank, Payment, companies, payment_queue, payments};

fn pool(bank: &Bank, max_size: usize) -> Pool<AsyncPgConnection> {
    let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new(bank.database.url());
    Pool::builder(manager).max_size(max_size).build().expect("a pool without timeouts needs no runtime")
}

/// The two kinds of runtimes that an application may have.
fn runtimes() -> [Runtime; 2] {
    let threads = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    [threads, Builder::new_current_thread().enable_all().build()].map(|built| built.expect("a runtime"))
}

#[test]
fn operations_and_reports_run_on_a_connection_of_the_pool() {
    for runtime in runtimes() {
        let bank = Bank::new();
        let ids = bank.enqueue([1, 2, 3]);
        let pool = pool(&bank, 1);
        runtime.block_on(async {
            let stopped = AsyncPgSession::on(pool.get().await.unwrap(), |session| {
                Payment::queue().filter(payments::amount_cents.gt(1)).stop(session)
            });
            assert_eq!(stopped.await.unwrap(), 2);
            let id = ids[1];
            let (counts, explained, backlog) = AsyncPgSession::on(pool.get().await.unwrap(), move |session| {
                assert_schema!(session, Payment);
                let counts = Payment::queue().all_rows().counts_by_status(session)?;
                Ok::<_, Error>((counts, Payment::explain(session, &id)?, Payment::queue().backlog(session)?))
            })
            .await
            .unwrap();
            assert_eq!(counts.of(Status::NotAttempted), 3);
            assert!(matches!(explained, Explanation::Stopped), "{explained:?}");
            assert_eq!(backlog.due, 1);
            let pending = payments::table.filter(payment_queue::next_attempt_time.is_not_null()).select(payments::id);
            let pending: Vec<i64> = pending.load(&mut pool.get().await.unwrap()).await.unwrap();
            assert_eq!(pending, ids[..1], "the pool has its one connection back");
        });
    }
}

#[test]
fn several_calls_and_async_code_share_a_transaction() {
    let bank = Bank::new();
    bank.enqueue([1, 2, 3]);
    let [runtime, _] = runtimes();
    let transaction = |fails: bool| {
        move |session: &mut AsyncPgSession| {
            session.transaction(|session| {
                let stopped = Payment::queue().filter(payments::amount_cents.gt(1)).stop(session)?;
                session.run(async |connection| {
                    diesel::update(companies::table.find(1))
                        .set(companies::balance_cents.eq(7))
                        .execute(connection)
                        .await
                })?;
                if fails { Err(Error::Control("for a test".to_owned())) } else { Ok(stopped) }
            })
        }
    };
    runtime.block_on(async {
        let connection = AsyncPgConnection::establish(bank.database.url()).await.unwrap();
        assert!(AsyncPgSession::on(Box::new(connection), transaction(true)).await.is_err());
    });
    assert_eq!(bank.balance(1), 0);
    runtime.block_on(async {
        let connection = AsyncPgConnection::establish(bank.database.url()).await.unwrap();
        assert_eq!(AsyncPgSession::on(Box::new(connection), transaction(false)).await.unwrap(), 2);
    });
    assert_eq!(bank.balance(1), 7);
}

#[test]
fn a_call_that_waits_blocks_no_other_task() {
    let bank = Bank::new();
    bank.enqueue([1]);
    let [_, one_thread] = runtimes();
    let pool = pool(&bank, 2);
    one_thread.block_on(async {
        let mut holder = pool.get().await.unwrap();
        let connection = pool.get().await.unwrap();
        let stopped = holder
            .transaction(async |holder| {
                payments::table.select(payments::id).for_update().load::<i64>(holder).await?;
                let stop = AsyncPgSession::on(connection, |session| {
                    Payment::queue().all_rows().wait(Duration::from_secs(60)).stop(session)
                });
                let stopped = tokio::spawn(stop);
                let waiting = diesel::dsl::sql::<diesel::sql_types::BigInt>(&format!("({WAITS})"));
                while diesel::select(waiting.clone()).get_result::<i64>(holder).await? == 0 {
                    tokio::task::yield_now().await;
                }
                Ok::<_, diesel::result::Error>(stopped)
            })
            .await
            .unwrap();
        assert_eq!(stopped.await.unwrap().unwrap(), 1);
    });
}

#[test]
fn calls_that_panic_in_a_transaction_give_their_connection_back_without_it() {
    let bank = Bank::new();
    let [runtime, _] = runtimes();
    let pool = pool(&bank, 1);
    runtime.block_on(async {
        let panics = AsyncPgSession::on(pool.get().await.unwrap(), |session| {
            let _: Result<(), diesel::result::Error> = session.transaction(|session| {
                session.batch_execute("UPDATE companies SET balance_cents = 7")?;
                panic!("in the middle");
            });
        });
        let panicked = tokio::spawn(AssertUnwindSafe(panics)).await.unwrap_err();
        assert!(panicked.is_panic());
        // It would wait for the rows if they were locked still.
        AsyncPgSession::on(Box::new(AsyncPgConnection::establish(bank.database.url()).await.unwrap()), |session| {
            session.batch_execute("SET lock_timeout = '10s'; UPDATE companies SET balance_cents = balance_cents + 1")
        })
        .await
        .unwrap();
        assert_eq!(
            companies::table
                .find(1)
                .select(companies::balance_cents)
                .get_result::<i64>(&mut pool.get().await.unwrap())
                .await,
            Ok(1)
        );
    });
}
