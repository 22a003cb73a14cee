//! When messages may be processed: hours of the day in a time zone.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Datelike, Days, NaiveDate, NaiveTime, TimeDelta, Utc, Weekday};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};

use super::schedule::first_instant_of;

/// The hours of the week in which messages may be processed, for off-peak work: written as `Mon-Fri 22:00-06:00
/// Europe/Berlin`.
///
/// Hours without days hold every day. Hours that end before they begin run past midnight, and belong to the day on
/// which they begin. Commas separate several ranges, and several days: `Mon,Wed 22:00-06:00, Sat-Sun 00:00-24:00 UTC`.
///
/// A local time that clocks show twice counts the first time. One that they skip means the first instant after the gap.
/// So a range may be longer or shorter in the night in which clocks change.
///
/// ```
/// use queueable::Window;
///
/// let window: Window = "Mon-Fri 22:00-06:00 Europe/Berlin".parse()?;
/// // Saturday, 5 o'clock: still the night of Friday.
/// let now = "2026-03-28T05:00:00+01:00".parse()?;
/// assert!(window.is_open(now));
/// assert_eq!(window.closes(now), Some("2026-03-28T06:00:00+01:00".parse()?));
/// assert_eq!(window.next_opening("2026-03-28T06:00:00+01:00".parse()?), Some("2026-03-30T22:00:00+02:00".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Window {
    hours: Vec<Hours>,
    zone: Tz,
}

/// A range of hours on some days of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Hours {
    /// One bit for each day, Monday first.
    days: u8,
    /// The minute of the day at which the range begins, and its length in minutes: at most a day.
    begin: u16,
    length: u16,
}

/// Why a text is not a window.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the window `{text}` cannot be read, {reason}: it is written like `Mon-Fri 22:00-06:00 Europe/Berlin`")]
pub struct InvalidWindow {
    text: String,
    reason: String,
}

const EVERY_DAY: u8 = 0b111_1111;

const DAY: u16 = 24 * 60;

/// How many days ahead the search for the next opening goes. Every window opens once a week, unless clocks skip its
/// hours.
const FARTHEST: u64 = 22;

impl Window {
    /// Tells whether messages may be processed at this time.
    pub fn is_open(&self, now: DateTime<Utc>) -> bool {
        self.around(now, 0).any(|(begin, end)| begin <= now && now < end)
    }

    /// Returns the next time at which messages may be processed: `now` itself while the window is open. `None`: there
    /// is none.
    pub fn next_opening(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        if self.is_open(now) {
            return Some(now);
        }
        self.around(now, FARTHEST).filter(|(begin, end)| now < *begin && begin < end).map(|(begin, _)| begin).min()
    }

    /// Returns when a window that is open now closes. `None`: it is not open, or it never closes.
    pub fn closes(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut hours: Vec<_> = self.around(now, FARTHEST).collect();
        hours.sort();
        let mut closes = None;
        for (begin, end) in hours {
            let open = closes.unwrap_or(now);
            if begin <= open && open < end {
                closes = Some(end);
            }
        }
        closes.filter(|closes| *closes - now < TimeDelta::days(15))
    }

    /// Returns the ranges that begin from two days before `now` to `days` days after it.
    fn around(&self, now: DateTime<Utc>, days: u64) -> impl Iterator<Item = (DateTime<Utc>, DateTime<Utc>)> + '_ {
        let today = now.with_timezone(&self.zone).date_naive();
        let first = today.checked_sub_days(Days::new(2)).unwrap_or(today);
        let days = first.iter_days().take(usize::try_from(days).unwrap_or(0) + 3);
        days.flat_map(move |day| self.hours.iter().filter_map(move |hours| hours.on(day, self.zone)))
    }
}

impl Hours {
    /// Returns when the range begins and ends on a day, if it holds on that day.
    fn on(self, day: NaiveDate, zone: Tz) -> Option<(DateTime<Utc>, DateTime<Utc>)> {
        if self.days & bit(day.weekday()) == 0 {
            return None;
        }
        let midnight = day.and_time(NaiveTime::MIN);
        let at = |minute: u16| first_instant_of(midnight + TimeDelta::minutes(minute.into()), zone);
        Some((at(self.begin)?, at(self.begin + self.length)?))
    }
}

fn bit(day: Weekday) -> u8 {
    1 << day.num_days_from_monday()
}

impl FromStr for Window {
    type Err = InvalidWindow;

