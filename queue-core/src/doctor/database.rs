//! Examines a database: the server or the file, the processes that serve its queues, and what operators have asked of them.

use std::collections::BTreeSet;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use diesel::result::{Error as DieselError, QueryResult};

use super::{add, pooler};
use crate::backend::{AsQueueConnection, Check, OwnTable, QueueConnection};
use crate::control::{Asked, Nonsense, PollerProcess, PollerState, asked, pollers};
use crate::error::Error;
use crate::ill::{Ill, IllKind, Severity};
use crate::row::printable;
use crate::statement::read_present;

/// How much the clocks may differ. A guess: the times that an application computes, `due_at(..)`, are off by as much.
const CLOCK: TimeDelta = TimeDelta::seconds(5);

/// How long a pause stands before it seems forgotten. A guess.
const LONG_PAUSE: TimeDelta = TimeDelta::days(1);

/// Examines the database: its settings, what keeps it from clearing up, the processes that serve its queues, and pauses. Returns
/// what it finds, the worst first.
///
/// It only reads settings, catalogues and statistics, so it works on a standby and in sessions that may only read, and takes
/// milliseconds however large the tables are. What the account may not read becomes a [note](IllKind::Unread).
/// [`Queueable::examine`](crate::Queueable::examine) examines one queue.
///
/// ```
/// # use diesel::prelude::*;
/// use queueable::report::{Severity, examine};
///
/// # let mut connection = SqliteConnection::establish(":memory:")?;
/// let ills = examine(&mut connection)?;
/// for ill in &ills {
///     println!("{ill}");
/// }
/// assert!(ills.iter().any(|ill| ill.mend == "PRAGMA busy_timeout = 5000"));
/// let is_bad = ills.iter().any(|ill| ill.severity == Severity::Error);
/// # assert!(is_bad, "nobody else sees this database");
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// # Errors
///
/// [`Error::Database`] if the connection is lost.
pub fn examine<C: AsQueueConnection>(connection: &mut C) -> Result<Vec<Ill>, Error> {
    Ok(examine_from(connection.as_queue_connection(), &[])?)
}

/// Does the same with other limits for the names in checks, for tests that cannot wait.
pub fn examine_from<C: QueueConnection>(connection: &mut C, limits: &[(&str, String)]) -> QueryResult<Vec<Ill>> {
    let session = connection.session_id().ok().flatten();
    let mut ills = Vec::new();
    for check in C::OF_DATABASE {
        let found = check.run(connection, limits);
        add::<C>(&mut ills, what(check), found)?;
    }
    let looks: [(_, Look<C>); 5] = [
        ("what is beside the database", |connection| connection.beyond_queries()),
        ("the database's clock", clock),
        ("the tables of the library", own_tables),
        ("the control table", control),
        ("the table of pollers", processes),
    ];
    for (what, look) in looks {
        let found = connection.bounded(look);
        add::<C>(&mut ills, what, found)?;
    }
    if session != connection.session_id().ok().flatten() {
        ills.push(pooler("a pooler has given this connection another session of the server meanwhile".to_owned()));
    }
    ills.sort();
    Ok(ills)
}

type Look<C> = fn(&mut C) -> QueryResult<Vec<Ill>>;

/// Says what a check reads.
pub(super) fn what(check: &Check) -> &'static str {
    match check.kind {
        IllKind::OldTransaction | IllKind::DeadRows => "old transactions and what they keep",
        IllKind::Connections => "the number of connections and prepared statements",
        IllKind::ReplicaLag | IllKind::Standby => "the state of replicas",
        _ => "settings and the catalogue",
    }
}

fn now<C: QueueConnection>(connection: &mut C) -> QueryResult<Option<DateTime<Utc>>> {
    Ok(read_present(connection)?.map(DateTime::from))
}

fn clock<C: QueueConnection>(connection: &mut C) -> QueryResult<Vec<Ill>> {
    let before = Utc::now();
    let found = now(connection)?;
    let ahead =
        found.map(|found| if found < before { found - before } else { (found - Utc::now()).max(TimeDelta::zero()) });
    Ok(ahead
        .filter(|ahead| ahead.abs() > CLOCK)
        .map(|ahead| {
            let way = if ahead > TimeDelta::zero() { "ahead of" } else { "behind" };
            let problem = format!("the database's clock is {} {way} the one of this machine", words(ahead.abs()));
            Ill::new(
                IllKind::Clock,
                Severity::Warning,
                problem,
                "synchronize both clocks by NTP; only the database's decides what is due",
            )
        })
        .into_iter()
        .collect())
}

