//! The start of a poller: the checks and then the threads.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::checks::{Checked, ColumnsInUse, check_in_time};
use super::gate::Gate;
use super::handle::PollerHandle;
use super::health::HealthBoard;
use super::heartbeat::Heartbeat;
use super::poller::Poller;
use super::reporter::Reporter;
use super::scout::Scout;
use super::serve::ServeLater;
use super::settings::PollerSettings;
use super::shared::{PollerSessions, PollerShared, board_for};
use super::upkeep;
use super::wake::WakeSignal;
use super::watchdog::Watchdog;
use super::worker::{Worker, check_reentrance};
use crate::attempt::{Runner, RunnerSettings, Tally};
use crate::backend::{Dialect, QueueConnection, SessionLimits};
use crate::control::Presence;
use crate::crash::{Crashes, MARKED, MARKED_IN_TURNS, Probation};
use crate::error::Error;
use crate::event::{Event, Events, RunningAttempts};
use crate::gauges::Gauges;
use crate::log::RateLimitedLog;
use crate::minutes::Minutes;
use crate::sync::{Mutex, TasksOf};

/// The shortest statement timeout. A claim and a probe may have to walk over all that an old snapshot keeps, however
/// short a handler's timeout is. A handler's own statement ends with its session, which the scout ends when the
/// handler's time is over.
const LEAST_STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the runtime of async calls may take to run a task before it counts as blocked.
const BLOCKED: Duration = Duration::from_secs(5);

impl<C: QueueConnection> Poller<C> {
    /// Checks the live tables and the server, then starts the workers.
    ///
    /// It logs its start, with what it serves by which settings, and its stop at INFO, and each row that becomes `FAILED`
    /// at WARN, with its key, tries and text. A failure that will be retried is logged at INFO, and trouble at WARN, a line
    /// for each cause and second. [`on_event`](Poller::on_event) tells an application the same.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a setting that makes no sense.
    /// [`Error::Connect`] if the pool gives no connection. [`Error::Unsafe`] if a table or the server breaks a promise
    /// of the queue: it names each finding and the SQL that mends it.
    pub fn start(self) -> Result<PollerHandle, Error> {
        start(self, false)
    }

    /// Processes the due rows, and returns when nothing is due: for tests, and for programs that cron starts.
    ///
    /// Outside their window, and while their queue is [paused](crate::Queueable::pause), messages are not processed, and
    /// the call does not wait for them. It logs at WARN what is paused.
    ///
    /// Rows that become due while it runs are processed too. The call does not wait for rows that are scheduled for
    /// later. A row that another process is running counts as due until it is settled, or as scheduled if the process has
    /// marked it within the last five seconds (see [`CrashAccounting`](crate::CrashAccounting)). While the database is away,
    /// the call waits. In lease mode, a row that another process has is scheduled for the end of its lease, so the call
    /// does not wait for it.
    ///
    /// # Errors
    ///
    /// Those of [`start`](Poller::start), and [`Error::Setting`] inside a handler, except in a call under a lease. The handler's row
    /// is due and locked until the handler returns. A suspect row that is to run alone waits for it too, and all other messages
    /// of the process wait for that row. Also on the only thread of the runtime that would run the calls of an `AsyncCalls`: there,
    /// await [`run_until_idle_async`](Poller::run_until_idle_async).
    pub fn run_until_idle(self) -> Result<Tally, Error> {
        Ok(start(self, true)?.wait_until_idle())
    }
}

