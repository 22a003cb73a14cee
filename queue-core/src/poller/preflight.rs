//! The checks before a poller starts: its settings, its entities and the live tables.

use std::any::TypeId;
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use super::settings::PollerSettings;
use super::window_gate::WindowGate;
use crate::attempt::Runner;
use crate::backend::{Connections, ErrorClass, QueueConnection, Session, SessionLimits};
use crate::control::check_control;
use crate::entity::jittered;
use crate::error::Error;

/// The pause before the tables are checked again after a conflict; at random up to twice as long.
const PAUSE: Duration = Duration::from_millis(10);

/// The connections that a poller takes while it runs, and what for.
pub(crate) struct ConnectionsNeeded {
    workers: usize,
    has_leases: bool,
}

/// Returns the connections that a poller takes.
pub(crate) fn connections_of<C: QueueConnection>(
    settings: &PollerSettings,
    runners: &[Box<dyn Runner<C>>],
) -> ConnectionsNeeded {
    let has_leases = runners.iter().any(|runner| runner.info().heartbeat_interval.is_some());
    ConnectionsNeeded { workers: settings.workers, has_leases }
}

impl ConnectionsNeeded {
    fn number(&self) -> usize {
        self.workers.saturating_add(1 + usize::from(self.has_leases))
    }
}

impl fmt::Display for ConnectionsNeeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leases = if self.has_leases { ", 1 extends the leases" } else { "" };
        write!(f, "{}: 1 for each worker, 1 looks for due rows{leases}", self.number())
    }
}

pub(crate) fn check_pool<C: QueueConnection>(
    settings: &PollerSettings,
    runners: &[Box<dyn Runner<C>>],
    pool_size: Option<u32>,
) -> Result<(), Error> {
    let needed = connections_of(settings, runners);
    if let Some(pool_size) = pool_size
        && usize::try_from(pool_size).is_ok_and(|size| size < needed.number())
    {
        let expected = if needed.has_leases {
            "at least the number of workers and 2: each keeps a connection, the poller keeps one, and so do its leases"
        } else {
            "more than the number of workers: each keeps a connection, and the poller one more"
        };
        return Err(Error::Setting { setting: "the pool's max_size", found: pool_size.to_string(), expected });
    }
    Ok(())
}

pub(crate) fn check_entities<C: QueueConnection>(runners: &[Box<dyn Runner<C>>]) -> Result<(), Error> {
    for (i, runner) in runners.iter().enumerate() {
        if runners[..i].iter().any(|other| other.info().queue == runner.info().queue) {
            let (setting, found) = ("an entity that is served twice", runner.info().entity.to_owned());
            return Err(Error::Setting { setting, found, expected: "one handler for each entity" });
        }
    }
    Ok(())
}

/// Returns how many of the workers may work for each runner at the same time: the number that was asked for, or else
/// all but one for each other runner, and at least half of them.
pub(crate) fn workers_of<C: QueueConnection>(
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

/// Reads the windows of the entities.
pub(crate) fn window_gates<C: QueueConnection>(
    runners: &[Box<dyn Runner<C>>],
    settings: &PollerSettings,
) -> Result<Vec<WindowGate>, Error> {
    let window_gates = runners.iter().map(|runner| {
        WindowGate::new(runner.info().entity, runner.info().target.options.window, settings.window.as_ref())
    });
    let (mut open, mut findings) = (Vec::new(), Vec::new());
    window_gates.for_each(|window_gate| match window_gate {
        Ok(window_gate) => open.push(window_gate),
        Err(finding) => findings.push(finding),
    });
    if findings.is_empty() { Ok(open) } else { Err(Error::Unsafe(findings)) }
}

/// Compares the live tables with what the queues need, and returns the database's name.
///
/// A check that meets another writer on SQLite, or a conflict elsewhere, may fail at once now and then, however patient
/// the session is. Nothing was written, so the check is repeated, for as long as a session may wait for a lock.
pub(crate) fn check_tables<C: QueueConnection>(
    connections: &Connections<C>,
    settings: &PollerSettings,
    limits: SessionLimits,
    runners: &[Box<dyn Runner<C>>],
) -> Result<String, Error> {
    let begun = Instant::now();
    loop {
        match check_tables_once(connections, settings, limits, runners) {
            Err(Error::Database(error))
                if C::classify(&error) == ErrorClass::Conflict && begun.elapsed() < settings.lock_timeout =>
            {
                thread::sleep(jittered(PAUSE, 1.0, fastrand::f64()));
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
) -> Result<String, Error> {
    let mut session = Session::open(connections, settings.pool_timeout, limits)?;
    let mut findings = Vec::new();
    for runner in runners {
        findings.extend(runner.check(&mut session)?);
    }
    if settings.control {
        findings.extend(check_control(&mut *session)?);
    }
    if findings.is_empty() { Ok(session.database_name()?) } else { Err(Error::Unsafe(findings)) }
}
