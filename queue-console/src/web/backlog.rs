//! The work that is left: in all, and by the values of a column, with their turns and places.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};
use queue_core::Lanes;
use queueable::report::{Backlog, By, Part};

use super::at::At;
use super::guard::Visit;
use super::layout::{Tab, notice, segment, show};
use super::search::{Fields, query};
use super::site::{FRESH, Named, Site};
use super::split::Split;
use super::trouble::{Told, Trouble};
use crate::database::Database;
use crate::queue::{Facts, Rows};
use crate::shown::{number, span};

/// How many values are shown, those with most due rows first.
const VALUES: usize = 200;

/// Shows the backlog.
pub(super) async fn show_all<C: Database>(
    State(site): State<Site<C>>,
    At { visit, named }: At,
    Query(fields): Query<Fields>,
) -> Response {
    let told = told(&site, &visit, &named, &fields).await;
    show(&site, &visit, ("Backlog", Some((&named, Some(Tab::Backlog)))), told).await
}

async fn told<C: Database>(site: &Site<C>, visit: &Visit, named: &Named, fields: &Fields) -> Told<Markup> {
    let facts = site.of(named).facts();
    let mut split = Split::of(facts, fields)?;
    // A link without a choice shows the column by which the queue takes turns.
    if !fields.iter().any(|(name, _)| name == "by") {
        let lanes = facts.options.lanes.map(|lanes| lanes.column).filter(|column| !facts.is_secret(column));
        split.by = lanes.and_then(|column| facts.column(column));
    }
    let base = format!("{}q/{}", visit.root, segment(&named.name));
    let whole = match whole(site, named, &split).await {
        // The form stays, so that a person can mend it.
        Err(trouble @ (Trouble::Wrong(_) | Trouble::Slow)) => Err(trouble),
        told => Ok(told?),
    };
    let parts = match (&whole, &split.by) {
        (Ok(_), Some(column)) => Some(parts(site, named, &split, column.name.clone()).await),
        _ => None,
    };
    Ok(html! {
        (split.form(facts, &format!("{base}/backlog"), &html! {}))
        section #backlog data-refresh="5" aria-label="Backlog" {
            @match &whole {
                Err(trouble) => (notice(trouble)),
                Ok(backlog) => { (figures(backlog)) (rules(facts)) },
            }
            @match &parts {
                None => {}
                Some(Err(trouble)) => (notice(trouble)),
                Some(Ok(by)) => (table(facts, &split, &base, by)),
            }
        }
    })
}

/// Reads the backlog of all rows that the condition picks.
pub(super) async fn whole<C: Database>(site: &Site<C>, named: &Named, split: &Split) -> Told<Arc<Backlog>> {
    let (what, asked) = (format!("backlog {:?}", split.text), split.clone());
    let read = site.read_of(named, &what, FRESH * 2, move |queue, connection| {
        let filter = asked.filter(queue.facts())?;
        Ok(queue.backlog(connection, &Rows { filter, ..Rows::default() })?)
    });
    read.await
}

/// Reads the same for each value of a column.
pub(super) async fn parts<C: Database>(
    site: &Site<C>,
    named: &Named,
    split: &Split,
    column: String,
) -> Told<Arc<By<Backlog>>> {
    let (what, asked) = (format!("backlog {:?} by {column}", split.text), split.clone());
    let read = site.read_of(named, &what, FRESH * 2, move |queue, connection| {
        let filter = asked.filter(queue.facts())?;
        Ok(queue.backlog_by(connection, &Rows { filter, ..Rows::default() }, &column)?)
    });
    read.await
}

/// The numbers of a backlog. What there is none of, beyond the usual states, is left out.
pub(super) fn figures(backlog: &Backlog) -> Markup {
    let some = |rows: Option<i64>| rows.filter(|rows| *rows > 0);
    let numbers = [
        ("due", Some(backlog.due)),
        ("scheduled", Some(backlog.scheduled)),
        ("running", backlog.running),
        ("held back", some(Some(backlog.held_back))),
        ("behind others", some(backlog.behind_others)),
        ("over the limit", some(backlog.over_limit)),
        ("paused", some(backlog.paused_due)),
    ];
    html! {
        dl.figures {
            div { dt { "oldest due" } dd { @match backlog.oldest_due { Some(age) => (span(age)), None => "none" } } }
            @for (name, rows) in numbers {
                @if let Some(rows) = rows { div { dt { (name) } dd { (number(rows)) } } }
            }
            div { dt { "failed" } dd.bad[backlog.failed > 0] { (number(backlog.failed)) } }
        }
        @for paused in &backlog.paused { p { span.badge.paused { "paused" } " " bdi { (paused) } } }
        @if let Some(limits) = &backlog.limits { p { "Limits: " bdi { (limits) } } }
    }
}

