//! The overview: what is wrong comes first, then a row for each queue, and who works.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use chrono::{DateTime, Utc};
use futures_util::future::join_all;
use maud::{Markup, html};
use queueable::report::{Ill, PeriodCounts, PollerProcess, Severity};

use super::doctor::last;
use super::glance::{Glance, counted, glance};
use super::guard::Visit;
use super::layout::{segment, show, time};
use super::own::Queues;
use super::queue::MOST;
use super::search::name_of;
use super::site::{FRESH, Named, Site};
use super::svg::spark;
use super::trouble::{Told, Trouble};
use crate::cli;
use crate::command::{Known, registered, serving, wrong};
use crate::database::Database;
use crate::queue::{Rows, State as Of};
use crate::shown::{span, visible};

/// Over which time rates and failures are shown, and over which failures are news.
const HOUR: Duration = Duration::from_secs(3_600);
const MINUTES: i64 = 60;
const NEWS: usize = 10;
const RECENT: Duration = Duration::from_secs(600);

/// What is wrong, as the command `status` says it.
const LIMITS: cli::Status = cli::Status {
    check: false,
    max_age: Duration::from_secs(300),
    max_due: None,
    max_failed: None,
    min_pollers: 1,
    allow_paused: false,
};

/// How many of the doctor's errors are shown.
const SHOWN: usize = 3;

/// How many of a process' rows are shown.
const RUNNING: usize = 10;

/// What is known of a queue and its last hour.
pub(super) struct Seen {
    known: Known,
    uncounted: Vec<Of>,
    /// In each minute; `None` if nobody counts minutes.
    hour: Option<Vec<(i64, i64)>>,
    /// Whether rows have failed, and nobody counts when.
    undated: bool,
}

/// Shows the overview.
pub(super) async fn show_all<C: Database>(State(site): State<Site<C>>, visit: Visit) -> Response {
    let told = told(&site, &visit).await;
    show(&site, &visit, ("Overview", None), told).await
}

async fn told<C: Database>(site: &Site<C>, visit: &Visit) -> Told<Markup> {
    let pollers = pollers(site).await?;
    let seen = site.seen(&visit.visitor);
    let asked = join_all(seen.iter().map(|named| self::seen(site, named, pollers.clone()))).await;
    let all: Vec<_> = seen.into_iter().zip(asked).collect();
    if let Some((_, Err(trouble @ (Trouble::Away | Trouble::Busy)))) = all.iter().find(|(_, seen)| is_of_all(seen)) {
        return Err(trouble.clone());
    }
    let known: Vec<&Known> = all.iter().filter_map(|(_, seen)| Some(&seen.as_ref().ok()?.known)).collect();
    let mut wrong: Vec<String> = wrong(known.into_iter(), &LIMITS).into_iter().map(|wrong| wrong.text).collect();
    let unread = all.iter().filter_map(|(named, seen)| Some(format!("{}: {}", named.name, seen.as_ref().err()?)));
    wrong.splice(0..0, unread);
    let notes: Vec<_> = all.iter().filter_map(|(named, seen)| note(named, seen.as_ref().ok()?)).collect();
    let ills = ills(site, visit).unwrap_or_default();
    let errors = ills.iter().filter(|ill| ill.severity == Severity::Error).count();
    // Only the number is read out, not each age that has changed.
    let said = match wrong.len() + errors {
        0 => "Nothing is wrong".to_owned(),
        1 => "1 thing is wrong".to_owned(),
        many => format!("{many} things are wrong"),
    };
    Ok(html! {
        section #wrong data-refresh="5" data-announce=(said) aria-label="What is wrong" { (wrongs(visit, (&wrong, &notes), &ills)) }
        section #queues data-refresh="5" aria-labelledby="queues-title" {
            h2 #queues-title { "Queues" }
            div.scroll tabindex="0" role="group" aria-label="Table of queues" {
                table {
                    thead { tr {
                        th scope="col" { "Queue" }
                        @for name in ["Oldest due", "Due", "Scheduled", "Running", "Failed"] { th.number scope="col" { (name) } }
                        th scope="col" { "Last hour" } th.number scope="col" { "Per minute" }
                        th.number scope="col" { "Pollers" } th scope="col" { "Paused" }
                    } }
                    tbody { @for (named, seen) in &all { (line(&visit.root, named, seen)) } }
                }
            }
            @if all.is_empty() { p { "There is no queue that you may see." } }
        }
        @if visit.visitor.may_see_all() { (workers(&Queues::of(site, visit), pollers.as_deref())) }
    })
}

