//! The errors of a queue: failures in groups, and what the rows of a group have in common.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::response::Response;
use chrono::Utc;
use maud::{Markup, html};
use queue_core::internals::by_name::{Holds, PageOrder, TextColumn};
use queueable::report::{ErrorGroup, ErrorReport};

use super::at::At;
use super::cells::{cell, heading, key_heading};
use super::common::{Said, Trait, traits};
use super::form::since_field;
use super::guard::Visit;
use super::layout::{Tab, rows, segment, show, time};
use super::operation::lasting;
use super::row;
use super::search::{Fields, Search, field, query};
use super::site::{Named, SELDOM, Site};
use super::svg::spark;
use super::trouble::{Told, Trouble};
use crate::command::{condition, group_name};
use crate::database::Database;
use crate::queue::{Facts, Line, Paging, Rows};
use crate::shown::{Typed, number, typed, visible};

const HOUR: Duration = Duration::from_secs(3_600);

/// How many rows of a group are compared with as many others, how many characters of a value, and how many are shown.
const SAMPLE: usize = 1_000;
const LONGEST: u32 = 200;
const SHOWN: usize = 20;

/// How many hours a trend has.
const TREND: usize = 24;

type Report = ErrorReport<String>;

/// Shows the groups of a queue's failures.
pub(super) async fn show_groups<C: Database>(
    State(site): State<Site<C>>,
    At { visit, named }: At,
    Query(fields): Query<Fields>,
) -> Response {
    let told = groups(&site, &visit, &named, &fields).await;
    show(&site, &visit, ("Errors", Some((&named, Some(Tab::Errors)))), told).await
}

async fn groups<C: Database>(site: &Site<C>, visit: &Visit, named: &Named, fields: &Fields) -> Told<Markup> {
    let since = field(fields, "since").map(lasting).transpose()?;
    let text = field(fields, "where").map(str::to_owned);
    let report = match report(site, named, text.clone(), since).await {
        Err(trouble @ (Trouble::Wrong(_) | Trouble::Slow)) => Err(trouble),
        Err(trouble) => return Err(trouble),
        Ok(report) => Ok(report),
    };
    let recent = self::report(site, named, text.clone(), Some(HOUR)).await.ok();
    let base = format!("{}q/{}", visit.root, segment(&named.name));
    let chosen = Search { text: text.clone(), since: field(fields, "since").map(str::to_owned), ..Search::default() };
    Ok(html! {
        form.search role="search" method="get" action={ (base) "/errors" } {
            div.fields {
                div.field.wide {
                    label for="where" { "Condition" }
                    input #where type="text" name="where" value=[text.as_deref()] autocomplete="off" spellcheck="false";
                }
                (since_field(chosen.since.as_deref()))
                div.actions { button type="submit" { "Show" } }
            }
        }
        @match &report {
            Err(trouble) => div.notice.error role="alert" { pre { (trouble) } },
            Ok(report) => (table(&base, &chosen, report, recent.as_deref())),
        }
    })
}

/// Reads the groups.
async fn report<C: Database>(
    site: &Site<C>,
    named: &Named,
    text: Option<String>,
    within: Option<Duration>,
) -> Told<Arc<Report>> {
    let what = format!("errors {text:?} {within:?}");
    let read = site.read_of(named, &what, SELDOM / 3, move |queue, connection| {
        let filter = text.as_deref().map(|text| condition(queue.facts(), text)).transpose()?;
        Ok(queue.errors(connection, &Rows { filter, within, ..Rows::default() })?)
    });
    read.await
}

