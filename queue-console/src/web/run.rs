//! Operations at work: each has a thread and a connection of its own, a page that survives reloads, and a button that stops it.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path, State};
use axum::response::Response;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use queue_core::internals::by_name::{Operate, Operated};
use tokio::sync::{Semaphore, oneshot};

use super::change::{asked, see_other};
use super::guard::{Sent, Visit};
use super::layout::{segment, show, time};
use super::search::Search;
use super::site::{Named, Site};
use super::trouble::{Told, Trouble};
use crate::change::{environment_asked, is_recorded, same, summary};
use crate::database::Database;
use crate::failure::Failure;
use crate::queue::{Author, Shape};
use crate::shown::{count, rows, visible};

/// How many operations run at the same time, and how many are remembered.
const AT_ONCE: usize = 4;
const REMEMBERED: usize = 100;

/// What somebody has asked for.
pub(super) struct Order {
    pub(super) named: Named,
    pub(super) operate: Operate,
    pub(super) search: Search,
    pub(super) shape: Shape,
    pub(super) by: String,
    pub(super) reason: String,
    pub(super) environment: Option<String>,
    /// The name of the form, and then of the operation.
    pub(super) once: String,
    /// Which rows, in words.
    pub(super) chosen: String,
}

/// The operations of this process.
pub(super) struct Runs {
    /// The newest first.
    all: Mutex<VecDeque<Arc<Run>>>,
    /// Those that begin.
    expected: Arc<Mutex<HashSet<String>>>,
    turns: Arc<Semaphore>,
}

