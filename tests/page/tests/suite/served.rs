//! An application with a page, on a database of a test's own.

use std::ops::RangeInclusive;

use axum::Router;
use chrono::{DateTime, TimeDelta, Utc};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::columns::Instant;
use queueable::{Failure, HandlerResult, Lease, Message, Migrations, Outcome, PollerHandle, Queueable, Status};
use queueable_console::{Console, Visitor};

use super::entities::{Invoice, Payment, invoice_queue, invoices, payment_queue, payments};
use crate::db::{BIGINT, Conn, Database, LONG_TEXT, TEXT};
use crate::site::Site;

/// The payments of company 3345 that have failed for the same reason.
pub(crate) const FAILED: RangeInclusive<i64> = 11..=30;

/// The page under `/queues`, for a visitor `ops` who may change something.
pub(crate) struct Served {
    pub(crate) database: Database,
    site: Site,
}

impl Served {
    /// Serves the page of two queues without rows.
    pub(crate) fn new() -> Self {
        Served::of(Database::new())
    }

    /// Serves the page of two queues without rows on an empty database.
    pub(crate) fn of(database: Database) -> Self {
        let connection = &mut database.connect();
        let tables = format!(
            "CREATE TABLE payments (id {BIGINT} NOT NULL PRIMARY KEY, company_id {BIGINT} NOT NULL, amount_cents {BIGINT} NOT NULL,
                 customer {LONG_TEXT}, note {LONG_TEXT}, paid_on DATE, refunded BOOLEAN NOT NULL DEFAULT FALSE, api_token {LONG_TEXT});
             CREATE TABLE invoices (site {TEXT} NOT NULL, number INTEGER NOT NULL, total_cents {BIGINT} NOT NULL, PRIMARY KEY (site, number));"
        );
        connection.batch_execute(&tables).expect("the tables are new");
        let queues = Migrations::new().entity::<Payment>().entity::<Invoice>();
        let migrated = connection.run_pending_migrations(queues.control().pollers().minutes().audit());
        migrated.expect("the tables have no columns of the queues yet");
        Served::with(database, Console::new().entity::<Payment>().entity::<Invoice>())
    }

    /// Serves the page of a console, whose tables are there.
    #[allow(clippy::result_large_err, reason = "the page asks for a response")]
    pub(crate) fn with(database: Database, console: Console<Conn>) -> Self {
        let console = console.default_database(database.url()).page(|page| {
            // An application that forgets to check what it makes an address of.
            let page = page.allow_changes().link(|table, key| Some(format!("javascript:alert('{table} {key}')")));
            page.authorize(|_| Ok::<_, axum::http::StatusCode>(Visitor::new("ops")))
        });
        let site = Site::new(Router::new().nest("/queues", console.router()));
        Served { database, site }
    }

    /// Serves the page of two queues with rows in every state. See [`FAILED`] too.
    pub(crate) fn filled() -> Self {
        let served = Served::new();
        let connection = &mut served.database.connect();
        for (id, company, due) in [(1, 7, 9_000), (2, 7, 9_000), (3, 8, 9_000), (4, 8, -5_400), (8, 3345, -9_000)] {
            enqueue(connection, id, company, ago(due));
        }
        for id in FAILED {
            enqueue(connection, id, 3345, ago(0));
            fail(connection, id, &format!("card declined for order {id}"));
        }
        for id in 31..=50 {
            enqueue(connection, id, id % 7, ago(0));
            set(connection, id, Status::Success);
        }
        enqueue(connection, 9, 8, ago(0));
        fail(connection, 9, "no route to the bank\nafter 3 tries");
        for (number, stage) in [(1, "RENDER"), (2, "SEND")] {
            invoice(connection, "north", number, stage);
        }
        count_minutes(connection, "payments", |ago| (20 + ago % 7, i64::from(ago % 5 == 0)));
        served
    }

    /// The address of a path of the page.
    pub(crate) fn address(&self, path: &str) -> String {
        self.site.address(&format!("/queues{path}"))
    }

    /// A poller that pays what is due.
    pub(crate) fn pay(&self) -> PollerHandle {
        let call = |_: &Payment, _: &Lease| Ok::<_, Failure>(());
        let apply = |_: &Payment, (): &(), _: &mut Message<'_, Conn>| -> HandlerResult { Ok(Outcome::Done) };
        let poller = Payment::poller(self.database.pool(4), (call, apply)).workers(1).register().application("shop");
        poller.start().expect("the table is as the queue needs it")
    }

    /// The state of a payment.
    pub(crate) fn status(&self, id: i64) -> Status {
        let status = payments::table.find(id).select(payment_queue::status);
        status.first(&mut self.database.connect()).unwrap_or_else(|error| panic!("payment {id}: {error}"))
    }
}

