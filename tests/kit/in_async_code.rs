//! The kit in an async application: its async code and its async handler work in one transaction, which is rolled back.

use diesel::{Connection, ExpressionMethods, QueryDsl, QueryResult};
use diesel_async::{AsyncConnection, RunQueryDsl};
use queueable::testing::{TestQueue, hours, travel};
use queueable::{Async, HandlerResult, Message, Outcome, Queueable};

use crate::db::{AsyncConn, Conn};
use crate::kit::shop::{Payment, Shop, ledger, migrated, payments};

/// Enqueues a payment, in a transaction of the application's.
async fn pay(connection: &mut AsyncConn, amount_cents: i64) -> QueryResult<usize> {
    let payment = (payments::company_id.eq(3345), payments::amount_cents.eq(amount_cents), Payment::due_now());
    connection
        .transaction(async move |connection| {
            diesel::insert_into(payments::table).values(payment).execute(connection).await
        })
        .await
}

async fn charge(payment: &Payment, message: &mut Message<'_, AsyncConn>) -> HandlerResult {
    diesel::insert_into(ledger::table)
        .values((ledger::payment_id.eq(payment.id), ledger::amount_cents.eq(payment.amount_cents)))
        .execute(message.connection())
        .await?;
    if payment.amount_cents < 0 {
        return Err(std::io::Error::other("card declined").into());
    }
    Ok(Outcome::Done)
}

#[test]
fn async_code_enqueues_and_an_async_handler_works_in_the_transaction_of_the_test() {
    let mut shop = Shop::open();
    for amount_cents in [100, -1] {
        shop.connection.run(async |connection| pay(connection, amount_cents).await).unwrap();
    }
    let drained = Payment::drain(&mut shop.connection, &Async(charge)).unwrap();
    assert_eq!((drained.succeeded(), drained.retried()), (1, 1), "{drained}");
    assert_eq!(shop.booked().len(), 1);
    travel(&mut shop.connection, hours(1));
    assert_eq!(Payment::drain(&mut shop.connection, &Async(charge)).unwrap().attempts[0].try_number, 2);
}

#[tokio::test]
async fn in_an_async_test_a_borrowed_connection_leaves_nothing_behind() {
    let database = tokio::task::spawn_blocking(migrated).await.unwrap();
    let connection = Box::new(AsyncConn::establish(database.url()).await.unwrap());
    let drained = Conn::on(connection, |session| {
        session.begin_test_transaction().unwrap();
        session.run(async |connection| pay(connection, 100).await).unwrap();
        Payment::drain_until_idle(session, &Async(charge)).unwrap()
    });
    assert_eq!(drained.await.succeeded(), 1);
    let connection = &mut AsyncConn::establish(database.url()).await.unwrap();
    assert_eq!(payments::table.count().get_result::<i64>(connection).await, Ok(0));
}
