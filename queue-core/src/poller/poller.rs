//! The poller, and how it is built.

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use diesel::r2d2::R2D2Connection;

use super::handle::EarlyStop;
use super::serve::{ConnectionFor, HandlerFor, ServeLater, Served};
use super::settings::PollerSettings;
use crate::backend::{ConnectionSource, Connections, ConnectionsFrom, QueueConnection};
use crate::claim::ClaimStyle;
use crate::crash::CrashAccounting;
use crate::entity::{Entity, LeaseMode, StageOf, Window};
use crate::event::{Event, Listeners};
use crate::gauges::Gauges;
use crate::handler::{Failure, HandlerResult, Lease, Message};
use crate::log::Redact;
use crate::sync::TasksOf;

/// Processes the due rows of one or several entities. Build it, then [`start`](Poller::start) it, or let it
/// [`run_until_idle`](Poller::run_until_idle).
///
/// ```no_run
/// # use diesel::prelude::*;
/// # use queueable::{HandlerResult, Message, Outcome, Poller, Queueable};
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # diesel::table! { invoices (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// # #[derive(Queryable, Selectable, Queueable)] struct Invoice { id: i64 }
/// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
/// # fn send(_: &Invoice, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let handle = Poller::<SqliteConnection>::new("app.sqlite").serve::<Payment>(charge).serve::<Invoice>(send).workers(8).start()?;
/// // ...
/// handle.shutdown(std::time::Duration::from_secs(10));
/// # Ok(()) }
/// ```
#[must_use = "a poller does nothing until it is started"]
pub struct Poller<C: R2D2Connection + 'static> {
    pub(crate) connections: Connections<C>,
    pub(crate) settings: PollerSettings,
    pub(super) served: Vec<Box<dyn ServeLater<C>>>,
    /// The largest number of workers for a queue, with the entity's name.
    pub(super) shares: Vec<(TypeId, &'static str, usize)>,
    pub(super) listeners: Listeners,
    /// Where the tasks run that handlers spawn. `None`: where the poller is started.
    pub(super) tasks: Option<TasksOf>,
    pub(super) stop: EarlyStop,
    pub(super) gauges: Gauges,
}

