//! Windows past midnight and over daylight saving, and texts that are not windows.

use proptest::prelude::*;

use super::*;

fn at(time: &str) -> DateTime<Utc> {
    DateTime::parse_from_rfc3339(time).unwrap_or_else(|error| panic!("{time}: {error}")).to_utc()
}

/// A window, a time, whether the window is open then, and when it next opens (if closed) or closes (if open).
#[rustfmt::skip]
const HOURS: &[(&str, &str, bool, Option<&str>)] = &[
    ("Mon-Fri 22:00-06:00 Europe/Berlin", "2026-03-27T21:59:59+01:00", false, Some("2026-03-27T22:00:00+01:00")),
    ("Mon-Fri 22:00-06:00 Europe/Berlin", "2026-03-27T22:00:00+01:00", true, Some("2026-03-28T06:00:00+01:00")),
    // After midnight the range is still Friday's.
    ("Mon-Fri 22:00-06:00 Europe/Berlin", "2026-03-28T05:59:59+01:00", true, Some("2026-03-28T06:00:00+01:00")),
    ("Mon-Fri 22:00-06:00 Europe/Berlin", "2026-03-28T06:00:00+01:00", false, Some("2026-03-30T22:00:00+02:00")),
    // Sunday has no range of its own; the small hours of Monday would belong to Sunday.
    ("Mon-Fri 22:00-06:00 Europe/Berlin", "2026-03-30T05:00:00+02:00", false, Some("2026-03-30T22:00:00+02:00")),
    // Every day, another zone, and minutes.
    ("09:30-17:45 America/New_York", "2026-07-04T09:30:00-04:00", true, Some("2026-07-04T17:45:00-04:00")),
    ("09:30-17:45 America/New_York", "2026-07-04T17:45:00-04:00", false, Some("2026-07-05T09:30:00-04:00")),
    // Ranges that touch are one: from Friday's night to Monday's midnight.
    ("Mon-Fri 22:00-06:00, Sat-Sun 00:00-24:00 Europe/Berlin", "2026-01-09T23:00:00+01:00", true, Some("2026-01-12T00:00:00+01:00")),
    ("Sat,Sun 00:00-24:00 UTC", "2026-01-10T13:00:00Z", true, Some("2026-01-12T00:00:00Z")),
    ("Sat-Mon 12:00-13:00 UTC", "2026-01-12T12:30:00Z", true, Some("2026-01-12T13:00:00Z")),
    ("Sat-Mon 12:00-13:00 UTC", "2026-01-13T12:30:00Z", false, Some("2026-01-17T12:00:00Z")),
    // A window that is always open never closes.
    ("00:00-24:00 UTC", "2026-01-13T12:30:00Z", true, None),
    ("00:00-12:00, 12:00-00:00 Europe/Berlin", "2026-01-13T12:30:00Z", true, None),
    // A night that is an hour shorter, and one that is an hour longer.
    ("22:00-06:00 Europe/Berlin", "2026-03-28T22:00:00+01:00", true, Some("2026-03-29T06:00:00+02:00")),
    ("22:00-06:00 Europe/Berlin", "2026-10-24T22:00:00+02:00", true, Some("2026-10-25T06:00:00+01:00")),
    // A beginning and an end that clocks skip.
    ("02:30-05:00 Europe/Berlin", "2026-03-29T01:59:59+01:00", false, Some("2026-03-29T03:00:00+02:00")),
    ("02:30-05:00 Europe/Berlin", "2026-03-29T03:00:00+02:00", true, Some("2026-03-29T05:00:00+02:00")),
    ("00:00-02:30 Europe/Berlin", "2026-03-29T01:30:00+01:00", true, Some("2026-03-29T03:00:00+02:00")),
    // Ranges that clocks skip altogether.
    ("02:15-02:45 Europe/Berlin", "2026-03-29T01:30:00+01:00", false, Some("2026-03-30T02:15:00+02:00")),
    ("Sun 02:15-02:45 Europe/Berlin", "2026-03-29T01:30:00+01:00", false, Some("2026-04-05T02:15:00+02:00")),
    // A beginning and an end that clocks show twice: the first counts.
    ("02:30-05:00 Europe/Berlin", "2026-10-25T02:29:00+02:00", false, Some("2026-10-25T02:30:00+02:00")),
    ("02:30-05:00 Europe/Berlin", "2026-10-25T02:10:00+01:00", true, Some("2026-10-25T05:00:00+01:00")),
    ("00:00-02:30 Europe/Berlin", "2026-10-25T02:10:00+01:00", false, Some("2026-10-26T00:00:00+01:00")),
    // A day that the zone skips.
    ("Fri 08:00-20:00 Pacific/Apia", "2011-12-29T22:00:00-10:00", false, Some("2012-01-06T08:00:00+14:00")),
];