/// How the queue chooses among its due rows, in words.
fn rules(facts: &Facts) -> Markup {
    let options = facts.options;
    let order = options.order.map(|order| {
        let column =
            |of: &queue_core::OrderColumn| format!("{}{}", of.name, if of.descending { ", highest first" } else { "" });
        order.columns.iter().map(column).collect::<Vec<_>>().join("; ")
    });
    let rules = [
        order.map(|order| html! { "Due rows are taken by " bdi { (order) } ", then by their due time." }),
        options.exclusive.then(|| html! { "At most one row is processed at a time, on all machines together." }),
        options
            .at_most
            .map(|most| html! { "At most " (most) " rows are processed at the same time, over all processes." }),
        options.conditional.then(|| html! { "A row whose condition is false is held back until it is true." }),
        options.lanes.map(|lanes| turns(&lanes)),
    ];
    html! { @for rule in rules.into_iter().flatten() { p { (rule) } } }
}

fn turns(lanes: &Lanes) -> Markup {
    html! {
        "The values of " bdi { (lanes.column) } " take turns"
        @match lanes.at_most {
            None => ".",
            Some(1) => ", and one row of each is processed at a time.",
            Some(places) => { ", and each has " (places) " places: so many of its rows are processed at the same time." }
        }
        @if lanes.serial { " Its rows run one after the other." }
        @if lanes.strict { " A row that has failed holds its value back until it is settled." }
        @if lanes.of.nullable && lanes.at_most.is_some() { " Rows without a value have no limit." }
    }
}

fn table(facts: &Facts, split: &Split, base: &str, by: &By<Backlog>) -> Markup {
    let places = facts.options.lanes.filter(|lanes| lanes.column == by.column).and_then(|lanes| lanes.at_most);
    let mut parts: Vec<&Part<Backlog>> = by.parts.iter().collect();
    parts.sort_by_key(|part| (Reverse(part.report.due), Reverse(part.report.oldest_due), Reverse(part.report.failed)));
    let left_out = by.left_out + parts.len().saturating_sub(VALUES) as i64;
    let is_leased = parts.iter().any(|part| part.report.running.is_some());
    let count = |part: &Part<Backlog>, state: &str, rows: i64| {
        let only = split.only(facts, &by.column, part.value.as_deref());
        let rows_of = [("where".to_owned(), only), ("state".to_owned(), state.to_owned())];
        html! { td.number { @if rows > 0 { a href={ (base) "?" (query(&rows_of)) } { (number(rows)) } } @else { "0" } } }
    };
    html! {
        h2 { "By " bdi { (by.column) } }
        @if parts.is_empty() { p { "No row is left, and none has failed." } } @else {
            div.scroll tabindex="0" role="region" aria-label={ "By " (by.column) } { table {
                thead { tr {
                    th scope="col" { bdi { (by.column) } }
                    @for name in ["Oldest due", "Due", "Scheduled"] { th.number scope="col" { (name) } }
                    @if is_leased { th.number scope="col" { "Running" } }
                    @if places.is_some() {
                        th.number scope="col" { @if is_leased { "Free places" } @else { "Places" } }
                        th.number scope="col" { "Behind others" }
                    }
                    th.number scope="col" { "Held back" }
                    th.number scope="col" { "Failed" }
                } }
                tbody { @for part in parts.iter().take(VALUES) {
                    @let of = &part.report;
                    tr {
                        th.data scope="row" { (split.value(facts, &format!("{base}/backlog"), part.value.as_deref())) }
                        td.number { (of.oldest_due.map(span).unwrap_or_default()) }
                        (count(part, "due", of.due))
                        (count(part, "scheduled", of.scheduled))
                        @if is_leased { (count(part, "running", of.running.unwrap_or(0))) }
                        @if let Some(places) = places {
                            td.number { (free(places, part)) }
                            td.number { (number(of.behind_others.unwrap_or(0))) }
                        }
                        td.number { (number(of.held_back)) }
                        (count(part, "failed", of.failed))
                    }
                } }
            } }
        }
        @if left_out > 0 { p { "and " (number(left_out)) " more values" } }
    }
}

/// The free places of a value, of all that it has. Outside lease mode nobody sees which are taken.
fn free(places: u32, part: &Part<Backlog>) -> Markup {
    html! {
        @match (&part.value, part.report.running) {
            (None, _) => "no limit",
            (_, None) => (places),
            (_, Some(running)) => { ((i64::from(places) - running).max(0)) " of " (places) }
        }
    }
}
