//! Takes the turns of a worker on a test's connection.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::num::NonZero;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant as LocalTime};

use chrono::{DateTime, TimeDelta, Utc};
use diesel::connection::TransactionManager;
use diesel::sql_types::Nullable;

use super::clock::present;
use super::points::fail_no_more;
use crate::attempt::{BoxedRunner, Runner, Slot, Turn, WorkerCalls, WorkerTurn};
use crate::backend::{QueueBackend, QueueConnection, Session, SessionHolder, SessionLimits, load_first};
use crate::control::{Paused, asked_of, lane_name};
use crate::entity::Entity;
use crate::error::Error;
use crate::event::{Event, Events, Listeners, Measure};
use crate::poller::{HandlerFor, PollerSettings, window_of};
use crate::row::{Instant, RowKey, TimestampUtc};
use crate::statement::next_time;
use crate::sync::in_test::{NextTime, Noted, is_in_turn, note_warning, set_noted, set_outer_transactions, set_wanted};

/// The savepoint that shows whether a handler has ended the transaction of the test.
const TEST: &str = "queueable_test";

/// How long calls beside the worker may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the worker waits before it looks for their answers again.
const PACE: Duration = Duration::from_millis(1);

/// A worker's session, handlers and slot, on the connection of a test.
pub struct Workbench<'t, C: QueueConnection> {
    holder: SessionHolder<'t, C>,
    settings: PollerSettings,
    events: Events,
    served: Vec<Served<'t, C>>,
    slot: Slot,
    outer: u32,
    wanted: Option<Wanted>,
}

/// The queue of which only some rows are claimed, and their keys.
type Wanted = (TypeId, Box<dyn Any>);

struct Served<'t, C: QueueConnection> {
    runner: BoxedRunner<'t, C>,
    /// Why no row of it is claimed, if none is.
    closed: Option<Closed>,
}

/// Why no row of an entity is claimed.
#[derive(Debug, Clone)]
pub enum Closed {
    /// The whole queue is paused.
    Paused(Paused),
    /// Its window opens then, or hardly ever.
    Window(Option<DateTime<Utc>>),
}

/// Rows' keys, each with a time.
pub(crate) type Times = Vec<(Arc<str>, DateTime<Utc>)>;

/// A queue of which a row was enqueued.
#[derive(Debug)]
pub struct Enqueued {
    /// The row whose handler had been called.
    pub by: Option<Arc<str>>,
    /// The entity's name, if it is served here.
    pub entity: Option<&'static str>,
    /// The name of the queue's type.
    pub type_name: &'static str,
}

/// What a turn came to.
#[derive(Debug, Default)]
pub struct Turned {
    /// Whether no row could be claimed.
    pub is_idle: bool,
    /// What happened to the rows that were claimed.
    pub events: Vec<Event>,
    /// The keys of the rows that are due again, each with its time.
    pub next: Times,
    /// The queues of which a row was enqueued meanwhile.
    pub enqueued: Vec<Enqueued>,
    /// Whether the database, or the table, kept the worker from working.
    pub is_trouble: bool,
    /// What the worker has logged as warnings.
    pub warnings: Vec<String>,
}

thread_local! {
    static HEARD: RefCell<Vec<Event>> = const { RefCell::new(Vec::new()) };
}

/// Keeps an event for the test.
fn hear(measure: &Measure<'_>) {
    if let Measure::Event(event) = measure {
        HEARD.with_borrow_mut(|heard| heard.push((*event).clone()));
    }
}

impl<'t, C: QueueConnection> Workbench<'t, C> {
    /// Takes the connection of a test, whose transaction, if one is open, stays open.
    pub fn new(connection: &'t mut C) -> Self {
        let status = C::TransactionManager::transaction_manager_status_mut(connection);
        // A connection that counts its transactions no more shows that to the first turn.
        let outer = status.transaction_depth().ok().flatten().map_or(0, NonZero::get);
        let settings = PollerSettings::default();
        let mut listeners = Listeners::default();
        listeners.meter = Some(hear);
        let (events, _) = listeners.start(None).expect("a meter has no thread");
        let timeout = C::Backend::DEFAULT_TIMEOUT;
        let lock_timeout = settings.lock_timeout;
        let limits = SessionLimits { lock_timeout, timeout, statement_timeout: timeout, attempts: true };
        let holder = SessionHolder::of_test(Session::of_test(connection, limits), limits);
        Workbench { holder, settings, events, served: Vec::new(), slot: Slot::default(), outer, wanted: None }
    }

