//! Why a row does not run now: one typed reason for each state.

use std::time::Duration;

use chrono::{DateTime, Timelike, Utc};
use diesel::connection::TransactionManager;
use diesel::prelude::*;
use queueable::bounds::Explains;
use queueable::{Explanation, Queueable};

use super::{Bill, Delivery, Entry, Invoice, Order, Parcel, Payment, Shop, orders};
use crate::db::{self, Conn};

/// Enqueues a row, changes it by SQL, and asks why it does not run.
fn explained<Q: Queueable<Key = i64>>(shop: &Shop, change: &str) -> Explanation
where
    Conn: Explains<Q>,
{
    shop.execute("DELETE FROM orders; INSERT INTO orders (id, approved) VALUES (1, 1), (2, 1)");
    shop.execute(&format!("UPDATE orders SET {change} WHERE id = 1"));
    Q::explain(&mut shop.connect(), &1).unwrap()
}

fn at(time: &str) -> DateTime<Utc> {
    time.parse().unwrap()
}

const PAST: &str = "next_attempt_time = '2020-01-01 00:00:00.000'";
const FUTURE: &str = "next_attempt_time = '2100-01-01 00:00:00.000'";
const ENDED: &str = "last_attempt_time = '2026-03-01 12:00:00.250'";

#[test]
fn each_state_has_its_reason() {
    let shop = Shop::new();
    let ended = at("2026-03-01T12:00:00.250Z");
    let failed =
        |tries, exhausted| Explanation::FailedForGood { tries, exhausted, error: Some("no account".to_owned()) };
    for (change, expected) in [
        ("approved = 1", Explanation::NotQueued),
        (PAST, Explanation::Due),
        (&format!("{PAST}, status = 'ERROR'"), Explanation::Due),
        (&format!("{PAST}, status = 'SUCCESS'"), Explanation::Due),
        (FUTURE, Explanation::ScheduledFor { time: at("2100-01-01T00:00:00Z") }),
        (&format!("{FUTURE}, status = 'ERROR'"), Explanation::ScheduledFor { time: at("2100-01-01T00:00:00Z") }),
        ("status = 'SUCCESS'", Explanation::Succeeded { time: None }),
        (&format!("status = 'SUCCESS', {ENDED}"), Explanation::Succeeded { time: Some(ended) }),
        ("status = 'SKIPPED'", Explanation::Skipped),
        ("status = 'FAILED', try_count = 1, last_attempt_error_message = 'no account'", failed(1, false)),
        ("status = 'FAILED', try_count = 3, last_attempt_error_message = 'no account'", failed(3, true)),
        ("status = 'ERROR', last_attempt_error_message = 'no account'", Explanation::Stopped),
        ("last_attempt_error_message = 'queueable: stopped'", Explanation::Stopped),
        ("status = 'DONE'", Explanation::UnknownStatus { status: "DONE".to_owned() }),
        (&format!("status = 'success', {PAST}"), Explanation::UnknownStatus { status: "success".to_owned() }),
    ] {
        assert_eq!(explained::<Order>(&shop, change), expected, "{change}");
    }
    assert_eq!(Order::explain(&mut shop.connect(), &3).unwrap(), Explanation::NoSuchRow);
}

#[test]
fn explain_names_the_operation_that_keeps_a_row_from_running() {
    let shop = Shop::new();
    let mut connection = shop.connect();
    diesel::insert_into(orders::table).values((orders::id.eq(1), Order::due_now())).execute(&mut connection).unwrap();
    let row = Order::queue().filter(orders::id.eq(1));
    assert_eq!(Order::explain(&mut connection, &1).unwrap(), Explanation::Due);
    row.stop(&mut connection).unwrap();
    assert_eq!(Order::explain(&mut connection, &1).unwrap(), Explanation::Stopped);
    row.restart(&mut connection).unwrap();
    assert_eq!(Order::explain(&mut connection, &1).unwrap(), Explanation::Due);
    row.skip(&mut connection).unwrap();
    assert_eq!(Order::explain(&mut connection, &1).unwrap(), Explanation::Skipped);
}

#[test]
fn a_false_condition_is_a_reason_only_for_a_row_that_is_due() {
    let shop = Shop::new();
    let past = format!("invoice_{PAST}");
    assert_eq!(explained::<Invoice>(&shop, &past), Explanation::Due);
    assert_eq!(explained::<Invoice>(&shop, &format!("{past}, approved = 0")), Explanation::ConditionFalse);
    assert_eq!(explained::<Invoice>(&shop, "approved = 0"), Explanation::NotQueued);
}

#[test]
fn explain_names_the_beginning_of_a_live_lease_and_calls_an_expired_one_due() {
    let shop = Shop::new();
    let leased = |next: &str| format!("parcel_status = 'IN_PROGRESS', parcel_{ENDED}, parcel_{next}");
    let since = Some(at("2026-03-01T12:00:00.250Z"));
    assert_eq!(explained::<Parcel>(&shop, &leased(FUTURE)), Explanation::Held { since, by: None });
    assert_eq!(explained::<Parcel>(&shop, &leased(PAST)), Explanation::Due);
    let stopped = format!("parcel_status = 'IN_PROGRESS', parcel_{ENDED}");
    assert_eq!(explained::<Parcel>(&shop, &stopped), Explanation::Stopped);
}

#[test]
fn explain_quotes_the_column_of_a_row_in_an_unknown_stage() {
    let shop = Shop::new();
    let due = |stage: &str| format!("delivery_{PAST}, delivery_stage = '{stage}'");
    assert_eq!(explained::<Delivery>(&shop, &due("LOAD")), Explanation::Due);
    let stage = Some("load".to_owned());
    assert_eq!(explained::<Delivery>(&shop, &due("load")), Explanation::UnknownStage { stage });
}

