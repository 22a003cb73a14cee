//! The rows of a queue: a search, a page of rows, and the sums over all that were found.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use queue_core::internals::by_name::{Figure, TextColumn};

use super::at::At;
use super::cells::{cell, heading, key_heading};
use super::form::form;
use super::guard::Visit;
use super::layout::{Tab, rows, segment, show};
use super::operation::buttons;
use super::search::{Fields, Search, field, query, with_form};
use super::site::{FRESH, Named, Site};
use super::trouble::{Told, Trouble};
use crate::change::figures;
use crate::database::Database;
use crate::queue::{Facts, Line, Paging};
use crate::shown::visible;

/// How many rows a page has, and how many characters of a value are shown.
pub(super) const PAGE: usize = 50;
pub(super) const LONGEST: u32 = 200;

/// More rows than these are not counted, and not summed.
pub(super) const MOST: i64 = 10_000;

/// A page of rows.
pub(super) struct Found {
    pub(super) lines: Vec<Line>,
    pub(super) more: bool,
    /// Where the next page begins.
    pub(super) next: Option<String>,
}

/// What was counted over all rows that were found.
pub(super) struct Sums {
    pub(super) rows: i64,
    pub(super) more: bool,
    pub(super) figures: Vec<(Figure, Option<String>)>,
}

/// Shows a search.
pub(super) async fn show_rows<C: Database>(
    State(site): State<Site<C>>,
    At { visit, named }: At,
    Query(fields): Query<Fields>,
) -> Response {
    if let Some(group) = field(&fields, "group") {
        // The page of the group has its rows.
        let others: Fields = fields.iter().filter(|(name, _)| ["where", "since"].contains(&&**name)).cloned().collect();
        return Redirect::to(&format!("{}/errors/{}?{}", segment(&named.name), segment(group), query(&others)))
            .into_response();
    }
    let told = told(&site, &visit, &named, &fields).await;
    show(&site, &visit, ("Rows", Some((&named, Some(Tab::Rows)))), told).await
}

/// Makes one address of the fields of the form.
pub(super) async fn search<C: Database>(
    State(site): State<Site<C>>,
    At { visit, named }: At,
    Query(fields): Query<Fields>,
) -> Response {
    match address(site.of(&named).facts(), &named, &fields) {
        Ok(address) => Redirect::to(&address).into_response(),
        Err(trouble) => show(&site, &visit, ("Search", Some((&named, Some(Tab::Rows)))), Err(trouble)).await,
    }
}

fn address(facts: &Facts, named: &Named, fields: &Fields) -> Told<String> {
    let mut search = with_form(facts, fields)?;
    // An address that names the usual columns would be long for nothing.
    let usual = Search::default().listed(facts)?;
    if usual.iter().map(|column| &column.name).eq(&search.columns) {
        search.columns.clear();
    }
    Ok(format!("../{}?{}", segment(&named.name), query(&search.fields())))
}

async fn told<C: Database>(site: &Site<C>, visit: &Visit, named: &Named, fields: &Fields) -> Told<Markup> {
    let facts = site.of(named).facts();
    let search = Search::of(fields)?;
    let columns = match search.listed(facts) {
        Ok(columns) => columns,
        Err(trouble) => {
            return Ok(
                html! { (form(site, visit, named, &Search { columns: Vec::new(), ..search })) (super::layout::notice(&trouble)) },
            );
        }
    };
    let found = found(site, named, &search, columns.clone()).await;
    let sums = match found {
        Ok(_) => Some(sums(site, named, &search).await),
        Err(_) => None,
    };
    let (found, wrong) = match found {
        Ok(found) => (Some(found), None),
        // The form stays, so that a person can mend the condition.
        Err(trouble @ (Trouble::Wrong(_) | Trouble::Slow)) => (None, Some(trouble)),
        Err(trouble) => return Err(trouble),
    };
    Ok(html! {
        (form(site, visit, named, &search))
        @if let Some(wrong) = &wrong { div.notice.error role="alert" { pre { (wrong) } } }
        @if let Some(found) = found {
            (table(visit, named, facts, &search, &columns, (&found, sums.as_ref())))
        }
    })
}

