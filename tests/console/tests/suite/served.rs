//! A database with some rows, and the console on it.

use std::process::{Command, Output, Stdio};

use chrono::{DateTime, Utc};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queueable::columns::Instant;
use queueable::{Queueable, Status};

use crate::db::{self, Conn, Database};
use crate::entities::{invoice_queue, invoices, payment_queue, payments};

/// The console on a database of a test's own.
pub(crate) struct Served {
    pub(crate) database: Database,
}

/// What a command has answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Served {
    /// Makes the tables, without the queues' columns.
    pub(crate) fn bare() -> Self {
        let database = Database::new();
        let (bigint, text) = (db::BIGINT, db::TEXT);
        database
            .connect()
            .batch_execute(&format!(
                "CREATE TABLE payments (id {bigint} NOT NULL PRIMARY KEY, company_id {bigint} NOT NULL, amount_cents {bigint} NOT NULL,
                     customer {text}, api_token {text});
                 CREATE TABLE invoices (site {text} NOT NULL, number INTEGER NOT NULL, total_cents {bigint} NOT NULL, PRIMARY KEY (site, number));"
            ))
            .expect("the tables are new");
        Served { database }
    }

    /// Makes the queues, by the console's own command.
    pub(crate) fn new() -> Self {
        let served = Served::bare();
        let migrated = served.run(&["migrate", "run", "--yes"]);
        assert_eq!(migrated.code, Some(0), "{migrated:?}");
        served
    }

    /// Makes the queues with some rows in every state. All ages are hours and minutes, so that they have the same width for a while.
    pub(crate) fn filled() -> Self {
        let served = Served::new();
        let connection = &mut served.connect();
        for (id, company, amount) in [(1, 7, 100), (2, 7, 200), (3, 8, 300)] {
            enqueue(connection, id, company, amount, ago(9_000));
        }
        enqueue(connection, 4, 8, 400, ago(-5_400));
        enqueue(connection, 5, 8, 500, ago(-5_000));
        set(connection, 5, Status::InProgress, Some(ago(30)));
        for (id, amount, customer) in [(6, 12_345, "Ann"), (7, 600, "Bob\u{1b}[31m\u{202e}"), (8, 1, "Cy")] {
            enqueue(connection, id, 3345, amount, ago(5_400));
            let columns = (payments::customer.eq(customer), payments::api_token.eq("t0p"));
            diesel::update(payments::table.find(id)).set(columns).execute(connection).expect("the row is there");
        }
        fail(connection, 6, "card declined for order 6");
        fail(connection, 7, "card declined for order 7");
        enqueue(connection, 9, 7, 900, ago(5_400));
        set(connection, 9, Status::Success, Some(ago(5_400)));
        clear(connection, 9);
        let never = (payments::id.eq(10), payments::company_id.eq(7), payments::amount_cents.eq(1_000));
        diesel::insert_into(payments::table).values(never).execute(connection).expect("it is new");
        for (number, stage) in [(1, "RENDER"), (2, "SEND")] {
            let domain = (invoices::site.eq("north"), invoices::number.eq(number), invoices::total_cents.eq(1_999));
            let queue = (invoice_queue::stage.eq(stage), invoice_queue::priority.eq(5));
            diesel::insert_into(invoices::table)
                .values((domain, queue, crate::entities::Invoice::due_at(ago(5_000))))
                .execute(connection)
                .expect("it is new");
        }
        served
    }

    pub(crate) fn connect(&self) -> Conn {
        self.database.connect()
    }

    /// A command with these arguments on the database.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command.env("DATABASE_URL", self.database.url());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Answer {
        answer(&mut self.command(arguments))
    }

    /// Runs a command that succeeds, and returns what it writes.
    pub(crate) fn said(&self, arguments: &[&str]) -> String {
        let answer = self.run(arguments);
        assert_eq!((answer.code, &*answer.err), (Some(0), ""), "{arguments:?}: {answer:?}");
        answer.out
    }

    /// Runs a command that succeeds, and returns its objects.
    pub(crate) fn objects(&self, arguments: &[&str]) -> Vec<serde_json::Value> {
        let json = [arguments, &["--json"]].concat();
        let lines = self.said(&json);
        lines.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    }

    /// Registers a poller that was seen some seconds ago, and what it runs.
    pub(crate) fn register(&self, running: &str) {
        let at = |seconds: i64| ago(seconds).format("%Y-%m-%d %H:%M:%S%.3f").to_string();
        let queues = r#"[{"queue": "payments.status", "entity": "Payment", "settings": {"max_tries": "3"}}]"#;
        let poller = format!(
            "INSERT INTO queueable_pollers (id, host, pid, version, application, state, workers, queues, running, started_at, seen_at)
             VALUES (1, 'web-1', 4711, '0.1.0', 'shop 1.4.2', 'running', 4, '{queues}', '{running}', '{}', '{}')",
            at(5_000),
            at(12)
        );
        // The times are in UTC.
        let utc = match db::NAME {
            "postgres" => "SET TIME ZONE 'UTC'",
            "mysql" => "SET time_zone = '+00:00'",
            _ => "",
        };
        self.connect().batch_execute(&format!("{utc};{poller}")).expect("the table is there");
    }

    /// The state of a payment.
    pub(crate) fn status(&self, id: i64) -> Status {
        let status = payments::table.find(id).select(payment_queue::status);
        status.first(&mut self.connect()).unwrap_or_else(|error| panic!("payment {id}: {error}"))
    }
}