/// Starts the poller. `until_idle`: it ends when nothing is due.
pub(super) fn start<C: QueueConnection>(mut poller: Poller<C>, until_idle: bool) -> Result<PollerHandle, Error> {
    let mut listeners = std::mem::take(&mut poller.listeners);
    let minutes = poller.settings.minutes.then(Minutes::default);
    listeners.collector = minutes.as_ref().map(|minutes| minutes.collector.clone());
    let running = poller.settings.register.then(Arc::<RunningAttempts>::default);
    listeners.running = running.clone();
    let (events, listeners) = listeners.start(poller.settings.redact.clone())?;
    let early = poller.stop.clone();
    let (shared, columns) = prepare(poller, until_idle, events, (minutes, running))?;
    early.stops((shared.clone(), shared.board.clone()))?;
    let handle = PollerHandle {
        has_ended: false,
        control: shared.clone(),
        board: shared.board.clone(),
        wake_signal: shared.wake_signal.clone(),
        events: shared.events.clone(),
        kept: Some((columns, listeners)),
    };
    let workers = shared.settings.workers;
    let queues = || shared.runners.iter().map(|runner| runner.info().key_prefix.clone()).collect();
    shared.events.tell(|| Event::PollerStarted { entities: entities(&shared), queues: queues(), workers });
    start_threads(&shared)?;
    log_start(&shared);
    Ok(handle)
}

/// Checks the settings, the entities, the live tables and the server. No thread runs yet.
fn prepare<C: QueueConnection>(
    poller: Poller<C>,
    until_idle: bool,
    events: Events,
    (minutes, running): (Option<Minutes>, Option<Arc<RunningAttempts>>),
) -> Result<(Arc<PollerShared<C>>, ColumnsInUse), Error> {
    let Poller { connections, settings, served, shares, tasks, stop, gauges, .. } = poller;
    let for_runners = settings.for_runner(events.clone(), Arc::default());
    let runners = build_runners(served, &settings, &for_runners)?;
    check_entities(&runners)?;
    let shares = workers_of(&runners, settings.workers, &shares)?;
    check_connections(&runners, &settings, &gauges, connections.max_size())?;
    if until_idle {
        check_reentrance(&runners)?;
        check_calls(&runners)?;
    }
    let gates = gates_of(&runners, &settings)?;
    let limits = session_limits(&runners, &settings);
    let (runners, Checked { database, process_start }) =
        check_in_time(&connections, &settings, limits, runners, || stop.is_stopped())?;
    let columns = ColumnsInUse::enter(&database, &runners)?;
    let crashes = Crashes::new(settings.crash_accounting, probation(&runners, process_start));
    let sessions = PollerSessions::new(connections, &database, limits, settings.pool_timeout, events);
    let presence = running.map(|running| presence_of(&runners, &settings, running));
    let shared = PollerShared {
        board: board_for(&runners, shares),
        wake_signal: WakeSignal::new(),
        until_idle,
        tasks: tasks.unwrap_or_else(TasksOf::blocked_caller),
        posts: Mutex::default(),
        silent: Mutex::default(),
        threads: Mutex::default(),
        crashes: Arc::new(crashes),
        log: RateLimitedLog::new(settings.redact.clone()),
        events: for_runners.events,
        health: HealthBoard::new(runners.len()),
        writer: for_runners.writer,
        sessions,
        settings,
        gauges,
        shown: Mutex::default(),
        minutes,
        presence,
        runners,
        gates,
    };
    Ok((Arc::new(shared), columns))
}

/// Checks the gauges, and that the pool has enough connections.
fn check_connections<C: QueueConnection>(
    runners: &[Box<dyn Runner<C>>],
    settings: &PollerSettings,
    gauges: &Gauges,
    connections: Option<u32>,
) -> Result<(), Error> {
    gauges.check(&runners.iter().map(|runner| runner.info().queue).collect::<Vec<_>>())?;
    settings.connections(has_leases(runners), gauges.every.is_some() || upkeep::is_any(runners)).check(connections)
}

/// Returns what a poller tells others of itself.
fn presence_of<C: QueueConnection>(
    runners: &[Box<dyn Runner<C>>],
    settings: &PollerSettings,
    running: Arc<RunningAttempts>,
) -> Presence {
    let queues = runners.iter().map(|runner| {
        let info = runner.info();
        (info.key_prefix.clone(), info.entity, settings_with((info.settings)(), settings))
    });
    Presence::new((settings.application.as_deref(), settings.workers), queues, running)
}

