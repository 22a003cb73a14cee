//! The poller: builder and start.

use std::any::TypeId;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use diesel::r2d2::{ConnectionManager, Pool, R2D2Connection};

use super::columns_in_use::ColumnsInUse;
use super::gate::Gate;
use super::handle::PollerHandle;
use super::heartbeat::Heartbeat;
use super::listener::Listener;
use super::preflight::{check_entities, check_pool, check_tables, connections_of, window_gates, workers_of};
use super::reentrance::check_reentrance;
use super::scout::Scout;
use super::serve::{HandlerFor, ServeLater, Served};
use super::sessions::PollerSessions;
use super::settings::PollerSettings;
use super::shared::{PollerShared, spawn};
use super::worker::Worker;
use crate::attempt::{Runner, RunnerSettings, Tally};
use crate::backend::{ConnectionSource, Connections, QueueConnection, SessionLimits};
use crate::claim::ClaimStyle;
use crate::crash::{CrashAccounting, Crashes};
use crate::entity::{Entity, StageOf, Window};
use crate::error::Error;
use crate::event::{Event, Events, Listeners};
use crate::log::RateLimitedLog;
use crate::redact::Redact;

/// The shortest statement timeout. A claim and a probe may have to walk over all that an old snapshot keeps, however
/// short a handler's timeout is. A handler's own statement ends with its session, which the scout ends when the
/// handler's time is over.
const LEAST_STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Processes the due rows of one or several entities. Build it, then [`start`](Poller::start) it, or let it
/// [`run_until_idle`](Poller::run_until_idle).
///
/// ```no_run
/// # use diesel::prelude::*;
/// # use diesel::r2d2::{ConnectionManager, Pool};
/// # use queueable::{HandlerResult, Message, Outcome, Poller, Queueable};
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # diesel::table! { invoices (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// # #[derive(Queryable, Selectable, Queueable)] struct Invoice { id: i64 }
/// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
/// # fn send(_: &Invoice, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::new(ConnectionManager::<SqliteConnection>::new("app.sqlite"))?;
/// let handle = Poller::new(pool).serve::<Payment>(charge).serve::<Invoice>(send).workers(8).start()?;
/// // ...
/// handle.shutdown(std::time::Duration::from_secs(10));
/// # Ok(()) }
/// ```
#[must_use = "a poller does nothing until it is started"]
pub struct Poller<C: R2D2Connection + 'static> {
    pub(crate) connections: Connections<C>,
    pub(crate) settings: PollerSettings,
    served: Vec<Box<dyn ServeLater<C>>>,
    /// The largest number of workers for a queue, with the entity's name.
    shares: Vec<(TypeId, &'static str, usize)>,
    pub(super) listeners: Listeners,
}

