//! Latencies, measured by the harness's clock or by the database's, and their percentiles.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::session::{Dialect, Session, connect};

/// How long something took each time, in nanoseconds and exact to three digits.
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    fn new() -> Self {
        Latencies(Histogram::new(3).expect("a histogram may have three digits"))
    }

    fn add(&mut self, latency: Duration) {
        self.0 += u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency that this share of them does not exceed; zero when there are none.
    pub(crate) fn percentile(&self, share: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_quantile(share))
    }

    pub(crate) fn p99(&self) -> Duration {
        self.percentile(0.99)
    }

    pub(crate) fn max(&self) -> Duration {
        self.percentile(1.0)
    }

    /// The count and the percentiles, as a report shows them.
    pub(crate) fn summary(&self) -> Value {
        json!({
            "count": self.count(),
            "p50_ms": millis(self.percentile(0.5)),
            "p99_ms": millis(self.p99()),
            "max_ms": millis(self.max()),
        })
    }
}

impl FromIterator<Duration> for Latencies {
    fn from_iter<I: IntoIterator<Item = Duration>>(durations: I) -> Self {
        let mut latencies = Latencies::new();
        durations.into_iter().for_each(|duration| latencies.add(duration));
        latencies
    }
}

/// Milliseconds with one decimal, as a report shows them.
pub(crate) fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}

/// With this many rounds a median is steady enough for the bound of a release. A smoke run has few, on a busy machine, and
/// only tells a standstill from a slow queue.
pub(crate) const MANY_ROUNDS: u64 = 9;

/// The rate that a bar judges: the median of many rounds. Of a few it is the best one, in which a pause of the machine weighs
/// nothing and a constant fault shows too.
pub(crate) fn judged_rate(rates: &[f64]) -> f64 {
    if (rates.len() as u64) < MANY_ROUNDS { rates.iter().copied().fold(0.0, f64::max) } else { median(rates) }
}

/// The middle one of some numbers.
pub(crate) fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// Threads that repeat one action, each in a session of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beat {
    pub(crate) threads: usize,
    /// How long a thread rests after each action.
    pub(crate) pause: Duration,
}

impl Beat {
    /// Repeats `act` while `meanwhile` runs. `act` gets the number of its thread and how many times that thread has acted.
    /// Returns the result of `meanwhile` and the latencies of `act`.
    pub(crate) fn during<T>(
        self,
        url: &str,
        act: impl Fn(&mut dyn Session, usize, u64) -> Result<()> + Sync,
        meanwhile: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Latencies)> {
        let is_over = AtomicBool::new(false);
        let beat = |thread: usize| -> Result<Latencies> {
            let mut session = connect(url)?;
            let mut took = Latencies::new();
            while !is_over.load(Ordering::Relaxed) {
                let began = Instant::now();
                act(&mut *session, thread, took.count())?;
                took.add(began.elapsed());
                thread::sleep(self.pause);
            }
            Ok(took)
        };
        thread::scope(|scope| {
            let beat = &beat;
            let threads: Vec<_> = (0..self.threads).map(|thread| scope.spawn(move || beat(thread))).collect();
            let meanwhile = meanwhile();
            is_over.store(true, Ordering::Relaxed);
            let mut took = Latencies::new();
            for thread in threads {
                took.0 += thread.join().map_err(|_| anyhow!("a thread of the application panicked"))??.0;
            }
            Ok((meanwhile?, took))
        })
    }
}

/// A payment's times by the database's clock, in seconds since 1970.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamped {
    pub(crate) id: i64,
    pub(crate) made: f64,
    pub(crate) booked: f64,
}

impl Stamped {
    /// The time from the payment's insert to its booking.
    pub(crate) fn latency(&self) -> Duration {
        Duration::from_secs_f64((self.booked - self.made).max(0.0))
    }
}

/// Adds columns in which the database notes when payments are made and booked. On PostgreSQL and MariaDB.
pub(crate) fn stamp(session: &mut dyn Session) -> Result<()> {
    let (kind, now) = match session.dialect() {
        Dialect::Postgres => ("TIMESTAMPTZ", "clock_timestamp()"),
        Dialect::Mysql | Dialect::Sqlite => ("DATETIME(6)", "CURRENT_TIMESTAMP(6)"),
    };
    for (table, column) in [("payments", "made_at"), ("ledger", "booked_at")] {
        // In two steps, because existing rows would all get the same time.
        session.run(&format!("ALTER TABLE {table} ADD COLUMN {column} {kind} NULL"))?;
        session.run(&format!("ALTER TABLE {table} ALTER COLUMN {column} SET DEFAULT {now}"))?;
    }
    Ok(())
}

/// The times of the booked payments with keys greater than `after`, in the order of their booking.
pub(crate) fn stamps(session: &mut dyn Session, after: i64) -> Result<Vec<Stamped>> {
    let dialect = session.dialect();
    let seconds = |column| dialect.text(&seconds(dialect, column));
    let columns = match dialect {
        Dialect::Mysql => {
            format!("CONCAT_WS(' ', p.id, {}, {})", seconds("p.made_at"), seconds("l.booked_at"))
        }
        Dialect::Postgres | Dialect::Sqlite => {
            format!("p.id || ' ' || {} || ' ' || {}", seconds("p.made_at"), seconds("l.booked_at"))
        }
    };
    let lines = session.lines(&format!(
        "SELECT {columns} AS line FROM payments AS p JOIN ledger AS l ON l.payment_id = p.id WHERE p.id > {after}
         ORDER BY l.booked_at"
    ))?;
    let parse = |line: &String| -> Option<Stamped> {
        let mut words = line.split(' ');
        Some(Stamped {
            id: words.next()?.parse().ok()?,
            made: words.next()?.parse().ok()?,
            booked: words.next()?.parse().ok()?,
        })
    };
    lines.iter().map(|line| parse(line).with_context(|| format!("no times: {line}"))).collect()
}

/// The present by the database's clock, in seconds since 1970.
pub(crate) fn now(session: &mut dyn Session) -> Result<f64> {
    let dialect = session.dialect();
    let now = match dialect {
        Dialect::Postgres => "clock_timestamp()",
        Dialect::Mysql | Dialect::Sqlite => "CURRENT_TIMESTAMP(6)",
    };
    let lines = session.lines(&format!("SELECT {} AS line", dialect.text(&seconds(dialect, now))))?;
    lines.first().and_then(|line| line.parse().ok()).context("the database has no time")
}

fn seconds(dialect: Dialect, time: &str) -> String {
    match dialect {
        Dialect::Postgres => format!("EXTRACT(EPOCH FROM {time})"),
        Dialect::Mysql | Dialect::Sqlite => format!("UNIX_TIMESTAMP({time})"),
    }
}
