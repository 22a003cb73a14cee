//! Charts of what a queue has done: by outcome, how long it took, and how long rows waited.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::response::Response;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use queueable::report::{By, Counted, Interval, Part, PeriodCounts, Statistics};

use super::at::At;
use super::guard::Visit;
use super::layout::{Tab, notice, rows, segment, show};
use super::search::{Fields, field};
use super::site::{Named, SELDOM, Site};
use super::split::Split;
use super::svg::{Chart, Outcome, Percentiles, Period, spark};
use super::trouble::{Told, Trouble};
use crate::database::Database;
use crate::queue::{Facts, Rows};
use crate::shown::{number, span};

/// How many values of a column are shown, those with most attempts first.
const VALUES: usize = 50;

/// How far the charts go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    name: &'static str,
    words: &'static str,
    interval: Interval,
    /// The length of a period in seconds, and how many there are.
    length: i64,
    count: i64,
}

const RANGES: [Range; 3] = [
    Range { name: "hour", words: "the last hour", interval: Interval::Minute, length: 60, count: 60 },
    Range { name: "day", words: "the last day", interval: Interval::Hour, length: 3_600, count: 24 },
    Range { name: "week", words: "the last week", interval: Interval::Day, length: 86_400, count: 7 },
];

/// Shows the charts.
pub(super) async fn show_all<C: Database>(
    State(site): State<Site<C>>,
    At { visit, named }: At,
    Query(fields): Query<Fields>,
) -> Response {
    let told = told(&site, &visit, &named, &fields).await;
    show(&site, &visit, ("Charts", Some((&named, Some(Tab::Charts)))), told).await
}

async fn told<C: Database>(site: &Site<C>, visit: &Visit, named: &Named, fields: &Fields) -> Told<Markup> {
    let facts = site.of(named).facts();
    let name = field(fields, "range").unwrap_or("day");
    let range = RANGES.into_iter().find(|range| range.name == name);
    let range = range.ok_or_else(|| Trouble::Wrong("The range of a chart is an hour, a day or a week.".to_owned()))?;
    let split = Split::of(facts, fields)?;
    let address = format!("{}q/{}/charts", visit.root, segment(&named.name));
    let whole = match whole(site, named, range, &split).await {
        // The form stays, so that a person can mend it.
        Err(trouble @ (Trouble::Wrong(_) | Trouble::Slow)) => Err(trouble),
        told => Ok(told?),
    };
    let parts = match (&whole, &split.by) {
        (Ok(_), Some(column)) => Some(parts(site, named, range, &split, column.name.clone()).await),
        _ => None,
    };
    let ranges = html! { div.field {
        label for="range" { "Range" }
        select #range name="range" {
            @for of in RANGES { option value=(of.name) selected[of == range] { (of.words) } }
        }
    } };
    Ok(html! {
        (split.form(facts, &address, &ranges))
        section #charts data-refresh="30" aria-label="Charts" {
            @match &whole {
                Err(trouble) => (notice(trouble)),
                Ok(statistics) => (charts(range, statistics)),
            }
            @match &parts {
                None => {}
                Some(Err(trouble)) => (notice(trouble)),
                Some(Ok(by)) => (table(facts, &split, &address, range, by)),
            }
        }
    })
}

async fn whole<C: Database>(site: &Site<C>, named: &Named, range: Range, split: &Split) -> Told<Arc<Statistics>> {
    let (what, asked) = (format!("charts {} {:?}", range.name, split.text), split.clone());
    let read = site.read_of(named, &what, SELDOM, move |queue, connection| {
        Ok(queue.statistics(connection, &range.rows(queue.facts(), &asked)?, range.interval)?)
    });
    read.await
}

async fn parts<C: Database>(
    site: &Site<C>,
    named: &Named,
    range: Range,
    split: &Split,
    column: String,
) -> Told<Arc<By<Statistics>>> {
    let (what, asked) = (format!("charts {} {:?} by {column}", range.name, split.text), split.clone());
    let read = site.read_of(named, &what, SELDOM, move |queue, connection| {
        Ok(queue.statistics_by(connection, &range.rows(queue.facts(), &asked)?, range.interval, &column)?)
    });
    read.await
}

impl Range {
    fn rows(self, facts: &Facts, split: &Split) -> Told<Rows> {
        let within = Duration::from_secs(u64::try_from(self.length * self.count).unwrap_or_default());
        Ok(Rows { within: Some(within), filter: split.filter(facts)?, ..Rows::default() })
    }

    /// All periods of the range, the oldest first, with what was counted in them. The last one is not over yet.
    fn filled(self, counted: &[PeriodCounts], now: DateTime<Utc>) -> Vec<Period> {
        let by_start: HashMap<i64, &PeriodCounts> = counted.iter().map(|of| (of.start.timestamp(), of)).collect();
        let last = now.timestamp().div_euclid(self.length);
        let starts = (last - self.count + 1..=last).map(|at| at * self.length);
        let period = |start: i64| {
            let empty = Period { start: DateTime::from_timestamp(start, 0).unwrap_or(now), ..Period::default() };
            by_start.get(&start).map_or(empty, |counts| Period { start: empty.start, ..period(counts) })
        };
        starts.map(period).collect()
    }
}