impl<C: R2D2Connection + 'static> Poller<C> {
    /// Creates a poller that serves nothing yet.
    ///
    /// Each worker keeps one connection of the pool while the poller runs, and the poller itself keeps one more: the
    /// pool's `max_size` must be larger than the number of workers. The connections get session settings of the queue's
    /// own and are closed, not given back.
    ///
    /// On PostgreSQL the sessions have the `application_name` `queueable`, unless the URL, the environment or the role
    /// sets another. MySQL and MariaDB take a program's name when it connects, and Diesel's connections give none.
    ///
    /// The pool belongs to the application, and r2d2 logs each of its failed tries.
    /// [`PoolErrorLog`](crate::PoolErrorLog) logs less.
    ///
    /// A handler that goes on past its timeout loses its session, and the poller records its failure. The thread cannot
    /// be ended: another worker takes its place, with one more connection of the pool, up to
    /// [`max_stuck_workers`](PollerSettings::max_stuck_workers). If the pool has none left, the new worker asks again
    /// until it gets one. On SQLite no worker is replaced: the handler keeps the only write lock until it returns.
    pub fn new(pool: Pool<ConnectionManager<C>>) -> Self {
        Poller::of(Connections::Pool(pool))
    }

    /// Creates a poller that serves nothing yet, with connections of its own beside the application's pool. Each worker
    /// keeps one while the poller runs, the poller itself keeps one more, and so do the leases. `source` makes them: an
    /// r2d2 `ConnectionManager`, or a closure that returns a connection or an error.
    ///
    /// After an outage it works again within a second. A pool may take longer, because it tries to connect after pauses
    /// that grow to half its `connection_timeout`: to 15 seconds with r2d2's default of 30.
    ///
    /// The URL sets how long a connection attempt may take, for example `connect_timeout=2` on PostgreSQL.
    ///
    /// ```no_run
    /// # use diesel::prelude::*;
    /// # use diesel::r2d2::ConnectionManager;
    /// # use queueable::{HandlerResult, Message, Outcome, Poller, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
    /// # fn main() -> Result<(), queueable::Error> {
    /// let manager = ConnectionManager::<SqliteConnection>::new("app.sqlite");
    /// let handle = Poller::with_own_connections(manager).serve::<Payment>(charge).start()?;
    /// # Ok(()) }
    /// ```
    pub fn with_own_connections(source: impl ConnectionSource<Connection = C>) -> Self {
        Poller::of(Connections::Source(Arc::new(source)))
    }

    fn of(connections: Connections<C>) -> Self {
        Poller {
            connections,
            settings: PollerSettings::default(),
            served: Vec::new(),
            shares: Vec::new(),
            listeners: Listeners::default(),
        }
    }

    /// Serves an entity with a handler of the entity's mode: a [`Handler`](crate::Handler) or a closure, in lease mode
    /// a [`LeaseHandler`](crate::LeaseHandler) or two closures.
    pub fn serve<Q>(mut self, handler: impl HandlerFor<Q, C> + 'static) -> Self
    where
        Q: Entity + 'static,
    {
        self.served.push(Box::new(Served::<Q, _>::new(handler, None)));
        self
    }

    /// Serves an entity with a handler like [`serve`](Poller::serve), but only its rows in these stages. Other pollers
    /// serve the other rows, for example on machines that have the means for a stage. Some poller has to serve each
    /// stage. A stage of another enum than the entity's does not compile.
    ///
    /// A claim passes over the due rows of the other stages in the queue's index. On PostgreSQL that takes some 20
    /// milliseconds for each 100,000 of them that have been due longer. If so many rows wait for another stage, let
    /// their poller catch up, or make the stages queues of their own, each with a `prefix`.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::r2d2::{ConnectionManager, Pool};
    /// # use queueable::{HandlerResult, Message, Outcome, Poller, Queueable, Stage};
    /// # diesel::table! { invoices (id) { id -> BigInt, } }
    /// # #[derive(Debug, Clone, Copy, PartialEq, Eq, Stage)] enum InvoiceStage { Render, Send, Book }
    /// # #[derive(Queryable, Selectable, Queueable)] #[queue(stage = InvoiceStage)] struct Invoice { id: i64 }
    /// # fn render(_: &Invoice, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::next(InvoiceStage::Send)) }
    /// # fn poller(pool: Pool<ConnectionManager<SqliteConnection>>) {
    /// let renderer = Poller::new(pool).serve_stages::<Invoice>(&[InvoiceStage::Render], render);
    /// # }
    /// ```
    pub fn serve_stages<Q>(mut self, stages: &[impl StageOf<Q>], handler: impl HandlerFor<Q, C> + 'static) -> Self
    where
        Q: Entity + 'static,
    {
        let stages = stages.iter().map(|stage| stage.name()).collect();
        self.served.push(Box::new(Served::<Q, _>::new(handler, Some(stages))));
        self
    }
}

impl<C: QueueConnection> Poller<C> {
    /// Replaces all settings at once, for example by those of a configuration file.
    pub fn settings(mut self, settings: PollerSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets how many messages are handled at the same time. The default is 4.
    pub fn workers(mut self, workers: usize) -> Self {
        self.settings.workers = workers;
        self
    }

    /// Sets the largest number of workers that work for one entity at the same time, so that slow work leaves workers
    /// to the others.
    ///
    /// By default, if a poller serves several entities, each may have all workers but one for each other entity, and at
    /// least half of them. So the calls of a slow entity never keep all workers. A number above that of the workers
    /// means all of them.
    ///
    /// [`start`](Poller::start) refuses zero, and an entity that the poller does not serve, with [`Error::Setting`].
    ///
    /// ```no_run
    /// # use diesel::prelude::*;
    /// # use diesel::r2d2::{ConnectionManager, Pool};
    /// # use queueable::{HandlerResult, Message, Outcome, Poller, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # diesel::table! { invoices (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Invoice { id: i64 }
    /// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
    /// # fn render(_: &Invoice, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
    /// # fn poller(pool: Pool<ConnectionManager<SqliteConnection>>) {
    /// // Rendering takes seconds. Six workers are always free for payments.
    /// let poller = Poller::new(pool).serve::<Payment>(charge).serve::<Invoice>(render).workers(8).workers_for::<Invoice>(2);
    /// # }
    /// ```
    pub fn workers_for<Q: Entity>(mut self, workers: usize) -> Self {
        self.shares.push((TypeId::of::<Q::Queue>(), Q::ENTITY, workers));
        self
    }

    /// Sets how long an idle poller waits between two probes for due rows. The default is 1 second.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.settings.poll_interval = interval;
        self
    }

    /// Sets how long a statement waits for a lock that another session holds. The default is 5 seconds.
    pub fn lock_timeout(mut self, wait: Duration) -> Self {
        self.settings.lock_timeout = wait;
        self
    }

    /// Sets how long running handlers may go on when the handle is dropped, or the future of
    /// [`run_until`](Poller::run_until) is told to stop. The default is 30 seconds.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.settings.shutdown_grace = grace;
        self
    }

    /// Sets how many rows one claim takes at most in lease mode. By default that depends on how long messages take, see
    /// [`PollerSettings::claim_batch`].
    pub fn claim_batch(mut self, rows: u32) -> Self {
        self.settings.claim_batch = Some(rows);
        self
    }

    /// Sets how rows are claimed in lease mode.
    pub fn claim_style(mut self, style: ClaimStyle) -> Self {
        self.settings.claim_style = style;
        self
    }

    /// Processes messages only at some hours, for example `"Mon-Fri 22:00-06:00 Europe/Berlin".parse()?`; see
    /// [`PollerSettings::window`].
    ///
    /// [`run_until_idle`](Poller::run_until_idle) returns at once outside the window.
    pub fn window(mut self, window: Window) -> Self {
        self.settings.window = Some(window);
        self
    }

    /// Takes part in control: the poller heeds the pauses that operators ask for by [`pause`](crate::Queueable::pause),
    /// in the table that [`Migrations::control`](crate::Migrations::control) adds. It reads the table once a second.
    /// Without this call it never does.
    ///
    /// [`start`](Poller::start) refuses a table that is missing or cannot be read, with [`Error::Unsafe`]. If a running
    /// poller cannot read it for a while, because the connection is lost or the table dropped, it says so once at WARN,
    /// and what was paused stays paused: a pause never ends because of trouble. A pause with an end ends at it all the
    /// same. Begin with the migration, then start the pollers with this call, and pause from then on: a poller without
    /// it knows of no pause.
    ///
    /// [`run_until_idle`](Poller::run_until_idle) leaves the rows of a paused queue alone, and returns when nothing else
    /// is due. It says at WARN which pauses it has met.
    ///
    /// ```no_run
    /// # use diesel::prelude::*;
    /// # use diesel::r2d2::{ConnectionManager, Pool};
    /// # use queueable::{HandlerResult, Message, Outcome, Poller, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
    /// # fn serve(pool: Pool<ConnectionManager<SqliteConnection>>) -> Result<(), queueable::Error> {
    /// let handle = Payment::poller(pool, charge).control().start()?;
    /// # Ok(()) }
    /// ```
    pub fn control(mut self) -> Self {
        self.settings.control = true;
        self
    }

    /// Sets for how many stuck handlers the poller replaces the worker, see [`PollerSettings::max_stuck_workers`].
    pub fn max_stuck_workers(mut self, most: usize) -> Self {
        self.settings.max_stuck_workers = Some(most);
        self
    }

    /// Sets how the poller detects rows whose handler ends the whole process. The default is [`CrashAccounting::On`].
    pub fn crash_accounting(mut self, accounting: CrashAccounting) -> Self {
        self.settings.crash_accounting = accounting;
        self
    }

    /// Sets where the workers keep their record files, see [`PollerSettings::crash_directory`].
    pub fn crash_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.settings.crash_directory = Some(directory.into());
        self
    }

    /// Rewrites the text of each failure before the poller stores it on a row or logs it at any level, in all modes. An
    /// error's text may quote a user's input, and a database quotes values of the row.
    ///
    /// Passwords in URLs (`scheme://user:password@host`) and settings (`password=..`) are hidden in any case. If the
    /// function panics, the text says so and nothing else. The function does not see a handler's own log lines, or the
    /// output of a panic.
    ///
    /// ```no_run
    /// # use diesel::prelude::*;
    /// # use diesel::r2d2::{ConnectionManager, Pool};
    /// # use queueable::{HandlerResult, Message, Outcome, Poller, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
    /// # fn poller(pool: Pool<ConnectionManager<SqliteConnection>>) {
    /// let hide_digits = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "#");
    /// let poller = Poller::new(pool).serve::<Payment>(charge).redact(hide_digits);
    /// # }
    /// ```
    pub fn redact(mut self, redact: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.settings.redact = Some(Redact::new(redact));
        self
    }

    /// Calls `listener` for each [`Event`]: a message begins, succeeds, fails, is given up; a handler is past its timeout;
    /// a connection is lost and regained; the poller starts and stops. Several listeners hear every event, each.
    ///
    /// An event is told after the database has confirmed what it says. The events of one row come in their order; those of
    /// several workers are mixed.
    ///
    /// The listeners share a thread of their own, so a slow one neither slows nor stops a worker. Up to 4096 events wait for
    /// it; more are dropped, counted, and told as [`Event::EventsDropped`] and in the log. So count with the feature
    /// `metrics`, which misses none, and listen for what to do about a message.
    ///
    /// If a listener panics, the panic is logged, once, and the listener hears the next event. When the poller stops, it
    /// waits until the listeners have heard everything, but no longer than 5 seconds.
    ///
    /// A poller without a listener does nothing for its events. With one, it also reads the database's clock every ten
    /// seconds.
    ///
    /// ```
    /// # use diesel::connection::SimpleConnection;
    /// # use diesel::prelude::*;
    /// # use diesel::r2d2::{ConnectionManager, Pool};
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::{Failure, Message, Migrations, Outcome, Queueable};
    /// use std::sync::mpsc;
    ///
    /// use queueable::Event;
    ///
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # let file = std::env::temp_dir().join(format!("queueable-on-event-{}.sqlite", std::process::id()));
    /// # let url = file.to_str().ok_or("a path that is text")?;
    /// # let pool = Pool::builder().max_size(2).build(ConnectionManager::<SqliteConnection>::new(url))?;
    /// # let mut connection = pool.get()?;
    /// # connection.batch_execute("PRAGMA journal_mode = WAL; CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL)")?;
    /// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
    /// # diesel::insert_into(payments::table).values((payments::id.eq(7), Payment::due_now())).execute(&mut connection)?;
    /// # drop(connection);
    /// # let charge = |_: &Payment, _: &mut Message<'_, SqliteConnection>| Err::<Outcome, _>(Failure::fatal("the card has expired"));
    /// let (sender, given_up) = mpsc::channel();
    /// let poller = Payment::poller(pool, charge).workers(1).on_event(move |event| {
    ///     if let Event::GaveUp(attempt) = event {
    ///         let _ = sender.send((attempt.key.to_string(), attempt.error.clone()));
    ///     }
    /// });
    /// poller.run_until_idle()?;
    /// assert_eq!(given_up.recv()?, ("7".to_owned(), Some("the card has expired".to_owned())));
    /// # for end in ["", "-wal", "-shm"] {
    /// #     let _ = std::fs::remove_file(format!("{url}{end}"));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn on_event(mut self, listener: impl FnMut(&Event) + Send + 'static) -> Self {
        self.listeners.add(listener);
        self
    }

    /// Prefetches rows however slowly messages come: for tests.
    #[doc(hidden)]
    pub fn prefetch_at_once(mut self) -> Self {
        self.settings.prefetch_at_once = true;
        self
    }

    /// Makes claims begin at the low-water mark from the first on, as they do once a full probe is slow: for tests.
    #[doc(hidden)]
    pub fn low_water_at_once(mut self) -> Self {
        self.settings.low_water_at_once = true;
        self
    }

    /// Checks the live tables and the server, then starts the workers.
    ///
    /// It logs its start, with what it serves by which settings, and its stop at INFO, and each row that becomes `FAILED`
    /// at WARN, with its key, tries and text. A failure that will be retried is logged at INFO, and trouble at WARN, a line
    /// for each cause and second. [`on_event`](Poller::on_event) tells an application the same.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a setting that makes no sense, and for a crash directory that cannot be used.
    /// [`Error::Connect`] if the pool gives no connection. [`Error::Unsafe`] if a table or the server breaks a promise
    /// of the queue: it names each finding and the SQL that mends it.
    pub fn start(self) -> Result<PollerHandle, Error> {
        self.start_for(false)
    }

    /// Processes the due rows, and returns when nothing is due: for tests, and for programs that cron starts.
    ///
    /// Outside their window, and while their queue is [paused](crate::Queueable::pause), messages are not processed, and
    /// the call does not wait for them. It logs at WARN what is paused.
    ///
    /// Rows that become due while it runs are processed too. The call does not wait for rows that are scheduled for
    /// later. A row that another process is running counts as due until it is settled, and while the database is away,
    /// the call waits. In lease mode, a row that another process has is scheduled for the end of its lease, so the call
    /// does not wait for it.
    ///
    /// # Errors
    ///
    /// Those of [`start`](Poller::start), and [`Error::Setting`] inside a handler whose end the call would wait for: a
    /// handler of the same queue, on SQLite of any queue in the same file, except in a call under a lease.
    pub fn run_until_idle(self) -> Result<Tally, Error> {
        Ok(self.start_for(true)?.wait_until_idle())
    }

    /// Starts the poller. `until_idle`: it ends when nothing is due.
    pub(super) fn start_for(mut self, until_idle: bool) -> Result<PollerHandle, Error> {
        let listeners = std::mem::take(&mut self.listeners);
        let (events, listeners) = listeners.start(self.settings.redact.clone())?;
        let (shared, columns) = self.prepare(until_idle, events)?;
        let mut handle =
            PollerHandle { threads: Vec::new(), control: shared.clone(), _columns: columns, _listeners: listeners };
        let workers = shared.settings.workers;
        shared.events.tell(|| Event::PollerStarted { entities: entities(&shared), workers });
        start_threads(&shared, until_idle, &mut handle.threads)?;
        log_start(&shared);
        Ok(handle)
    }

    /// Checks the settings, the entities, the live tables and the server, and opens the crash records. No thread runs
    /// yet.
    fn prepare(self, until_idle: bool, events: Events) -> Result<(Arc<PollerShared<C>>, ColumnsInUse), Error> {
        let Poller { connections, settings, served, shares, .. } = self;
        let for_runners = settings.for_runner(events.clone(), Arc::default());
        let runners = build_runners(served, &settings, &for_runners)?;
        check_entities(&runners)?;
        let shares = workers_of(&runners, settings.workers, &shares)?;
        check_pool(&settings, &runners, connections.max_size())?;
        let gates = window_gates(&runners, &settings)?.into_iter().map(Gate::new).collect();
        let limits = session_limits(&runners, &settings);
        let database = check_tables(&connections, &settings, limits, &runners)?;
        let columns = ColumnsInUse::enter(&database, &runners)?;
        if until_idle {
            check_reentrance(&database, &runners)?;
        }
        // Before the first claim, because this process may have started in place of a crashed one.
        let crashes = open_crashes(&runners, &settings, &database)?;
        let sessions = PollerSessions::new(connections, database, limits, settings.pool_timeout, events);
        let shared = PollerShared::new(sessions, settings, runners, shares, gates, crashes, for_runners);
        Ok((Arc::new(shared), columns))
    }
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
    let connections = connections_of(&shared.settings, &shared.runners);
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

