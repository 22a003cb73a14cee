//! Operations on rows: the rows are shown first, then a person says why, and then exactly those rows are changed.

use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chrono::SecondsFormat;
use maud::{Markup, html};
use queue_core::internals::by_name::{Operate, TextColumn};

use super::at::At;
use super::cells::{cell, heading, key_heading};
use super::guard::{Sent, Visit, random};
use super::layout::{segment, show};
use super::operation::{arguments, is_final, operate, says};
use super::run::{Order, begin};
use super::search::{Fields, Search, field};
use super::site::{Named, Site};
use super::trouble::{Told, Trouble};
use crate::change::{environment_asked, figures, is_recorded, summary};
use crate::database::Database;
use crate::queue::{Asked, Author, Facts, Line, Queue, Shape};
use crate::shown::{count, rows, visible};

/// How many of the rows are shown first.
const SHOWN: usize = 10;

/// How many characters of a value are shown.
const LONGEST: u32 = 200;

/// How many rows are changed in one transaction.
const BATCH: u32 = 500;

/// How long the name of a form is at most.
const ONCE: usize = 64;

/// The rows of an operation, as they are shown.
struct Preview {
    shape: Shape,
    summary: String,
    columns: Vec<TextColumn>,
    lines: Vec<Line>,
    /// The environment whose name is asked for.
    environment: Option<String>,
    recorded: bool,
}

/// Makes what is asked of the library.
pub(super) fn asked<C: Database>(
    queue: &dyn Queue<C>,
    connection: &mut C,
    (search, operate): (&Search, Operate),
    author: Author,
) -> Told<Asked> {
    let facts = queue.facts();
    let rows = search.rows(facts)?;
    let group = search.group_among(queue, connection, &rows)?.map(|group| group.pattern);
    Ok(Asked { operate, rows, group, figures: figures(facts), author, batch: BATCH })
}

/// Shows the rows on which an operation would work.
pub(super) async fn preview<C: Database>(
    State(site): State<Site<C>>,
    At { visit, named }: At,
    Query(fields): Query<Fields>,
) -> Response {
    let title = field(&fields, "operation").and_then(|name| says(name).ok()).unwrap_or("Operation");
    let told = previewed(&site, &visit, &named, &fields, None).await;
    show(&site, &visit, (title, Some((&named, None))), told).await
}

/// The search of an operation: the rows that were ticked, or all that it finds.
fn chosen(fields: &Fields) -> Told<Search> {
    let mut search = Search::of(fields)?;
    match field(fields, "of") {
        Some("all") => search.keys.clear(),
        Some(_) if search.keys.is_empty() => {
            return Err(Trouble::Wrong(
                "No row is ticked. Go back and tick some, or choose all that were found.".to_owned(),
            ));
        }
        _ => {}
    }
    Ok(search)
}

/// Which rows are meant, in words.
fn described(facts: &Facts, search: &Search) -> String {
    let keys = match search.keys.len() {
        0 => None,
        1 => Some(format!("the row {}", search.keys[0])),
        many => Some(format!("{} ticked rows", count(many))),
    };
    let state = search.state.map(|state| format!("state {}", super::search::name_of(state)));
    let text = search.text.as_ref().map(|text| format!("where {text}"));
    let group = search.group.as_ref().map(|group| format!("of the group of failures {group}"));
    let since = search.since.as_ref().map(|time| format!("attempted within {time}"));
    let parts: Vec<_> = [keys, state, text, group, since].into_iter().flatten().collect();
    if parts.is_empty() { format!("all rows of {}", facts.table) } else { parts.join(", ") }
}

