//! How pauses and limits look: two tables with the ends of each, and two forms.

use chrono::{DateTime, SecondsFormat, Utc};
use maud::{Markup, html};
use queueable::Paused;
use queueable::report::Limited;

use super::control::{Controls, Done};
use super::guard::Visit;
use super::layout::{notice, time};
use super::own::Queues;
use super::search::{Fields, field};
use super::site::Site;
use super::trouble::Trouble;
use crate::database::Database;
use crate::queue::Facts;
use crate::shown::{span, visible};

/// The longest reason that the control table takes.
const LONGEST_REASON: u32 = 1_000;

pub(super) fn page<C: Database>(
    site: &Site<C>,
    visit: &Visit,
    controls: &Result<Controls, String>,
    done: Option<Done>,
    refused: Option<(&Trouble, &Fields)>,
) -> Markup {
    let queues = Queues::of(site, visit);
    let nothing = Fields::new();
    // A form that was refused keeps what was typed.
    let typed = |change: &str| match refused {
        Some((_, fields)) if field(fields, "change") == Some(change) => fields,
        _ => &nothing,
    };
    html! {
        @if let Some((trouble, _)) = refused { (notice(trouble)) }
        @if let Some(done) = done { p.notice.done { (done.says()) } }
        @match controls {
            Err(lacks) => p.notice.note { "Queues cannot be paused or limited: " (visible(lacks)) "." },
            Ok(controls) => {
                section #pauses data-refresh="5" aria-labelledby="pauses-title" {
                    h2 #pauses-title { "Pauses" }
                    @if controls.pauses.is_empty() { p { "Nothing is paused." } }
                    @else { (pauses(&queues, visit, &controls.pauses)) }
                }
                section #limits data-refresh="5" aria-labelledby="limits-title" {
                    h2 #limits-title { "Limits" }
                    @if controls.limits.is_empty() { p { "Nothing is limited." } }
                    @else { (limits(&queues, visit, &controls.limits)) }
                }
                @if visit.changes {
                    @if !controls.recorded {
                        p.notice.warning { "There is no table of the audit: when a pause has ended, nobody will see who has asked for it." }
                    }
                    (pause_form(&queues, visit, typed("pause")))
                    (limit_form(&queues, visit, typed("limit")))
                }
            },
        }
    }
}

fn pauses<C: Database>(queues: &Queues<'_, C>, visit: &Visit, pauses: &[Paused]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Pauses" { table {
            thead { tr {
                th scope="col" { "Queue" } th scope="col" { "Paused" } th scope="col" { "Why" } th scope="col" { "By" }
                th scope="col" { "Since" } th scope="col" { "Until" }
                @if visit.changes { th scope="col" { "End" } }
            } }
            tbody { @for paused in pauses { tr {
                th.data scope="row" { (queues.link(&paused.queue)) }
                td.data { span.badge.paused { "paused" } " " bdi { (what(queues, paused)) } }
                td.data { bdi { (visible(&paused.reason)) } }
                td.data { bdi { (visible(&paused.by)) } }
                td { (time(paused.since)) }
                td { @match paused.until { Some(until) => (time(until)), None => span.muted { "somebody ends it" } } }
                @if visit.changes { td { (end_pause(queues, visit, paused)) } }
            } } }
        } }
    }
}

fn what<C: Database>(queues: &Queues<'_, C>, paused: &Paused) -> String {
    match (&paused.stage, &paused.value) {
        (Some(stage), _) => format!("stage {}", visible(stage)),
        (None, Some(_)) if has_secret_value(queues, paused) => "a value that is not shown".to_owned(),
        (None, Some(value)) => visible(value),
        (None, None) => "the whole queue".to_owned(),
    }
}

/// Whether a pause is of a value that nobody is to see. The application may have asked for it.
fn has_secret_value<C: Database>(queues: &Queues<'_, C>, paused: &Paused) -> bool {
    let facts = queues.find(&paused.queue).map(|named| queues.facts(named));
    paused.value.is_some() && facts.is_some_and(Facts::hides_turns)
}

