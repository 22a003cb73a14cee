//! The table that the hand-written limits and queueable work on, made by queueable's own migration.

use std::fmt::Write;
use std::time::{Duration, Instant};

use anyhow::{Error, Result};
use contestant::{Backend, Enqueue, Fill, RowState};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::report::{Cursor, Interval};
use queueable::{Migrations, Queueable};

diesel::table! {
    payments (id) {
        id -> BigInt,
        // The number of the message, by which the benchmark recognises it.
        number -> BigInt,
        amount_cents -> BigInt,
        note -> Nullable<Text>,
        // One of a thousand companies, in the table of those contestants that schedule by it.
        company_id -> BigInt,
    }
}

diesel::table! {
    ledger (id) {
        id -> BigInt,
        payment_id -> BigInt,
        amount_cents -> BigInt,
    }
}

macro_rules! entities {
    ($($(#[$doc:meta])* $entity:ident $(: $mode:tt)?;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Queryable, Selectable, Queueable)]
        #[diesel(table_name = payments)]
        $(#[queue $mode])?
        #[allow(dead_code, reason = "the note is loaded, as an application would")]
        pub(crate) struct $entity {
            pub(crate) id: i64,
            pub(crate) number: i64,
            pub(crate) amount_cents: i64,
            pub(crate) note: Option<String>,
        }
    )*};
}

entities! {
    /// A payment in transaction mode.
    Single;
    /// A payment in group mode, with a savepoint each.
    Grouped: (group = 50);
    /// A payment in a group with one savepoint.
    Optimistic: (group(50, optimistic));
    /// A payment under a lease.
    Leased: (lease = "60s");
    /// A payment in transaction mode that the database announces.
    Notified: (wake = notify);
    /// A payment in transaction mode, smaller amounts first.
    Ordered: (order_by = amount_cents);
    /// A payment in transaction mode, with an index for reports, also by the amount.
    Reported: (report_index = amount_cents);
    /// A payment in transaction mode, one of each company at a time.
    Serial: (serial_by = company_id);
    /// A payment in transaction mode, the companies in turns.
    Fair: (fair_by = company_id);
}

macro_rules! further_tables {
    ($($entity:ident $table:ident;)*) => {
        $(
            diesel::table! {
                $table (id) {
                    id -> BigInt,
                    number -> BigInt,
                }
            }

            /// One of several kinds of jobs.
            #[derive(Debug, Queryable, Selectable, Queueable)]
            #[diesel(table_name = $table)]
            #[allow(dead_code, reason = "there is no work for it")]
            pub(crate) struct $entity {
                pub(crate) id: i64,
                pub(crate) number: i64,
            }
        )*

        /// The names of the further tables.
        pub(crate) const FURTHER: &[&str] = &[$(stringify!($table)),*];

        /// Makes the further tables queues.
        macro_rules! each_further {
            ($do:ident) => { $($do!($entity);)* };
        }
        pub(crate) use each_further;
    };
}

further_tables! {
    Second second_payments;
    Third third_payments;
    Fourth fourth_payments;
    Fifth fifth_payments;
}

/// Runs the same code on a connection of any of the databases.
macro_rules! on {
    ($backend:expr, $url:expr, |$connection:ident| $body:expr) => {
        match $backend {
            contestant::Backend::Postgres => {
                let mut connection = diesel::PgConnection::establish($url)?;
                let $connection = &mut connection;
                $body
            }
            contestant::Backend::Mariadb => {
                let mut connection = diesel::MysqlConnection::establish($url)?;
                let $connection = &mut connection;
                $body
            }
            contestant::Backend::SqliteFull | contestant::Backend::SqliteNormal => {
                let mut connection = diesel::SqliteConnection::establish($url)?;
                diesel::connection::SimpleConnection::batch_execute(
                    &mut connection,
                    "PRAGMA busy_timeout = 10000; PRAGMA journal_mode = WAL",
                )?;
                let $connection = &mut connection;
                $body
            }
        }
    };
}

/// How a database counts up a key.
fn auto_key(backend: Backend) -> &'static str {
    match backend {
        Backend::Postgres => "BIGSERIAL PRIMARY KEY",
        Backend::Mariadb => "BIGINT AUTO_INCREMENT PRIMARY KEY",
        Backend::SqliteFull | Backend::SqliteNormal => "INTEGER PRIMARY KEY NOT NULL",
    }
}

/// Makes the ledger, which every contestant's handlers write to.
pub(crate) fn create_ledger(backend: Backend, url: &str) -> Result<()> {
    let key = auto_key(backend);
    let ledger = format!("CREATE TABLE ledger (id {key}, payment_id BIGINT NOT NULL, amount_cents BIGINT NOT NULL)");
    on!(backend, url, |connection| connection.batch_execute(&ledger)?);
    Ok(())
}

/// Makes the table of payments and, beside it, as many further tables as there are further entities, and makes them queues.
pub(crate) fn create(backend: Backend, url: &str, entities: usize) -> Result<()> {
    let key = auto_key(backend);
    let mut tables = format!(
        "CREATE TABLE payments (id {key}, number BIGINT NOT NULL, amount_cents BIGINT NOT NULL, note TEXT NULL);"
    );
    for table in FURTHER {
        write!(tables, "CREATE TABLE {table} (id {key}, number BIGINT NOT NULL);")?;
    }
    on!(backend, url, |connection| {
        connection.batch_execute(&tables)?;
        let mut migrations = Migrations::new().entity::<Single>();
        if entities > 1 {
            macro_rules! add {
                ($entity:ident) => {
                    migrations = migrations.entity::<$entity>();
                };
            }
            each_further!(add);
        }
        connection.run_pending_migrations(migrations).map_err(Error::from_boxed)?;
    });
    Ok(())
}

/// Lets the database announce payments.
pub(crate) fn add_notifications(backend: Backend, url: &str) -> Result<()> {
    on!(backend, url, |connection| {
        connection.run_pending_migrations(Migrations::new().entity::<Notified>()).map_err(Error::from_boxed)?;
    });
    Ok(())
}

/// Adds the companies and their index.
pub(crate) fn add_companies(backend: Backend, url: &str) -> Result<()> {
    add_company_column(backend, url)?;
    on!(backend, url, |connection| {
        connection.run_pending_migrations(Migrations::new().entity::<Serial>()).map_err(Error::from_boxed)?;
    });
    Ok(())
}

/// Adds the companies.
pub(crate) fn add_company_column(backend: Backend, url: &str) -> Result<()> {
    let (kind, key) = match backend {
        Backend::Postgres => ("GENERATED ALWAYS AS (number % 1000) STORED", "IF NOT EXISTS "),
        Backend::Mariadb => ("AS (number % 1000) PERSISTENT", "IF NOT EXISTS "),
        Backend::SqliteFull | Backend::SqliteNormal => ("AS (number % 1000) VIRTUAL", ""),
    };
    on!(backend, url, |connection| {
        connection.batch_execute(&format!("ALTER TABLE payments ADD COLUMN {key}company_id BIGINT {kind}"))?;
    });
    Ok(())
}

/// Adds what the entity with an order needs.
pub(crate) fn add_order(backend: Backend, url: &str) -> Result<()> {
    on!(backend, url, |connection| {
        connection.run_pending_migrations(Migrations::new().entity::<Ordered>()).map_err(Error::from_boxed)?;
    });
    Ok(())
}

/// Adds the index for reports.
pub(crate) fn add_reports(backend: Backend, url: &str) -> Result<()> {
    on!(backend, url, |connection| {
        connection.run_pending_migrations(Migrations::new().entity::<Reported>()).map_err(Error::from_boxed)?;
    });
    Ok(())
}

/// Adds the table of minutes.
pub(crate) fn add_minutes(backend: Backend, url: &str) -> Result<()> {
    on!(backend, url, |connection| {
        connection.run_pending_migrations(Migrations::new().minutes()).map_err(Error::from_boxed)?;
    });
    Ok(())
}

/// Adds what a page shows besides the queue: the tables of control, of pollers and of the audit, and an index by which one can search.
pub(crate) fn add_page(backend: Backend, url: &str) -> Result<()> {
    on!(backend, url, |connection| {
        let migrations = Migrations::new().control().pollers().audit();
        connection.run_pending_migrations(migrations).map_err(Error::from_boxed)?;
        connection.batch_execute("CREATE INDEX payments_amount ON payments (amount_cents)")?;
    });
    Ok(())
}

/// Fills the table of minutes with what four pollers have done in the last 25 hours, and with the hours of a month before.
pub(crate) fn fill_minutes(backend: Backend, url: &str) -> Result<()> {
    add_minutes(backend, url)?;
    for (rows, seconds, step, times) in [(6_000, 60, 60, 4), (745, 3_600, 3_600, 1)] {
        let (numbers, start) = match backend {
            Backend::Postgres => (
                format!("generate_series(0, {rows} - 1) AS numbers (n)"),
                format!("statement_timestamp() - (n / {times}) * interval '{step} seconds'"),
            ),
            Backend::Mariadb => (
                format!("(SELECT seq AS n FROM seq_0_to_{rows}) AS numbers WHERE n < {rows}"),
                format!("UTC_TIMESTAMP(6) - INTERVAL (n DIV {times}) * {step} SECOND"),
            ),
            Backend::SqliteFull | Backend::SqliteNormal => (
                format!(
                    "(WITH RECURSIVE count (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM count WHERE n < {rows} - 1) \
                     SELECT n FROM count)"
                ),
                format!("strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || ((n / {times}) * {step}) || ' seconds')"),
            ),
        };
        let insert = format!(
            "INSERT INTO queueable_minutes \
             (queue, stage, period_start, part, seconds, succeeded, will_retry, waited_25ms, waited_us, took_5ms, took_us) \
             SELECT 'payments.status', '', {start}, n + {seconds} * 10000, {seconds}, 900, 7, 907, 9070000, 907, 2721000 FROM {numbers}"
        );
        on!(backend, url, |connection| connection.batch_execute(&insert)?);
    }
    Ok(())
}

/// Lets the finished payments with the first numbers have failed for good, each for one of some reasons.
pub(crate) fn fail(backend: Backend, url: &str, rows: i64, reasons: i64) -> Result<()> {
    let mut text = String::new();
    for reason in 0..reasons {
        // Letters, because a report folds numbers.
        let code: String = reason.to_string().bytes().map(|digit| char::from(digit - b'0' + b'a')).collect();
        write!(text, " WHEN {reason} THEN 'the bank {code} refuses the payment: account closed'")?;
    }
    let fail = format!(
        "UPDATE payments SET status = 'FAILED', last_attempt_error_message = CASE number % {reasons}{text} END \
         WHERE number <= {rows} AND status = 'SUCCESS'"
    );
    on!(backend, url, |connection| connection.batch_execute(&fail)?);
    Ok(())
}

/// Makes each report so many times, and returns its name, how long the times took, and the server's processor time for one, in
/// milliseconds.
pub(crate) fn time_reports(
    backend: Backend,
    url: &str,
    times: usize,
    processor_time: impl Fn() -> Result<Duration>,
) -> Result<Vec<(&'static str, Vec<f64>, f64)>> {
    let day = Duration::from_secs(86_400);
    let (queue, first) = (Reported::queue(), Cursor::latest_attempt());
    on!(backend, url, |connection| {
        macro_rules! time {
            ($($name:literal: $report:expr;)*) => {
                Ok(vec![$({
                    // The first one warms up.
                    $report?;
                    let (mut taken, before) = (Vec::with_capacity(times), processor_time()?);
                    for _ in 0..times {
                        let begun = Instant::now();
                        $report?;
                        taken.push(begun.elapsed().as_secs_f64() * 1_000.0);
                    }
                    ($name, taken, (processor_time()? - before).as_secs_f64() * 1_000.0 / times as f64)
                }),*])
            };
        }
        time! {
            "backlog": queue.backlog(connection);
            "backlog by amount": queue.backlog_by(connection, payments::amount_cents);
            "errors": queue.errors(connection);
            "errors of a day": queue.clone().attempted_within(day).errors(connection);
            "errors by amount": queue.errors_by(connection, payments::amount_cents);
            "page of failed": queue.clone().failed().page(connection, &first, 50);
            "page of due": queue.clone().due().page(connection, &Cursor::next_attempt(), 50);
            "page of all": queue.page(connection, &Cursor::key_descending(), 50);
            "explain": queue.explain(connection);
            "statistics of an hour": queue.clone().attempted_within(day / 24).statistics(connection, Interval::Minute);
            "statistics of a day": queue.clone().attempted_within(day).statistics(connection, Interval::Hour);
            "statistics of 30 days": queue.clone().attempted_within(day * 30).statistics(connection, Interval::Day);
        }
    })
}

/// Fills the table by one statement.
pub(crate) fn fill(backend: Backend, url: &str, fill: &Fill) -> Result<()> {
    let Fill { first, rows, bytes, state } = fill;
    let last = first + rows - 1;
    // The due times are 10 microseconds apart and end with the present.
    let later = match backend {
        Backend::Postgres | Backend::Mariadb => "TIMESTAMP '2100-01-01 00:00:00'",
        Backend::SqliteFull | Backend::SqliteNormal => "'2100-01-01 00:00:00.000'",
    };
    let (numbers, due, now) = match backend {
        Backend::Postgres => (
            format!("generate_series({first}, {last}) AS numbers (n)"),
            format!("statement_timestamp() - ({last} - n) * interval '10 microseconds'"),
            "statement_timestamp()",
        ),
        Backend::Mariadb => (
            format!("(SELECT seq AS n FROM seq_{first}_to_{last}) AS numbers"),
            format!("UTC_TIMESTAMP(6) - INTERVAL ({last} - n) * 10 MICROSECOND"),
            "UTC_TIMESTAMP(6)",
        ),
        Backend::SqliteFull | Backend::SqliteNormal => (
            format!(
                "(WITH RECURSIVE count (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM count WHERE n < {last}) \
                 SELECT n FROM count)"
            ),
            format!("strftime('%Y-%m-%d %H:%M:%f', 'now', ((n - {last}) / 100000.0) || ' seconds')"),
            "strftime('%Y-%m-%d %H:%M:%f', 'now')",
        ),
    };
    // Random, so that the database cannot compress it.
    let note = match backend {
        _ if *bytes == 0 => "NULL".to_owned(),
        Backend::Postgres => {
            format!(
                "(SELECT string_agg(md5(random()::text || n || part), '') FROM generate_series(1, {}) AS parts (part))",
                bytes.div_ceil(32)
            )
        }
        Backend::Mariadb => format!("REPEAT(MD5(RAND()), {})", bytes.div_ceil(32)),
        Backend::SqliteFull | Backend::SqliteNormal => format!("hex(randomblob({}))", bytes / 2),
    };
    let insert = match state {
        RowState::Finished => format!(
            "INSERT INTO payments (number, amount_cents, note, status, try_count, last_attempt_time) \
             SELECT n, 1 + n % 1000, {note}, 'SUCCESS', 1, {now} FROM {numbers}"
        ),
        RowState::Due | RowState::Waiting => {
            let due = if *state == RowState::Due { due } else { later.to_owned() };
            format!(
                "INSERT INTO payments (number, amount_cents, note, next_attempt_time) \
                 SELECT n, 1 + n % 1000, {note}, {due} FROM {numbers}"
            )
        }
    };
    on!(backend, url, |connection| connection.batch_execute(&insert)?);
    Ok(())
}

macro_rules! new_payment {
    ($number:expr) => {
        (payments::number.eq($number), payments::amount_cents.eq(1 + $number % 1000), Single::due_now())
    };
}

/// Enqueues with Diesel, as an application that uses queueable does.
pub(crate) fn enqueue(backend: Backend, url: &str, enqueue: &Enqueue, committed: &mut dyn FnMut(i64)) -> Result<()> {
    let numbers = enqueue.first..enqueue.first + enqueue.count;
    on!(backend, url, |connection| {
        if enqueue.batch > 1 {
            let numbers: Vec<i64> = numbers.collect();
            for batch in numbers.chunks(enqueue.batch) {
                let rows: Vec<_> = batch.iter().map(|&number| new_payment!(number)).collect();
                diesel::insert_into(payments::table).values(&rows).execute(connection)?;
                batch.iter().for_each(|&number| committed(number));
            }
        } else {
            for number in numbers {
                enqueue.pause();
                diesel::insert_into(payments::table).values(new_payment!(number)).execute(connection)?;
                committed(number);
            }
        }
    });
    Ok(())
}
