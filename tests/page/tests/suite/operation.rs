//! An operation that takes long: it is seen at work, it can be loaded again, and it can be stopped.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queueable::Status;

use super::entities::{payment_queue, payments};
use super::gate::Gate;
use super::served::Served;
use crate::browser::{Browser, By};

const ROWS: i64 = 3_000;

/// How many rows the page changes in one transaction, and after how many of these the operation is held.
const BATCH: i64 = 500;
const HELD_AFTER: i64 = 2;

fn served() -> Served {
    let served = Served::new();
    let mut connection = served.database.connect();
    for ids in (1..=ROWS).collect::<Vec<_>>().chunks(1_000) {
        let row = |id: &i64| format!("({id}, 3345, 100, 'FAILED', 3, '2026-01-01 00:00:00.000', 'declined')");
        let rows: Vec<_> = ids.iter().map(row).collect();
        let insert = format!(
            "INSERT INTO payments (id, company_id, amount_cents, status, try_count, last_attempt_time, last_attempt_error_message)
             VALUES {}",
            rows.join(", ")
        );
        connection.batch_execute(&insert).expect("they are new");
    }
    served
}

fn failed(served: &Served) -> i64 {
    let failed = payments::table.filter(payment_queue::status.eq(Status::Failed)).count();
    failed.get_result(&mut served.database.connect()).expect("the table is there")
}

pub(super) fn watch_and_stop(browser: &Browser) {
    let served = served();
    let gate = Gate::after(usize::try_from(HELD_AFTER).expect("two"), &served.database);
    browser.open(&served.address("/q/payments/change?operation=retry&state=failed"));
    browser.fill(By::Field("Why"), "ticket 4711");
    browser.click(By::Button("Retry now: 3,000 rows"));

    // At work, and again after a reload.
    browser.await_text("1,000 of 3,000 rows");
    browser.reload();
    browser.see("1,000 of 3,000 rows");
    assert_eq!(failed(&served), ROWS - HELD_AFTER * BATCH);
    assert_eq!(browser.attribute_of(By::Css("progress"), "value").as_deref(), Some("1000"));
    let run = browser.address();
    if browser.has_scripts() {
        browser.check("an operation at work");
        browser.open(&served.address("/runs"));
        browser.see("1,000 of 3,000 rows");
        browser.check("operations at work");
        browser.open(&run);
    }

    // The transaction that has begun is finished, and no other begins.
    browser.click(By::Button("Stop"));
    browser.see("stops");
    browser.reload();
    browser.see("stops");
    assert_eq!(browser.attribute_of(By::Css("form button"), "disabled").as_deref(), Some("true"));
    gate.open();
    browser.await_text("1,500 rows changed. 1,500 rows not looked at, because it was stopped.");
    browser.reload();
    browser.see("1,500 rows changed.");
    assert_eq!(browser.count(By::Button("Stop")), 0);
    assert_eq!(failed(&served), ROWS - (HELD_AFTER + 1) * BATCH);
    if browser.has_scripts() {
        browser.check("an operation that was stopped");
    }
    browser.click(By::Link("To the audit"));
    browser.see("ticket 4711");
    browser.see("1,500");
    browser.assert_quiet("an operation");
}

#[test]
fn an_operation_is_watched_and_stopped() {
    watch_and_stop(&Browser::new());
}