    /// Serves an entity. Returns its number.
    pub fn serve<Q: Entity>(&mut self, handler: &'t impl HandlerFor<Q, C>) -> Result<usize, Error> {
        let settings = self.settings.for_runner(self.events.clone(), Arc::default());
        self.served.push(Served { runner: handler.borrowed_runner(settings)?, closed: None });
        Ok(self.served.len() - 1)
    }

    /// Returns how many entities are served.
    pub fn served(&self) -> usize {
        self.served.len()
    }

    /// Claims only the rows with these keys, in their order, once each.
    pub fn only<Q: Entity>(&mut self, number: usize, keys: impl IntoIterator<Item = Q::Key>) {
        let keys: VecDeque<_> = keys.into_iter().map(RowKey::of).collect();
        self.wanted = Some((self.served[number].runner.0.info().queue, Box::new(keys)));
    }

    /// Returns the connection.
    pub fn connection(&mut self) -> Result<&mut C, Error> {
        Ok(&mut **self.holder.session()?)
    }

    /// Reads what keeps the entities from being worked: pauses, limits and windows. Returns what keeps each of them as a whole.
    pub fn look(&mut self) -> Result<Vec<Option<Closed>>, Error> {
        let session = self.holder.session()?;
        for Served { runner, closed } in &mut self.served {
            let served = runner.0.served();
            let info = served.info();
            let (pauses, limits) = asked_of(&mut **session, &info.key_prefix)?;
            let options = &info.target.options;
            let stages: Vec<_> = pauses.iter().filter_map(|pause| pause.stage.clone()).collect();
            let lanes = pauses.iter().filter_map(|pause| lane_name(pause.lane.as_ref()?, options));
            let is_left = served.leave_out(&stages, lanes.map(str::to_owned).collect::<HashSet<_>>());
            let whole = pauses.into_iter().find(|pause| !is_left || (pause.stage.is_none() && pause.lane.is_none()));
            served.set_limits(
                limits.as_ref().and_then(|limits| limits.at_most),
                limits.as_ref().and_then(|limits| limits.retry_delay),
            );
            let window = window_of(info.entity, options.window).map_err(|finding| Error::Unsafe(vec![finding]))?;
            *closed = match (whole, window) {
                (Some(pause), _) => Some(Closed::Paused(pause)),
                (None, Some(window)) => {
                    let now = present(&mut **session)?;
                    (!window.is_open(now)).then(|| Closed::Window(window.next_opening(now)))
                }
                (None, None) => None,
            };
        }
        Ok(self.served.iter().map(|served| served.closed.clone()).collect())
    }

