//! A rate-limited log: one line per cause and second, then a count.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lock::unpoisoned;

const PERIOD: Duration = Duration::from_secs(1);

/// How many causes are remembered; a program that makes up new ones for ever does not grow without bound.
const CAUSES: usize = 256;

/// Remembers when each cause was last logged.
#[derive(Default)]
pub(crate) struct RateLimitedLog {
    causes: Mutex<HashMap<String, (Instant, u64)>>,
}

impl RateLimitedLog {
    /// Logs a warning, unless the same cause was logged within the last second.
    pub(crate) fn warn(&self, entity: &str, cause: &str) {
        if let Some(suppressed) = self.admit(cause, Instant::now()) {
            tracing::warn!(entity, suppressed, "{cause}");
        }
    }

    /// Returns how often the cause was kept back if it may be logged now.
    fn admit(&self, cause: &str, now: Instant) -> Option<u64> {
        let mut causes = unpoisoned(self.causes.lock());
        if let Some((last, suppressed)) = causes.get_mut(cause) {
            if now.duration_since(*last) < PERIOD {
                *suppressed += 1;
                return None;
            }
            *last = now;
            return Some(std::mem::take(suppressed));
        }
        if causes.len() >= CAUSES {
            causes.retain(|_, (last, _)| now.duration_since(*last) < PERIOD);
        }
        if causes.len() < CAUSES {
            causes.insert(cause.to_owned(), (now, 0));
            return Some(0);
        }
        None
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
        assert!(unpoisoned(log.causes.lock()).len() <= CAUSES);
    }
}