async fn previewed<C: Database>(
    site: &Site<C>,
    visit: &Visit,
    named: &Named,
    fields: &Fields,
    refused: Option<&Trouble>,
) -> Told<Markup> {
    if !visit.changes {
        return Err(Trouble::Forbidden("You may look at this page, and change nothing.".to_owned()));
    }
    let facts = site.of(named).facts();
    let name = field(fields, "operation").unwrap_or_default().to_owned();
    let search = chosen(fields)?;
    let operate = match operate(facts, fields) {
        Ok(Some(operate)) => operate,
        Ok(None) => return Ok(ask(visit, named, &name, &search, None)),
        Err(trouble) if field(fields, "asked").is_some() => {
            return Ok(ask(visit, named, &name, &search, Some(&trouble)));
        }
        Err(trouble) => return Err(trouble),
    };
    let (place, parts, of) = (named.place, site.parts.clone(), operate.clone());
    let asking = search.clone();
    let preview = site.connections.work(move |connection| {
        let queue = &*parts.queues[place];
        let nobody = Author { by: String::new(), reason: String::new(), recorded: false };
        let asked = asked(queue, connection, (&asking, of), nobody)?;
        let ready = queue.prepare(connection, &asked)?;
        let columns = asking.listed(queue.facts())?;
        Ok(Preview {
            shape: ready.shape(),
            summary: summary(queue.facts(), &*ready, &asked),
            lines: ready.some(connection, &columns, LONGEST, SHOWN)?,
            columns,
            environment: environment_asked(&parts, connection, ready.count())?,
            recorded: is_recorded(connection)?,
        })
    });
    let preview = preview.await?;
    Ok(html! {
        @if let Some(refused) = refused { (super::layout::notice(refused)) }
        p { strong { (visible(&preview.summary)) } }
        p { "Rows: " bdi { (visible(&described(facts, &search))) } }
        @if search.is_of_all() { p.notice.warning { "These are all rows of the table that can be changed this way." } }
        @if preview.shape.count == 0 {
            p.notice.note { "There is nothing to do: no row was found that can be changed this way." }
        } @else {
            (some(facts, &preview))
            (confirm(visit, named, (&name, &operate), &search, (&preview, field(fields, "reason").unwrap_or_default())))
        }
        p.actions { a.button href={ (visit.root) "q/" (segment(&named.name)) "?" (super::search::query(&search.fields())) } { "Back to the rows" } }
    })
}

/// Asks for the argument of an operation.
fn ask(visit: &Visit, named: &Named, name: &str, search: &Search, trouble: Option<&Trouble>) -> Markup {
    html! {
        @if let Some(trouble) = trouble { (super::layout::notice(trouble)) }
        form method="get" action={ (visit.root) "q/" (segment(&named.name)) "/change" } {
            input type="hidden" name="operation" value=(name);
            input type="hidden" name="asked" value="yes";
            @for (name, value) in search.fields() { input type="hidden" name=(name) value=(value); }
            div.fields { (arguments(name)) }
            div.actions { button type="submit" { "Show the rows" } }
        }
    }
}

fn some(facts: &Facts, preview: &Preview) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="The first rows" { table {
            caption { "The first rows" }
            thead { tr { (key_heading(facts)) @for column in &preview.columns { (heading(facts, column)) } } }
            tbody { @for line in &preview.lines { tr {
                th scope="row" { bdi { (visible(&line.key)) } }
                @for (column, value) in preview.columns.iter().zip(&line.values) { (cell(facts, column, value.as_deref())) }
            } } }
        } }
        @if preview.shape.count > preview.lines.len() { p { "and " (count(preview.shape.count - preview.lines.len())) " more" } }
    }
}

