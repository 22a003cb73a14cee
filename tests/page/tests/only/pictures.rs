//! The pictures of the documentation: a morning on which something is wrong.

use chrono::{DateTime, TimeDelta, Utc};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::columns::Instant;
use queueable::{Migrations, Pause, Queueable, Status};
use queueable_console::Console;
use serde_json::json;

use crate::browser::{Browser, By};
use crate::db::{Conn, Database};
use crate::suite::entities::{Invoice, Payment, payment_queue, payments};
use crate::suite::served::{Served, ago, count_minutes, invoice};

diesel::table! { mails (id) { id -> BigInt, } }
diesel::table! { webhooks (id) { id -> BigInt, } }

#[expect(dead_code, reason = "the page reads the columns")]
#[derive(Debug, Queryable, Selectable, Queueable)]
struct Mail {
    id: i64,
}

#[expect(dead_code, reason = "the page reads the columns")]
#[derive(Debug, Queryable, Selectable, Queueable)]
struct Webhook {
    id: i64,
}

const TABLES: &str = "
    CREATE TABLE payments (id BIGINT NOT NULL PRIMARY KEY, company_id BIGINT NOT NULL, amount_cents BIGINT NOT NULL, customer TEXT,
        note TEXT, paid_on DATE, refunded BOOLEAN NOT NULL DEFAULT FALSE, api_token TEXT);
    CREATE TABLE invoices (site TEXT NOT NULL, number INTEGER NOT NULL, total_cents BIGINT NOT NULL, PRIMARY KEY (site, number));
    CREATE TABLE mails (id BIGINT NOT NULL PRIMARY KEY);
    CREATE TABLE webhooks (id BIGINT NOT NULL PRIMARY KEY);";

const CUSTOMERS: [&str; 7] =
    ["Ann Ek", "Bo Lind", "Chidi Okafor", "Dana Novák", "Eva Sørensen", "Farid Haddad", "Grete Maier"];

fn served() -> Served {
    let database = Database::new();
    let connection = &mut database.connect();
    connection.batch_execute(TABLES).expect("the tables are new");
    let queues = Migrations::new().entity::<Payment>().entity::<Invoice>().entity::<Mail>().entity::<Webhook>();
    let migrated = connection.run_pending_migrations(queues.control().pollers().minutes().audit());
    migrated.expect("the tables have no columns of the queues yet");
    fill(connection);
    let console = Console::new().entity::<Payment>().entity::<Invoice>().entity::<Mail>().entity::<Webhook>();
    Served::with(database, console)
}

/// A payment, and what has become of it.
fn payment(
    connection: &mut Conn,
    id: i64,
    company: i64,
    (status, tries): (Status, i32),
    times: [Option<i64>; 2],
    text: &str,
) {
    let [last, next] = times.map(|seconds| seconds.map(|seconds| Instant::from(ago(seconds))));
    let customer = CUSTOMERS[usize::try_from(id).expect("it is positive") % CUSTOMERS.len()];
    let domain = (
        payments::id.eq(id),
        payments::company_id.eq(company),
        payments::amount_cents.eq(1_900 + id * 7_919 % 90_000),
        payments::customer.eq(customer),
        payments::paid_on.eq(Some(ago(0).date_naive())),
    );
    let queue = (
        payment_queue::status.eq(status),
        payment_queue::try_count.eq(tries),
        payment_queue::last_attempt_time.eq(last),
        payment_queue::next_attempt_time.eq(next),
        payment_queue::last_attempt_error_message.eq((!text.is_empty()).then_some(text)),
    );
    diesel::insert_into(payments::table).values((domain, queue)).execute(connection).expect("it is new");
}

fn fill(connection: &mut Conn) {
    for id in 40_001..40_200 {
        payment(connection, id, id % 40, (Status::Success, 1), [Some((40_200 - id) * 90), None], "");
    }
    // A company's cards, and a bank that is slow.
    for id in 50_101..50_139 {
        let text = format!("card declined for order {id}");
        payment(connection, id, 3345, (Status::Failed, 3), [Some((50_139 - id) * 20), None], &text);
    }
    for id in 50_201..50_207 {
        let text = format!("no answer from the bank after {} ms", 5_000 + id % 9);
        payment(connection, id, id % 40, (Status::Error, 1), [Some(60 * (50_212 - id)), Some(-600)], &text);
    }
    payment(connection, 50_301, 12, (Status::Failed, 3), [Some(5_000), None], "IBAN DE02 is not valid");
    for id in 51_001..51_043 {
        payment(connection, id, id % 40, (Status::NotAttempted, 0), [None, Some((51_043 - id) * 4)], "");
    }
    for number in 1..=9 {
        invoice(connection, "north", number, if number % 3 == 0 { "SEND" } else { "RENDER" });
    }
    for id in 1..=214 {
        let row = (mails::id.eq(id), Mail::due_at(ago(id * 5)));
        diesel::insert_into(mails::table).values(row).execute(connection).expect("it is new");
    }
    for id in 1..=3 {
        let row = (webhooks::id.eq(id), Webhook::due_at(ago(-600 * id)));
        diesel::insert_into(webhooks::table).values(row).execute(connection).expect("it is new");
    }
    Mail::pause(connection, Pause::new("the provider rejects our key, ticket 812", "ann"))
        .expect("the reason is short");
    queueable::control::adopt_environment(connection, "production", "ann", "set up").expect("the name is short");
    count_minutes(connection, "payments", |ago| (48 + wave(ago, 13) - 9 * i64::from(ago < 12), (14 - ago).clamp(0, 3)));
    count_minutes(connection, "invoices", |ago| (7 + wave(ago, 5), i64::from(ago == 31)));
    count_minutes(connection, "mails", |ago| (if ago < 18 { 0 } else { 30 + wave(ago, 7) }, 0));
    count_minutes(connection, "webhooks", |ago| (12 + wave(ago, 11), 0));
    pollers(connection);
}

