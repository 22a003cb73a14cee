//! The doctor: what makes the queues slow or unsafe on this database, and what mends it. It examines when somebody asks.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::extract::{Query, State};
use axum::response::Response;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use queue_core::internals::by_name::printable;
use queueable::report::{Ill, Severity, examine};

use super::guard::Visit;
use super::layout::{show, time};
use super::own::Queues;
use super::search::{Fields, field};
use super::site::Site;
use super::trouble::{Told, Trouble};
use crate::console::Parts;
use crate::database::Database;
use crate::shown::visible;

/// How long an examination is shown to others who ask for one. It asks each queue some dozens of questions.
const FRESH: Duration = Duration::from_secs(60);

/// How long an examination counts for the overview.
const KNOWN: Duration = Duration::from_secs(300);

/// What an examination has found.
pub(super) struct Examined {
    at: DateTime<Utc>,
    pub(super) ills: Vec<Ill>,
    /// The queues that could not be examined.
    unread: Vec<(String, Trouble)>,
}

/// Shows what an examination finds, or the way to begin one.
pub(super) async fn show_findings<C: Database>(
    State(site): State<Site<C>>,
    visit: Visit,
    Query(fields): Query<Fields>,
) -> Response {
    let told = told(&site, &visit, field(&fields, "now").is_some()).await;
    show(&site, &visit, ("Doctor", None), told).await
}

async fn told<C: Database>(site: &Site<C>, visit: &Visit, examines: bool) -> Told<Markup> {
    visit.must_see_all()?;
    let again = html! {
        div.actions { a.button href={ (visit.root) "doctor?now=yes" } { "Examine now" } }
    };
    if !examines {
        return Ok(html! {
            p {
                "An examination reads settings, catalogues, statistics and the ends of indexes. It finds out whether each queue has its \
                 indexes and rights, what keeps the database from clearing up, which leases are stuck, and whose clock is wrong. It \
                 changes nothing."
            }
            (again)
        });
    }
    let examined =
        site.read_long("examination".to_owned(), FRESH, |parts, connection| examined(parts, connection)).await?;
    let Examined { at, ills, unread } = &*examined;
    Ok(html! {
        p { "Examined " (time(*at)) ". " span.muted { "It examines again after a minute." } }
        (again)
        (counts(ills))
        @for (queue, trouble) in unread {
            p.notice.error { bdi { (visible(queue)) } " could not be examined. " (trouble) }
        }
        @if ills.is_empty() && unread.is_empty() { p.notice.done { "Nothing is wrong." } }
        (findings(&Queues::of(site, visit), &by_queue(ills)))
    })
}

/// Returns what the last examination has found, and begins another one if that was long ago. Nobody waits for it.
pub(super) fn last<C: Database>(site: &Site<C>) -> Option<Arc<Examined>> {
    let of = site.clone();
    tokio::spawn(async move {
        let read = of.read_long("last examination".to_owned(), KNOWN, |parts, connection| examined(parts, connection));
        if let Ok(examined) = read.await {
            *of.examined.lock().unwrap_or_else(PoisonError::into_inner) = Some(examined);
        }
    });
    site.examined.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn examined<C: Database>(parts: &Parts<C>, connection: &mut C) -> Told<Examined> {
    let at = Utc::now();
    let mut ills = examine(connection)?;
    let mut unread = Vec::new();
    for queue in &parts.queues {
        match queue.examine(connection) {
            Ok(found) => ills.extend(found),
            Err(error) => match Trouble::from(error).seen::<C>() {
                Trouble::Away => return Err(Trouble::Away),
                trouble => unread.push((queue.facts().name(parts), trouble)),
            },
        }
    }
    ills.sort();
    ills.dedup();
    Ok(Examined { at, ills, unread })
}

/// The findings of each queue, and of the database as `None`: those with the worst come first.
fn by_queue(ills: &[Ill]) -> Vec<(Option<&str>, Vec<&Ill>)> {
    let mut found: Vec<(Option<&str>, Vec<&Ill>)> = Vec::new();
    for ill in ills {
        let queue = ill.queue.as_deref();
        match found.iter_mut().find(|(of, _)| *of == queue) {
            Some((_, all)) => all.push(ill),
            None => found.push((queue, vec![ill])),
        }
    }
    found
}

fn counts(ills: &[Ill]) -> Markup {
    let count = |severity| ills.iter().filter(|ill| ill.severity == severity).count();
    html! {
        dl.figures {
            @for (severity, name) in [(Severity::Error, "Errors"), (Severity::Warning, "Warnings"), (Severity::Note, "Notes")] {
                div { dt { (name) } dd { (count(severity)) } }
            }
        }
    }
}

fn findings<C: Database>(queues: &Queues<'_, C>, found: &[(Option<&str>, Vec<&Ill>)]) -> Markup {
    html! {
        @for (queue, ills) in found {
            section {
                h2 { @match queue { Some(queue) => (queues.link(queue)), None => "The database" } }
                ol.wrong { @for ill in ills {
                    li.(class(ill.severity)) {
                        p { strong { (ill.severity) } " " code { (ill.kind) } ": " bdi { (visible(&ill.problem)) } }
                        (mend(&ill.mend))
                    }
                } }
            }
        }
    }
}

fn class(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        _ => "note",
    }
}

fn mend(mend: &str) -> Markup {
    html! {
        @if is_statement(mend) {
            p { "To mend it:" }
            pre { bdi { (printable(mend, true)) } }
        } @else {
            p { "To mend it: " bdi { (visible(mend)) } }
        }
    }
}

/// Whether a text begins as SQL does, with a word in capitals.
fn is_statement(text: &str) -> bool {
    let word = text.split_whitespace().next().unwrap_or_default();
    word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ill(severity: &str, queue: Option<&str>, problem: &str) -> Ill {
        let of = serde_json::json!({ "kind": "index", "severity": severity, "queue": queue, "problem": problem, "mend": "" });
        serde_json::from_value(of).expect("an ill")
    }

    #[test]
    fn the_queue_with_the_worst_comes_first() {
        let mut ills = [
            ill("note", None, "a"),
            ill("warning", Some("payments.status"), "b"),
            ill("error", Some("invoices.status"), "c"),
            ill("error", Some("payments.status"), "d"),
        ];
        ills.sort();
        let found = by_queue(&ills);
        let queues: Vec<_> = found.iter().map(|(queue, ills)| (*queue, ills.len())).collect();
        assert_eq!(queues, [(Some("invoices.status"), 1), (Some("payments.status"), 2), (None, 1)]);
        assert_eq!(found[1].1[0].problem, "d");
    }

    #[test]
    fn only_sql_is_shown_as_sql() {
        assert!(is_statement("CREATE INDEX a ON b (c)"));
        assert!(is_statement("PRAGMA busy_timeout = 5000"));
        assert!(!is_statement("start a poller"));
        assert!(!is_statement("A text"));
    }
}
