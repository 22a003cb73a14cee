//! The stages of a queue as a flow, with what waits in each.

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use queueable::report::{Backlog, By};

use super::at::At;
use super::backlog::{figures, parts, whole};
use super::guard::Visit;
use super::layout::{Tab, rows, segment, show};
use super::search::query;
use super::site::{Named, Site};
use super::split::Split;
use super::trouble::{Told, Trouble};
use crate::database::Database;
use crate::shown::visible;

/// Shows the stages.
pub(super) async fn show_all<C: Database>(State(site): State<Site<C>>, At { visit, named }: At) -> Response {
    let told = told(&site, &visit, &named).await;
    show(&site, &visit, ("Stages", Some((&named, Some(Tab::Stages)))), told).await
}

async fn told<C: Database>(site: &Site<C>, visit: &Visit, named: &Named) -> Told<Markup> {
    let facts = site.of(named).facts();
    let stages = facts.options.stages;
    let stages = stages.ok_or_else(|| Trouble::NotFound(format!("The queue `{}` has no stages.", named.name)))?;
    let all = Split { text: None, by: facts.column(stages.column) };
    let whole = whole(site, named, &all).await?;
    let by = parts(site, named, &all, stages.column.to_owned()).await?;
    let base = format!("{}q/{}", visit.root, segment(&named.name));
    let rows_of = |stage: Option<&str>| {
        let only = all.only(facts, stages.column, stage);
        format!("{base}?{}", query(&[("where".to_owned(), only)]))
    };
    let nothing = Backlog::default();
    Ok(html! {
        section #stages data-refresh="5" aria-label="Stages" {
            p { "A row passes through these stages, in this order. Rows that have succeeded are not counted." }
            ol.flow {
                @for stage in stages.names {
                    li {
                        h2 { a href=(rows_of(Some(*stage))) { bdi { (visible(stage)) } } }
                        (figures(by.of(stage).unwrap_or(&nothing)))
                        @for paused in whole.paused.iter().filter(|paused| paused.stage.as_deref() == Some(*stage)) {
                            p { span.badge.paused { "paused" } " " bdi { (paused) } }
                        }
                    }
                }
            }
            @for paused in whole.paused.iter().filter(|paused| paused.stage.is_none()) {
                p.notice.warning { "All stages: " bdi { (paused) } }
            }
            (strangers(&by, stages.names, &rows_of))
        }
    })
}

/// Rows whose stage is none of the entity's: another version of the application may know it.
fn strangers(by: &By<Backlog>, names: &[&str], rows_of: &dyn Fn(Option<&str>) -> String) -> Markup {
    let is_known = |value: Option<&str>| value.is_some_and(|value| names.contains(&value));
    html! {
        @for part in by.parts.iter().filter(|part| !is_known(part.value.as_deref())) {
            @let left = part.report.due + part.report.scheduled + part.report.held_back + part.report.failed;
            @let stage = part.value.as_deref();
            div.notice.warning { p {
                (rows(left)) " in a stage that this version of the application does not know: "
                a href=(rows_of(stage)) { @match stage {
                    Some("") => "an empty text",
                    Some(stage) => bdi { (visible(stage)) },
                    None => span.null { "null" },
                } }
            } }
        }
    }
}