fn wave(at: i64, length: i64) -> i64 {
    (at * 7 % length - length / 2) + (at * 11 % 5)
}

/// Two processes, which run some payments.
fn pollers(connection: &mut Conn) {
    let queues = ["payments", "invoices", "mails", "webhooks"]
        .map(|table| json!({ "queue": format!("{table}.status"), "entity": table, "settings": {} }));
    for (pid, host, keys) in [(4_711, "web-1", 51_001..51_004), (4_712, "web-2", 51_004..51_006)] {
        let running: Vec<_> = keys
            .map(|key| json!({ "queue": "payments.status", "key": key.to_string(), "stage": null, "for_ms": 900 }))
            .collect();
        let insert = format!(
            "INSERT INTO queueable_pollers (id, host, pid, version, application, state, workers, queues, running, started_at, seen_at)
             VALUES ({pid}, '{host}', {pid}, '0.1.0', 'shop 1.4.2', 'running', 4, '{}', '{}', '{started}', '{seen}')",
            json!(queues),
            json!(running),
            started = stored(ago(9_000)),
            seen = stored(ago(0)),
        );
        connection.batch_execute(&insert).expect("the table is there");
    }
    let running = "UPDATE payments SET status = 'IN_PROGRESS', try_count = 1, last_attempt_time = ";
    let times = format!("'{}', next_attempt_time = '{}'", stored(ago(1)), stored(Utc::now() + TimeDelta::seconds(59)));
    connection
        .batch_execute(&format!("{running}{times} WHERE id BETWEEN 51001 AND 51005"))
        .expect("the rows are there");
}

/// A time as SQLite stores it.
fn stored(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M:%S%.3f").to_string()
}

/// Lets the processes have been seen just now.
fn heartbeat(served: &Served) {
    let seen = format!("UPDATE queueable_pollers SET seen_at = '{}'", stored(ago(0)));
    served.database.connect().batch_execute(&seen).expect("the table is there");
}

#[test]
fn the_pages_make_small_pictures() {
    const SEARCH: &str = "where=company_id+%3D+3345&state=failed";
    let served = served();
    let browser = Browser::new();
    browser.darken(false);
    browser.chromium("Emulation.setScrollbarsHidden", json!({ "hidden": true }));

    browser.resize(1_220, 800, 1);
    heartbeat(&served);
    browser.open(&served.address(""));
    for text in ["What is wrong", "the provider rejects our key", "web-2", "51005"] {
        browser.see(text);
    }
    assert!(browser.count(By::Css("svg.spark")) >= 4);
    browser.picture("page/overview.png");
    browser.check("an overview of queues at work");

    browser.darken(false);
    browser.resize(1_160, 640, 1);
    browser.open(&served.address(&format!("/q/payments?{SEARCH}")));
    browser.see("38 rows");
    browser.picture("page/rows.png");

    browser.open(&served.address("/q/payments/errors"));
    browser.click(By::Link("card declined for order <number>"));
    browser.see("company_id = 3345");
    browser.resize(1_160, 760, 1);
    browser.picture("page/errors.png");

    let columns = "company_id,amount_cents,customer,last_attempt_error_message";
    browser.open(&served.address(&format!("/q/payments/change?operation=retry&{SEARCH}&columns={columns}")));
    browser.see("The first rows");
    browser.resize(1_160, 820, 1);
    browser.fill(By::Field("Why"), "the issuer has mended it, ticket 815");
    browser.picture("page/preview.png");

    browser.resize(1_160, 760, 1);
    browser.open(&served.address(&format!("/q/payments?{SEARCH}")));
    browser.click(By::Link("50120"));
    browser.see("card declined for order 50120");
    browser.picture("page/row.png");

    browser.resize(360, 720, 2);
    browser.darken(true);
    heartbeat(&served);
    browser.open(&served.address(""));
    browser.see("What is wrong");
    browser.picture("page/small.png");
}
