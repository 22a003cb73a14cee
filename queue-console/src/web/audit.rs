//! The audit: what operators have changed, the newest first.

use axum::extract::{Query, State};
use axum::response::Response;
use chrono::{DateTime, SecondsFormat, Utc};
use maud::{Markup, html};
use queueable::Error;
use queueable::control::{self, Audit, AuditPage, Audited};

use super::guard::Visit;
use super::layout::show;
use super::own::Queues;
use super::search::{Fields, field, query};
use super::site::{FRESH, Site};
use super::trouble::{Told, Trouble};
use crate::database::Database;
use crate::shown::{ago, count, visible};

/// How many rows a page has.
const PAGE: u32 = 50;

/// What stands in the place of a queue's name if the whole database was changed. The name of a queue has a dot.
const NO_QUEUE: &str = "queueable";

/// Shows a page of the audit.
pub(super) async fn show_page<C: Database>(
    State(site): State<Site<C>>,
    visit: Visit,
    Query(fields): Query<Fields>,
) -> Response {
    let told = told(&site, &visit, &fields).await;
    show(&site, &visit, ("Audit", None), told).await
}

async fn told<C: Database>(site: &Site<C>, visit: &Visit, fields: &Fields) -> Told<Markup> {
    visit.must_see_all()?;
    let queues = Queues::of(site, visit);
    let chosen = field(fields, "queue").map(|name| site.queue(&visit.visitor, name)).transpose()?;
    let asked = match field(fields, "after") {
        Some(cursor) => serde_json::from_str::<Audit>(cursor)
            .map_err(|_| Trouble::Wrong("That is not what a page of the audit ends with.".to_owned()))?,
        None => Audit::new(),
    };
    let asked = match &chosen {
        Some(named) => asked.queue(&queues.facts(named).queue),
        None => asked,
    };
    let page = page(site, asked.limit(PAGE)).await?;
    let address = format!("{}audit", visit.root);
    let of_queue: Fields = chosen.iter().map(|named| ("queue".to_owned(), named.name.clone())).collect();
    Ok(html! {
        form method="get" action=(address) {
            div.fields {
                div.field {
                    label for="queue" { "Queue" }
                    select #queue name="queue" {
                        option value="" { "all" }
                        @for named in &queues.all {
                            @let is_chosen = chosen.as_ref().is_some_and(|chosen| chosen.place == named.place);
                            option value=(named.name) selected[is_chosen] { (visible(&named.name)) }
                        }
                    }
                }
                div.actions { button type="submit" { "Show" } }
            }
        }
        @match &*page {
            Err(lacks) => p.notice.note { "Nothing is recorded: " (visible(lacks)) "." },
            Ok(page) if page.rows.is_empty() => p { "Nobody has changed anything." },
            Ok(page) => {
                (table(&queues, &page.rows))
                @let is_first = field(fields, "after").is_none();
                @if !is_first || page.next.is_some() {
                    nav.pager aria-label="Pages of the audit" {
                        @if !is_first { a href={ (address) "?" (query(&of_queue)) } { "First page" } }
                        @if let Some(next) = &page.next {
                            @let after = ("after".to_owned(), serde_json::to_string(next).unwrap_or_default());
                            a rel="next" href={ (address) "?" (query(of_queue.iter().chain([&after]))) } { "Next page" }
                        }
                    }
                }
            },
        }
    })
}

/// Reads a page; an error is what the table lacks.
async fn page<C: Database>(site: &Site<C>, asked: Audit) -> Told<std::sync::Arc<Result<AuditPage, String>>> {
    let what = format!("audit {}", serde_json::to_string(&asked).unwrap_or_default());
    let read = site.read(what, FRESH * 2, move |_, connection| match control::audit(connection, &asked) {
        Ok(page) => Ok(Ok(page)),
        Err(Error::Control(lacks)) => Ok(Err(lacks)),
        Err(error) => Err(error.into()),
    });
    read.await
}

fn table<C: Database>(queues: &Queues<'_, C>, rows: &[Audited]) -> Markup {
    let now = Utc::now();
    html! {
        div.scroll tabindex="0" role="region" aria-label="Changes" { table {
            thead { tr {
                th scope="col" { "When (UTC)" } th scope="col" { "Who" } th scope="col" { "Queue" } th scope="col" { "Action" }
                th.number scope="col" { "Rows" } th scope="col" { "Why" } th scope="col" { "Filter" }
            } }
            tbody { @for audited in rows { tr {
                th scope="row" { (when(audited.at, now)) }
                td.data { bdi { (visible(&audited.by)) } }
                td.data { @if audited.queue == NO_QUEUE { "the database" } @else { (queues.link(&audited.queue)) } }
                td.data { bdi { (visible(&audited.action)) } }
                td.number { (count(audited.rows)) }
                td.data { bdi { (visible(&audited.reason)) } }
                td.data { bdi.code { (visible(&filter(queues, audited))) } }
            } } }
        } }
    }
}

/// What was changed. The application may have paused a value that nobody is to see.
fn filter<C: Database>(queues: &Queues<'_, C>, audited: &Audited) -> String {
    match queues.find(&audited.queue) {
        Some(named) => queues.facts(named).shown_filter(&audited.action, &audited.filter),
        None => audited.filter.clone(),
    }
}

/// The time itself first: people compare it with those of other logs.
fn when(at: DateTime<Utc>, now: DateTime<Utc>) -> Markup {
    html! {
        time datetime=(at.to_rfc3339_opts(SecondsFormat::Secs, true)) { (at.format("%Y-%m-%d %H:%M:%S")) }
        " " span.muted { (ago(at, now)) }
    }
}
