//! The processes that serve the queues: where they run, what they run, and how their settings differ.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use queueable::report::{PollerProcess, PollerState, RunningMessage};

use super::guard::Visit;
use super::layout::{show, time};
use super::overview::pollers;
use super::own::Queues;
use super::site::Site;
use super::trouble::Told;
use crate::database::Database;
use crate::shown::{count, visible};

/// How many messages that run are listed. Each process names up to 100.
const LISTED: usize = 200;

/// Shows the processes.
pub(super) async fn show_all<C: Database>(State(site): State<Site<C>>, visit: Visit) -> Response {
    let told = told(&site, &visit).await;
    show(&site, &visit, ("Pollers", None), told).await
}

async fn told<C: Database>(site: &Site<C>, visit: &Visit) -> Told<Markup> {
    visit.must_see_all()?;
    let queues = Queues::of(site, visit);
    let pollers = pollers(site).await?;
    Ok(html! {
        @match pollers.as_deref() {
            None => p.notice.note {
                "No poller registers: this session sees no table for it. The migration of " code { "Migrations::new().pollers()" }
                " adds the table."
            },
            Some(processes) => {
                section #processes data-refresh="5" aria-labelledby="processes-title" {
                    h2 #processes-title { "Processes" }
                    (unserved(&queues, processes))
                    @if processes.is_empty() { p { "No process has registered within the last minute." } }
                    @else { (table(&queues, processes)) }
                }
                section #running data-refresh="5" aria-labelledby="running-title" {
                    h2 #running-title { "What runs" }
                    (running(&queues, processes))
                }
                section #settings data-refresh="5" aria-labelledby="settings-title" {
                    h2 #settings-title { "Settings that differ" }
                    (differences(&queues, &differing(processes)))
                }
            },
        }
    })
}

/// Names the queues that no process serves.
fn unserved<C: Database>(queues: &Queues<'_, C>, processes: &[PollerProcess]) -> Markup {
    let is_served = |queue: &str| processes.iter().flat_map(|process| &process.queues).any(|of| of.queue == queue);
    let left = queues.all.iter().map(|named| &queues.facts(named).queue).filter(|queue| !is_served(queue));
    html! {
        @for queue in left { p.notice.warning { "No registered process serves " (queues.link(queue)) "." } }
    }
}

fn table<C: Database>(queues: &Queues<'_, C>, processes: &[PollerProcess]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Processes" { table {
            thead { tr {
                th scope="col" { "Host" } th.number scope="col" { "Process" } th scope="col" { "Application" }
                th scope="col" { "Library" } th scope="col" { "State" } th.number scope="col" { "Workers" }
                th.number scope="col" { "Runs" } th scope="col" { "Queues" } th scope="col" { "Started" } th scope="col" { "Seen" }
            } }
            tbody { @for process in processes { tr {
                th scope="row" { bdi { (visible(&process.host)) } }
                td.number { (process.pid) }
                td.data { @match &process.application {
                    Some(application) => bdi { (visible(application)) },
                    None => span.muted { "not named" },
                } }
                td.data { bdi { (visible(&process.version)) } }
                td { span.badge.(class(process.state)) { (process.state) } }
                td.number { (process.workers) }
                td.number { (count(process.running.len())) }
                td.data { @for of in &process.queues { (queues.link(&of.queue)) " " } }
                td { (time(process.started)) }
                td { (time(process.seen)) }
            } } }
        } }
    }
}

fn class(state: PollerState) -> &'static str {
    match state {
        PollerState::Running => "running",
        PollerState::Paused => "paused",
        PollerState::WithoutConnection => "failed",
        _ => "scheduled",
    }
}

