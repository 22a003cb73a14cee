//! Settings and reports can be written as JSON and read back unchanged.

use std::fmt::Debug;
use std::time::Duration;

use chrono::{DateTime, Utc};
use proptest::prelude::*;
use queueable::__derive::Settings;
use queueable::report::StatusCounts;
use queueable::{CrashAccounting, PollerSettings, QueueState, Retry, Status, Tally};
use serde::Serialize;
use serde::de::DeserializeOwned;

fn survives<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T) {
    let json = serde_json::to_string(&value).unwrap();
    assert_eq!(serde_json::from_str::<T>(&json).unwrap(), value, "{json}");
}

#[test]
fn every_status_is_its_own_text_in_json() {
    for status in Status::ALL {
        assert_eq!(serde_json::to_string(&status).unwrap(), format!("\"{status}\""));
        survives(status);
    }
}

#[test]
fn settings_survive_json() {
    survives(Settings::DEFAULT);
    survives(Settings { max_tries: u32::MAX, timeout: Some(Duration::new(1, 1)), ..Settings::DEFAULT });
    survives(PollerSettings::default());
    let mut hours = PollerSettings::default();
    hours.window = Some("Mon-Fri 22:00-06:00, Sat-Sun 00:00-24:00 Europe/Berlin".parse().unwrap());
    survives(hours);
    let wrong = serde_json::from_str::<PollerSettings>(r#"{"window": "22:00-06:00 Berlin"}"#).unwrap_err();
    assert!(wrong.to_string().contains("the time zone `Berlin` is not in the IANA database"), "{wrong}");
    survives(Tally::default());
}

#[test]
fn poller_settings_that_a_file_leaves_out_have_their_defaults() {
    let read: PollerSettings = serde_json::from_str(r#"{"workers": 9}"#).unwrap();
    assert_eq!((read.workers, read.poll_interval), (9, PollerSettings::default().poll_interval));
    for (text, accounting) in
        [("on", CrashAccounting::On), ("strict", CrashAccounting::Strict), ("off", CrashAccounting::Off)]
    {
        let read: PollerSettings = serde_json::from_str(&format!(r#"{{"crash_accounting": "{text}"}}"#)).unwrap();
        assert_eq!(read.crash_accounting, accounting);
    }
}

#[test]
fn a_poller_setting_that_does_not_exist_is_refused() {
    let wrong = serde_json::from_str::<PollerSettings>(r#"{"lock_wait": {"secs": 1, "nanos": 0}}"#).unwrap_err();
    assert!(wrong.to_string().contains("unknown field `lock_wait`"), "{wrong}");
}

#[test]
fn counts_survive_json_and_a_status_of_somebody_else_is_refused() {
    let counts: StatusCounts = serde_json::from_str(r#"{"SUCCESS": 3, "FAILED": 1, "unknown": 2}"#).unwrap();
    assert_eq!((counts.of(Status::Success), counts.unknown, counts.total()), (3, 2, 6));
    survives(counts);
    survives(StatusCounts::default());
    assert!(serde_json::from_str::<StatusCounts>(r#"{"DONE": 3}"#).is_err());
}

fn durations() -> impl Strategy<Value = Duration> {
    (any::<u64>(), 0..1_000_000_000u32).prop_map(|(seconds, nanos)| Duration::new(seconds, nanos))
}

fn times() -> impl Strategy<Value = DateTime<Utc>> {
    (any::<i32>(), 0..1_000_000_000u32)
        .prop_map(|(seconds, nanos)| DateTime::from_timestamp(seconds.into(), nanos).expect("in chrono's range"))
}

proptest! {
    #[test]
    fn every_retry_policy_survives_json(first in durations(), max in durations(), percent in 0..=100u8) {
        survives(Retry::None);
        survives(Retry::fixed(first));
        survives(Retry::linear(first).max(max));
        survives(Retry::exponential(first).max(max).jitter_percent(percent));
    }

    #[test]
    fn every_queue_state_survives_json(
        status in proptest::sample::select(&Status::ALL[..]),
        next_attempt_time in proptest::option::of(times()),
        try_count in any::<i32>(),
        last_attempt_time in proptest::option::of(times()),
        last_attempt_error_message in proptest::option::of(".*"),
    ) {
        survives(QueueState { status, next_attempt_time, try_count, last_attempt_time, last_attempt_error_message });
    }
}