impl Default for Runs {
    fn default() -> Self {
        Runs { all: Mutex::default(), expected: Arc::default(), turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

/// An operation.
pub(super) struct Run {
    id: String,
    named: Named,
    summary: String,
    chosen: String,
    by: String,
    reason: String,
    begun: DateTime<Utc>,
    total: usize,
    done: AtomicUsize,
    stop: AtomicBool,
    ended: Mutex<Option<Ended>>,
}

/// How an operation has ended.
#[derive(Clone)]
struct Ended {
    at: DateTime<Utc>,
    is_good: bool,
    text: String,
}

impl Runs {
    fn all(&self) -> Vec<Arc<Run>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn find(&self, id: &str) -> Option<Arc<Run>> {
        self.all().into_iter().find(|run| run.id == id)
    }

    /// Notes that an operation begins, until the guard is dropped. `None`: it begins already.
    fn expect(&self, once: &str) -> Option<Expected> {
        let is_new = self.expected.lock().unwrap_or_else(PoisonError::into_inner).insert(once.to_owned());
        is_new.then(|| Expected { all: self.expected.clone(), once: once.to_owned() })
    }

    fn add(&self, run: Arc<Run>) {
        let mut runs = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        runs.push_front(run);
        while runs.len() > REMEMBERED {
            let oldest = runs.iter().rposition(|run| run.ended().is_some()).unwrap_or(REMEMBERED);
            runs.remove(oldest);
        }
    }
}

/// An operation that begins.
struct Expected {
    all: Arc<Mutex<HashSet<String>>>,
    once: String,
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.once);
    }
}

impl Run {
    fn ended(&self) -> Option<Ended> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn end(&self, is_good: bool, text: String) {
        let ended = Ended { at: Utc::now(), is_good, text };
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
    }
}

/// Begins an operation. Returns its name when the rows are found to be the same as were shown. A form that is sent twice leads to the
/// same operation.
pub(super) async fn begin<C: Database>(site: &Site<C>, order: Order) -> Told<String> {
    if let Some(run) = site.runs.find(&order.once) {
        return Ok(run.id.clone());
    }
    let turn = site.runs.turns.clone().try_acquire_owned();
    let turn =
        turn.map_err(|_| Trouble::Wrong(format!("{AT_ONCE} operations run already. Please wait for one of them.")))?;
    // The thread has it, because the browser may leave while the operation begins, and this function with it.
    let Some(expected) = site.runs.expect(&order.once) else {
        return Err(Trouble::Wrong("This was sent already, and begins: see Operations.".to_owned()));
    };
    // It may have begun, and be known, since it was looked for.
    if let Some(run) = site.runs.find(&order.once) {
        return Ok(run.id.clone());
    }
    let (sender, begun) = oneshot::channel();
    let of = site.clone();
    let spawned = std::thread::Builder::new().name("queueable-page-run".to_owned()).spawn(move || {
        let _turn = turn;
        work(&of, order, (expected, sender));
    });
    match spawned {
        Ok(_) => {
            begun.await.unwrap_or_else(|_| Err(Trouble::Refused("The operation has ended before it began.".to_owned())))
        }
        Err(error) => Err(Trouble::logged(&error)),
    }
}

fn work<C: Database>(site: &Site<C>, order: Order, (expected, begun): (Expected, oneshot::Sender<Told<String>>)) {
    let mut begun = Some((expected, begun));
    let mut tell = |told| {
        let Some((expected, begun)) = begun.take() else { return };
        // From now on the form may be sent again.
        drop(expected);
        // If the browser has gone, an operation goes on all the same: a person has confirmed it.
        let _ = begun.send(told);
    };
    let mut connection = match site.connections.connect() {
        Ok(connection) => connection,
        Err(trouble) => {
            tell(Err(trouble));
            return;
        }
    };
    let queue = &*site.parts.queues[order.named.place];
    let ready = (|| -> Told<_> {
        let recorded = is_recorded(&mut connection)?;
        let author = Author { by: order.by.clone(), reason: order.reason.clone(), recorded };
        let asked = asked(queue, &mut connection, (&order.search, order.operate.clone()), author)?;
        if let Some(name) = environment_asked(&site.parts, &mut connection, order.shape.count)?
            && order.environment.as_deref() != Some(&*name)
        {
            return Err(Trouble::Wrong(format!("Nothing was changed: the environment's name is `{name}`.")));
        }
        Ok(asked)
    })();
    let asked = match ready {
        Ok(asked) => asked,
        Err(trouble) => {
            tell(Err(trouble.seen::<C>()));
            return;
        }
    };
    let ready = match queue.prepare(&mut connection, &asked) {
        Ok(ready) => ready,
        Err(error) => {
            tell(Err(Trouble::from(error).seen::<C>()));
            return;
        }
    };
    if let Err(failure) = same(&order.shape, &ready.shape()) {
        tell(Err(Trouble::Stale(failure.to_string())));
        return;
    }
    let run = Arc::new(Run {
        id: order.once,
        named: order.named.clone(),
        summary: summary(queue.facts(), &*ready, &asked),
        chosen: order.chosen,
        by: order.by,
        reason: order.reason,
        begun: Utc::now(),
        total: ready.count(),
        done: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        ended: Mutex::new(None),
    });
    site.runs.add(run.clone());
    tell(Ok(run.id.clone()));
    // A panic ends the operation for those who look, too.
    let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        ready.work(&mut connection, &mut |progress| {
            run.done.store(progress.done, Ordering::Relaxed);
            !run.stop.load(Ordering::Relaxed)
        })
    }));
    site.forget();
    match worked {
        Ok(Ok(operated)) => run.end(operated.refused == 0 && operated.seen == run.total, said(run.total, &operated)),
        Ok(Err(error)) => {
            let rest = "The rows that were changed stay so; the same operation goes on with the others.";
            run.end(false, format!("{} {rest}", Trouble::from(error).seen::<C>()));
        }
        Err(_) => run.end(false, Trouble::logged(&Failure::Failed("an operation has panicked".to_owned())).to_string()),
    }
}

/// What an operation has done.
fn said(total: usize, operated: &Operated) -> String {
    let Operated { rows: changed, refused, refusal, seen, .. } = operated;
    let mut said = format!("{} changed.", rows(*changed));
    let left = seen.saturating_sub(changed + refused);
    if left > 0 {
        said += &format!(
            " {} left alone: they run, another session has locked them, or they have changed meanwhile.",
            rows(left)
        );
    }
    if let Some(refusal) = refusal {
        said += &format!(" {} refused. {}", rows(*refused), Trouble::logged(refusal));
    }
    if *seen < total {
        said += &format!(" {} not looked at, because it was stopped.", rows(total - seen));
    }
    said
}

