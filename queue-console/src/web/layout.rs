//! What is around every page.

use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use chrono::{DateTime, SecondsFormat, Utc};
use maud::{DOCTYPE, Markup, html};

use super::guard::Visit;
use super::router::{ICON, SCRIPT, STYLE};
use super::site::{Named, Site};
use super::trouble::{Told, Trouble};
use crate::database::Database;
use crate::shown::{ago, number, visible};

/// A page of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tab {
    Rows,
    Errors,
    Backlog,
    Charts,
    Stages,
    Schedules,
}

/// Shows a page, or why there is none.
pub(super) async fn show<C: Database>(
    site: &Site<C>,
    visit: &Visit,
    (title, of): (&str, Option<(&Named, Option<Tab>)>),
    told: Told<Markup>,
) -> Response {
    let environment = match &told {
        // Nobody waits for it twice.
        Err(Trouble::Away | Trouble::Busy | Trouble::Slow) => None,
        _ => site.environment().await,
    };
    let paused = match (&told, of) {
        (Ok(_), Some((named, _))) => site.paused(named).await,
        _ => Vec::new(),
    };
    let (status, body) = match told {
        Ok(body) => (StatusCode::OK, body),
        Err(trouble) => (trouble.status(), notice(&trouble)),
    };
    let is_production = environment.as_deref() == Some(&*site.parts.production);
    let root = &visit.root;
    let visitor = &visit.visitor;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(root, &match of { Some((named, _)) => format!("{title} · {}", named.name), None => title.to_owned() }))
            body {
                a.skip href="#main" { "Skip to the content" }
                header.top {
                    a.home href={ (root) "overview" } { "Queues" }
                    @match &environment {
                        Some(name) => span.environment.production[is_production] { "environment " bdi { (name) } },
                        None => span.environment.muted { "no environment" },
                    }
                    span.visitor {
                        bdi { (visitor.name) } @if !visit.changes { " " span.muted { "(read-only)" } }
                    }
                    p #news role="status" aria-live="polite" {}
                }
                nav.main aria-label="Pages" {
                    ul {
                        (link(root, "overview", "Overview", of.is_none() && title == "Overview"))
                        @if visitor.may_see_all() {
                            @for (address, name) in [("pollers", "Pollers"), ("pauses", "Pauses and limits"), ("runs", "Operations"), ("audit", "Audit"), ("doctor", "Doctor")] {
                                (link(root, address, name, title == name))
                            }
                        }
                    }
                }
                main #main tabindex="-1" {
                    @if let Some((named, tab)) = of { (tabs(site, root, named, tab)) }
                    @for paused in &paused { p.notice.warning { "Attempts wait: " bdi { (visible(paused)) } } }
                    h1 { (title) }
                    (body)
                }
                script src={ (root) (SCRIPT.address()) } defer {}
            }
        }
    };
    (status, Html(page.into_string())).into_response()
}

/// Answers somebody who may not see the page: nothing of it is shown.
pub(super) fn refusal(trouble: &Trouble) -> Response {
    refused(trouble.status(), &trouble.to_string())
}

pub(super) fn refused(status: StatusCode, text: &str) -> Response {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head { meta charset="utf-8"; title { "Queues" } meta name="viewport" content="width=device-width, initial-scale=1"; }
            body { main { h1 { "Queues" } p { (text) } } }
        }
    };
    (status, Html(page.into_string())).into_response()
}

fn head(root: &str, title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            // A browser asks for an icon otherwise, and the answer is no page.
            link rel="icon" href={ (root) (ICON.address()) };
            link rel="stylesheet" href={ (root) (STYLE.address()) };
            title { (title) }
        }
    }
}

fn link(root: &str, address: &str, name: &str, is_here: bool) -> Markup {
    html! { li { a href={ (root) (address) } aria-current=[is_here.then_some("page")] { (name) } } }
}

fn tabs<C: Database>(site: &Site<C>, root: &str, named: &Named, here: Option<Tab>) -> Markup {
    let options = site.of(named).facts().options;
    let is_there = |tab: Tab| match tab {
        Tab::Stages => options.stages.is_some(),
        Tab::Schedules => options.periodic.is_some() || options.window.is_some(),
        _ => true,
    };
    let all = [
        (Tab::Rows, "", "Rows"),
        (Tab::Errors, "/errors", "Errors"),
        (Tab::Backlog, "/backlog", "Backlog"),
        (Tab::Charts, "/charts", "Charts"),
        (Tab::Stages, "/stages", "Stages"),
        (Tab::Schedules, "/schedules", "Schedules"),
    ];
    html! {
        nav.tabs aria-label={ "Queue " (named.name) } {
            span.queue { bdi { (named.name) } }
            ul {
                @for (tab, address, name) in all.into_iter().filter(|(tab, ..)| is_there(*tab)) {
                    (link(root, &format!("q/{}{address}", segment(&named.name)), name, here == Some(tab)))
                }
            }
        }
    }
}

/// A name as a part of an address.
pub(super) fn segment(name: &str) -> String {
    form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>().replace('+', "%20")
}

pub(super) fn notice(trouble: &Trouble) -> Markup {
    html! { div.notice.error role="alert" { p { (trouble) } } }
}

/// A time, with its distance from now.
pub(super) fn time(time: DateTime<Utc>) -> Markup {
    html! {
        time datetime=(time.to_rfc3339_opts(SecondsFormat::Secs, true)) title=(time.format("%Y-%m-%d %H:%M:%S UTC")) {
            (ago(time, Utc::now()))
        }
    }
}

/// A number of rows, and its word.
pub(super) fn rows(rows: i64) -> String {
    format!("{} {}", number(rows), if rows == 1 { "row" } else { "rows" })
}
