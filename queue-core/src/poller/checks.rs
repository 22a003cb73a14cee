//! The checks of a start: the tables, the rights, whether a pooler shares the sessions, and the columns that the pollers of this
//! process use, and for which entity.

use std::any::TypeId;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use diesel::connection::TransactionManager;

use super::settings::PollerSettings;
use crate::attempt::{Runner, RunnerInfo};
use crate::backend::{
    Connections, Dialect, ErrorClass, QueueConnection, ServerWait, Session, SessionLimits, TableName, is_of_a_pooler,
    message_of,
};
use crate::control::{check_control, check_environment, check_pollers};
use crate::crash::process_age;
use crate::entity::jittered;
use crate::error::{ConnectFailure, Error, Finding};
use crate::minutes::check_minutes;
use crate::sync::{Mutex, is_in_runtime};

type Runners<C> = Vec<Box<dyn Runner<C>>>;

/// What the checks have read.
pub(super) struct Checked {
    /// The database's name.
    pub(super) database: String,
    /// When this process started, by the database's clock.
    pub(super) process_start: DateTime<Utc>,
}

/// The shortest time that a statement of a start has: it reads the catalogue, which takes longer than a claim. A guess.
const LEAST_PATIENCE: Duration = Duration::from_secs(10);

/// How long a shutdown waits for the pool, which never replaces a connection while the database is away.
pub(super) const REPLACEMENT_WAIT: Duration = Duration::from_secs(1);

/// How often a start looks whether it is stopped, or whether the database has fallen silent.
const LOOK: Duration = Duration::from_millis(50);

/// Checks the tables on a thread of its own: a server, or a proxy, may accept a connection and never answer. Then that thread
/// is left behind. Gives the runners back.
pub(super) fn check_in_time<C: QueueConnection>(
    connections: &Connections<C>,
    settings: &PollerSettings,
    limits: SessionLimits,
    runners: Runners<C>,
    is_stopped: impl Fn() -> bool,
) -> Result<(Runners<C>, Checked), Error> {
    let (wait, patience) = (Arc::<ServerWait>::default(), settings.patience().max(LEAST_PATIENCE));
    // A file does not fall silent. And on a thread of a runtime, the sessions of diesel-async say what to call instead.
    if C::Backend::ONE_WRITER || is_in_runtime() {
        let checked = check_tables(connections, settings, limits, &runners, &wait)?;
        return Ok((runners, checked));
    }
    let (answers, answer) = mpsc::channel();
    // A subscriber of this thread alone hears what the checks log.
    let dispatch = tracing::dispatcher::get_default(Clone::clone);
    let (connections, settings, checks_wait) = (connections.clone(), settings.clone(), wait.clone());
    let check = move || {
        let check = || check_tables(&connections, &settings, limits, &runners, &checks_wait);
        let checked = tracing::dispatcher::with_default(&dispatch, || catch_unwind(AssertUnwindSafe(check)));
        let _ = answers.send((checked, runners));
    };
    thread::Builder::new().name("queueable-start".to_owned()).spawn(check).map_err(Error::Thread)?;
    loop {
        match answer.recv_timeout(LOOK) {
            Ok((Ok(checked), runners)) => return Ok((runners, checked?)),
            Ok((Err(panic), _)) => resume_unwind(panic),
            Err(_) if is_stopped() => return Err(stopped_early()),
            Err(_) => {
                if let Some(waited) = wait.elapsed().filter(|waited| *waited > patience) {
                    return Err(Error::Establish(ConnectFailure::new(&format!("it has not answered for {waited:?}"))));
                }
            }
        }
    }
}

/// Returns why a poller has not started that was stopped before.
pub(super) fn stopped_early() -> Error {
    Error::Setting {
        setting: "the poller",
        found: "stopped before it had started".to_owned(),
        expected: "a stop that comes later, if it is to process messages",
    }
}

/// The pause before the tables are checked again after a conflict; at random up to twice as long.
const PAUSE: Duration = Duration::from_millis(10);