    /// Takes a worker's turn for an entity: it claims a row, or a group of rows, and works it to its end.
    ///
    /// # Errors
    ///
    /// [`Error::Unsafe`] if the table is not what the entity needs, [`Error::Setting`] if a handler has ended the transaction of
    /// the test, [`Error::Database`] and [`Error::Connect`] if the database keeps the worker from working.
    pub fn turn(&mut self, number: usize) -> Result<Turned, Error> {
        if self.served[number].closed.is_some() {
            return Ok(Turned { is_idle: true, ..Turned::default() });
        }
        if is_in_turn() {
            // MySQL forgets a savepoint at the next one of the same name.
            return Err(Error::Setting {
                setting: "a drain",
                found: format!("begun for {} inside a handler that another one runs", self.entity(number)),
                expected: "one that serves both entities: what a handler enqueues is worked after it",
            });
        }
        self.check_calls(number)?;
        if self.outer > 0 {
            self.connection()?.batch_execute(&format!("SAVEPOINT {TEST}"))?;
        }
        HEARD.take();
        let (turn, Noted { next, enqueued, warnings, .. }) = {
            let _in_turn = InTurn::enter(self.outer, &mut self.wanted);
            let turn = take_turn(&mut self.holder, &self.slot, number, &*self.served[number].runner.0);
            (turn, set_noted(None).unwrap_or_default())
        };
        let events = HEARD.take();
        if self.outer > 0
            && let Err(error) = self.connection()?.batch_execute(&format!("RELEASE SAVEPOINT {TEST}"))
        {
            return Err(Error::Setting {
                setting: "the transaction of the test",
                found: format!("ended by {}: {error}{}", self.blamed(&events), listed(&warnings)),
                expected: "a handler that leaves the test's transaction open: no COMMIT, no ROLLBACK, and on MySQL and MariaDB no \
                           statement that commits, as DDL does; test such a handler on a database of its own, by `run_until_idle`. \
                           On these two a deadlock with a parallel test ends it too: `SET SESSION TRANSACTION ISOLATION LEVEL READ \
                           COMMITTED` before the test's transaction begins",
            });
        }
        let is_trouble = matches!(turn, Turn::Trouble);
        if is_trouble {
            self.explain_trouble(number)?;
        }
        let next = if next.is_empty() { Vec::new() } else { self.times(next)? };
        let enqueued = enqueued.into_iter();
        let enqueued = enqueued.map(|(by, queue, type_name)| Enqueued { by, entity: self.name_of(queue), type_name });
        let enqueued = enqueued.collect();
        Ok(Turned { is_idle: matches!(turn, Turn::Idle), events, next, enqueued, is_trouble, warnings })
    }

    /// Refuses to wait for async calls that cannot run, because the test waits on the thread that would run them.
    fn check_calls(&self, number: usize) -> Result<(), Error> {
        if self.served[number].runner.0.calls().is_none_or(|calls| calls.respond_within(PATIENCE)) {
            return Ok(());
        }
        Err(Error::Setting {
            setting: "a drain",
            found: format!("blocking the tokio runtime that has to run the async calls of {}", self.entity(number)),
            expected: "`#[tokio::test(flavor = \"multi_thread\")]`, or a drain inside `tokio::task::spawn_blocking`, or calls on \
                       another runtime: `AsyncCalls::runtime(handle)`",
        })
    }

    /// Returns times by the clock of the test.
    fn times(&mut self, next: Vec<(Arc<str>, NextTime)>) -> Result<Times, Error> {
        let now = present(self.connection()?)?;
        let time = |next| match next {
            NextTime::In(delay) => TimeDelta::from_std(delay).ok().and_then(|delay| now.checked_add_signed(delay)),
            NextTime::At(time) => Some(time.into()),
        };
        Ok(next.into_iter().filter_map(|(key, next)| Some((key, time(next)?))).collect())
    }

    /// Returns when the next row that waits for its time is due, of all entities that are served.
    pub fn next_time(&mut self) -> Result<Option<DateTime<Utc>>, Error> {
        let session = self.holder.session()?;
        let mut soonest: Option<DateTime<Utc>> = None;
        for Served { runner, .. } in &self.served {
            let statement = next_time(runner.0.served().sql());
            let next = load_first::<Nullable<TimestampUtc>, Option<Instant>, _>(&mut **session, &statement)?;
            let next = next.flatten().map(DateTime::from);
            soonest = soonest.into_iter().chain(next).min();
        }
        Ok(soonest)
    }

    /// Tells whether a row of an entity is due, whatever keeps it back.
    pub fn has_due(&mut self, number: usize) -> Result<bool, Error> {
        let session = self.holder.session()?;
        Ok(self.served[number].runner.0.served().oldest_due(&mut **session)?.is_some())
    }

    /// Works an entity also outside of its window.
    pub fn ignore_window(&mut self, number: usize) {
        let closed = &mut self.served[number].closed;
        if matches!(closed, Some(Closed::Window(_))) {
            *closed = None;
        }
    }