/// The console without a database.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_served"));
    command.args(arguments).env_remove("DATABASE_URL").env("USER", "ops").env("TZ", "UTC").stdin(Stdio::null());
    command
}

pub(crate) fn answer(command: &mut Command) -> Answer {
    let Output { status, stdout, stderr } = command.output().expect("the console runs");
    let text = |bytes| String::from_utf8(bytes).expect("the console writes UTF-8");
    Answer { code: status.code(), out: text(stdout), err: text(stderr) }
}

/// What the console writes into a bundle.
pub(crate) fn bundle_of(run: impl FnOnce(&[&str]) -> Answer) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("bundle.json");
    let answer = run(&["doctor", "--bundle", &file.display().to_string()]);
    assert!(matches!(answer.code, Some(0 | 4)), "{answer:?}");
    std::fs::read_to_string(&file).expect("the file is written")
}

pub(crate) fn ago(seconds: i64) -> DateTime<Utc> {
    Utc::now() - chrono::TimeDelta::seconds(seconds)
}

pub(crate) fn enqueue(connection: &mut Conn, id: i64, company: i64, amount: i64, due: DateTime<Utc>) {
    let domain = (payments::id.eq(id), payments::company_id.eq(company), payments::amount_cents.eq(amount));
    diesel::insert_into(payments::table)
        .values((domain, crate::entities::Payment::due_at(due)))
        .execute(connection)
        .expect("it is new");
}

fn set(connection: &mut Conn, id: i64, status: Status, last: Option<DateTime<Utc>>) {
    let columns = (
        payment_queue::status.eq(status),
        payment_queue::try_count.eq(1),
        payment_queue::last_attempt_time.eq(last.map(Instant::from)),
    );
    diesel::update(payments::table.find(id)).set(columns).execute(connection).expect("the row is there");
}

fn clear(connection: &mut Conn, id: i64) {
    let never = payment_queue::next_attempt_time.eq(None::<Instant>);
    diesel::update(payments::table.find(id)).set(never).execute(connection).expect("the row is there");
}

/// Lets a payment have failed for good.
pub(crate) fn fail(connection: &mut Conn, id: i64, text: &str) {
    set(connection, id, Status::Failed, Some(ago(5_400)));
    clear(connection, id);
    let text = payment_queue::last_attempt_error_message.eq(text);
    diesel::update(payments::table.find(id)).set(text).execute(connection).expect("the row is there");
}