#[test]
fn a_window_is_open_at_its_hours() {
    for (window, now, is_open, change) in HOURS {
        let (parsed, now): (Window, _) = (window.parse().expect("the test gives a sound one"), at(now));
        assert_eq!(parsed.is_open(now), *is_open, "{window} at {now}");
        let found = if *is_open { parsed.closes(now) } else { parsed.next_opening(now) };
        assert_eq!(found, change.map(at), "{window} at {now}");
        assert_eq!(if *is_open { parsed.next_opening(now) } else { None }, is_open.then_some(now), "{window} at {now}");
        assert!(*is_open || parsed.closes(now).is_none(), "{window} at {now}");
    }
}

#[test]
fn a_window_reads_what_it_writes() {
    for (text, written) in [
        ("Mon-Fri 22:00-06:00 Europe/Berlin", "Mon-Fri 22:00-06:00 Europe/Berlin"),
        ("  mon - fri   22:00-06:00    Europe/Berlin ", "Mon-Fri 22:00-06:00 Europe/Berlin"),
        ("Fri-Mon 22:00-24:00 UTC", "Mon,Fri-Sun 22:00-24:00 UTC"),
        ("Mon,Wed,Fri 00:00-24:00,Sat 01:00-00:30 UTC", "Mon,Wed,Fri 00:00-24:00, Sat 01:00-00:30 UTC"),
        ("Tue-Mon 22:00-00:00 Asia/Kathmandu", "22:00-24:00 Asia/Kathmandu"),
        ("Sun 22:00-21:59 UTC", "Sun 22:00-21:59 UTC"),
    ] {
        let window: Window = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(window.to_string(), written);
        assert_eq!(written.parse(), Ok(window));
    }
}

#[test]
fn what_is_no_window_says_what_is_accepted() {
    for (text, reason) in [
        ("", "it needs hours and a time zone"),
        ("22:00-06:00", "it needs hours and a time zone"),
        ("Mon 22:00-06:00", "the time zone is missing at its end"),
        ("22:00-06:00 Berlin", "the time zone `Berlin` is not in the IANA database"),
        ("Mo-Fr 22:00-06:00 UTC", "`Mo` is none of the days"),
        ("Mon-Fri UTC", "its last days have no hours"),
        ("Mon-Fri 22:00-06:00, Sun UTC", "its last days have no hours"),
        ("22-06 UTC", "`22` is none of the days"),
        ("22:00 UTC", "`22:00` is not a range of hours"),
        ("25:00-06:00 UTC", "`25:00-06:00` is not a range of hours"),
        ("22:60-06:00 UTC", "`22:60-06:00` is not a range of hours"),
        ("24:00-06:00 UTC", "begins at the end of the day"),
        ("24:01-06:00 UTC", "is not a range of hours"),
        ("+1:00-06:00 UTC", "is not a range of hours"),
        ("06:00-06:00 UTC", "00:00-24:00 is the whole day"),
        (", UTC", "none of the days"),
    ] {
        let error = text.parse::<Window>().map(|window| window.to_string()).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
        assert!(error.contains("it is written like `Mon-Fri 22:00-06:00 Europe/Berlin`"), "{error}");
    }
}

fn windows() -> impl Strategy<Value = Window> {
    let hours = (1..=EVERY_DAY, 0..DAY, 1..=DAY).prop_map(|(days, begin, length)| {
        // A whole day is written from midnight to midnight.
        let begin = if length == DAY { 0 } else { begin };
        Hours { days, begin, length }
    });
    let zones = proptest::sample::select(chrono_tz::TZ_VARIANTS.to_vec());
    (proptest::collection::vec(hours, 1..4), zones).prop_map(|(hours, zone)| Window { hours, zone })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_is_open_until_it_closes_and_closed_until_it_opens(window in windows(), seconds in 0..4_000_000_000_i64) {
        let now = DateTime::from_timestamp(seconds, 0).expect("a time of this century");
        let change = if window.is_open(now) { window.closes(now) } else { window.next_opening(now) };
        if let Some(change) = change {
            prop_assert!(now < change);
            prop_assert_ne!(window.is_open(now), window.is_open(change));
            for part in 1..20 {
                let between = now + (change - now) * part / 20;
                prop_assert_eq!(window.is_open(between), window.is_open(now), "{} at {}", window, between);
            }
        } else {
            prop_assert!((0..360).all(|hours| window.is_open(now + TimeDelta::hours(hours))), "{}", window);
        }
    }

    #[test]
    fn a_window_is_read_as_it_was_written(window in windows()) {
        let read: Window = window.to_string().parse().unwrap_or_else(|error| panic!("{error}"));
        prop_assert!((0..300).all(|hours| {
            let now = DateTime::UNIX_EPOCH + TimeDelta::minutes(127 * hours);
            read.is_open(now) == window.is_open(now)
        }), "{window}");
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,40}|[MonTueSat:0-9, -]{0,30} UTC") {
        let _ = text.parse::<Window>();
    }
}