    /// Returns the name of an entity that is served.
    pub fn entity(&self, number: usize) -> &'static str {
        self.served[number].runner.0.info().entity
    }

    fn name_of(&self, queue: TypeId) -> Option<&'static str> {
        let infos = self.served.iter().map(|served| served.runner.0.info());
        infos.filter(|info| info.queue == queue).map(|info| info.entity).next()
    }

    /// Names the attempt whose handler has just run.
    fn blamed(&self, events: &[Event]) -> String {
        let attempt = events.iter().rev().find_map(Event::attempt);
        attempt.map_or("a handler".to_owned(), |attempt| format!("the handler of {} {}", attempt.entity, attempt.key))
    }

    /// Returns what is wrong with the table, if that is why nothing could be done.
    fn explain_trouble(&mut self, number: usize) -> Result<(), Error> {
        let runner = &*self.served[number].runner.0;
        let session = self.holder.session()?;
        let findings = runner.check(&mut **session)?;
        if !findings.is_empty() {
            return Err(Error::Unsafe(findings));
        }
        match runner.served().stalled() {
            Some(why) => Err(Error::Setting {
                setting: "the queue",
                found: format!("standing still: {why}"),
                expected: "a table as the entity's migration makes it",
            }),
            None => Ok(()),
        }
    }
}

/// Returns what a worker has logged, as a remark.
fn listed(warnings: &[String]) -> String {
    if warnings.is_empty() { String::new() } else { format!(" ({})", warnings.join("; ")) }
}

/// Takes a turn. If it begins a call beside the worker, it ends with the answer.
fn take_turn<C: QueueConnection>(
    holder: &mut SessionHolder<'_, C>,
    slot: &Slot,
    number: usize,
    runner: &dyn Runner<C>,
) -> Turn {
    slot.note_turn_for(number);
    let one_turn = OneTurn::default();
    let mut worker = WorkerTurn { holder, slot, calls: &one_turn, stays: false };
    let begun = LocalTime::now();
    loop {
        let turn = runner.turn(&mut worker);
        match runner.calls() {
            Some(calls) if !matches!(turn, Turn::Trouble | Turn::GivenUp) && calls.counts().unsettled() > 0 => {
                one_turn.has_claimed.set(true);
                if begun.elapsed() > PATIENCE {
                    note_warning(|| format!("async calls have not ended within {PATIENCE:?}"));
                    return Turn::Trouble;
                }
                thread::sleep(PACE);
            }
            _ => return turn,
        }
    }
}

impl<C: QueueConnection> Drop for Workbench<'_, C> {
    /// Ends the transaction that may have begun with the end of the last message: the connection is the test's again.
    fn drop(&mut self) {
        self.holder.roll_back_idle();
    }
}

/// Has the library's transactions begin inside that of the test, only the wanted rows be claimed, and notes be taken, until it is
/// dropped.
struct InTurn<'w> {
    outer: u32,
    wanted: &'w mut Option<Wanted>,
}

impl<'w> InTurn<'w> {
    fn enter(outer: u32, wanted: &'w mut Option<Wanted>) -> Self {
        set_wanted(wanted.take());
        fail_no_more();
        set_noted(Some(Noted::default()));
        InTurn { outer: set_outer_transactions(outer), wanted }
    }
}

impl Drop for InTurn<'_> {
    fn drop(&mut self) {
        set_outer_transactions(self.outer);
        *self.wanted = set_wanted(None);
        fail_no_more();
        set_noted(None);
    }
}

/// A turn of one message, or of one group.
#[derive(Default)]
struct OneTurn {
    /// Whether calls have begun beside the worker.
    has_claimed: Cell<bool>,
}

impl WorkerCalls for OneTurn {
    fn note_claim(&self) {}

    fn may_find_rows(&self) -> bool {
        !self.has_claimed.get()
    }

    fn note_freed_others(&self) {}

    fn goes_on(&self) -> bool {
        true
    }

    fn stop(&self, why: &str) {
        note_warning(|| why.to_owned());
        tracing::warn!("{why}");
    }

    fn try_take_next(&self, _ended: Turn) -> bool {
        false
    }
}
