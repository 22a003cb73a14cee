//! When a queue works: its window, and the schedules of its rows.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::response::Response;
use chrono::Utc;
use maud::{Markup, html};
use queue_core::internals::by_name::{Holds, PageOrder, TextColumn};
use queue_core::{Missed, Periodic};
use queueable::Window;

use super::at::At;
use super::cells::{cell, heading, key_heading};
use super::guard::Visit;
use super::layout::{Tab, segment, show, time};
use super::queue::{Found, LONGEST, PAGE};
use super::search::{Fields, field, query};
use super::site::{FRESH, Named, Site};
use super::trouble::{Told, Trouble};
use crate::database::Database;
use crate::queue::{Facts, Paging, Rows};
use crate::shown::{span, visible};

/// How many columns say a schedule.
const SCHEDULE: usize = 3;

/// The rows come by their next times.
const ORDER: PageOrder = PageOrder::NextAttempt;

/// Shows the window and the schedules.
pub(super) async fn show_all<C: Database>(
    State(site): State<Site<C>>,
    At { visit, named }: At,
    Query(fields): Query<Fields>,
) -> Response {
    let told = told(&site, &visit, &named, &fields).await;
    show(&site, &visit, ("Schedules", Some((&named, Some(Tab::Schedules)))), told).await
}

async fn told<C: Database>(site: &Site<C>, visit: &Visit, named: &Named, fields: &Fields) -> Told<Markup> {
    let facts = site.of(named).facts();
    let options = facts.options;
    if options.periodic.is_none() && options.window.is_none() {
        return Err(Trouble::NotFound(format!("The queue `{}` has no schedules and no window.", named.name)));
    }
    let base = format!("{}q/{}", visit.root, segment(&named.name));
    let rows = match options.periodic {
        Some(periodic) => {
            Some((periodic, rows(site, named, periodic, field(fields, "after").map(str::to_owned)).await?))
        }
        None => None,
    };
    Ok(html! {
        @if let Some(text) = options.window {
            section #window data-refresh="30" aria-labelledby="window-title" {
                h2 #window-title { "Window" }
                (window(text))
            }
        }
        @if let Some((periodic, found)) = rows {
            section #schedules data-refresh="10" aria-labelledby="schedules-title" {
                h2 #schedules-title { "Schedules" }
                p { (missed(periodic.missed)) }
                (table(facts, &base, periodic, &found))
            }
            nav.pager aria-label="Pages of schedules" {
                @if field(fields, "after").is_some() { a href={ (base) "/schedules" } { "First page" } }
                @if let Some(next) = &found.next {
                    a rel="next" href={ (base) "/schedules?" (query(&[("after".to_owned(), next.clone())])) } { "Next page" }
                }
            }
        }
    })
}

/// Reads a page of rows with their schedules.
async fn rows<C: Database>(
    site: &Site<C>,
    named: &Named,
    periodic: Periodic,
    after: Option<String>,
) -> Told<Arc<Found>> {
    let what = format!("schedules after {after:?}");
    let read = site.read_of(named, &what, FRESH * 2, move |queue, connection| {
        let facts = queue.facts();
        let after = after.as_deref().map(|cursor| facts.after(cursor, ORDER, false)).transpose()?;
        let columns = columns(facts, periodic);
        let paging = Paging { columns, longest: LONGEST, order: ORDER, after, limit: PAGE + 1, backwards: false };
        let mut lines = queue.page(connection, &Rows::default(), &paging)?;
        let more = lines.len() > PAGE;
        let next = more.then(|| facts.cursor(&lines[PAGE - 1], ORDER)).flatten();
        lines.truncate(PAGE);
        Ok(Found { lines, more, next })
    });
    read.await
}

/// The columns that are read: those of the schedule, then the others.
fn columns(facts: &Facts, periodic: Periodic) -> Vec<TextColumn> {
    let names = facts.names;
    let columns = [
        (periodic.period, Holds::Integers(4)),
        (periodic.cron, Holds::Texts),
        (periodic.time_zone, Holds::Texts),
        (names.status, Holds::Texts),
        (periodic.scheduled_time, Holds::Instants),
        (names.next_attempt_time, Holds::Instants),
        (names.last_attempt_time, Holds::Instants),
        (names.last_attempt_error_message, Holds::Texts),
    ];
    columns.map(|(name, holds)| TextColumn { name: name.to_owned(), holds }).into()
}

fn table(facts: &Facts, base: &str, periodic: Periodic, found: &Found) -> Markup {
    let columns = columns(facts, periodic);
    let (schedules, others) = columns.split_at(SCHEDULE);
    let is_hidden = schedules.iter().any(|column| facts.is_secret(&column.name));
    html! {
        @if found.lines.is_empty() { p { "There are no rows." } } @else {
            div.scroll tabindex="0" role="region" aria-label="Rows with their schedules" { table {
                thead { tr {
                    (key_heading(facts))
                    th scope="col" { "Schedule" }
                    @for column in others { (heading(facts, column)) }
                } }
                tbody { @for line in &found.lines { tr {
                    th scope="row" {
                        a href={ (base) "/row?" (query(&[("key".to_owned(), line.key.clone())])) } { bdi { (visible(&line.key)) } }
                    }
                    td.data {
                        @match &line.values[..] {
                            _ if is_hidden => span.secret { "[hidden]" },
                            [period, cron, zone, ..] => (schedule(period.as_deref(), cron.as_deref(), zone.as_deref())),
                            _ => "",
                        }
                    }
                    @for (column, value) in others.iter().zip(line.values.iter().skip(SCHEDULE)) {
                        (cell(facts, column, value.as_deref()))
                    }
                } } }
            } }
        }
    }
}

/// A schedule in words.
fn schedule(period: Option<&str>, cron: Option<&str>, zone: Option<&str>) -> Markup {
    let every =
        period.map(|seconds| seconds.parse().map_or_else(|_| seconds.to_owned(), |of| span(Duration::from_secs(of))));
    html! {
        @match (cron, every) {
            (Some(cron), _) => { code { bdi { (visible(cron)) } } " " bdi { (visible(zone.unwrap_or("UTC"))) } }
            (None, Some(every)) => { "every " bdi { (visible(&every)) } }
            (None, None) => span.muted { "none: it runs once" },
        }
    }
}

fn missed(missed: Missed) -> Markup {
    html! {
        @match missed {
            Missed::Once => "One run makes up for all that were missed.",
            Missed::Skip(time) => { "A run that cannot begin within " (span(time)) " is left out." }
            Missed::All(most) => { "Each missed run is made up for, up to " (most) "; of more, the oldest are left out." }
            _ => "",
        }
    }
}

/// Whether messages may be processed now, and when that changes.
fn window(text: &str) -> Markup {
    let now = Utc::now();
    let window: Result<Window, _> = text.parse();
    html! {
        p { "Messages are processed " strong { (text) } "." }
        @match window {
            Err(error) => p.notice.error { (error) },
            Ok(window) if window.is_open(now) => p.notice.done {
                "The window is open" @if let Some(end) = window.closes(now) { ", and closes " (time(end)) } "."
            },
            Ok(window) => p.notice.note {
                "The window is closed" @if let Some(begin) = window.next_opening(now) { ", and opens " (time(begin)) } "."
            },
        }
    }
}