fn period(counts: &PeriodCounts) -> Period {
    let took = Percentiles { p50: counts.p50, p95: counts.p95 };
    let mut period = Period { took, ..Period::default() };
    let mut put = |outcome: Outcome, rows| period.outcomes[outcome as usize] = rows;
    put(Outcome::Succeeded, counts.succeeded);
    put(Outcome::Failed, counts.failed);
    if let Some(attempts) = &counts.attempts {
        put(Outcome::WentOn, attempts.advanced + attempts.runs_again);
        put(Outcome::Otherwise, attempts.skipped + attempts.interrupted + attempts.refused + attempts.lease_lost);
        put(Outcome::Retried, attempts.will_retry);
        period.waited = Percentiles { p50: attempts.p50_wait, p95: attempts.p95_wait };
    }
    period
}

fn charts(range: Range, statistics: &Statistics) -> Markup {
    let periods = range.filled(&statistics.periods, Utc::now());
    let (counted, note) = match statistics.counted {
        Counted::Attempts => ("attempts", None),
        Counted::NewestRows => ("rows", Some("These are the newest 1,000,000 rows by key.")),
        _ => ("rows", Some("A row counts where its last attempt ended.")),
    };
    let chart = |id, title| Chart { id, title, counted, interval: range.interval, periods: &periods };
    html! {
        @if let Some(note) = note {
            p.notice.note { (note) " Pollers with " code { "minutes" } " count all attempts, with retries and waits." }
        }
        (chart("outcome", "By outcome").outcomes())
        (chart("took", "How long an attempt took").times(|period| period.took))
        (chart("waited", "How long rows waited from their due time").times(|period| period.waited))
        @if let Some(odd) = &statistics.odd_times { p { "and " (rows(odd.rows)) " that ended at odd times" } }
    }
}

/// What was done for each value of a column.
fn table(facts: &Facts, split: &Split, address: &str, range: Range, by: &By<Statistics>) -> Markup {
    let now = Utc::now();
    let mut parts: Vec<(&Part<Statistics>, Vec<Period>)> =
        by.parts.iter().map(|part| (part, range.filled(&part.report.periods, now))).collect();
    parts.sort_by_key(|(_, periods)| {
        std::cmp::Reverse(Outcome::ALL.map(|outcome| total(periods, outcome)).iter().sum::<i64>())
    });
    let left_out = parts.len().saturating_sub(VALUES);
    let has_times = parts.iter().any(|(_, periods)| periods.iter().any(|period| period.took != Percentiles::default()));
    let longest = |periods: &[Period], of: fn(&Period) -> Option<Duration>| periods.iter().filter_map(of).max();
    let cell = |time: Option<Duration>| html! { td.number { (time.map(span).unwrap_or_default()) } };
    html! {
        h2 { "By " bdi { (by.column) } }
        div.scroll tabindex="0" role="region" aria-label={ "By " (by.column) } { table {
            thead { tr {
                th scope="col" { bdi { (by.column) } }
                @for name in ["Succeeded", "Failed"] { th.number scope="col" { (name) } }
                @if has_times { @for name in ["Longest median", "Longest 95th percentile"] { th.number scope="col" { (name) } } }
                th scope="col" { "By the " (super::svg::name_of(range.interval)) }
            } }
            tbody { @for (part, periods) in parts.iter().take(VALUES) { tr {
                th.data scope="row" { (split.value(facts, address, part.value.as_deref())) }
                td.number { (number(total(periods, Outcome::Succeeded))) }
                td.number { (number(total(periods, Outcome::Failed))) }
                @if has_times {
                    (cell(longest(periods, |period| period.took.p50)))
                    (cell(longest(periods, |period| period.took.p95)))
                }
                td { (spark(&series(periods, Outcome::Succeeded), &series(periods, Outcome::Failed), part.value.as_deref().unwrap_or("null"))) }
            } } }
        } }
        @if by.parts.is_empty() { p { "Nothing was done in " (range.words) "." } }
        @if left_out > 0 { p { "and " (number(left_out as i64)) " more values with fewer attempts" } }
        @if by.left_out > 0 { p { "and " (number(by.left_out)) " periods that were not read" } }
    }
}

fn series(periods: &[Period], outcome: Outcome) -> Vec<i64> {
    periods.iter().map(|period| period.outcomes[outcome as usize]).collect()
}

fn total(periods: &[Period], outcome: Outcome) -> i64 {
    series(periods, outcome).iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_all_its_periods_and_no_others() {
        let now: DateTime<Utc> = "2026-03-02T12:34:56Z".parse().expect("it is a time");
        let counts = |start: &str| -> PeriodCounts {
            let json = serde_json::json!({ "start": start, "succeeded": 3, "failed": 1, "mean": null, "p50": null, "p95": null });
            serde_json::from_value(json).expect("a report can be read again")
        };
        let counted = ["2026-03-01T12:00:00Z", "2026-03-01T13:00:00Z", "2026-03-02T12:00:00Z"].map(counts);
        let day = RANGES[1].filled(&counted, now);
        assert_eq!(day.len(), 24);
        assert_eq!(day[0].start.to_rfc3339(), "2026-03-01T13:00:00+00:00");
        assert_eq!(series(&day, Outcome::Succeeded).iter().sum::<i64>(), 6, "one hour is before the range");
        assert_eq!((day[23].outcomes, day[1].outcomes), ([3, 0, 0, 0, 1], [0; 5]));
        assert_eq!(RANGES[0].filled(&[], now).len(), 60);
        assert_eq!(RANGES[2].filled(&[], now)[6].start.to_rfc3339(), "2026-03-02T00:00:00+00:00");
    }
}
