//! The clock of a test.

use std::time::Duration;

use diesel::prelude::*;
use queueable::Queueable;
use queueable::testing::{self, TestQueue, hours, minutes, seconds};

use super::shop::{Payment, Shop, charge, payment_queue, payments};

#[test]
fn due_times_follow_the_clock_of_the_test_and_other_threads_do_not_notice() {
    let mut shop = Shop::open();
    testing::travel(&mut shop.connection, hours(3));
    let real = std::thread::spawn(|| {
        let mut other = Shop::open();
        testing::now(&mut other.connection).unwrap()
    });
    let (real, moved) = (real.join().unwrap(), testing::now(&mut shop.connection).unwrap());
    assert!(moved - real > minutes(170), "{moved} {real}");
    let id = shop.enqueue(1, 1);
    diesel::update(payments::table.find(id))
        .set(Payment::due_in(Duration::from_secs(600)))
        .execute(&mut shop.connection)
        .unwrap();
    assert_eq!(Payment::drain(&mut shop.connection, &charge).unwrap().attempts, []);
    testing::travel(&mut shop.connection, minutes(10));
    assert_eq!(Payment::drain(&mut shop.connection, &charge).unwrap().succeeded(), 1);
}

#[test]
fn a_frozen_clock_stands_still_until_it_is_moved() {
    let mut shop = Shop::open();
    testing::freeze(&mut shop.connection).unwrap();
    let now = testing::now(&mut shop.connection).unwrap();
    assert_eq!(testing::now(&mut shop.connection).unwrap(), now);
    let id = shop.enqueue(1, -1);
    let drained = Payment::drain(&mut shop.connection, &charge).unwrap();
    assert_eq!(drained.attempts[0].next, Some(now + hours(1)));
    let stored = payments::table.find(id).select(payment_queue::next_attempt_time);
    assert_eq!(
        stored.get_result::<Option<chrono::DateTime<chrono::Utc>>>(&mut shop.connection),
        Ok(Some(now + hours(1)))
    );
    testing::travel_to(&mut shop.connection, now + hours(1) - seconds(1)).unwrap();
    assert_eq!(Payment::drain(&mut shop.connection, &charge).unwrap().attempts, []);
    testing::travel(&mut shop.connection, seconds(1));
    assert_eq!(Payment::drain(&mut shop.connection, &charge).unwrap().attempts.len(), 1);
}

#[test]
fn the_clock_goes_back_with_the_transaction_and_with_the_connection() {
    let mut shop = Shop::open();
    let real = testing::now(&mut shop.connection).unwrap();
    testing::travel(&mut shop.connection, hours(3));
    type Manager = <crate::db::Conn as Connection>::TransactionManager;
    <Manager as diesel::connection::TransactionManager<_>>::rollback_transaction(&mut shop.connection).unwrap();
    assert!(testing::now(&mut shop.connection).unwrap() - real < minutes(60));
    testing::travel(&mut shop.connection, hours(3));
    drop(shop);
    let mut other = Shop::open();
    assert!(testing::now(&mut other.connection).unwrap() - real < minutes(60));
}

#[test]
fn all_connections_of_a_test_follow_one_clock() {
    let (mut shop, mut other) = (Shop::open(), Shop::open());
    let real = testing::now(&mut shop.connection).unwrap();
    testing::travel(&mut shop.connection, hours(1));
    testing::travel(&mut other.connection, hours(1));
    testing::freeze(&mut other.connection).unwrap();
    let frozen = testing::now(&mut shop.connection).unwrap();
    assert!(frozen - real >= hours(2) && frozen - real < hours(3), "{real} {frozen}");
    // The first one has moved it, so it ends with nothing that the other one does.
    let id = other.enqueue(1, 100);
    testing::torment::<Payment>(id).run(&mut other.connection, &charge).unwrap();
    assert_eq!(testing::now(&mut shop.connection).unwrap(), frozen);
    drop(other);
    assert_eq!(testing::now(&mut shop.connection).unwrap(), frozen);
    testing::travel_back();
    assert!(testing::now(&mut shop.connection).unwrap() - real < hours(1));
}