/// Compares the live tables with what the queues need.
///
/// A check that meets another writer on SQLite, or a conflict elsewhere, may fail at once now and then, however patient
/// the session is. Nothing was written, so the check is repeated, for as long as a session may wait for a lock.
fn check_tables<C: QueueConnection>(
    connections: &Connections<C>,
    settings: &PollerSettings,
    limits: SessionLimits,
    runners: &[Box<dyn Runner<C>>],
    wait: &Arc<ServerWait>,
) -> Result<Checked, Error> {
    let begun = Instant::now();
    loop {
        let checked = check_tables_once(connections, settings, limits, runners, wait);
        wait.end();
        match checked {
            Err(Error::Database(error))
                if C::classify(&error) == ErrorClass::Conflict && begun.elapsed() < settings.lock_timeout =>
            {
                thread::sleep(jittered(PAUSE, 1.0, fastrand::f64()));
            }
            Err(error) => {
                connections.await_replacements(REPLACEMENT_WAIT);
                return Err(named(error));
            }
            checked => return checked,
        }
    }
}

fn check_tables_once<C: QueueConnection>(
    connections: &Connections<C>,
    settings: &PollerSettings,
    limits: SessionLimits,
    runners: &[Box<dyn Runner<C>>],
    wait: &Arc<ServerWait>,
) -> Result<Checked, Error> {
    let mut session = Session::open(connections, settings.pool_timeout, limits, wait)?;
    check_own_session(connections, settings, &mut session, wait)?;
    let mut findings = Vec::new();
    for runner in runners {
        findings.extend(runner.check(&mut session)?);
    }
    if settings.control {
        findings.extend(check_control(&mut *session, "control")?);
    }
    if settings.minutes {
        findings.extend(check_minutes(&mut *session)?);
    }
    if settings.register {
        findings.extend(check_pollers(&mut *session)?);
    }
    // Last, because it may write the name.
    if let Some(name) = settings.environment.as_deref().filter(|_| findings.is_empty()) {
        findings.extend(match check_control(&mut *session, "environment")? {
            None => check_environment(&mut *session, name)?,
            missing => missing,
        });
    }
    if !findings.is_empty() {
        return Err(Error::Unsafe(findings));
    }
    // Before the time: the process then seems to have started later, and a row too many is marked, but none too few.
    let age = TimeDelta::from_std(process_age()).unwrap_or_default();
    // A poller serves one entity at least, and all of them have the same clock.
    let present = runners[0].served().present(&mut session)?;
    let process_start = present.checked_sub_signed(age).unwrap_or(present);
    Ok(Checked { database: session.database_name()?, process_start })
}

/// How often [`check_own_session`] compares two connections. A pooler takes the session that was used last, or the one that was
/// used first; one that has just connected to the server comes before both, and hides that the others are shared.
const COMPARISONS: usize = 5;

/// Refuses connections behind a pooler that lends one session to several of them, transaction by transaction: the workers'
/// settings, locks and prepared statements would reach whoever comes next. A session that a second connection has, or that
/// changes after the second one's transaction, is shared.
fn check_own_session<C: QueueConnection>(
    connections: &Connections<C>,
    settings: &PollerSettings,
    session: &mut Session<C>,
    wait: &Arc<ServerWait>,
) -> Result<(), Error> {
    let Some(before) = session.id else { return Ok(()) };
    let mut other = connections.open(settings.pool_timeout, wait)?;
    for _ in 0..COMPARISONS {
        other.begin()?;
        let others = other.session_id()?;
        // First, because a pooler with a single session has none for the first connection as long as the other one is in a
        // transaction.
        C::TransactionManager::rollback_transaction(&mut *other)?;
        let after = session.session_id()?;
        if others == Some(before) || after != Some(before) {
            let [others, after] =
                [others, after].map(|session| session.map_or("none".to_owned(), |number| number.to_string()));
            return Err(shared_sessions(&format!(
                "one connection had the session {before}, another {others}, the first {after} then"
            )));
        }
    }
    Ok(())
}