/// Returns the settings of an entity with those of the poller that change how its rows are processed.
fn settings_with(own: BTreeMap<String, String>, settings: &PollerSettings) -> BTreeMap<String, String> {
    let window = settings.window.as_ref().map(|window| ("the poller's window".to_owned(), window.to_string()));
    own.into_iter().chain(window).collect()
}

/// Returns the names of the entities that are served.
fn entities<C: QueueConnection>(shared: &PollerShared<C>) -> Vec<&'static str> {
    shared.runners.iter().map(|runner| runner.info().entity).collect()
}

/// Logs what is served with which settings.
fn log_start<C: QueueConnection>(shared: &PollerShared<C>) {
    let infos = shared.runners.iter().map(|runner| runner.info());
    let served: Vec<_> = infos.map(|info| format!("{}: {}", info.entity, info.way)).collect();
    let (entities, database) = (entities(shared), &*shared.sessions.database);
    let PollerSettings { workers, poll_interval, lock_timeout, .. } = shared.settings;
    let has_reporter = shared.gauges.every.is_some() || upkeep::is_any(&shared.runners);
    let connections = shared.settings.connections(has_leases(&shared.runners), has_reporter);
    let what = "the poller has started";
    tracing::info!(?entities, workers, %connections, database, ?served, ?poll_interval, ?lock_timeout, "{what}");
}

/// Builds a runner for each entity that is served.
fn build_runners<C: QueueConnection>(
    served: Vec<Box<dyn ServeLater<C>>>,
    settings: &PollerSettings,
    for_runners: &RunnerSettings,
) -> Result<Vec<Box<dyn Runner<C>>>, Error> {
    if served.is_empty() {
        let (setting, found) = ("the number of entities served", "0".to_owned());
        return Err(Error::Setting { setting, found, expected: "at least one `serve`" });
    }
    settings.check()?;
    served.into_iter().map(|serve| Ok(serve.build(for_runners.clone())?.0)).collect()
}

/// Returns the limits of the workers' sessions: those of the runner whose handlers may take longest.
fn session_limits<C: QueueConnection>(runners: &[Box<dyn Runner<C>>], settings: &PollerSettings) -> SessionLimits {
    let timeout = runners.iter().map(|runner| runner.info().timeout).max().unwrap_or_default();
    let statement_timeout = timeout.max(LEAST_STATEMENT_TIMEOUT);
    SessionLimits { lock_timeout: settings.lock_timeout, timeout, statement_timeout, attempts: true }
}

/// Returns which rows this process marks: it may have started in place of one that a row has ended.
fn probation<C: QueueConnection>(runners: &[Box<dyn Runner<C>>], before: DateTime<Utc>) -> Probation {
    let counting = runners.iter().map(|runner| runner.info()).filter(|info| info.counts_crashes);
    let left = counting.map(|info| {
        let most = if info.target.options.lanes.is_some() { MARKED_IN_TURNS } else { MARKED };
        (info.key_prefix.clone(), most.into())
    });
    Probation { before, left: left.collect() }
}

/// Starts the scout and the heartbeat, and then the workers. Without the first two no worker is of any use, and later the
/// application may have taken every other connection.
fn start_threads<C: QueueConnection>(shared: &Arc<PollerShared<C>>) -> Result<(), Error> {
    let unknown = || shared.sessions.unknown();
    until_tried(|has_tried| {
        Scout::new(shared.clone(), unknown()).spawn(Some(has_tried.clone()))?;
        Heartbeat::new(shared, unknown()).map_or(Ok(()), |heartbeat| heartbeat.spawn(Some(has_tried.clone())))?;
        Reporter::new(shared, unknown(), false).map_or(Ok(()), |reporter| reporter.spawn(Some(has_tried.clone())))?;
        // A file does not fall silent.
        if C::Backend::ONE_WRITER { Ok(()) } else { Watchdog::start(shared) }
    })?;
    until_tried(|has_tried| {
        (0..shared.settings.workers).try_for_each(|number| {
            Worker::new(shared.clone(), unknown()).spawn(format!("queueable-{number}"), Some(has_tried.clone()))
        })
    })
}

