//! The business transaction pays and enqueues the notifications; a poller sends them later. A payroll that is rolled
//! back notifies nobody. The example also answers an operator's questions: what is the backlog, what goes wrong, and
//! why does a row not run?
//!
//! `cargo run --example payroll`

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_migrations::MigrationHarness;
use queueable::report::Interval;
use queueable::{Explanation, Failure, Lease, Message, Migrations, Outcome, Queueable, Tally};

use self::schema::{accounts, bookings, notifications};

mod schema {
    diesel::table! {
        accounts (id) {
            id -> BigInt,
            owner -> Text,
            address -> Text,
            salary_cents -> BigInt,
            balance_cents -> BigInt,
        }
    }

    diesel::table! {
        bookings (id) {
            id -> BigInt,
            account_id -> BigInt,
            month -> Text,
            amount_cents -> BigInt,
        }
    }

    diesel::table! {
        notifications (id) {
            id -> BigInt,
            account_id -> BigInt,
            month -> Text,
            address -> Text,
            amount_cents -> BigInt,
        }
    }
}

const TABLES: &str = "
    CREATE TABLE accounts (
        id INTEGER PRIMARY KEY NOT NULL, owner TEXT NOT NULL, address TEXT NOT NULL,
        salary_cents BIGINT NOT NULL, balance_cents BIGINT NOT NULL
    );
    CREATE TABLE bookings (
        id INTEGER PRIMARY KEY NOT NULL, account_id BIGINT NOT NULL, month TEXT NOT NULL, amount_cents BIGINT NOT NULL
    );
    CREATE TABLE notifications (
        id INTEGER PRIMARY KEY NOT NULL, account_id BIGINT NOT NULL, month TEXT NOT NULL, address TEXT NOT NULL,
        amount_cents BIGINT NOT NULL
    );
    INSERT INTO accounts VALUES (0, 'the company', '', 0, 2500000),
        (1, 'Ada', 'ada@example.org', 500000, 0), (2, 'Grace', 'grace@example.org', 450000, 0),
        (3, 'Edsger', 'edsger@example.net', 400000, 0), (4, 'Barbara', 'barbara@example.net', 350000, 0),
        (5, 'Tony', 'tony@exmaple.org', 300000, 0)";

const COMPANY: i64 = 0;

/// Tells somebody that a salary was paid. The mail server may be slow, so no transaction is open during the call.
#[derive(Debug, Clone, Queryable, Selectable, Queueable)]
#[diesel(table_name = notifications)]
#[queue(lease = "30s", retry = fixed("1h"), timestamps(begin, end))]
struct Notification {
    id: i64,
    address: String,
    amount_cents: i64,
}

/// Pays one month's salaries and enqueues the notifications. It knows nothing of mail servers, and does not wait for
/// one.
fn pay(connection: &mut SqliteConnection, month: &str) -> Result<()> {
    connection.immediate_transaction(|connection| {
        let employees: Vec<(i64, String, i64)> = accounts::table
            .filter(accounts::id.ne(COMPANY))
            .order(accounts::id)
            .select((accounts::id, accounts::address, accounts::salary_cents))
            .load(connection)?;
        for (id, address, cents) in employees {
            book(connection, COMPANY, month, -cents)?;
            book(connection, id, month, cents)?;
            let notification = (
                notifications::account_id.eq(id),
                notifications::month.eq(month),
                notifications::address.eq(address),
                notifications::amount_cents.eq(cents),
            );
            diesel::insert_into(notifications::table)
                .values((notification, Notification::due_now()))
                .execute(connection)?;
        }
        // The check comes last, when everybody is paid and every notification is enqueued.
        let left: i64 = accounts::table.find(COMPANY).select(accounts::balance_cents).get_result(connection)?;
        ensure!(left >= 0, "the company's account lacks {} cents", -left);
        Ok(())
    })
}

fn book(connection: &mut SqliteConnection, account: i64, month: &str, cents: i64) -> QueryResult<()> {
    let booking = (bookings::account_id.eq(account), bookings::month.eq(month), bookings::amount_cents.eq(cents));
    diesel::insert_into(bookings::table).values(booking).execute(connection)?;
    diesel::update(accounts::table.find(account))
        .set(accounts::balance_cents.eq(accounts::balance_cents + cents))
        .execute(connection)?;
    Ok(())
}

/// The mail server. It sends each mail once, however often it is asked, because it knows the idempotency key.
#[derive(Default)]
struct MailServer {
    is_busy: AtomicBool,
    sent: Mutex<BTreeMap<String, String>>,
}