/// Returns why a poller refuses sessions that a pooler shares.
fn shared_sessions(seen: &str) -> Error {
    Error::Setting {
        setting: "the connections",
        found: format!("sessions that a pooler shares: {seen}"),
        expected: "a session for each connection, because a worker keeps settings, locks and prepared statements in it: connect the \
                   poller to the server itself by `with_own_connections`, or to a port on which the pooler shares nothing \
                   (PgBouncer: `pool_mode = session`); enqueueing and operations may go through the pooler",
    }
}

/// Names the cause if a session has another connection's prepared statements, or has lost its own: a pooler that does not know
/// them by name shares it.
fn named(error: Error) -> Error {
    let text = match &error {
        Error::Database(cause) => message_of(cause).unwrap_or_default().to_owned(),
        Error::Connect(failure) | Error::Establish(failure) => failure.to_string(),
        _ => return error,
    };
    if is_of_a_pooler(&text) { shared_sessions(&text) } else { error }
}

/// The columns of the queue of one entity.
#[derive(Clone)]
struct Columns {
    database: String,
    table: TableName,
    columns: [&'static str; 5],
    entity: &'static str,
    queue: TypeId,
}

impl Columns {
    fn of(database: &str, RunnerInfo { target, queue, entity, .. }: &RunnerInfo) -> Self {
        let columns = target.columns.all();
        Columns { database: database.to_owned(), table: target.table.clone(), columns, entity, queue: *queue }
    }

    /// Finds the columns that another entity's queue has too. Each queue would take the other's rows for its own, and
    /// settle them by its own rules. If the queues share only some columns, neither would find its fence.
    fn conflict(&self, other: &Columns) -> Option<Finding> {
        if self.queue == other.queue || self.database != other.database || self.table != other.table {
            return None;
        }
        let is_shared = |name: &&str| other.columns.iter().any(|other| other.eq_ignore_ascii_case(name));
        let shared: Vec<_> = self.columns.into_iter().filter(is_shared).collect();
        (!shared.is_empty()).then(|| Finding {
            entity: self.entity.to_owned(),
            problem: format!(
                "{} has its queue in the same columns of the table {}: {}",
                other.entity,
                self.table.name,
                shared.join(", ")
            ),
            mend: "give one of the two queues columns of its own, for example with #[queue(prefix = \"queue_\")], and \
                   migrate the table"
                .to_owned(),
        })
    }
}

/// The columns that the pollers of this process use, each poller with its number.
static IN_USE: Mutex<(u64, Vec<(u64, Columns)>)> = Mutex::new((0, Vec::new()));

/// Keeps a poller's queues registered until it is dropped.
pub(crate) struct ColumnsInUse(u64);

impl ColumnsInUse {
    /// Registers the queues of a poller, unless two of its entities share columns. Logs a warning for columns that
    /// another poller uses for another entity. Several pollers may serve one entity.
    pub(crate) fn enter<C: QueueConnection>(database: &str, runners: &[Box<dyn Runner<C>>]) -> Result<Self, Error> {
        let entered: Vec<_> = runners.iter().map(|runner| Columns::of(database, runner.info())).collect();
        let mut in_use = IN_USE.lock();
        let (number, others) = &mut *in_use;
        let mut findings = Vec::new();
        for (i, columns) in entered.iter().enumerate() {
            findings.extend(entered[..i].iter().filter_map(|other| columns.conflict(other)));
            // This is only logged: a mode may be changed while an earlier poller processes its last rows.
            for finding in others.iter().filter_map(|(_, other)| columns.conflict(other)) {
                tracing::warn!("another poller in this process serves the same rows: {finding}");
            }
        }
        if !findings.is_empty() {
            return Err(Error::Unsafe(findings));
        }
        *number += 1;
        let number = *number;
        others.extend(entered.into_iter().map(|columns| (number, columns)));
        Ok(ColumnsInUse(number))
    }
}

impl Drop for ColumnsInUse {
    fn drop(&mut self) {
        let mut in_use = IN_USE.lock();
        in_use.1.retain(|(number, _)| *number != self.0);
    }
}
