//! What an assertion asks of the rows' times and of their number.

use std::ops::{Range, RangeFrom, RangeInclusive, RangeTo, RangeToInclusive};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

/// By how much a time may differ: a test takes some time itself, and SQLite's times have three digits.
const TOLERANCE: TimeDelta = TimeDelta::seconds(1);

/// The options of an assertion.
#[derive(Debug, Default)]
pub struct Asked {
    at: Option<DateTime<Utc>>,
    lengths: Option<(Option<TimeDelta>, Option<TimeDelta>)>,
    within: Option<TimeDelta>,
    pub(super) times: Option<usize>,
    wrong: Option<String>,
}

impl Asked {
    /// Asks for nothing yet.
    pub fn new() -> Self {
        Asked::default()
    }

    /// Asks for a due time.
    pub fn at(mut self, time: impl Into<DateTime<Utc>>) -> Self {
        self.at = Some(time.into());
        self
    }

    /// Asks for a due time so long after the present, or in a range of lengths.
    pub fn due_in(mut self, lengths: impl Lengths) -> Self {
        match lengths.lengths() {
            Ok(lengths) => self.lengths = Some(lengths),
            Err(wrong) => self.wrong = Some(wrong),
        }
        self
    }

    /// Says by how much the time may differ; alone, how soon it is.
    pub fn within(mut self, length: impl Length) -> Self {
        match length.length() {
            Ok(length) => self.within = Some(length),
            Err(wrong) => self.wrong = Some(wrong),
        }
        self
    }

    /// Asks for so many rows.
    pub fn times(mut self, rows: usize) -> Self {
        self.times = Some(rows);
        self
    }

    /// Returns the times that are asked for.
    pub(super) fn due(&self, now: DateTime<Utc>) -> Result<Due, String> {
        let tolerance = self.within.unwrap_or(TOLERANCE);
        let mut due = Due { from: None, to: None, words: String::new() };
        let time = |length: Option<TimeDelta>, far| length.map(|length| now.checked_add_signed(length).unwrap_or(far));
        match (&self.wrong, self.at, self.lengths, self.within) {
            (Some(wrong), ..) => return Err(wrong.clone()),
            (_, Some(_), Some(_), _) => {
                return Err("`at` and `in` both say when a row is due: leave one out".to_owned());
            }
            (_, Some(at), None, _) => {
                (due.from, due.to) = (Some(at), Some(at));
                due.words = format!(", due at {}", utc(at));
            }
            (_, None, Some((shortest, longest)), _) => {
                due.from = time(shortest, DateTime::<Utc>::MIN_UTC);
                due.to = time(longest, DateTime::<Utc>::MAX_UTC);
                due.words = format!(", due {}", words_of(shortest, longest));
            }
            (_, None, None, Some(within)) => {
                due.to = time(Some(within), DateTime::<Utc>::MAX_UTC);
                due.words = format!(", due {}", words_of(None, Some(within)));
                return Ok(due);
            }
            (_, None, None, None) => return Ok(due),
        }
        due.words += &format!(", give or take {}", length_text(tolerance));
        due.from = due.from.map(|from| from.checked_sub_signed(tolerance).unwrap_or(from));
        due.to = due.to.map(|to| to.checked_add_signed(tolerance).unwrap_or(to));
        Ok(due)
    }
}

/// Between which times a row is to be due.
pub(super) struct Due {
    from: Option<DateTime<Utc>>,
    to: Option<DateTime<Utc>>,
    pub(super) words: String,
}

impl Due {
    /// Returns how far a time is from those.
    pub(super) fn distance(&self, time: DateTime<Utc>) -> TimeDelta {
        match (self.from, self.to) {
            (Some(from), _) if time < from => from - time,
            (_, Some(to)) if time > to => time - to,
            _ => TimeDelta::zero(),
        }
    }

    /// Tells whether any time will do.
    pub(super) fn is_any(&self) -> bool {
        self.from.is_none() && self.to.is_none()
    }
}

/// A length of time, as a test writes it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no length of time",
    note = "write a text such as \"10s\" or \"1h 30m\", chrono's `TimeDelta`, as `testing::minutes(5)` returns it, or a `Duration`"
)]
pub trait Length {
    /// Returns it, or what is wrong with it.
    fn length(self) -> Result<TimeDelta, String>;
}