pub(crate) fn ago(seconds: i64) -> DateTime<Utc> {
    Utc::now() - TimeDelta::seconds(seconds)
}

pub(crate) fn enqueue(connection: &mut Conn, id: i64, company: i64, due: DateTime<Utc>) {
    let domain = (payments::id.eq(id), payments::company_id.eq(company), payments::amount_cents.eq(id * 100));
    let date = payments::paid_on.eq((id % 2 == 0).then(|| due.date_naive()));
    let row = diesel::insert_into(payments::table).values((domain, date, Payment::due_at(due)));
    row.execute(connection).expect("it is new");
}

pub(crate) fn invoice(connection: &mut Conn, site: &str, number: i32, stage: &str) {
    let domain = (invoices::site.eq(site), invoices::number.eq(number), invoices::total_cents.eq(1_999));
    let queue = (invoice_queue::stage.eq(stage), invoice_queue::priority.eq(5));
    let row = diesel::insert_into(invoices::table).values((domain, queue, Invoice::due_at(ago(5_000))));
    row.execute(connection).expect("it is new");
}

/// Lets a queue's pollers have counted the minutes of the last two hours. `of` says how many rows have succeeded and failed so many
/// minutes ago.
pub(crate) fn count_minutes(connection: &mut Conn, table: &str, of: impl Fn(i64) -> (i64, i64)) {
    let minute = |minutes: i64| {
        let (succeeded, failed) = of(minutes);
        let (attempts, slow) = (succeeded + 2 * failed, succeeded / 5);
        let start = ago(60 * minutes).format("%Y-%m-%d %H:%M:00.000");
        format!(
            "('{table}.status', '{start}', {minutes}, '', 60, {succeeded}, {failed}, {failed}, {attempts}, {waited}, {quick}, {slow}, {took})",
            waited = 70_000 * attempts,
            quick = attempts - slow,
            took = 90_000 * attempts,
        )
    };
    let minutes: Vec<_> = (0..120).map(minute).collect();
    let insert = format!(
        "INSERT INTO queueable_minutes (queue, period_start, part, stage, seconds, succeeded, gave_up, will_retry, waited_100ms, waited_us,
             took_100ms, took_500ms, took_us) VALUES {}",
        minutes.join(", ")
    );
    connection.batch_execute(&insert).expect("they are not counted yet");
}

/// Lets a payment have ended this way.
fn set(connection: &mut Conn, id: i64, status: Status) {
    let columns = (
        payment_queue::status.eq(status),
        payment_queue::try_count.eq(3),
        payment_queue::last_attempt_time.eq(Some(Instant::from(ago(5_400)))),
        payment_queue::next_attempt_time.eq(None::<Instant>),
    );
    diesel::update(payments::table.find(id)).set(columns).execute(connection).expect("the row is there");
}

/// Lets a payment have failed for good.
pub(crate) fn fail(connection: &mut Conn, id: i64, text: &str) {
    set(connection, id, Status::Failed);
    let text = payment_queue::last_attempt_error_message.eq(text);
    diesel::update(payments::table.find(id)).set(text).execute(connection).expect("the row is there");
}
