//! A row: what happens to it next and why, all its columns, who runs it, and what one can do with it.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::Response;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use queueable::Explanation;
use queueable::report::PollerProcess;

use super::at::At;
use super::cells::{exact, status, value};
use super::guard::Visit;
use super::layout::{Tab, segment, show, time};
use super::operation::{RowState, links};
use super::overview::pollers;
use super::search::{Fields, Search, query};
use super::site::{FRESH, Named, Site};
use super::trouble::{Told, Trouble};
use crate::command::key;
use crate::database::Database;
use crate::queue::{Facts, Line, Paging, Rows};
use crate::shown::{Typed, number, typed, visible};

/// How many characters of a value are shown.
const LONGEST: u32 = 10_000;

/// The fields of the search from which a person comes begin with this.
const SEARCH: &str = "s.";

/// A row, and its neighbours in the search.
struct Known {
    line: Line,
    explanation: Option<Explanation>,
    previous: Option<String>,
    next: Option<String>,
}

/// Shows a row.
pub(super) async fn show_one<C: Database>(
    State(site): State<Site<C>>,
    At { visit, named }: At,
    Query(fields): Query<Fields>,
) -> Response {
    let title = match key_in(&fields) {
        Some("") => "Row with an empty key".to_owned(),
        key => format!("Row {}", visible(key.unwrap_or("without a key"))),
    };
    let told = told(&site, &visit, &named, &fields).await;
    show(&site, &visit, (&title, Some((&named, Some(Tab::Rows)))), told).await
}

async fn told<C: Database>(site: &Site<C>, visit: &Visit, named: &Named, fields: &Fields) -> Told<Markup> {
    let facts = site.of(named).facts();
    let text = key_in(fields).ok_or_else(|| Trouble::Wrong("Which row? The address lacks its key.".to_owned()))?;
    let of_search =
        fields.iter().filter_map(|(name, value)| Some((name.strip_prefix(SEARCH)?.to_owned(), value.clone())));
    let of_search: Fields = of_search.collect();
    let search = Search { keys: Vec::new(), after: None, ..Search::of(&of_search)? };
    let known = known(site, named, text.to_owned(), search.clone()).await?;
    let pollers = pollers(site).await.ok().flatten();
    let base = format!("{}q/{}", visit.root, segment(&named.name));
    let of = |key: &Option<String>| key.as_ref().map(|key| address(&base, key, &search));
    let (back, back_to) = match &search.group {
        Some(group) => (super::errors::address(&base, group, &search), "the group"),
        None => (format!("{base}?{}", query(&search.fields())), "the rows"),
    };
    let Known { line, explanation, previous, next } = &*known;
    Ok(html! {
        nav.pager aria-label="Rows of the search" {
            @if let Some(previous) = of(previous) { a rel="prev" href=(previous) { "Previous row" } }
            a href=(back) { "Back to " (back_to) }
            @if let Some(next) = of(next) { a rel="next" href=(next) { "Next row" } }
            @if let Some(address) = site.page.address_of(&facts.table, &line.key) {
                a href=(address) rel="noopener" { "Open in the application" }
            }
        }
        section #state data-refresh="10" data-announce aria-label="State" {
            p.state { @match explanation {
                Some(explanation) => strong { bdi { (visible(&reason(visit, explanation))) } },
                None => "The row has gone.",
            } }
            (runner(visit, facts, line, pollers.as_deref()))
            (times(facts, line))
        }
        @if visit.changes {
            section #operations data-refresh="10" aria-label="Operations" { (links(facts, &base, &line.key, state(facts, line))) }
        }
        h2 { "Columns" }
        div.scroll tabindex="0" role="region" aria-label="Columns" { table {
            thead { tr { th scope="col" { "Column" } th scope="col" { "Value" } } }
            tbody { @for (column, text) in facts.all_columns().iter().zip(&line.values) { tr {
                th scope="row" { bdi { (visible(&column.name)) } }
                td.data { (whole(facts, column, text.as_deref())) }
            } } }
        } }
    })
}

/// The address of a row's page, from which one comes back to a search.
pub(super) fn address(base: &str, key: &str, search: &Search) -> String {
    let search = search.fields().into_iter().map(|(name, value)| (format!("{SEARCH}{name}"), value));
    let fields: Fields = [("key".to_owned(), key.to_owned())].into_iter().chain(search).collect();
    format!("{base}/row?{}", query(&fields))
}

/// The key that an address names. It may be an empty text.
fn key_in(fields: &Fields) -> Option<&str> {
    fields.iter().find(|(name, _)| name == "key").map(|(_, key)| key.as_str())
}

/// Why the row does not run now, as this visitor may read it: the processes and sessions of other queues are not everybody's business.
fn reason(visit: &Visit, explanation: &Explanation) -> String {
    let text = match explanation {
        Explanation::Held { since, by: Some(_) } if !visit.visitor.may_see_all() => {
            Explanation::Held { since: *since, by: since.is_none().then(|| "another process".to_owned()) }.to_string()
        }
        Explanation::TurnHeld { .. } if !visit.visitor.may_see_all() => {
            Explanation::TurnHeld { session: "another session".to_owned() }.to_string()
        }
        explanation => explanation.to_string(),
    };
    match text.char_indices().nth(LONGEST as usize) {
        Some((end, _)) => format!("{} … (cut after {} characters)", &text[..end], number(LONGEST.into())),
        None => text,
    }
}

