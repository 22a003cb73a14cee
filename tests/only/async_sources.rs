//! The connections of a poller come from whatever an async application has.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use deadpool::managed::Manager;
use diesel::connection::Connection;
use diesel::prelude::*;
use diesel::r2d2::ConnectionManager;
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, bb8, deadpool as diesel_deadpool};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use queueable::{
    Async, AsyncPgSession, ConnectionSource, Error, HandlerResult, Lease, Message, Outcome, Poller, Queueable,
};
use tokio::runtime::Runtime;

use crate::suite::bank::{Bank, Payment, ledger, payments};

/// A payment that is charged by a call to the outside world.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = charge_queue, lease = "60s", retry = fixed("1h"))]
struct Charge {
    id: i64,
}

async fn book(payment: &Payment, message: &mut Message<'_, AsyncPgConnection>) -> HandlerResult {
    diesel::insert_into(ledger::table)
        .values((ledger::payment_id.eq(payment.id), ledger::amount_cents.eq(payment.amount_cents)))
        .execute(message.connection())
        .await?;
    Ok(Outcome::Done)
}

fn manager(bank: &Bank) -> AsyncDieselConnectionManager<AsyncPgConnection> {
    AsyncDieselConnectionManager::new(bank.database.url())
}

/// Processes payments in two modes, by workers that outnumber the connections of every pool of these tests.
fn process(bank: &Bank, source: impl ConnectionSource<Connection = AsyncPgSession> + Clone) {
    let ids = bank.enqueue(1..=10);
    let booked = bank.booked().len();
    let poller = || Poller::with_own_connections(source.clone()).workers(3);
    assert_eq!(poller().serve::<Payment>(Async(book)).run_until_idle().unwrap().succeeded, 10);
    assert_eq!(bank.booked()[booked..], ids);
    bank.enqueue(1..=5);
    let call = |charge: &Charge, _: &Lease| Ok(charge.id);
    let apply = async |_: &Charge, _: &i64, _: &mut Message<'_, AsyncPgConnection>| Ok(Outcome::Done);
    assert_eq!(poller().serve::<Charge>((call, Async(apply))).run_until_idle().unwrap().succeeded, 5);
}

#[test]
fn a_closure_makes_the_connections() {
    let bank = Bank::new();
    let url = bank.database.url().to_owned();
    process(&bank, move || AsyncPgSession::open(AsyncPgConnection::establish(&url)));
    let url = bank.database.url().to_owned();
    process(&bank, move || AsyncPgSession::establish(&url));
}

#[test]
fn a_connection_manager_makes_the_connections() {
    let bank = Bank::new();
    bank.enqueue(1..=3);
    let poller: Poller<AsyncPgSession> = Poller::with_own_connections(ConnectionManager::new(bank.database.url()));
    assert_eq!(poller.serve::<Payment>(Async(book)).run_until_idle().unwrap().succeeded, 3);
}

#[test]
fn the_managers_of_async_pools_make_connections_beside_their_pools() {
    let bank = Bank::new();
    let runtime = Runtime::new().unwrap();
    let pool = diesel_deadpool::Pool::builder(manager(&bank)).max_size(1).build().unwrap();
    let (held, source) = (runtime.block_on(pool.get()).unwrap(), pool.clone());
    process(&bank, move || AsyncPgSession::open(source.manager().create()));
    drop(held);
    let pool = runtime.block_on(bb8::Pool::builder().max_size(1).build(manager(&bank))).unwrap();
    let held = runtime.block_on(pool.get_owned()).unwrap();
    process(&bank, move || AsyncPgSession::open(pool.dedicated_connection()));
    drop(held);
}

#[test]
fn connections_are_taken_out_of_an_async_pool() {
    let bank = Bank::new();
    let runtime = Runtime::new().unwrap();
    let pool = diesel_deadpool::Pool::builder(manager(&bank)).max_size(2).build().unwrap();
    // The application's runtime drives this one.
    drop(runtime.block_on(pool.get()).unwrap());
    let source = pool.clone();
    process(&bank, move || AsyncPgSession::open(async { source.get().await.map(diesel_deadpool::Object::take) }));
    assert_eq!(pool.status().size, 0);
}

#[test]
fn a_pool_that_is_too_small_for_async_handlers_is_refused() {
    let bank = Bank::new();
    let refused = Payment::poller(bank.database.pool(4), Async(book)).workers(4).start();
    assert!(matches!(refused, Err(Error::Setting { setting: "the pool's max_size", .. })), "{refused:?}");
}

#[test]
fn a_lost_connection_is_made_anew() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2]);
    let (made, count) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (url, counter) = (bank.database.url().to_owned(), made.clone());
    let connect = move || {
        counter.fetch_add(1, Ordering::Relaxed);
        AsyncPgSession::open(AsyncPgConnection::establish(&url))
    };
    let handler = async move |payment: &Payment, message: &mut Message<'_, AsyncPgConnection>| {
        if count.fetch_add(1, Ordering::Relaxed) == 0 {
            let end = diesel::sql_query("SELECT pg_terminate_backend(pg_backend_pid())");
            end.execute(message.connection()).await?;
        }
        book(payment, message).await
    };
    let poller = Poller::with_own_connections(connect).serve::<Payment>(Async(handler)).workers(1);
    let tally = poller.run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.interrupted, bank.booked()), (2, 1, ids));
    // One to check the tables, one for the scout, two for the worker.
    assert!(AtomicUsize::load(&made, Ordering::Relaxed) >= 4);
}

#[test]
fn a_source_that_makes_no_connection_is_told_at_start_without_its_password() {
    let url = "postgres://nobody:hunter2@127.0.0.1:1/nowhere";
    let connect = move || AsyncPgSession::open(AsyncPgConnection::establish(url));
    let refused = Poller::with_own_connections(connect).serve::<Payment>(Async(book)).start();
    assert!(matches!(refused, Err(Error::Establish(_))), "{refused:?}");
    let connect = move || AsyncPgSession::open(async { Err(format!("no way to {url}")) });
    let refused = Poller::with_own_connections(connect).serve::<Payment>(Async(book)).start().unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("no way to postgres://nobody:") && !text.contains("hunter2"), "{text}");
}

#[test]
fn a_source_whose_connections_are_in_a_transaction_is_refused() {
    let bank = Bank::new();
    let url = bank.database.url().to_owned();
    let connect = move || {
        let mut session = AsyncPgSession::establish(&url)?;
        session.begin_test_transaction().map(|()| session).map_err(diesel::ConnectionError::CouldntSetupConfiguration)
    };
    let refused = Poller::with_own_connections(connect).serve::<Payment>(Async(book)).start();
    assert!(matches!(refused, Err(Error::Setting { .. })), "{refused:?}");
}