    fn from_str(text: &str) -> Result<Self, InvalidWindow> {
        read(text).map_err(|reason| InvalidWindow { text: text.to_owned(), reason })
    }
}

fn read(text: &str) -> Result<Window, String> {
    let (hours, zone) = text.trim().rsplit_once(char::is_whitespace).ok_or("it needs hours and a time zone")?;
    let zone = match zone.parse() {
        Ok(zone) => zone,
        Err(_) if zone.contains(':') => return Err("the time zone is missing at its end".to_owned()),
        Err(_) => return Err(format!("the time zone `{zone}` is not in the IANA database")),
    };
    let mut spans = Vec::new();
    // Days that still lack their hours, as in `Mon,Wed 22:00-06:00`.
    let mut waiting = 0;
    for part in hours.split(',').map(str::trim) {
        let (days, hours) = match part.rsplit_once(char::is_whitespace) {
            Some((days, hours)) => (Some(days.trim()), Some(hours)),
            None if part.contains(':') => (None, Some(part)),
            None => (Some(part), None),
        };
        let days = days.map_or(Ok(0), read_days)? | waiting;
        waiting = match hours {
            Some(hours) => {
                let (begin, length) = read_hours(hours)?;
                spans.push(Hours { days: if days == 0 { EVERY_DAY } else { days }, begin, length });
                0
            }
            None => days,
        };
    }
    if waiting != 0 {
        return Err("its last days have no hours".to_owned());
    }
    Ok(Window { hours: spans, zone })
}

fn read_days(text: &str) -> Result<u8, String> {
    let day = |name: &str| match name.trim().to_ascii_lowercase().as_str() {
        "mon" => Ok(0),
        "tue" => Ok(1),
        "wed" => Ok(2),
        "thu" => Ok(3),
        "fri" => Ok(4),
        "sat" => Ok(5),
        "sun" => Ok(6),
        _ => Err(format!("`{}` is none of the days Mon, Tue, Wed, Thu, Fri, Sat, Sun", name.trim())),
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (u8, u8) = (day(first)?, day(last)?);
    let number = (last + 7 - first) % 7 + 1;
    Ok((0..number).fold(0, |days, after| days | 1 << ((first + after) % 7)))
}

/// Reads when a range begins, and how long it is.
fn read_hours(text: &str) -> Result<(u16, u16), String> {
    let wrong = || format!("`{text}` is not a range of hours from 00:00 to 24:00");
    let minute = |time: &str| {
        let (hour, minute) = time.split_once(':')?;
        let number = |digits: &str| -> Option<u16> {
            (digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
        };
        let (hour, minute) = (number(hour)?, number(minute)?);
        (minute < 60 && hour * 60 + minute <= DAY).then_some(hour * 60 + minute)
    };
    let (begin, end) = text.split_once('-').ok_or_else(wrong)?;
    let (begin, end) = (minute(begin).ok_or_else(wrong)?, minute(end).ok_or_else(wrong)?);
    if begin == DAY {
        return Err(format!("`{text}` begins at the end of the day: 00:00 of the next day is accepted"));
    }
    if begin == end {
        return Err(format!("`{text}` ends when it begins: 00:00-24:00 is the whole day"));
    }
    Ok((begin, if begin < end { end - begin } else { end + DAY - begin }))
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, hours) in self.hours.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            hours.fmt(f)?;
        }
        write!(f, " {}", self.zone)
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
        let has = |day: usize| self.days & (1 << day) != 0;
        let mut separator = "";
        let mut day = 0;
        while self.days != EVERY_DAY && day < 7 {
            let first = day;
            while day < 7 && has(day) {
                day += 1;
            }
            match day - first {
                0 => {}
                1 => write!(f, "{separator}{}", NAMES[first])?,
                _ => write!(f, "{separator}{}-{}", NAMES[first], NAMES[day - 1])?,
            }
            separator = if day > first { "," } else { separator };
            day += 1;
        }
        let end = self.begin + self.length;
        let end = if end > DAY { end - DAY } else { end };
        f.write_str(if self.days == EVERY_DAY { "" } else { " " })?;
        write!(f, "{:02}:{:02}-{:02}:{:02}", self.begin / 60, self.begin % 60, end / 60, end % 60)
    }
}

impl TryFrom<String> for Window {
    type Error = InvalidWindow;

    fn try_from(text: String) -> Result<Self, InvalidWindow> {
        text.parse()
    }
}

impl From<Window> for String {
    fn from(window: Window) -> Self {
        window.to_string()
    }
}

#[cfg(test)]
mod tests;