#[test]
fn a_row_whose_turn_has_not_come_is_behind_the_head() {
    let shop = Shop::new();
    let (past, future) = (format!("entry_{PAST}"), format!("entry_{FUTURE}"));
    assert_eq!(explained::<Entry>(&shop, &past), Explanation::Due);
    shop.execute(&format!("UPDATE orders SET {past} WHERE id = 2"));
    let mut connection = shop.connect();
    let mut both = || [1, 2].map(|id| Entry::explain(&mut connection, &id).unwrap());
    assert_eq!(both(), [Explanation::Due, Explanation::BehindHead]);
    // While the head waits for its retry, all rows do.
    shop.execute(&format!("UPDATE orders SET {future}, entry_status = 'ERROR' WHERE id = 1"));
    let [head, other] = both();
    assert!(matches!(head, Explanation::ScheduledFor { .. }), "{head}");
    assert_eq!(other, Explanation::BehindHead);
    // A row that comes first waits for one that another worker already holds.
    shop.execute(&format!("UPDATE orders SET {past}, entry_status = 'NOT_ATTEMPTED' WHERE id = 1"));
    shop.execute(&format!("UPDATE orders SET {future}, entry_status = 'IN_PROGRESS' WHERE id = 2"));
    assert_eq!(both(), [Explanation::BehindHead, Explanation::Held { since: None, by: None }]);
}

#[test]
fn explain_says_when_the_window_of_a_row_opens() {
    let shop = Shop::new();
    let due = format!("bill_{PAST}");
    let is_morning = || Utc::now().hour() < 12;
    loop {
        let morning = is_morning();
        let (bill, payment) = (explained::<Bill>(&shop, &due), explained::<Payment>(&shop, &due));
        if morning != is_morning() {
            // Noon or midnight may have passed between the two.
            continue;
        }
        let (open, closed) = if morning { (bill, payment) } else { (payment, bill) };
        assert_eq!(open, Explanation::Due);
        let Explanation::OutsideWindow { opens: Some(opens) } = closed else { panic!("{closed}") };
        assert_eq!((opens.hour(), opens.minute()), (if morning { 12 } else { 0 }, 0));
        assert!(opens > Utc::now());
        return;
    }
}

#[test]
fn explain_names_the_table_of_an_archived_row() {
    let shop = Shop::new();
    for archive in ["orders_done", "orders_failed"] {
        // As the migration makes the archive, if it makes one.
        shop.execute(&format!(
            "DROP TABLE IF EXISTS {archive}; CREATE TABLE {archive} AS SELECT * FROM orders WHERE 1 = 0"
        ));
    }
    shop.execute(
        "INSERT INTO orders (id) VALUES (1);
         INSERT INTO orders_done (id) VALUES (2); INSERT INTO orders_failed (id) VALUES (1), (3)",
    );
    let mut connection = shop.connect();
    let mut explained = |id| Delivery::explain(&mut connection, &id).unwrap();
    assert_eq!(explained(1), Explanation::NotQueued);
    assert_eq!(explained(2), Explanation::Archived { table: "orders_done".to_owned() });
    assert_eq!(explained(3), Explanation::Archived { table: "orders_failed".to_owned() });
    assert_eq!(explained(4), Explanation::NoSuchRow);
    assert_eq!(Order::explain(&mut connection, &2).unwrap(), Explanation::NoSuchRow);
}

/// Begins a transaction that locks the first row as a claim does.
fn hold(shop: &Shop) -> Conn {
    let mut holder = shop.connect();
    <Conn as Connection>::TransactionManager::begin_transaction(&mut holder).unwrap();
    diesel::update(orders::table.find(1)).set(orders::region.eq("north")).execute(&mut holder).unwrap();
    holder
}

#[test]
fn explain_finds_a_row_that_another_session_holds_without_waiting() {
    let shop = Shop::new();
    assert_eq!(explained::<Order>(&shop, PAST), Explanation::Due);
    shop.execute("UPDATE orders SET next_attempt_time = '2020-01-01 00:00:00.000' WHERE id = 2");
    let mut connection = shop.connect();
    let mut holder = hold(&shop);
    assert_eq!(Order::explain(&mut connection, &1).unwrap(), Explanation::Held { since: None, by: None });
    // SQLite has one lock for all.
    let other = if db::NAME == "sqlite" { Explanation::Held { since: None, by: None } } else { Explanation::Due };
    assert_eq!(Order::explain(&mut connection, &2).unwrap(), other);
    <Conn as Connection>::TransactionManager::rollback_transaction(&mut holder).unwrap();
    assert_eq!(Order::explain(&mut connection, &1).unwrap(), Explanation::Due);
    // The session is as it was: it waits for a lock as long as before.
    connection.transaction(|connection| diesel::delete(orders::table).execute(connection)).unwrap();
}

#[test]
fn inside_a_transaction_nothing_stays_locked() {
    let shop = Shop::new();
    assert_eq!(explained::<Order>(&shop, PAST), Explanation::Due);
    let mut connection = shop.connect();
    let mut other = shop.connect();
    connection
        .transaction(|connection| {
            assert_eq!(Order::explain(connection, &1).unwrap(), Explanation::Due);
            assert_eq!(Order::explain(connection, &3).unwrap(), Explanation::NoSuchRow);
            assert_eq!(Order::explain(&mut other, &1).unwrap(), Explanation::Due);
            // The transaction goes on.
            diesel::update(orders::table.find(1)).set(Order::due_in(Duration::from_secs(3600))).execute(connection)?;
            assert!(matches!(Order::explain(connection, &1).unwrap(), Explanation::ScheduledFor { .. }));
            QueryResult::Ok(())
        })
        .unwrap();
}
