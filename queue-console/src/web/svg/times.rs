//! How long something took in each period: a line of its median, and one of its 95th percentile.

use std::time::Duration;

use maud::{Markup, html};

use super::chart::{Chart, Percentiles, Period, px, sample};
use super::ticks::Ticks;
use crate::shown::span;

impl Chart<'_> {
    /// Shows durations: `of` chooses which.
    pub(crate) fn times(&self, of: impl Fn(&Period) -> Percentiles) -> Markup {
        type Line = (&'static str, &'static str, fn(Percentiles) -> Option<Duration>);
        const LINES: [Line; 2] = [("p50", "median", |of| of.p50), ("p95", "95th percentile", |of| of.p95)];
        let of = &of;
        let most = self.periods.iter().flat_map(|period| [of(period).p50, of(period).p95]).flatten().max();
        let ticks = Ticks::of_times(most.unwrap_or_default());
        let drawn = html! {
            @for (class, name, part) in LINES {
                @let points = self.points(&ticks, |period| part(of(period)));
                g class=(class) {
                    path fill="none" stroke="currentColor" stroke-width="2" stroke-dasharray=[dashes(class)] d=(line(&points)) {}
                    @for (at, x, y) in points { g {
                        title { (self.time(&self.periods[at])) ": " (name) " " (part(of(&self.periods[at])).map(span).unwrap_or_default()) }
                        (point(class, x, y))
                    } }
                }
            }
        };
        let legend = html! { @for (class, name, _) in LINES { li {
            (sample(&html! { g class=(class) {
                path fill="none" stroke="currentColor" stroke-width="2" stroke-dasharray=[dashes(class)] d="M0 7H28" {}
                (point(class, 14.0, 7.0))
            } }))
            (name)
        } } };
        let rows: Vec<_> = self.periods.iter().filter(|period| of(period) != Percentiles::default()).collect();
        let cell =
            |time: Option<Duration>| html! { td.number { @match time { Some(time) => (span(time)), None => "" } } };
        let table = html! {
            thead { tr { th scope="col" { "From (UTC)" } @for (_, name, _) in LINES { th.number scope="col" { (name) } } } }
            tbody { @for period in &rows { tr {
                th scope="row" { (self.time(period)) }
                @for (_, _, part) in LINES { (cell(part(of(period)))) }
            } } }
        };
        let longest =
            |part: fn(Percentiles) -> Option<Duration>| self.periods.iter().filter_map(|period| part(of(period))).max();
        let words = LINES.map(|(_, name, part)| longest(part).map(|time| format!("{name} up to {}", span(time))));
        let words = words.into_iter().flatten().collect::<Vec<_>>().join(", ");
        self.figure(&words, (&self.field(&ticks, "", &drawn), &legend), &table)
    }

    /// Where values are: the place of the period, and both coordinates.
    fn points(&self, ticks: &Ticks, of: impl Fn(&Period) -> Option<Duration>) -> Vec<(usize, f64, f64)> {
        let point = |(at, period)| {
            let microseconds = of(period)?.as_micros() as f64;
            Some((at, self.x(at) + self.slot() / 2.0, self.y(microseconds, ticks.top())))
        };
        self.periods.iter().enumerate().filter_map(point).collect()
    }
}

/// A line through the points of neighbouring periods: it has a gap where nothing is known.
pub(super) fn line(points: &[(usize, f64, f64)]) -> String {
    let before = [None].into_iter().chain(points.iter().map(|(at, ..)| Some(at + 1)));
    let step = |((at, x, y), next): (&(usize, f64, f64), Option<usize>)| {
        format!("{}{} {}", if next == Some(*at) { 'L' } else { 'M' }, px(*x), px(*y))
    };
    points.iter().zip(before).map(step).collect()
}

fn dashes(class: &str) -> Option<&'static str> {
    (class == "p95").then_some("6 4")
}

/// The median has round points, the 95th percentile hollow squares.
fn point(class: &str, x: f64, y: f64) -> Markup {
    html! {
        @if class == "p95" {
            rect.hollow x=(px(x - 3.5)) y=(px(y - 3.5)) width="7" height="7" stroke="currentColor" stroke-width="2" {}
        } @else {
            circle cx=(px(x)) cy=(px(y)) r="3.5" fill="currentColor" {}
        }
    }
}