impl Length for TimeDelta {
    fn length(self) -> Result<TimeDelta, String> {
        Ok(self)
    }
}

impl Length for Duration {
    fn length(self) -> Result<TimeDelta, String> {
        TimeDelta::from_std(self).map_err(|error| format!("{self:?} is no length of time: {error}"))
    }
}

impl Length for &str {
    fn length(self) -> Result<TimeDelta, String> {
        let wrong = |error| format!("`{self}` is no length of time such as `10s` or `1h 30m`: {error}");
        humantime::parse_duration(self).map_err(wrong)?.length()
    }
}

/// A length of time, or a range of them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a length of time nor a range of them",
    note = "write \"10s\", or \"10s\"..\"20s\", or the same with `TimeDelta` or `Duration`"
)]
pub trait Lengths {
    /// Returns the shortest and the longest, or what is wrong with them.
    fn lengths(self) -> Result<(Option<TimeDelta>, Option<TimeDelta>), String>;
}

impl<L: Length> Lengths for L {
    fn lengths(self) -> Result<(Option<TimeDelta>, Option<TimeDelta>), String> {
        let length = self.length()?;
        Ok((Some(length), Some(length)))
    }
}

macro_rules! ranges {
    ($($range:ident |$self:ident| $shortest:expr, $longest:expr;)*) => {$(
        impl<L: Length> Lengths for $range<L> {
            fn lengths($self) -> Result<(Option<TimeDelta>, Option<TimeDelta>), String> {
                let (shortest, longest): (Option<L>, Option<L>) = ($shortest, $longest);
                in_order(shortest.map(L::length).transpose()?, longest.map(L::length).transpose()?)
            }
        }
    )*};
}

ranges! {
    Range |self| Some(self.start), Some(self.end);
    RangeFrom |self| Some(self.start), None;
    RangeTo |self| None, Some(self.end);
    RangeToInclusive |self| None, Some(self.end);
}

impl<L: Length> Lengths for RangeInclusive<L> {
    fn lengths(self) -> Result<(Option<TimeDelta>, Option<TimeDelta>), String> {
        let (shortest, longest) = self.into_inner();
        in_order(Some(shortest.length()?), Some(longest.length()?))
    }
}

fn in_order(
    shortest: Option<TimeDelta>,
    longest: Option<TimeDelta>,
) -> Result<(Option<TimeDelta>, Option<TimeDelta>), String> {
    match (shortest, longest) {
        (Some(shortest), Some(longest)) if shortest > longest => {
            let (shortest, longest) = (length_text(shortest), length_text(longest));
            Err(format!("a range from {shortest} to {longest} has no time in it: write the shorter one first"))
        }
        lengths => Ok(lengths),
    }
}

fn words_of(shortest: Option<TimeDelta>, longest: Option<TimeDelta>) -> String {
    match (shortest, longest) {
        (Some(shortest), Some(longest)) if shortest == longest => from_now(shortest),
        (Some(shortest), Some(longest)) if shortest >= TimeDelta::zero() => {
            format!("in {} to {}", length_text(shortest), length_text(longest))
        }
        (Some(shortest), Some(longest)) => format!("{} to {}", from_now(shortest), from_now(longest)),
        (Some(shortest), None) => format!("{} or later", from_now(shortest)),
        (None, Some(longest)) => format!("{} or sooner", from_now(longest)),
        (None, None) => "at any time".to_owned(),
    }
}

/// Says when something is, as seen from the present.
fn from_now(after: TimeDelta) -> String {
    match after.num_milliseconds() {
        0 => "now".to_owned(),
        1.. => format!("in {}", length_text(after)),
        _ => format!("{} ago", length_text(after)),
    }
}

/// Says the same with milliseconds only if it is less than a minute away.
pub(super) fn about_from_now(after: TimeDelta) -> String {
    let is_near = after.abs() < TimeDelta::minutes(1);
    let half = TimeDelta::milliseconds(if after < TimeDelta::zero() { -500 } else { 500 });
    from_now(if is_near { after } else { TimeDelta::seconds((after + half).num_seconds()) })
}

/// Writes a length of time, without its sign.
fn length_text(length: TimeDelta) -> String {
    let milliseconds = length.num_milliseconds().unsigned_abs();
    humantime::format_duration(Duration::from_millis(milliseconds)).to_string()
}

/// Writes a time.
pub(super) fn utc(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M:%S%.3f UTC").to_string()
}