impl<C: R2D2Connection + 'static> Poller<C> {
    /// Creates a poller that serves nothing yet. It takes its connections from the database's URL, or from an r2d2 pool.
    ///
    /// Each worker keeps one connection while the poller runs, the poller itself keeps one more, and so do leases. With a
    /// URL the poller makes them, and works again within a second after an outage. On PostgreSQL a connect may take ten seconds,
    /// or as long as `connect_timeout` in the URL or `PGCONNECT_TIMEOUT` says.
    ///
    /// A pool's `max_size` must be larger than the number of workers. Its connections get session settings of the queue's own
    /// and are closed, not given back. After an outage a pool waits for up to half its `connection_timeout` before it
    /// connects: for 15 seconds with r2d2's default of 30.
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
    pub fn new(connections: impl ConnectionsFrom<C>) -> Self {
        Poller::of(connections.connections())
    }

    /// Creates a poller that serves nothing yet, with connections of its own, as [`new`](Poller::new) does with a URL.
    /// `source` makes them: a closure that returns a connection or an error, or an r2d2 `ConnectionManager`.
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
            tasks: None,
            stop: EarlyStop::default(),
            gauges: Gauges::default(),
        }
    }

    /// Serves an entity with a handler of the entity's mode: a [`Handler`](crate::Handler) or a closure, in lease mode
    /// a [`LeaseHandler`](crate::LeaseHandler) or two closures. The arguments of a closure need their types here, and none
    /// with [`serve_with`](Poller::serve_with).
    pub fn serve<Q>(mut self, handler: impl HandlerFor<Q, C> + 'static) -> Self
    where
        Q: Entity + 'static,
    {
        self.served.push(Box::new(Served::<Q, _>::new(handler, None)));
        self
    }

    /// Serves an entity with a closure, whose arguments need no types. In lease mode, see
    /// [`serve_lease_with`](Poller::serve_lease_with).
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::r2d2::{ConnectionManager, Pool};
    /// # use queueable::{Outcome, Poller, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # diesel::table! { invoices (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Invoice { id: i64 }
    /// # fn poller(pool: Pool<ConnectionManager<SqliteConnection>>) {
    /// let poller = Poller::new(pool)
    ///     .serve_with::<Payment>(|payment, message| {
    ///         diesel::delete(payments::table.find(payment.id)).execute(message.connection())?;
    ///         Ok(Outcome::Done)
    ///     })
    ///     .serve_with::<Invoice>(|_, _| Ok(Outcome::Skip));
    /// # }
    /// ```
    pub fn serve_with<Q>(
        self,
        handle: impl Fn(&Q, &mut Message<'_, C>) -> HandlerResult + HandlerFor<Q, C> + 'static,
    ) -> Self
    where
        Q: Entity + 'static,
    {
        self.serve(handle)
    }

    /// Serves an entity in lease mode with two closures, whose arguments need no types: `call` does the slow work, `apply`
    /// writes its answer, see [`LeaseHandler`](crate::LeaseHandler).
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::r2d2::{ConnectionManager, Pool};
    /// # use queueable::{Outcome, Poller, Queueable};
    /// # diesel::table! { webhooks (id) { id -> BigInt, url -> Text, answer -> Nullable<Integer>, } }
    /// # #[derive(Queryable, Selectable, Queueable)] #[queue(lease = "60s")] struct Webhook { id: i64, url: String }
    /// # fn post(_: &str, _: &str) -> Result<i32, std::io::Error> { Ok(200) }
    /// # fn poller(pool: Pool<ConnectionManager<SqliteConnection>>) {
    /// let poller = Poller::new(pool).serve_lease_with::<Webhook, _>(
    ///     |webhook, lease| Ok(post(&webhook.url, lease.idempotency_key())?),
    ///     |webhook, status, message| {
    ///         let row = diesel::update(webhooks::table.find(webhook.id));
    ///         row.set(webhooks::answer.eq(status)).execute(message.connection())?;
    ///         Ok(Outcome::Done)
    ///     },
    /// );
    /// # }
    /// ```
    pub fn serve_lease_with<Q, A>(
        self,
        call: impl Fn(&Q, &Lease) -> Result<A, Failure> + Send + Sync + 'static,
        apply: impl Fn(&Q, &A, &mut Message<'_, C>) -> HandlerResult + Send + Sync + 'static,
    ) -> Self
    where
        Q: Entity<Mode = LeaseMode> + 'static,
        A: Send + 'static,
        C: ConnectionFor<Q>,
    {
        self.serve((call, apply))
    }

    /// Serves an entity with a handler like [`serve`](Poller::serve), but only its rows in these stages. Other pollers
    /// serve the other rows, for example on machines that have the means for a stage. Some poller has to serve each
    /// stage. A stage of another enum than the entity's does not compile.
    ///
    /// The rows of the other stages cost a claim next to nothing, however many are due: the migration builds an index that
    /// begins with the stage. In an `exclusive` queue they hold up none of the rows that this poller serves.
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
    /// [`start`](Poller::start) refuses zero, and an entity that the poller does not serve, with
    /// [`Error::Setting`](crate::Error::Setting).
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

    /// Sets how long a thread of the poller waits for an answer of the database before another thread takes its place, see
    /// [`PollerSettings::network_timeout`]. The default is 30 seconds.
    pub fn network_timeout(mut self, wait: Duration) -> Self {
        self.settings.network_timeout = wait;
        self
    }

    /// Sets how long running handlers may go on when the handle is dropped, or the future of
    /// [`run_until`](Poller::run_until) is asked to stop. The default is 30 seconds.
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

    /// Takes part in control: the poller obeys the pauses that operators ask for by [`pause`](crate::Queueable::pause),
    /// in the table that [`Migrations::control`](crate::Migrations::control) adds. It reads the table once a second.
    /// Without this call it never does.
    ///
    /// [`start`](Poller::start) refuses a table that is missing or cannot be read, with
    /// [`Error::Unsafe`](crate::Error::Unsafe). If a running poller cannot read it for a while, because the connection is
    /// lost or the table dropped, it logs one line at WARN, and paused queues stay paused: a pause never ends because of
    /// trouble. A pause with an end still ends then. Begin with the migration, then start the pollers with this call, and
    /// pause from then on: a poller without it ignores pauses.
    ///
    /// [`run_until_idle`](Poller::run_until_idle) leaves the rows of a paused queue alone, and returns when nothing else
    /// is due. It logs at WARN which pauses it has met.
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

    /// Counts what the poller does, minute by minute, in the table that
    /// [`Migrations::minutes`](crate::Migrations::minutes) adds: attempts by outcome, how long rows waited, and how long attempts
    /// took, for each entity and stage. [`QueueRows::statistics`](crate::QueueRows::statistics) reads them in milliseconds,
    /// however many rows there are.
    ///
    /// The poller writes the current minute every ten seconds, and when it stops, on the connection of a thread of its own, so a
    /// pool needs one more. A process that is killed loses the numbers of at most ten seconds; of more, if a reading of
    /// [gauges](Poller::gauges) takes longer. While the table cannot be written, the numbers wait for up to two days. Minutes
    /// become hours after 25 hours, and hours are removed after 800 days. Every poller of the queue has to count: what others
    /// do is not in the statistics.
    ///
    /// [`start`](Poller::start) refuses a table that is missing, or that cannot be read and written, with
    /// [`Error::Unsafe`](crate::Error::Unsafe).
    ///
    /// ```no_run
    /// # use diesel::prelude::*;
    /// # use diesel::r2d2::{ConnectionManager, Pool};
    /// # use queueable::{HandlerResult, Message, Outcome, Poller, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
    /// # fn serve(pool: Pool<ConnectionManager<SqliteConnection>>) -> Result<(), queueable::Error> {
    /// let handle = Payment::poller(pool, charge).minutes().start()?;
    /// # Ok(()) }
    /// ```
    pub fn minutes(mut self) -> Self {
        self.settings.minutes = true;
        self
    }

    /// Says in the table that [`Migrations::pollers`](crate::Migrations::pollers) adds what the poller is and does: the machine and the
    /// process, the versions, the entities with their settings, the workers, and which messages run since when. It writes its row
    /// every five seconds, on the connection of a thread of its own, so a pool needs one more. [`pollers`](crate::pollers) lists
    /// them, [`explain`](crate::Queueable::explain) names the process that runs a row, and
    /// [`QueueRows::explain`](crate::QueueRows::explain) says if none serves the queue. Nothing else needs the row: while it cannot be
    /// written, the poller logs why and works on.
    ///
    /// [`start`](Poller::start) refuses a table that is missing, or that cannot be read and written, with
    /// [`Error::Unsafe`](crate::Error::Unsafe).
    ///
    /// ```no_run
    /// # use diesel::prelude::*;
    /// # use diesel::r2d2::{ConnectionManager, Pool};
    /// # use queueable::{HandlerResult, Message, Outcome, Poller, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
    /// # fn serve(pool: Pool<ConnectionManager<SqliteConnection>>) -> Result<(), queueable::Error> {
    /// let application = concat!("shop ", env!("CARGO_PKG_VERSION"));
    /// let handle = Payment::poller(pool, charge).register().application(application).start()?;
    /// # Ok(()) }
    /// ```
    pub fn register(mut self) -> Self {
        self.settings.register = true;
        self
    }

    /// Sets what the application says of itself where it [registers](Poller::register): its name and version, in up to 255
    /// characters.
    pub fn application(mut self, name: impl Into<String>) -> Self {
        self.settings.application = Some(name.into());
        self
    }

    /// Works only on a database that belongs to this environment, a name of up to 255 characters such as `production`. The first
    /// poller that starts writes the name into the [control table](crate::Migrations::control); a copy of the database has it too.
    /// So a poller of `staging` does not charge the customers of a copy of `production`: [`start`](Poller::start) refuses it with
    /// [`Error::Unsafe`](crate::Error::Unsafe), and [`adopt_environment`](crate::adopt_environment) gives the copy to `staging`. With
    /// [`control`](Poller::control), a running poller stops within two seconds if the database is given to another environment.
    ///
    /// ```no_run
    /// # use diesel::prelude::*;
    /// # use diesel::r2d2::{ConnectionManager, Pool};
    /// # use queueable::{HandlerResult, Message, Outcome, Poller, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
    /// # fn serve(pool: Pool<ConnectionManager<SqliteConnection>>) -> Result<(), queueable::Error> {
    /// let handle = Payment::poller(pool, charge).control().environment("staging").start()?;
    /// # Ok(()) }
    /// ```
    pub fn environment(mut self, name: impl Into<String>) -> Self {
        self.settings.environment = Some(name.into());
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
    /// a connection is lost and regained; the poller starts and stops. Each of several listeners receives every event.
    ///
    /// The poller sends an event after the database has confirmed it. The events of one row come in their order; those
    /// of several workers are mixed.
    ///
    /// The listeners share a thread of their own, so a slow one neither slows nor stops a worker. Up to 4096 events wait for
    /// it; more are dropped, counted, and told as [`Event::EventsDropped`] and in the log. So count with the feature
    /// `metrics`, which misses none, and listen for what to do about a message.
    ///
    /// If a listener panics, the poller logs the panic, once, and calls the listener for the next event. When the
    /// poller stops, it waits until the listeners have heard everything, but no longer than 5 seconds.
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
}

impl<C: QueueConnection> fmt::Debug for Poller<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller")
            .field("settings", &self.settings)
            .field("served", &self.served.len())
            .finish_non_exhaustive()
    }
}