/// Reads a page of rows.
pub(super) async fn found<C: Database>(
    site: &Site<C>,
    named: &Named,
    search: &Search,
    columns: Vec<TextColumn>,
) -> Told<Arc<Found>> {
    let what = format!("rows {} after {:?}", query(&search.fields()), search.after);
    let asked = search.clone();
    let read = site.read_of(named, &what, FRESH, move |queue, connection| {
        let facts = queue.facts();
        let order = asked.page_order();
        let after = asked.after.as_deref().map(|cursor| facts.after(cursor, order, false)).transpose()?;
        let paging = Paging { columns, longest: LONGEST, order, after, limit: PAGE + 1, backwards: false };
        let mut lines = queue.page(connection, &asked.rows(facts)?, &paging)?;
        let more = lines.len() > PAGE;
        let next = more.then(|| facts.cursor(&lines[PAGE - 1], order)).flatten();
        lines.truncate(PAGE);
        Ok(Found { lines, more, next })
    });
    read.await
}

/// Counts the rows of a search, and sums their numbers.
pub(super) async fn sums<C: Database>(site: &Site<C>, named: &Named, search: &Search) -> Told<Arc<Sums>> {
    let asked = Search { order: None, columns: Vec::new(), after: None, ..search.clone() };
    let what = format!("sums {}", query(&asked.fields()));
    let read = site.read_of(named, &what, FRESH * 5, move |queue, connection| {
        let figures = figures(queue.facts());
        let read = queue.figures(connection, &asked.rows(queue.facts())?, &figures, MOST)?;
        Ok(Sums { rows: read.rows, more: read.more, figures: figures.into_iter().zip(read.figures).collect() })
    });
    read.await
}

fn table(
    visit: &Visit,
    named: &Named,
    facts: &Facts,
    search: &Search,
    columns: &[TextColumn],
    (found, sums): (&Found, Option<&Told<Arc<Sums>>>),
) -> Markup {
    let base = format!("{}q/{}", visit.root, segment(&named.name));
    let fields = query(&search.fields());
    let of_row = |key: &str| {
        let more = [("key".to_owned(), key.to_owned())].into_iter();
        let search = search.fields().into_iter().map(|(name, value)| (format!("s.{name}"), value));
        format!("{base}/row?{}", query(&more.chain(search).collect::<Vec<_>>()))
    };
    html! {
        form method="get" action={ (base) "/change" } {
            @for (name, value) in search.fields() { input type="hidden" name=(name) value=(value); }
            section #rows aria-label="Rows found" data-refresh="10" {
                p { (counted(sums)) }
                @if !found.lines.is_empty() {
                    div.scroll tabindex="0" role="region" aria-label="Rows" { table {
                        thead { tr {
                            @if visit.changes { th scope="col" data-select-all="key" { span.visually-hidden { "Choose" } } }
                            (key_heading(facts))
                            @for column in columns { (heading(facts, column)) }
                        } }
                        tbody { @for line in &found.lines { tr {
                            @if visit.changes {
                                td { input type="checkbox" name="key" value=(line.key) aria-label={ "Choose row " (line.key) }; }
                            }
                            th scope="row" { a href=(of_row(&line.key)) { bdi { (visible(&line.key)) } } }
                            @for (column, value) in columns.iter().zip(&line.values) { (cell(facts, column, value.as_deref())) }
                        } } }
                    } }
                }
            }
            @if visit.changes { (buttons(facts)) }
        }
        @if found.more && found.next.is_none() {
            p.notice.warning { "There are more rows. No page can begin after the last one, because a part of its key is null, or has no order." }
        }
        nav.pager aria-label="Pages of rows" {
            @if search.after.is_some() { a href={ (base) "?" (fields) } { "First page" } }
            @if let Some(next) = &found.next {
                a rel="next" href={ (base) "?" (fields) "&" (query(&[("after".to_owned(), next.clone())])) } { "Next page" }
            }
            a href={ (base) "/rows.csv?" (fields) } { "CSV" }
            a href={ (base) "/rows.json?" (fields) } { "JSON" }
        }
    }
}

/// The number of rows, and the sums, in words.
fn counted(sums: Option<&Told<Arc<Sums>>>) -> Markup {
    let sums = match sums {
        None => return html! {},
        Some(Err(trouble)) => return html! { span.muted { "Not counted: " (trouble) } },
        Some(Ok(sums)) => sums,
    };
    html! {
        strong { @match (sums.more, sums.rows) {
            (true, _) => { "more than " (rows(MOST)) }
            (false, 0) => { "no rows" }
            (false, found) => { (rows(found)) }
        } }
        @if !sums.more {
            @for (figure, value) in &sums.figures {
                @if let Some(value) = value {
                    @match figure {
                        Figure::Sum(column) => { ", sum of " bdi { (column) } ": " (value) }
                        Figure::Distinct(column) => { ", " (value) " " (if value == "1" { "value" } else { "values" }) " of " bdi { (column) } }
                    }
                }
            }
        }
    }
}