/// What the processes run, the longest first.
fn running<C: Database>(queues: &Queues<'_, C>, processes: &[PollerProcess]) -> Markup {
    let each = processes.iter().flat_map(|process| process.running.iter().map(move |message| (process, message)));
    let mut all: Vec<(&PollerProcess, &RunningMessage)> = each.collect();
    all.sort_by_key(|(_, message)| message.since);
    let left = all.len().saturating_sub(LISTED);
    all.truncate(LISTED);
    let has_stages = all.iter().any(|(_, message)| message.stage.is_some());
    html! {
        @if all.is_empty() { p { "Nothing runs." } } @else {
            div.scroll tabindex="0" role="region" aria-label="What runs" { table {
                thead { tr {
                    th scope="col" { "Queue" } th scope="col" { "Key" }
                    @if has_stages { th scope="col" { "Stage" } }
                    th scope="col" { "Since" } th scope="col" { "Host" } th.number scope="col" { "Process" }
                } }
                tbody { @for (process, message) in &all { tr {
                    td.data { (queues.link(&message.queue)) }
                    th.data scope="row" { (queues.row(message)) }
                    @if has_stages { td.data { @if let Some(stage) = &message.stage { bdi { (visible(stage)) } } } }
                    td { (time(message.since)) }
                    td.data { bdi { (visible(&process.host)) } }
                    td.number { (process.pid) }
                } } }
            } }
            @if left > 0 { p { "and " (count(left)) " more, which began later" } }
        }
    }
}

/// A setting in which a process differs from others that serve the queue.
#[derive(Debug, PartialEq, Eq)]
struct Difference<'p> {
    queue: &'p str,
    setting: &'p str,
    process: (&'p str, i64),
    /// `None`: it has no such setting.
    value: Option<&'p str>,
    others: BTreeSet<Option<&'p str>>,
}

fn differing(processes: &[PollerProcess]) -> Vec<Difference<'_>> {
    let mut found = Vec::new();
    for process in processes {
        for of in &process.queues {
            for setting in &of.differs {
                let value = of.settings.get(setting).map(String::as_str);
                let same = processes.iter().flat_map(|other| &other.queues).filter(|other| other.queue == of.queue);
                let others = same.map(|other| other.settings.get(setting).map(String::as_str));
                let others = others.filter(|other| *other != value).collect();
                let process = (process.host.as_str(), process.pid);
                found.push(Difference { queue: &of.queue, setting, process, value, others });
            }
        }
    }
    found.sort_by_key(|of| (of.queue, of.setting, of.process));
    found
}

fn differences<C: Database>(queues: &Queues<'_, C>, found: &[Difference<'_>]) -> Markup {
    let value = |value: &Option<&str>| {
        html! { @match value { Some(value) => bdi { (visible(value)) }, None => span.null { "none" } } }
    };
    html! {
        @if found.is_empty() { p { "All processes that serve a queue have the same settings for it." } } @else {
            p.muted { "Here a process differs from most others that serve the queue: perhaps a deployment has not reached it." }
            div.scroll tabindex="0" role="region" aria-label="Settings that differ" { table {
                thead { tr {
                    th scope="col" { "Queue" } th scope="col" { "Setting" } th scope="col" { "Host" }
                    th.number scope="col" { "Process" } th scope="col" { "It has" } th scope="col" { "Others have" }
                } }
                tbody { @for of in found { tr {
                    td.data { (queues.link(of.queue)) }
                    th.data scope="row" { bdi { (visible(of.setting)) } }
                    td.data { bdi { (visible(of.process.0)) } }
                    td.number { (of.process.1) }
                    td.data { (value(&of.value)) }
                    td.data { @for (place, other) in of.others.iter().enumerate() { @if place > 0 { ", " } (value(other)) } }
                } } }
            } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(host: &str, tries: &str, differs: &[&str]) -> PollerProcess {
        let queue = serde_json::json!({
            "queue": "payments.status", "entity": "Payment", "settings": { "max_tries": tries }, "differs": differs,
        });
        let process = serde_json::json!({
            "host": host, "pid": 1, "version": "0.1.0", "state": "running", "workers": 4, "started": "2026-03-01T11:00:00Z",
            "seen": "2026-03-01T12:00:00Z", "queues": [queue], "running": [],
        });
        serde_json::from_value(process).expect("a process")
    }

    #[test]
    fn a_difference_says_what_the_others_have() {
        let all = [process("a", "20", &[]), process("b", "5", &["max_tries"]), process("c", "20", &[])];
        let found = differing(&all);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].setting, found[0].process.0, found[0].value), ("max_tries", "b", Some("5")));
        assert_eq!(found[0].others, BTreeSet::from([Some("20")]));
    }
}
