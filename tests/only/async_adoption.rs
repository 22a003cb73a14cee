//! An application on tokio with a pool of `AsyncPgConnection`s, and no synchronous connection, takes up the queue.

use std::error::Error as StdError;
use std::num::ParseIntError;

use deadpool::managed::Manager;
use diesel::prelude::*;
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use diesel_migrations::MigrationHarness;
use queueable::{
    Async, AsyncPgSession, Event, Failure, HandlerResult, Message, Migrations, Outcome, Poller, Queueable, Status,
};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::unbounded_channel;
use tokio_util::sync::CancellationToken;

use crate::db::Database;

diesel::table! {
    orders (id) { id -> BigInt, customer_id -> BigInt, parcels -> BigInt, }
}

diesel::table! {
    shipments (id) { id -> BigInt, order_id -> BigInt, }
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[queue(max_tries = 1)]
struct Order {
    id: i64,
    parcels: i64,
}

type Failed = Box<dyn StdError + Send + Sync>;

async fn ship(order: &Order, message: &mut Message<'_, AsyncPgConnection>) -> HandlerResult {
    if order.parcels == 0 {
        return Err(Failure::retry("nothing to ship"));
    }
    let parcels: Vec<_> = (0..order.parcels).map(|_| shipments::order_id.eq(order.id)).collect();
    diesel::insert_into(shipments::table).values(parcels).execute(message.connection()).await?;
    Ok(Outcome::Done)
}

/// Orders something, in the transaction of the request. A payment that is refused rolls it back.
async fn order(pool: &Pool<AsyncPgConnection>, customer: i64, parcels: i64, is_paid: bool) -> Result<i64, Failed> {
    let mut connection = pool.get().await?;
    let ordered = connection.transaction(async |connection| {
        let values = (orders::customer_id.eq(customer), orders::parcels.eq(parcels), Order::due_now());
        let id = diesel::insert_into(orders::table).values(values).returning(orders::id).get_result(connection).await?;
        if is_paid { Ok(id) } else { Err(diesel::result::Error::RollbackTransaction) }
    });
    Ok(ordered.await?)
}

async fn application(url: &str) -> Result<(), Failed> {
    // What the application has had all along.
    let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new(url);
    let pool = Pool::builder(manager).max_size(2).build()?;
    pool.get()
        .await?
        .batch_execute(
            "CREATE TABLE orders (id BIGSERIAL PRIMARY KEY, customer_id BIGINT NOT NULL, parcels BIGINT NOT NULL);
             CREATE TABLE shipments (id BIGSERIAL PRIMARY KEY, order_id BIGINT NOT NULL);
             INSERT INTO orders (customer_id, parcels) VALUES (1, 1), (2, 1)",
        )
        .await?;

    // The migration: what is there already is not queued.
    AsyncPgSession::on(pool.get().await?, |session| {
        session.run_pending_migrations(Migrations::new().entity::<Order>()).map(drop)
    })
    .await?;

    // The poller, until the token is cancelled.
    let (told, mut tells) = unbounded_channel::<Result<i64, ParseIntError>>();
    let (token, source) = (CancellationToken::new(), pool.clone());
    let poller = Poller::with_own_connections(move || AsyncPgSession::open(source.manager().create()))
        .serve::<Order>(Async(ship))
        .workers(2)
        .on_event(move |event| {
            if let Event::Succeeded(attempt) | Event::GaveUp(attempt) = event {
                let _ = told.send(attempt.key.parse());
            }
        });
    let poller = tokio::spawn(poller.run_until(token.clone().cancelled_owned()));

    // Requests.
    let (two, none) = (order(&pool, 7, 2, true).await?, order(&pool, 8, 0, true).await?);
    assert!(order(&pool, 7, 3, false).await.is_err());
    let mut ended = [tells.recv().await.ok_or("it goes on")??, tells.recv().await.ok_or("it goes on")??];
    ended.sort_unstable();
    assert_eq!(ended, [two, none]);
    let shipped: Vec<i64> = shipments::table.select(shipments::order_id).load(&mut pool.get().await?).await?;
    assert_eq!(shipped, [two, two]);

    // An operator reads what went wrong, has the order put right, and runs it again.
    let errors = AsyncPgSession::on(pool.get().await?, |session| Order::queue().failed().errors(session)).await?;
    assert_eq!((errors.groups.len(), errors.groups[0].rows), (1, 1));
    diesel::update(orders::table.find(none)).set(orders::parcels.eq(1)).execute(&mut pool.get().await?).await?;
    let again = AsyncPgSession::on(pool.get().await?, |session| {
        Order::queue().filter(orders::customer_id.eq(8)).failed().retry_now(session)
    });
    assert_eq!(again.await?, 1);
    assert_eq!(tells.recv().await.ok_or("it goes on")??, none);
    let succeeded = orders::table.filter(order_queue::status.eq(Status::Success)).order(orders::id).select(orders::id);
    assert_eq!(succeeded.load::<i64>(&mut pool.get().await?).await?, [two, none]);

    // The end of the process.
    token.cancel();
    let shutdown = poller.await??;
    assert_eq!((shutdown.tally.succeeded, shutdown.tally.failed, shutdown.rolled_back), (2, 1, 0));
    Ok(())
}

#[test]
fn an_application_without_a_synchronous_connection_takes_up_the_queue() {
    let database = Database::new();
    Runtime::new().expect("a runtime").block_on(application(database.url())).expect("it works as always");
}
