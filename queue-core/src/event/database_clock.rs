//! The database's clock, as this process knows it between two readings.

use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};

use crate::lock::Mutex;

/// How long a reading is used. In this time two clocks drift apart by less than a millisecond.
const READ_EVERY: Duration = Duration::from_secs(10);

/// The last reading of the database's clock. It serves reports alone: what is due, the database decides.
#[derive(Debug, Default)]
pub(crate) struct DatabaseClock(Mutex<Option<Reading>>);

#[derive(Debug, Clone, Copy)]
struct Reading {
    time: DateTime<Utc>,
    at: Instant,
}

impl DatabaseClock {
    /// Tells whether the clock is to be read again.
    pub(crate) fn has_to_be_read(&self) -> bool {
        self.reading().is_none_or(|reading| reading.at.elapsed() >= READ_EVERY)
    }

    /// Takes the time that the database has answered to a question of this moment.
    pub(crate) fn tell(&self, time: DateTime<Utc>, asked: Instant) {
        // The database has answered at some time between the question and now.
        let at = asked + asked.elapsed() / 2;
        *self.0.lock() = Some(Reading { time, at });
    }

    /// Returns how long ago a time was, zero if it lies in the future. `None`: the clock was never read.
    pub(crate) fn since(&self, time: DateTime<Utc>) -> Option<Duration> {
        let reading = self.reading()?;
        let before = (reading.time - time).max(TimeDelta::MIN);
        let elapsed = TimeDelta::from_std(reading.at.elapsed()).ok()?;
        let waited = before.checked_add(&elapsed)?;
        Some(waited.to_std().unwrap_or_default())
    }

    fn reading(&self) -> Option<Reading> {
        *self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_as_long_ago_as_the_databases_clock_says() {
        let clock = DatabaseClock::default();
        let time: DateTime<Utc> = "2001-02-03T04:05:06Z".parse().expect("a time");
        assert!(clock.has_to_be_read() && clock.since(time).is_none());
        clock.tell(time, Instant::now());
        assert!(!clock.has_to_be_read());
        let hour = TimeDelta::hours(1);
        let ago = clock.since(time - hour).expect("the clock was read");
        assert!(ago >= Duration::from_secs(3600) && ago < Duration::from_secs(4000), "{ago:?}");
        assert_eq!(clock.since(time + hour), Some(Duration::ZERO));
        assert!(clock.since(DateTime::<Utc>::MIN_UTC).is_some());
        assert_eq!(clock.since(DateTime::<Utc>::MAX_UTC), Some(Duration::ZERO));
    }
}