impl MailServer {
    fn send(&self, notification: &Notification, key: &str) -> Result<(), Failure> {
        let Notification { id, address, amount_cents } = notification;
        if address.ends_with("@exmaple.org") {
            return Err(Failure::fatal(format!("550 there is no mailbox '{address}'")));
        }
        if address.ends_with("@example.net") && self.is_busy.load(Ordering::Relaxed) {
            return Err(Failure::retry(format!("451 example.net is busy, message {id} was not taken")));
        }
        println!("  to {address}: {}.{:02} were paid", amount_cents / 100, amount_cents % 100);
        let mut sent = self.sent.lock().expect("no handler panics with the lock");
        sent.insert(key.to_owned(), address.clone());
        Ok(())
    }
}

fn main() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let url = directory.path().join("payroll.sqlite").display().to_string();
    let connection = &mut SqliteConnection::establish(&url)?;
    connection.batch_execute(TABLES)?;
    connection.run_pending_migrations(Migrations::new().entity::<Notification>()).map_err(anyhow::Error::from_boxed)?;
    let pool = Pool::builder().max_size(3).build(ConnectionManager::<SqliteConnection>::new(&url))?;
    let mails: &'static MailServer = Box::leak(Box::default());
    let send_all = || -> Result<Tally> {
        let call = |notification: &Notification, lease: &Lease| mails.send(notification, lease.idempotency_key());
        let apply = |_: &Notification, _: &(), _: &mut Message<'_, SqliteConnection>| Ok(Outcome::Done);
        Ok(Notification::poller(pool.clone(), (call, apply)).workers(1).run_until_idle()?)
    };

    // Two months. The second is rolled back as a whole, and its notifications with it.
    pay(connection, "2026-01")?;
    let refused = pay(connection, "2026-02").expect_err("the money does not suffice for two months");
    println!("February is not paid: {refused}");
    let backlog = Notification::queue().backlog(connection)?;
    print!("{backlog}");
    ensure!((backlog.due, backlog.scheduled, backlog.failed) == (5, 0, 0));

    // The notifications go out, if the mail server accepts them.
    mails.is_busy.store(true, Ordering::Relaxed);
    let tally = send_all()?;
    ensure!((tally.succeeded, tally.retried, tally.failed) == (2, 2, 1));

    // The backlog, the errors, and the reason why each of the others does not run.
    print!("{}", Notification::queue().backlog(connection)?);
    let errors = Notification::queue().errors(connection)?;
    print!("{errors}");
    let patterns: Vec<_> = errors.groups.iter().map(|group| (group.pattern.as_str(), group.rows)).collect();
    let (busy, unknown) =
        ("<number> example.net is busy, message <number> was not taken", "<number> there is no mailbox '<value>'");
    ensure!(patterns == [(busy, 2), (unknown, 1)]);
    for id in 1..=6 {
        println!("notification {id}: {}", Notification::explain(connection, &id)?);
    }
    ensure!(matches!(Notification::explain(connection, &1)?, Explanation::Succeeded { .. }));
    ensure!(matches!(Notification::explain(connection, &3)?, Explanation::ScheduledFor { .. }));
    ensure!(matches!(Notification::explain(connection, &5)?, Explanation::FailedForGood { exhausted: false, .. }));
    ensure!(Notification::explain(connection, &6)? == Explanation::NoSuchRow);

    // The server is back: the notifications that it had refused need not wait for an hour. Nothing else changes.
    mails.is_busy.store(false, Ordering::Relaxed);
    ensure!(Notification::queue().all_rows().retry_error_group(connection, &errors.groups[0])? == 2);
    ensure!(send_all()?.succeeded == 2);

    // The address was mistyped: we correct it, and the notification goes to the right one.
    diesel::update(notifications::table.find(5))
        .set(notifications::address.eq("tony@example.org"))
        .execute(connection)?;
    ensure!(Notification::queue().all_rows().retry_error_group(connection, &errors.groups[1])? == 1);
    ensure!(send_all()?.succeeded == 1);
    print!("{}", Notification::queue().statistics(connection, Interval::Day)?);

    check(connection, mails)
}

/// Checks that everybody who was paid was notified once, that nobody else was, and that no money was lost.
fn check(connection: &mut SqliteConnection, mails: &MailServer) -> Result<()> {
    let paid: Vec<i64> = bookings::table
        .filter(bookings::account_id.ne(COMPANY))
        .order(bookings::account_id)
        .select(bookings::account_id)
        .load(connection)?;
    let told: Vec<i64> =
        notifications::table.order(notifications::account_id).select(notifications::account_id).load(connection)?;
    let sent = mails.sent.lock().expect("no handler panics with the lock");
    ensure!(paid == [1, 2, 3, 4, 5] && told == paid && sent.len() == paid.len());
    let balances: Vec<i64> = accounts::table.select(accounts::balance_cents).load(connection)?;
    ensure!(balances.iter().sum::<i64>() == 2_500_000 && balances.iter().all(|balance| *balance >= 0));
    let backlog = Notification::queue().backlog(connection)?;
    ensure!((backlog.due, backlog.scheduled, backlog.running, backlog.failed) == (0, 0, Some(0), 0));
    println!("check: 5 salaries, 5 notifications");
    Ok(())
}