fn end_pause<C: Database>(queues: &Queues<'_, C>, visit: &Visit, paused: &Paused) -> Markup {
    let of = [("stage", &paused.stage), ("value", &paused.value)];
    let fields = of.into_iter().filter_map(|(name, value)| Some((name, value.clone()?)));
    let since = [("since", exact(paused.since))];
    let fields: Vec<_> = fields.chain(since).collect();
    html! {
        @match queues.find(&paused.queue) {
            Some(_) if has_secret_value(queues, paused) => span.muted { "only by the application" },
            Some(named) => {
                @let of = format!("the pause of {}, {}", visible(&named.name), what(queues, paused));
                (end(visit, ("unpause", "End the pause", &of), &named.name, &fields))
            },
            None => span.muted { "by its own application" },
        }
    }
}

/// A form that ends something. It is closed at first, and while it is open the table is not refreshed.
fn end(visit: &Visit, (change, button, of): (&str, &str, &str), queue: &str, fields: &[(&str, String)]) -> Markup {
    html! {
        details {
            summary { "End …" span.visually-hidden { " " (of) } }
            form method="post" action={ (visit.root) "pauses" } {
                (hidden(visit, change))
                input type="hidden" name="queue" value=(queue);
                @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
                div.field {
                    input type="text" name="reason" required maxlength=(LONGEST_REASON) autocomplete="off"
                        aria-label={ "Reason to end " (of) } placeholder="Why it ends";
                }
                div.actions { button type="submit" { (button) } }
            }
        }
    }
}

/// The exact time, which tells a pause from one that somebody has asked for meanwhile.
fn exact(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

fn hidden(visit: &Visit, change: &str) -> Markup {
    html! {
        input type="hidden" name="token" value=(visit.token());
        input type="hidden" name="change" value=(change);
    }
}

fn limits<C: Database>(queues: &Queues<'_, C>, visit: &Visit, limits: &[Limited]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Limits" { table {
            thead { tr {
                th scope="col" { "Queue" } th.number scope="col" { "Workers in each process" }
                th.number scope="col" { "Rows at the same time" } th.number scope="col" { "Retries after" }
                th scope="col" { "Why" } th scope="col" { "By" } th scope="col" { "Since" }
                @if visit.changes { th scope="col" { "End" } }
            } }
            tbody { @for limited in limits { tr {
                th.data scope="row" { (queues.link(&limited.queue)) }
                td.number { (limit(limited.workers.map(|workers| workers.to_string()))) }
                td.number { (limit(limited.at_most.map(|rows| rows.to_string()))) }
                td.number { (limit(limited.retry_delay.map(span))) }
                td.data { bdi { (visible(&limited.reason)) } }
                td.data { bdi { (visible(&limited.by)) } }
                td { (time(limited.since)) }
                @if visit.changes { td { @match queues.find(&limited.queue) {
                    Some(named) => {
                        @let of = format!("the limits of {}", visible(&named.name));
                        (end(visit, ("end-limits", "End the limits", &of), &named.name, &[]))
                    },
                    None => span.muted { "by its own application" },
                } } }
            } } }
        } }
    }
}

fn limit(limit: Option<String>) -> Markup {
    html! { @match limit { Some(limit) => (limit), None => span.muted { "as in the code" } } }
}