/// Returns a time in words, without parts of a second.
pub(super) fn words(time: TimeDelta) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_secs(time.num_seconds().unsigned_abs()))
}

fn own_tables<C: QueueConnection>(connection: &mut C) -> QueryResult<Vec<Ill>> {
    let mut ills = Vec::new();
    for table in [OwnTable::Control, OwnTable::Minutes, OwnTable::Pollers, OwnTable::Audit] {
        let lacks = connection.own_lacks(table)?.unwrap_or_default();
        let name = table.name();
        if !lacks.is_empty() {
            let problem = format!(
                "the table {name} lacks the columns {}: another release made it, or it is another's",
                lacks.join(", ")
            );
            let mend =
                format!("ALTER TABLE {name} RENAME TO {name}_old, and run the migration of the library's tables again");
            ills.push(Ill::new(IllKind::OwnTable, Severity::Warning, problem, mend));
        }
    }
    Ok(ills)
}

fn control<C: QueueConnection>(connection: &mut C) -> QueryResult<Vec<Ill>> {
    if !connection.has_own(OwnTable::Control)? {
        return Ok(Vec::new());
    }
    let now = now(connection)?;
    let ill = |asked: Result<Asked, Nonsense>| match asked {
        Err(nonsense) => {
            let problem = format!("a row of the control table means nothing: {}", nonsense.problem);
            let mend = format!("UPDATE or DELETE the row in {}", OwnTable::Control.name());
            Some(Ill { queue: Some(nonsense.queue), ..Ill::new(IllKind::ControlRow, Severity::Warning, problem, mend) })
        }
        Ok(Asked::Pause(pause)) if now.is_some_and(|now| now - pause.paused.since > LONG_PAUSE) => {
            let (problem, mend) = (pause.paused.to_string(), "call `unpause` of the entity, or let the pause stand");
            Some(Ill { queue: Some(pause.paused.queue), ..Ill::new(IllKind::LongPause, Severity::Note, problem, mend) })
        }
        Ok(_) => None,
    };
    Ok(asked(connection)?.into_iter().filter_map(ill).collect())
}

fn processes<C: QueueConnection>(connection: &mut C) -> QueryResult<Vec<Ill>> {
    if !connection.has_own(OwnTable::Pollers)? {
        return Ok(Vec::new());
    }
    let processes = match pollers(connection) {
        Ok(processes) => processes,
        Err(Error::Database(error)) => return Err(error),
        Err(error) => return Err(DieselError::QueryBuilderError(Box::new(error))),
    };
    let place = |process: &PollerProcess| format!("{} (pid {})", printable(&process.host, false), process.pid);
    let mut ills = Vec::new();
    for process in &processes {
        if process.state == PollerState::WithoutConnection {
            let problem = format!("the poller in {} has no connection for some of its threads", place(process));
            let mend = "raise the server's limit of connections, or make the pool larger";
            ills.push(Ill::new(IllKind::PollerWithoutConnection, Severity::Warning, problem, mend));
        }
        for served in process.queues.iter().filter(|served| !served.differs.is_empty()) {
            let value = |name: &String| {
                let value = served.settings.get(name).map_or("none", String::as_str);
                format!("{} = {}", printable(name, false), printable(value, false))
            };
            let differs = served.differs.iter().map(value).collect::<Vec<_>>().join(", ");
            let problem = format!("{} differs from the other processes: {differs}", place(process));
            let ill = Ill::new(
                IllKind::DifferentSettings,
                Severity::Warning,
                problem,
                "deploy the same build and settings everywhere",
            );
            ills.push(Ill { queue: Some(served.queue.clone()), ..ill });
        }
    }
    let versions: BTreeSet<_> = processes.iter().map(|process| printable(&process.version, false)).collect();
    if versions.len() > 1 {
        let versions = versions.iter().map(|version| version.to_string()).collect::<Vec<_>>().join(", ");
        let problem = format!("processes have different versions of the library: {versions}");
        ills.push(Ill::new(
            IllKind::DifferentVersions,
            Severity::Warning,
            problem,
            "deploy the same version everywhere",
        ));
    }
    Ok(ills)
}