fn table(base: &str, chosen: &Search, report: &Report, recent: Option<&Report>) -> Markup {
    let in_hour = |group: &ErrorGroup<String>| {
        let found =
            recent.map(|recent| recent.groups.iter().find(|of| of.pattern == group.pattern).map_or(0, |of| of.rows));
        found.map(number).unwrap_or_default()
    };
    let of_group = |group: &ErrorGroup<String>| address(base, &group_name(&group.pattern), chosen);
    let in_group = |group: &ErrorGroup<String>| Search { group: Some(group_name(&group.pattern)), ..chosen.clone() };
    html! {
        section #groups data-refresh="15" aria-label="Groups of failures" {
            @if report.groups.is_empty() { p.notice.done { "No row has failed." } } @else {
                div.scroll tabindex="0" role="group" aria-label="Table of groups" { table {
                    thead { tr {
                        th scope="col" { "Error" }
                        @for name in ["Rows", "Last hour", "Failed", "Retrying"] { th.number scope="col" { (name) } }
                        th scope="col" { "First" } th scope="col" { "Last" } th scope="col" { "Examples" }
                    } }
                    tbody { @for group in &report.groups { tr {
                        th.data scope="row" { a href=(of_group(group)) { bdi { (first_line(&group.pattern)) } } }
                        td.number { (number(group.rows)) }
                        td.number { (in_hour(group)) }
                        td.number { (number(group.failed)) }
                        td.number { (number(group.retrying)) }
                        td { @if let Some(first) = group.first { (time(first)) } }
                        td { @if let Some(last) = group.last { (time(last)) } }
                        td.data { @for key in &group.examples { (of_row(base, key, &in_group(group))) " " } }
                    } } }
                } }
            }
            @if report.left_out > 0 { p { "and " (rows(report.left_out)) " whose texts were not read" } }
        }
    }
}

fn first_line(text: &str) -> String {
    visible(text.lines().next().unwrap_or_default())
}

/// The address of a group's page, by its short name.
pub(super) fn address(base: &str, group: &str, search: &Search) -> String {
    format!("{base}/errors/{}?{}", segment(group), query(&Search { group: None, ..search.clone() }.fields()))
}

/// A link to a row, from which one comes back to the group.
fn of_row(base: &str, key: &str, search: &Search) -> Markup {
    html! { a.target href=(row::address(base, key, search)) { bdi { (visible(key)) } } }
}

/// What is known of a group.
struct Known {
    group: ErrorGroup<String>,
    columns: Vec<TextColumn>,
    lines: Vec<Line>,
    traits: Vec<Trait>,
    compared: (usize, usize),
    /// How many of the newest rows failed in each of the last hours, the oldest first.
    hours: Vec<i64>,
}

/// Shows one group.
pub(super) async fn show_group<C: Database>(
    State(site): State<Site<C>>,
    At { visit, named }: At,
    Path((_, group)): Path<(String, String)>,
    Query(fields): Query<Fields>,
) -> Response {
    let told = self::group(&site, &visit, &named, &group, &fields).await;
    show(&site, &visit, ("Group of failures", Some((&named, Some(Tab::Errors)))), told).await
}

async fn group<C: Database>(
    site: &Site<C>,
    visit: &Visit,
    named: &Named,
    group: &str,
    fields: &Fields,
) -> Told<Markup> {
    let facts = site.of(named).facts();
    let search = Search { group: Some(group.to_owned()), ..Search::of(fields)? };
    let columns = search.listed(facts)?;
    let known = known(site, named, search.clone(), columns).await?;
    let base = format!("{}q/{}", visit.root, segment(&named.name));
    let operation = |name: &str| {
        let fields = [("operation".to_owned(), name.to_owned())].into_iter().chain(search.fields());
        format!("{base}/change?{}", query(&fields.collect::<Vec<_>>()))
    };
    let Known { group, columns, lines, traits, compared, hours } = &*known;
    let of_file = |kind: &str| format!("{base}/rows.{kind}?{}", query(&search.fields()));
    let groups = Search { group: None, columns: Vec::new(), ..search.clone() };
    Ok(html! {
        nav.pager aria-label="Group" {
            a href={ (base) "/errors?" (query(&groups.fields())) } { "Back to the groups" }
            a href=(of_file("csv")) { "CSV" }
            a href=(of_file("json")) { "JSON" }
        }
        @if let Some(since) = &search.since { p { "Only rows whose last attempt began within " (visible(since)) "." } }
        p.data { strong { bdi { (visible(&group.pattern)) } } }
        @if visit.changes {
            p.actions {
                a.button href=(operation("retry")) { "Retry this group …" }
                a.button href=(operation("stop")) { "Stop this group …" }
                a.button.danger href=(operation("skip")) { "Skip this group …" }
            }
        }
        dl.facts {
            dt { "Rows" } dd { (number(group.rows)) }
            dt { "Failed" } dd { (number(group.failed)) }
            dt { "Retrying" } dd { (number(group.retrying)) }
            @if let Some(first) = group.first { dt { "First" } dd { (time(first)) } }
            @if let Some(last) = group.last { dt { "Last" } dd { (time(last)) } }
            dt { "Last day" } dd { (spark(&vec![0; hours.len()], hours, "Failures of the newest rows of this group, by hour")) }
            dt { "A text" } dd.data { pre { bdi { (group.example_text) } } }
        }
        h2 { "What these rows have in common" }
        @if traits.is_empty() {
            p { "No value of a column stands out." }
        } @else {
            ul { @for of in traits { li {
                bdi { (visible(&of.column)) }
                @match &of.text {
                    Said::Value(None) => { " is " span.null { "null" } }
                    Said::Value(Some(text)) => { " = " bdi { (visible(text)) } }
                    Said::Between(least, most) => { " between " (least) " and " (most) }
                }
                ": " (of.shares())
            } } }
        }
        p.muted { "The newest " (number(compared.0 as i64)) " rows of this group, compared with " (number(compared.1 as i64)) " others, those with the highest keys." }
        h2 { "The newest rows" }
        div.scroll tabindex="0" role="region" aria-label="Rows" { table {
            thead { tr { (key_heading(facts)) @for column in columns { (heading(facts, column)) } } }
            tbody { @for line in lines { tr {
                th scope="row" { (of_row(&base, &line.key, &search)) }
                @for (column, value) in columns.iter().zip(&line.values) { (cell(facts, column, value.as_deref())) }
            } } }
        } }
    })
}