fn confirm(
    visit: &Visit,
    named: &Named,
    (name, operate): (&str, &Operate),
    search: &Search,
    (preview, reason): (&Preview, &str),
) -> Markup {
    let Shape { count: found, figures, keys } = &preview.shape;
    let figures = serde_json::to_string(figures).unwrap_or_default();
    html! {
        form method="post" action={ (visit.root) "q/" (segment(&named.name)) "/change" } {
            input type="hidden" name="token" value=(visit.token());
            input type="hidden" name="operation" value=(name);
            @for (name, value) in search.fields() { input type="hidden" name=(name) value=(value); }
            @match operate {
                Operate::PostponeUntil(time) => input type="hidden" name="until" value=(time.to_rfc3339_opts(SecondsFormat::Secs, true));,
                Operate::SetPriority(priority) => input type="hidden" name="to" value=(priority);,
                _ => {},
            }
            input type="hidden" name="found" value=(found);
            input type="hidden" name="figures" value=(figures);
            input type="hidden" name="keys" value=(keys);
            // Somebody who presses the button twice means it once.
            input type="hidden" name="once" value=(random());
            div.fields {
                div.field.wide {
                    label for="reason" { "Why" }
                    input #reason type="text" name="reason" value=(reason) required maxlength="500" autocomplete="off";
                }
                @if let Some(environment) = &preview.environment {
                    div.field {
                        label for="environment" { "These are many rows of " bdi { (environment) } ": type its name" }
                        input #environment type="text" name="environment" required autocomplete="off";
                    }
                }
            }
            @if !preview.recorded { p.notice.warning { "There is no table of the audit: nobody will see who has done this." } }
            @if is_final(name) { p.notice.warning { "This cannot be undone." } }
            div.actions { button.danger[is_final(name)].primary[!is_final(name)] type="submit" { (says(name).unwrap_or(name)) ": " (rows(*found)) } }
        }
    }
}

/// Begins an operation, if the rows are still those that were shown, and leads to the page of its progress.
pub(super) async fn apply<C: Database>(
    State(site): State<Site<C>>,
    At { visit, named }: At,
    Sent(fields): Sent,
) -> Response {
    let begun = match order(&site, &visit, &named, &fields) {
        Ok(order) => begin(&site, order).await,
        Err(trouble) => Err(trouble),
    };
    let trouble = match begun {
        Ok(run) => return see_other(&format!("{}runs/{run}", visit.root)),
        Err(trouble) => trouble,
    };
    // The rows as they are now, so that a person can go on from here.
    let told = match trouble {
        Trouble::Away | Trouble::Slow => Err(trouble.clone()),
        _ => previewed(&site, &visit, &named, &fields, Some(&trouble)).await.map_err(|_| trouble.clone()),
    };
    let title = field(&fields, "operation").and_then(|name| says(name).ok()).unwrap_or("Operation");
    let mut response = show(&site, &visit, (title, Some((&named, None))), told).await;
    *response.status_mut() = trouble.status();
    response
}

/// Leads the browser to another page.
pub(super) fn see_other(address: &str) -> Response {
    let address = HeaderValue::from_str(address).unwrap_or(HeaderValue::from_static("./"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, address)]).into_response()
}

fn order<C: Database>(site: &Site<C>, visit: &Visit, named: &Named, fields: &Fields) -> Told<Order> {
    let facts = site.of(named).facts();
    let lacks = |what: &str| Trouble::Wrong(format!("The form lacks {what}."));
    let reason = field(fields, "reason").map(str::trim).ok_or_else(|| Trouble::Wrong("Please say why.".to_owned()))?;
    let shape = Shape {
        count: field(fields, "found").and_then(|text| text.parse().ok()).ok_or_else(|| lacks("the number of rows"))?,
        figures: field(fields, "figures")
            .and_then(|text| serde_json::from_str(text).ok())
            .ok_or_else(|| lacks("the sums"))?,
        keys: field(fields, "keys").and_then(|text| text.parse().ok()).ok_or_else(|| lacks("the keys"))?,
    };
    let search = chosen(fields)?;
    let once =
        field(fields, "once").filter(|once| once.len() <= ONCE && once.chars().all(|c| c.is_ascii_alphanumeric()));
    Ok(Order {
        named: named.clone(),
        operate: operate(facts, fields)?.ok_or_else(|| lacks("the operation's argument"))?,
        once: once.ok_or_else(|| lacks("its name"))?.to_owned(),
        chosen: described(facts, &search),
        search,
        shape,
        by: visit.visitor.name.clone(),
        reason: reason.chars().take(500).collect(),
        environment: field(fields, "environment").map(str::to_owned),
    })
}