/// A value with its lines; a time with all its digits.
fn whole(facts: &Facts, column: &queue_core::internals::by_name::TextColumn, text: Option<&str>) -> Markup {
    if facts.is_secret(&column.name) || column.name == facts.names.status {
        return value(facts, column, text);
    }
    let is_cut = text.is_some_and(|text| text.chars().count() >= LONGEST as usize);
    html! {
        @match typed(text, column.holds) {
            Typed::Time(at) => { (exact(at)) " (" (time(at)) ")" },
            Typed::Text(text) if text.contains('\n') => pre { bdi { (text) } },
            _ => (value(facts, column, text)),
        }
        @if is_cut { " " span.muted { "… (cut after " (number(LONGEST.into())) " characters)" } }
    }
}

async fn known<C: Database>(site: &Site<C>, named: &Named, text: String, search: Search) -> Told<Arc<Known>> {
    let what = format!("row {text:?} {}", query(&search.fields()));
    let read = site.read_of(named, &what, FRESH, move |queue, connection| {
        let facts = queue.facts();
        let condition = key(facts, &text)?;
        let order = search.page_order();
        let rows = Rows { filter: Some(condition.clone()), ..Rows::default() };
        let paging =
            Paging { columns: facts.all_columns(), longest: LONGEST, order, after: None, limit: 1, backwards: false };
        let line = queue.page(connection, &rows, &paging)?.into_iter().next();
        let gone = || Trouble::NotFound(format!("There is no row {} in {}.", visible(&text), facts.table));
        let line = line.ok_or_else(gone)?;
        let explanation = queue.explain(connection, &condition)?.map(|(_, explanation)| explanation);
        let rows = search.rows(facts)?;
        let mut beside = |backwards| -> Told<Option<String>> {
            // The rows of a group are found by their texts, one by one: its page lists them.
            let cursor = facts.cursor(&line, order).filter(|_| search.group.is_none());
            let Some(cursor) = cursor else { return Ok(None) };
            let after = Some(facts.after(&cursor, order, backwards)?);
            let paging = Paging { columns: Vec::new(), longest: 1, order, after, limit: 1, backwards };
            Ok(queue.page(connection, &rows, &paging)?.into_iter().next().map(|line| line.key))
        };
        let (previous, next) = (beside(true)?, beside(false)?);
        Ok(Known { line, explanation, previous, next })
    });
    read.await
}

/// What decides about the operations that can change the row.
fn state<'l>(facts: &Facts, line: &'l Line) -> RowState<'l> {
    let columns = facts.all_columns();
    let of = |name: &str| {
        columns.iter().position(|column| column.name == name).and_then(|at| line.values.get(at)?.as_deref())
    };
    let status = of(facts.names.status).unwrap_or_default();
    RowState { status, is_pending: of(facts.names.next_attempt_time).is_some() }
}

/// Who runs the row, if pollers say so.
fn runner(visit: &Visit, facts: &Facts, line: &Line, pollers: Option<&Vec<PollerProcess>>) -> Markup {
    let is_key = |key: &str| facts.key_of_poller(key).is_some_and(|key| facts.is_same_key(&key, &line.key));
    let running = pollers.into_iter().flatten().find_map(|poller| {
        let is_it = |of: &&queueable::report::RunningMessage| of.queue == facts.queue && is_key(&of.key);
        Some((poller, poller.running.iter().find(is_it)?))
    });
    html! {
        @if let Some((poller, running)) = running {
            p {
                @if visit.visitor.may_see_all() { "Process " (poller.pid) " on " bdi { (visible(&poller.host)) } } @else { "A process" }
                " runs it, begun " (time(running.since)) "."
            }
        }
    }
}

/// What has happened, what is known, and what comes.
fn times(facts: &Facts, line: &Line) -> Markup {
    let columns = facts.all_columns();
    let of = |name: &str| -> Option<&str> {
        let at = columns.iter().position(|column| column.name == name)?;
        line.values[at].as_deref()
    };
    let at = |name: &str| -> Option<DateTime<Utc>> {
        let column = columns.iter().find(|column| column.name == name)?;
        match typed(of(name), column.holds) {
            Typed::Time(time) => Some(time),
            _ => None,
        }
    };
    let names = facts.names;
    let (last, next) = (at(names.last_attempt_time), at(names.next_attempt_time));
    let tries = of(names.try_count).unwrap_or("0");
    html! {
        ol.timeline {
            @if let Some(last) = last {
                li class=[of(names.status).and_then(class)] { "Attempted " (time(last)) ", try " (visible(tries)) @if let Some(state) = of(names.status) { ": " (status(state)) } }
            } @else { li { "Not attempted yet" } }
            li { strong { "Now" } " " (exact(Utc::now())) }
            @match next {
                Some(next) if next > Utc::now() => li.next { "Next attempt " (time(next)) },
                Some(next) => li.next { "Due since " (time(next)) },
                None => li { "No further attempt is planned" },
            }
        }
    }
}

/// How an attempt is marked on the line of times.
fn class(status: &str) -> Option<&'static str> {
    match status {
        "SUCCESS" => Some("succeeded"),
        "FAILED" | "ERROR" => Some("failed"),
        _ => None,
    }
}