/// The processes that have registered; `None` if nobody does.
pub(super) async fn pollers<C: Database>(site: &Site<C>) -> Told<Option<Arc<Vec<PollerProcess>>>> {
    let read = site.read("pollers".to_owned(), FRESH * 2, |_, connection| Ok(registered(connection)?.map(Arc::new)));
    Ok((*read.await?).clone())
}

/// How long the overview is kept: each queue needs about ten statements, and all together at most twenty in a second.
fn kept<C: Database>(site: &Site<C>) -> Duration {
    (FRESH * 2).max(FRESH * u32::try_from(site.parts.queues.len()).unwrap_or(u32::MAX) / 2)
}

async fn seen<C: Database>(site: &Site<C>, named: &Named, pollers: Option<Arc<Vec<PollerProcess>>>) -> Told<Arc<Seen>> {
    let name = named.name.clone();
    let read = site.read_of(named, "known", kept(site), move |queue, connection| {
        let Glance { backlog, uncounted } = glance(queue, connection)?;
        let hour = queue.recent(connection, HOUR)?.map(|recent| minutes(&recent.periods, Utc::now()));
        let newest = |counts: &Vec<(i64, i64)>| counts.iter().rev().take(NEWS).copied().collect::<Vec<_>>();
        let news = hour.as_ref().map(newest).unwrap_or_default();
        let (options, name_of_queue) = (queue.facts().options, queue.facts().queue.clone());
        let pollers = serving(pollers.as_deref().map(Vec::as_slice), &name_of_queue);
        let done = hour.as_ref().map(|hour| hour.iter().map(|(succeeded, failed)| succeeded + failed).collect());
        let failed = match &hour {
            Some(_) => news.iter().map(|(_, failed)| failed).sum(),
            None if options.report_index => {
                let failed = Rows { states: vec![Of::Failed], within: Some(RECENT), filter: None };
                queue.figures(connection, &failed, &[], MOST)?.rows
            }
            // Without an index the database would read the table.
            None => 0,
        };
        let undated = hour.is_none() && !options.report_index && backlog.failed > 0;
        let known = Known { name, queue: name_of_queue, backlog, most: Some(MOST), done, failed, pollers };
        Ok(Seen { undated, uncounted, known, hour })
    });
    read.await
}

/// Whether it would be the same for all queues.
fn is_of_all(seen: &Told<Arc<Seen>>) -> bool {
    matches!(seen, Err(Trouble::Away | Trouble::Busy))
}

/// What the doctor has found lately of the queues that the visitor may see; `None` if it has not examined them yet.
fn ills<C: Database>(site: &Site<C>, visit: &Visit) -> Option<Vec<Ill>> {
    let examined = last(site)?;
    let seen: Vec<_> = site.seen(&visit.visitor).iter().map(|named| site.of(named).facts().queue.clone()).collect();
    let may_see = |ill: &&Ill| match &ill.queue {
        Some(queue) => seen.contains(queue),
        None => visit.visitor.may_see_all(),
    };
    Some(examined.ills.iter().filter(may_see).cloned().collect())
}

/// What has succeeded and failed in each of the last minutes, the oldest first.
fn minutes(periods: &[PeriodCounts], now: DateTime<Utc>) -> Vec<(i64, i64)> {
    let mut minutes = vec![(0, 0); usize::try_from(MINUTES).unwrap_or(60)];
    for period in periods {
        let ago = (now - period.start).num_minutes();
        if let Some((succeeded, failed)) = usize::try_from(MINUTES - 1 - ago).ok().and_then(|at| minutes.get_mut(at)) {
            *succeeded += period.succeeded;
            *failed += period.failed;
        }
    }
    minutes
}

/// Says that rows have failed, if nobody can tell whether that is news.
fn note(named: &Named, seen: &Seen) -> Option<String> {
    let failed = seen.known.backlog.failed;
    let (rows, have) = (super::layout::rows(failed), if failed == 1 { "has" } else { "have" });
    seen.undated.then(|| {
        format!(
            "{}: {rows} {have} failed. Its errors say when: there is no table of minutes, and no report index.",
            named.name
        )
    })
}

fn wrongs(visit: &Visit, (wrong, notes): (&[String], &[String]), ills: &[Ill]) -> Markup {
    let errors: Vec<_> = ills.iter().filter(|ill| ill.severity == Severity::Error).collect();
    let warnings = ills.iter().filter(|ill| ill.severity == Severity::Warning).count();
    html! {
        @if wrong.is_empty() && errors.is_empty() && notes.is_empty() {
            p.notice.done { "Nothing is wrong." }
        } @else {
            h2 { "What is wrong" }
            ul.wrong {
                @for text in wrong { li { bdi { (visible(text)) } } }
                @for text in notes { li.note { bdi { (visible(text)) } } }
                @for ill in errors.iter().take(SHOWN) { li { bdi { (visible(&ill.problem)) } } }
            }
        }
        @if (warnings > 0 || errors.len() > SHOWN) && visit.visitor.may_see_all() {
            p { a href={ (visit.root) "doctor?now=yes" } { "The doctor" } " has found "
                (of_kind(errors.len(), "error")) " and " (of_kind(warnings, "warning")) "." }
        }
    }
}

