//! A rate-limited log: one line per cause and second, then a count.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use diesel::r2d2::HandleError;

use crate::lock::Mutex;
use crate::redact::{Redact, hide_connection_secrets, redacted};

const PERIOD: Duration = Duration::from_secs(1);

/// How many causes are remembered, so that a program that makes up new ones for ever does not grow without bound.
const CAUSES: usize = 256;

/// Logs each cause at most once in a period.
pub(crate) struct RateLimitedLog {
    period: Duration,
    causes: Mutex<HashMap<String, (Instant, u64)>>,
    redact: Option<Redact>,
}

impl Default for RateLimitedLog {
    fn default() -> Self {
        RateLimitedLog { period: PERIOD, causes: Mutex::default(), redact: None }
    }
}

impl RateLimitedLog {
    /// Makes a log whose lines `redact` rewrites.
    pub(crate) fn new(redact: Option<Redact>) -> Self {
        RateLimitedLog { redact, ..Default::default() }
    }

    /// Logs a cause at most once in this time.
    pub(crate) fn every(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }

    /// Logs a warning, unless the same cause was logged within its period, a second by default.
    pub(crate) fn warn(&self, entity: &str, cause: &str) {
        if let Some(suppressed) = self.admit(cause, Instant::now()) {
            tracing::warn!(entity, suppressed, "{}", self.redacted(cause));
        }
    }

    /// Returns how often the cause was suppressed, if the caller may log it now.
    pub(crate) fn admits(&self, cause: &str) -> Option<u64> {
        self.admit(cause, Instant::now())
    }

    /// Returns a cause as it may be logged.
    pub(crate) fn redacted(&self, cause: &str) -> String {
        redacted(cause, self.redact.as_ref())
    }

    /// Returns how often the cause was suppressed, if it may be logged now.
    fn admit(&self, cause: &str, now: Instant) -> Option<u64> {
        let mut causes = self.causes.lock();
        if let Some((last, suppressed)) = causes.get_mut(cause) {
            if now.duration_since(*last) < self.period {
                *suppressed += 1;
                return None;
            }
            *last = now;
            return Some(std::mem::take(suppressed));
        }
        if causes.len() >= CAUSES {
            causes.retain(|_, (last, _)| now.duration_since(*last) < self.period);
        }
        if causes.len() < CAUSES {
            causes.insert(cause.to_owned(), (now, 0));
            return Some(0);
        }
        None
    }
}

/// Logs why a pool has no connections: one line for each cause and second, and without passwords.
///
/// A pool of r2d2's belongs to the application. By itself it logs each try of each of its threads as an error, with all
/// that the client library quotes of the URL. Give this to
/// [`Builder::error_handler`](diesel::r2d2::Builder::error_handler):
///
/// ```no_run
/// # use diesel::prelude::*;
/// # use diesel::r2d2::{ConnectionManager, Pool};
/// use queueable::PoolErrorLog;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::builder()
///     .error_handler(Box::new(PoolErrorLog::default()))
///     .build(ConnectionManager::<SqliteConnection>::new("app.sqlite"))?;
/// # Ok(()) }
/// ```
#[derive(Default)]
pub struct PoolErrorLog(RateLimitedLog);

impl<E: fmt::Display> HandleError<E> for PoolErrorLog {
    fn handle_error(&self, error: E) {
        self.0.warn("pool", &format!("a connection failed: {}", hide_connection_secrets(&error.to_string())));
    }
}

impl fmt::Debug for PoolErrorLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PoolErrorLog")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_logged_once_a_second_and_then_with_a_count() {
        let log = RateLimitedLog::default();
        let start = Instant::now();
        assert_eq!(log.admit("down", start), Some(0));
        assert_eq!(log.admit("down", start + PERIOD / 2), None);
        assert_eq!(log.admit("other", start), Some(0));
        assert_eq!(log.admit("down", start + PERIOD), Some(1));
        for i in 0..1000 {
            log.admit(&format!("cause {i}"), start);
        }
        assert!(log.causes.lock().len() <= CAUSES);
    }
}