fn pause_form<C: Database>(queues: &Queues<'_, C>, visit: &Visit, typed: &Fields) -> Markup {
    let stages = |named| queues.facts(named).options.stages.map_or(&[][..], |stages| stages.names);
    let lanes: Vec<_> =
        queues.all.iter().filter_map(|named| Some((named, queues.facts(named).options.lanes?.column))).collect();
    html! {
        section aria-labelledby="pause-title" {
            h2 #pause-title { "Pause a queue" }
            form method="post" action={ (visit.root) "pauses" } {
                (hidden(visit, "pause"))
                div.fields {
                    (queue_field(queues, "pause-queue", typed))
                    @if queues.all.iter().any(|named| !stages(named).is_empty()) {
                        div.field {
                            label for="pause-stage" { "Only one stage" }
                            select #pause-stage name="stage" {
                                option value="" { "all stages" }
                                @for named in queues.all.iter().filter(|named| !stages(named).is_empty()) {
                                    optgroup label=(visible(&named.name)) { @for stage in stages(named) {
                                        @let is_chosen = field(typed, "stage") == Some(*stage) && field(typed, "queue") == Some(&*named.name);
                                        option value=(stage) selected[is_chosen] { (visible(stage)) }
                                    } }
                                }
                            }
                        }
                    }
                    @if !lanes.is_empty() {
                        div.field {
                            label for="pause-value" { "Only the rows of one value" }
                            input #pause-value type="text" name="value" value=[field(typed, "value")] autocomplete="off"
                                spellcheck="false" aria-describedby="pause-value-hint";
                            p.hint #pause-value-hint {
                                @for (named, column) in &lanes { bdi { (visible(&named.name)) } ": " code { (visible(column)) " = …" } " " }
                            }
                        }
                    }
                    div.field {
                        label for="pause-for" { "For how long" }
                        input #pause-for type="text" name="for" value=[field(typed, "for")] autocomplete="off"
                            aria-describedby="pause-for-hint";
                        p.hint #pause-for-hint { "2h, 30m; if it is empty, until somebody ends it" }
                    }
                    (reason_field("pause-reason", typed))
                }
                p.hint { "It takes the place of a pause of the same rows." }
                div.actions { button type="submit" { "Pause" } }
            }
        }
    }
}

fn limit_form<C: Database>(queues: &Queues<'_, C>, visit: &Visit, typed: &Fields) -> Markup {
    html! {
        section aria-labelledby="limit-title" {
            h2 #limit-title { "Limit a queue" }
            form method="post" action={ (visit.root) "pauses" } {
                (hidden(visit, "limit"))
                div.fields {
                    (queue_field(queues, "limit-queue", typed))
                    div.field {
                        label for="limit-workers" { "Workers in each process" }
                        input #limit-workers type="number" name="workers" min="1" max="10000" value=[field(typed, "workers")];
                    }
                    div.field {
                        label for="limit-at-most" { "Rows at the same time" }
                        input #limit-at-most type="number" name="at_most" min="1" value=[field(typed, "at_most")]
                            aria-describedby="limit-at-most-hint";
                        p.hint #limit-at-most-hint { "of an entity with the attribute " code { "at_most" } }
                    }
                    div.field {
                        label for="limit-retry-delay" { "Retries after" }
                        input #limit-retry-delay type="text" name="retry_delay" value=[field(typed, "retry_delay")]
                            autocomplete="off" aria-describedby="limit-retry-delay-hint";
                        p.hint #limit-retry-delay-hint { "30s, 10m" }
                    }
                    (reason_field("limit-reason", typed))
                }
                p.hint { "They take the place of all limits that the queue has." }
                div.actions { button type="submit" { "Set the limits" } }
            }
        }
    }
}

fn queue_field<C: Database>(queues: &Queues<'_, C>, id: &str, typed: &Fields) -> Markup {
    html! {
        div.field {
            label for=(id) { "Queue" }
            select id=(id) name="queue" required {
                @for named in &queues.all {
                    option value=(named.name) selected[field(typed, "queue") == Some(&*named.name)] { (visible(&named.name)) }
                }
            }
        }
    }
}

fn reason_field(id: &str, typed: &Fields) -> Markup {
    html! {
        div.field.wide {
            label for=(id) { "Why" }
            input id=(id) type="text" name="reason" required maxlength=(LONGEST_REASON) value=[field(typed, "reason")] autocomplete="off";
        }
    }
}