/// Shows all operations of this process.
pub(super) async fn show_all<C: Database>(State(site): State<Site<C>>, visit: Visit) -> Response {
    let runs: Vec<_> = site.runs.all().into_iter().filter(|run| may_see(&site, &visit, run)).collect();
    let body = html! {
        p.muted { "The operations that this process of the application has run. The audit has those of all." }
        @if runs.is_empty() { p { "There are none." } } @else {
            section #runs data-refresh="2" aria-label="Operations" { div.scroll tabindex="0" role="region" aria-label="Operations" { table {
                thead { tr { th scope="col" { "Operation" } th scope="col" { "By" } th scope="col" { "Begun" } th scope="col" { "State" } } }
                tbody { @for run in &runs { tr {
                    th scope="row" { a href={ (visit.root) "runs/" (run.id) } { bdi { (visible(&run.summary)) } } }
                    td.data { bdi { (visible(&run.by)) } }
                    td { (time(run.begun)) }
                    td { (run.state()) }
                } } }
            } } }
        }
    };
    show(&site, &visit, ("Operations", None), Ok(body)).await
}

/// Shows one operation.
pub(super) async fn show_one<C: Database>(
    State(site): State<Site<C>>,
    visit: Visit,
    Path(id): Path<String>,
) -> Response {
    match found(&site, &visit, &id) {
        Err(trouble) => show(&site, &visit, ("Operation", None), Err(trouble)).await,
        Ok(run) => {
            let body = page(&visit, &run);
            show(&site, &visit, ("Operation", Some((&run.named, None))), Ok(body)).await
        }
    }
}

/// Stops an operation between two transactions.
pub(super) async fn stop<C: Database>(
    State(site): State<Site<C>>,
    visit: Visit,
    Path(id): Path<String>,
    Sent(_): Sent,
) -> Response {
    match found(&site, &visit, &id) {
        Err(trouble) => show(&site, &visit, ("Operation", None), Err(trouble)).await,
        Ok(run) => {
            run.stop.store(true, Ordering::Relaxed);
            see_other(&format!("{}runs/{}", visit.root, run.id))
        }
    }
}

fn may_see<C: Database>(site: &Site<C>, visit: &Visit, run: &Run) -> bool {
    visit.visitor.may_see(&site.of(&run.named).facts().table)
}

fn found<C: Database>(site: &Site<C>, visit: &Visit, id: &str) -> Told<Arc<Run>> {
    let gone = "This process does not know that operation: it ran in another process, or before a restart. What it has done is in the audit.";
    let run = site.runs.find(id).filter(|run| may_see(site, visit, run));
    run.ok_or_else(|| Trouble::NotFound(gone.to_owned()))
}

impl Run {
    fn state(&self) -> String {
        match self.ended() {
            None if self.stop.load(Ordering::Relaxed) => "stops".to_owned(),
            None => format!("{} of {}", count(self.done.load(Ordering::Relaxed)), rows(self.total)),
            Some(ended) => ended.text,
        }
    }
}

fn page(visit: &Visit, run: &Run) -> Markup {
    let (done, ended) = (run.done.load(Ordering::Relaxed), run.ended());
    html! {
        p { strong { bdi { (visible(&run.summary)) } } }
        dl.facts {
            dt { "Rows" } dd { bdi { (visible(&run.chosen)) } }
            dt { "By" } dd { bdi { (visible(&run.by)) } }
            dt { "Why" } dd { bdi { (visible(&run.reason)) } }
            dt { "Begun" } dd { (time(run.begun)) }
        }
        section #progress data-refresh=[ended.is_none().then_some("1")] data-announce aria-label="Progress" {
            @match &ended {
                None => {
                    label for="done" { (run.state()) }
                    progress #done max=(run.total) value=(done) { (done) }
                    form method="post" action={ (visit.root) "runs/" (run.id) "/stop" } {
                        input type="hidden" name="token" value=(visit.token());
                        div.actions { button type="submit" disabled[!visit.changes || run.stop.load(Ordering::Relaxed)] { "Stop" } }
                    }
                    noscript { p { a href="" { "Load this page again" } " to see how far it is." } }
                }
                Some(ended) => {
                    div.notice.done[ended.is_good].warning[!ended.is_good] { p { (ended.text) " " (time(ended.at)) } }
                }
            }
        }
        p { a href={ (visit.root) "q/" (segment(&run.named.name)) } { "To the queue" } @if visit.visitor.may_see_all() { " · " a href={ (visit.root) "audit" } { "To the audit" } } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_may_be_sent_again_when_the_thread_of_its_operation_has_ended() {
        let runs = Runs::default();
        let expected = runs.expect("a form").expect("it is new");
        assert!(runs.expect("a form").is_none());
        // Nobody waits for what the thread says.
        std::thread::spawn(move || drop(expected)).join().expect("it does not panic");
        assert!(runs.expect("a form").is_some());
    }
}