/// `1 error`, `2 errors`.
fn of_kind(found: usize, what: &str) -> String {
    format!("{found} {what}{}", if found == 1 { "" } else { "s" })
}

fn line(root: &str, named: &Named, seen: &Told<Arc<Seen>>) -> Markup {
    let address = format!("{root}q/{}", segment(&named.name));
    let seen = match seen {
        Ok(seen) => seen,
        Err(trouble) => {
            return html! { tr {
                th scope="row" { a href=(address) { bdi { (named.name) } } }
                td colspan="9" { (trouble) }
            } };
        }
    };
    let Seen { known: Known { backlog, pollers, .. }, uncounted, hour, .. } = &**seen;
    let count = |state: Of, rows: i64| {
        let address = format!("{address}?state={}", name_of(state));
        html! { td.number { @match uncounted.contains(&state) {
            true => span.muted title="The database has needed too long for it: no index finds these rows." { "not counted" },
            false => a href=(address) { (counted(rows)) },
        } } }
    };
    html! { tr {
        th scope="row" { a href=(address) { bdi { (named.name) } } }
        td.number { @if let Some(age) = backlog.oldest_due { (span(age)) } @else { span.muted { "none due" } } }
        (count(Of::Due, backlog.due))
        (count(Of::Scheduled, backlog.scheduled))
        @match backlog.running {
            Some(running) => (count(Of::Running, running)),
            None => td.number { span.muted title="Rows run in transactions, which only their own sessions see." { "not seen" } },
        }
        (count(Of::Failed, backlog.failed))
        td { @if let Some(hour) = hour { (hourly(&named.name, hour)) } @else { span.muted { "not counted" } } }
        td.number { @if let Some(hour) = hour { (rate(hour)) } @else { span.muted { "not counted" } } }
        td.number { @match pollers { Some(pollers) => (pollers), None => span.muted { "not registered" } } }
        td.why { @for paused in &backlog.paused { p { span.badge.paused { "paused" } " " bdi { (paused.to_string().trim_start_matches("paused ")) } } } }
    } }
}

fn hourly(name: &str, hour: &[(i64, i64)]) -> Markup {
    let (succeeded, failed): (Vec<i64>, Vec<i64>) = hour.iter().copied().unzip();
    spark(&succeeded, &failed, &format!("{name}, the last hour by minute"))
}

fn rate(hour: &[(i64, i64)]) -> String {
    let done: i64 = hour.iter().rev().take(NEWS).map(|(succeeded, failed)| succeeded + failed).sum();
    format!("{:.1}", done as f64 / NEWS as f64)
}

/// The processes, with what they run.
fn workers<C: Database>(queues: &Queues<'_, C>, pollers: Option<&Vec<PollerProcess>>) -> Markup {
    html! {
        section #workers data-refresh="5" aria-labelledby="workers-title" {
            h2 #workers-title { "Pollers" }
            @match pollers {
                None => p.muted { "No poller registers: the migrations' `pollers()` adds the table for it." },
                Some(pollers) if pollers.is_empty() => p { "No poller is alive." },
                Some(pollers) => div.scroll tabindex="0" role="group" aria-label="Table of pollers" { table {
                    thead { tr {
                        th scope="col" { "Host" } th.number scope="col" { "Process" } th scope="col" { "State" }
                        th.number scope="col" { "Workers" } th scope="col" { "Started" } th scope="col" { "Runs" }
                    } }
                    tbody { @for poller in pollers { (worker(queues, poller)) } }
                } },
            }
        }
    }
}

fn worker<C: Database>(queues: &Queues<'_, C>, poller: &PollerProcess) -> Markup {
    html! { tr {
        th scope="row" { bdi { (poller.host) } }
        td.number { (poller.pid) }
        td { (poller.state) }
        td.number { (poller.workers) }
        td { (time(poller.started)) }
        td.data {
            @for running in poller.running.iter().take(RUNNING) { span.runs { (queues.name(&running.queue)) " " (queues.row(running)) } " " }
            @if poller.running.len() > RUNNING { "and " (poller.running.len() - RUNNING) " more" }
        }
    } }
}