/// Opens the crash records of the queues that keep them.
fn open_crashes<C: QueueConnection>(
    runners: &[Box<dyn Runner<C>>],
    settings: &PollerSettings,
    database: &str,
) -> Result<Crashes, Error> {
    let recorded = runners.iter().map(|runner| runner.info()).filter(|info| info.is_recorded);
    let queues = recorded.map(|info| info.key_prefix.clone()).collect();
    let log = RateLimitedLog::new(settings.redact.clone());
    Crashes::open(settings.crash_accounting, settings.crash_directory.as_deref(), database, queues, log)
}

/// Starts the scout and the heartbeat, and then the workers. Without the first two no worker is of any use, and later the
/// application may have taken every other connection.
fn start_threads<C: QueueConnection>(
    shared: &Arc<PollerShared<C>>,
    until_idle: bool,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<(), Error> {
    let scout = Scout::new(shared.clone(), Listener::new(shared), until_idle);
    until_tried(|has_tried| {
        let scouts = has_tried.clone();
        threads.push(spawn(shared, "queueable-scout".to_owned(), move || scout.run(scouts))?);
        if let Some(heartbeat) = Heartbeat::new(shared) {
            threads.push(spawn(shared, "queueable-heart".to_owned(), move || heartbeat.run(has_tried))?);
        }
        Ok(())
    })?;
    until_tried(|has_tried| {
        for number in 0..shared.settings.workers {
            let (worker, has_tried) = (Worker::new(shared.clone()), Some(has_tried.clone()));
            threads.push(spawn(shared, format!("queueable-{number}"), move || worker.run(has_tried))?);
        }
        Ok(())
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

impl<C: QueueConnection> fmt::Debug for Poller<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller")
            .field("settings", &self.settings)
            .field("served", &self.served.len())
            .finish_non_exhaustive()
    }
}
