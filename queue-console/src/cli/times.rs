//! How people write times.

use std::time::Duration;

use chrono::{DateTime, Utc};

/// A duration as people write it: `90s`, `1h 30m`, `2d`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write it as `90s`, `1h 30m` or `2d`"))
}

/// A duration after which a database can be asked again.
pub(super) fn pace(text: &str) -> Result<Duration, String> {
    const SHORTEST: Duration = Duration::from_millis(100);
    let pace = duration(text)?;
    if pace < SHORTEST { Err("the shortest time is 100ms".to_owned()) } else { Ok(pace) }
}

/// A time with its offset.
pub(super) fn time(text: &str) -> Result<DateTime<Utc>, String> {
    let time = DateTime::parse_from_rfc3339(text);
    time.map(|time| time.to_utc()).map_err(|_| "write it as `2026-03-01T12:00:00Z`".to_owned())
}