/// Starts threads, and waits until each has tried to open its session: it drops its sender when it has one, or has logged
/// that it could not open one.
fn until_tried(start: impl FnOnce(Sender<()>) -> Result<(), Error>) -> Result<(), Error> {
    let (has_tried, have_tried) = mpsc::channel();
    start(has_tried)?;
    while have_tried.recv().is_ok() {}
    Ok(())
}

/// Tells whether one of the runners has leases.
fn has_leases<C: QueueConnection>(runners: &[Box<dyn Runner<C>>]) -> bool {
    runners.iter().any(|runner| runner.info().heartbeat_interval.is_some())
}

fn check_entities<C: QueueConnection>(runners: &[Box<dyn Runner<C>>]) -> Result<(), Error> {
    for (i, runner) in runners.iter().enumerate() {
        if runners[..i].iter().any(|other| other.info().queue == runner.info().queue) {
            let (setting, found) = ("an entity that is served twice", runner.info().entity.to_owned());
            return Err(Error::Setting { setting, found, expected: "one handler for each entity" });
        }
    }
    Ok(())
}

/// Refuses to wait for async calls that cannot run, because the waiting thread is the one that would run them.
fn check_calls<C: QueueConnection>(runners: &[Box<dyn Runner<C>>]) -> Result<(), Error> {
    let blocked = runners.iter().find(|runner| runner.calls().is_some_and(|calls| !calls.respond_within(BLOCKED)));
    blocked.map_or(Ok(()), |runner| {
        Err(Error::Setting {
            setting: "run_until_idle",
            found: format!("blocking the tokio runtime that has to run the async calls of {}", runner.info().entity),
            expected: "`run_until_idle_async().await`, or a call inside `tokio::task::spawn_blocking`, or calls on another \
                       runtime: `AsyncCalls::runtime(handle)`",
        })
    })
}

/// Returns how many of the workers may work for each runner at the same time: the number that was asked for, or else
/// all but one for each other runner, and at least half of them.
fn workers_of<C: QueueConnection>(
    runners: &[Box<dyn Runner<C>>],
    workers: usize,
    asked: &[(TypeId, &'static str, usize)],
) -> Result<Vec<usize>, Error> {
    let setting = "the workers of one entity";
    for (queue, entity, most) in asked {
        if *most == 0 {
            return Err(Error::Setting { setting, found: format!("0 of {entity}"), expected: "at least 1" });
        }
        if runners.iter().all(|runner| runner.info().queue != *queue) {
            let expected = "an entity that the poller serves";
            return Err(Error::Setting { setting, found: format!("those of {entity}"), expected });
        }
    }
    let fair = workers.saturating_sub(runners.len() - 1).max(workers.div_ceil(2));
    let most_of = |queue| asked.iter().rev().find(|(asked, ..)| *asked == queue).map_or(fair, |(.., most)| *most);
    Ok(runners.iter().map(|runner| most_of(runner.info().queue)).collect())
}

/// Makes the gate of each runner.
fn gates_of<C: QueueConnection>(runners: &[Box<dyn Runner<C>>], settings: &PollerSettings) -> Result<Vec<Gate>, Error> {
    let (mut gates, mut findings) = (Vec::new(), Vec::new());
    for info in runners.iter().map(|runner| runner.info()) {
        match Gate::new(info.entity, info.target.options.window, settings.window.as_ref()) {
            Ok(gate) => gates.push(gate),
            Err(finding) => findings.push(finding),
        }
    }
    if findings.is_empty() { Ok(gates) } else { Err(Error::Unsafe(findings)) }
}