async fn known<C: Database>(
    site: &Site<C>,
    named: &Named,
    search: Search,
    columns: Vec<TextColumn>,
) -> Told<Arc<Known>> {
    let what = format!("group {}", query(&search.fields()));
    let read = site.read_of(named, &what, SELDOM, move |queue, connection| {
        let facts = queue.facts();
        let rows = search.rows(facts)?;
        let gone = || Trouble::NotFound("There is no such group of failures any more.".to_owned());
        let group = search.group_among(queue, connection, &rows)?.ok_or_else(gone)?;
        let compared = compared(facts);
        let attempted = TextColumn { name: facts.names.last_attempt_time.to_owned(), holds: Holds::Instants };
        let read: Vec<_> =
            [attempted].into_iter().chain(compared.iter().cloned()).chain(columns.iter().cloned()).collect();
        let paging =
            |columns, order| Paging { columns, longest: LONGEST, order, after: None, limit: SAMPLE, backwards: false };
        let of_group = paging(read, PageOrder::LatestAttempt);
        let (mut lines, _) = queue.page_of_group(connection, &rows, &group.pattern, &of_group)?;
        let keys: HashSet<&String> = lines.iter().map(|line| &line.key).collect();
        // By key, because no index has all rows by their times.
        let others = paging(compared.clone(), PageOrder::KeyDescending);
        let others = queue.page(connection, &Rows::default(), &others)?;
        let others: Vec<_> =
            others.into_iter().filter(|line| !keys.contains(&line.key)).map(|line| line.values).collect();
        let of_rows: Vec<_> = lines.iter().map(|line| line.values[1..=compared.len()].to_vec()).collect();
        let traits = traits(&compared, &of_rows, &others);
        let hours = hours(&lines);
        let sizes = (lines.len(), others.len());
        lines.truncate(SHOWN);
        lines.iter_mut().for_each(|line| drop(line.values.drain(..=compared.len())));
        Ok(Known { group, columns, lines, traits, compared: sizes, hours })
    });
    read.await
}

/// The domain's columns, but for the key and what is nobody's business.
fn compared(facts: &Facts) -> Vec<TextColumn> {
    let domain = facts.columns.list[..facts.domain].iter();
    let names = domain.map(|column| &column.name).filter(|name| !facts.is_secret(name) && !facts.key.contains(name));
    names.filter_map(|name| facts.column(name)).collect()
}

fn hours(lines: &[Line]) -> Vec<i64> {
    let (mut hours, now) = (vec![0; TREND], Utc::now());
    for line in lines {
        let time = line.values.first().and_then(Option::as_deref);
        if let Typed::Time(at) = typed(time, Holds::Instants)
            && let Some(hour) = usize::try_from((now - at).num_hours()).ok().filter(|hour| *hour < TREND)
        {
            hours[TREND - 1 - hour] += 1;
        }
    }
    hours
}
