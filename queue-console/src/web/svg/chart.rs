//! What is around every chart: its title and its words, its axes, and the same numbers as a table.

use std::time::Duration;

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use queueable::report::Interval;

use super::ticks::{self, Ticks};
use crate::shown::visible;

/// The size of a chart, and of what is around its field.
const WIDTH: f64 = 720.0;
pub(super) const HEIGHT: f64 = 230.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 14.0;
pub(super) const BOTTOM: f64 = 52.0;

/// The median and the 95th percentile of a duration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Percentiles {
    pub(crate) p50: Option<Duration>,
    pub(crate) p95: Option<Duration>,
}

/// A minute, an hour or a day of a chart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Period {
    pub(crate) start: DateTime<Utc>,
    /// In the order of [`Outcome::ALL`].
    pub(crate) outcomes: [i64; 5],
    pub(crate) took: Percentiles,
    pub(crate) waited: Percentiles,
}

/// What charts show: all periods of a range, also those in which nothing happened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chart<'a> {
    /// Tells its patterns from those of other charts of the page.
    pub(crate) id: &'a str,
    pub(crate) title: &'a str,
    /// What is counted: attempts or rows.
    pub(crate) counted: &'a str,
    pub(crate) interval: Interval,
    pub(crate) periods: &'a [Period],
}

impl Chart<'_> {
    /// What is around every chart: its title and its words, the same numbers as a table.
    pub(super) fn figure(&self, words: &str, (field, legend): (&Markup, &Markup), table: &Markup) -> Markup {
        let title = visible(self.title);
        html! {
            figure.chart {
                figcaption { strong { bdi { (title) } } " " @if words.is_empty() { "nothing to show" } @else { (words) } }
                @if !words.is_empty() {
                    div.scroll tabindex="0" role="group" aria-label={ "Chart: " (title) } {
                        svg role="img" aria-label={ (title) ": " (words) "; the table below has all numbers" } viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } {
                            (field)
                        }
                    }
                    ul.legend { (legend) }
                    details {
                        summary { "The numbers" span.visually-hidden { " of " bdi { (title) } } }
                        div.scroll tabindex="0" role="group" aria-label={ "Numbers: " (title) } { table { (table) } }
                    }
                }
            }
        }
    }

    /// The axes with their marks, and what is drawn between them.
    pub(super) fn field(&self, ticks: &Ticks, unit: &str, drawn: &Markup) -> Markup {
        let starts: Vec<_> = self.periods.iter().map(|period| period.start).collect();
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        html! {
            @for (at, text) in &ticks.0 {
                @let y = px(self.y(*at, ticks.top()));
                path.grid stroke="currentColor" d={ "M" (LEFT) " " (y) "H" (right) } {}
                text x=(LEFT - 8.0) y=(y) dy="0.35em" text-anchor="end" { (text) }
            }
            @if !unit.is_empty() {
                text x="12" y=(px((TOP + bottom) / 2.0)) text-anchor="middle" transform={ "rotate(-90 12 " (px((TOP + bottom) / 2.0)) ")" } { (unit) }
            }
            @for (at, [time, day]) in ticks::of_periods(&starts, self.interval) {
                @let x = px(self.x(at) + self.slot() / 2.0);
                path.axis stroke="currentColor" d={ "M" (x) " " (bottom) "v5" } {}
                text x=(x) y=(bottom + 18.0) text-anchor="middle" { (time) }
                text x=(x) y=(bottom + 32.0) text-anchor="middle" { (day) }
            }
            text x=(right) y=(HEIGHT - 4.0) text-anchor="end" { "UTC, by the " (name_of(self.interval)) }
            (drawn)
            path.axis stroke="currentColor" d={ "M" (LEFT) " " (bottom) "H" (right) } {}
        }
    }

    pub(super) fn slot(&self) -> f64 {
        (WIDTH - LEFT - RIGHT) / self.periods.len().max(1) as f64
    }

    pub(super) fn x(&self, at: usize) -> f64 {
        LEFT + self.slot() * at as f64
    }

    pub(super) fn y(&self, value: f64, top: f64) -> f64 {
        let height = HEIGHT - TOP - BOTTOM;
        HEIGHT - BOTTOM - height * (value / top).clamp(0.0, 1.0)
    }

    pub(super) fn time(&self, period: &Period) -> String {
        let format = if self.interval == Interval::Day { "%Y-%m-%d" } else { "%Y-%m-%d %H:%M" };
        period.start.format(format).to_string()
    }
}

pub(crate) fn name_of(interval: Interval) -> &'static str {
    match interval {
        Interval::Minute => "minute",
        Interval::Hour => "hour",
        Interval::Day => "day",
    }
}

pub(super) fn sample(shape: &Markup) -> Markup {
    html! { svg viewBox="0 0 28 14" aria-hidden="true" { (shape) } }
}

pub(super) fn sum<'a>(values: impl IntoIterator<Item = &'a i64>) -> i64 {
    values.into_iter().fold(0, |sum, value| sum.saturating_add(*value))
}

/// A coordinate. A tenth of a pixel is enough.
pub(super) fn px(at: f64) -> String {
    let text = format!("{at:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}
