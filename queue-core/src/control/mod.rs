//! What operators ask of running queues, in the optional control table: pauses and limits. Whose database this is. And who
//! serves the queues, in a table of its own.
//!
//! Pollers that take part read the control table once a second, and no claim does. Here are the values, their reading and
//! writing, and the checks of the tables before such a poller starts; what they do is in `poller`.

mod environment;
mod limits;
mod pause;
mod pollers;
mod presence;
mod table;

use diesel::result::QueryResult;

pub use self::environment::environment;
pub(crate) use self::environment::{check_environment, environment_in};
pub use self::limits::{Limited, Limits, limits};
pub use self::pause::{Pause, Paused, PausedPart, pauses};
pub(crate) use self::pause::{PauseScope, StandingPause, lane_name};
pub use self::pollers::{PollerProcess, PollerState, ProcessedQueue, RunningMessage, Unserved};
pub use self::presence::pollers;
pub(crate) use self::presence::{PRESENT_EVERY, Presence, check_pollers, runner_of, unserved};
pub(crate) use self::table::{
    LONGEST_BY, Nonsense, check_author, check_control, check_own, check_text, expect_control, expect_own, name_of,
};
use self::table::{missing, rows};
use crate::backend::{OwnTable, QueueConnection};
use crate::error::refused;

/// What a row of the control table asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Pause(StandingPause),
    Limits(Limited),
    Environment(String),
}

/// Reads what is asked for, of all queues, and the rows that mean nothing.
pub(crate) fn asked<C: QueueConnection>(connection: &mut C) -> QueryResult<Vec<Result<Asked, Nonsense>>> {
    let mut asked = Vec::new();
    for row in rows(connection, None)? {
        asked.extend(pause::read(&row).map(|pause| pause.map(Asked::Pause)));
        asked.extend(limits::read(&row).map(|limits| limits.map(Asked::Limits)));
        asked.extend(environment::read(&row).map(|name| Ok(Asked::Environment(name))));
    }
    Ok(asked)
}

/// Reads what is asked of one queue: its pauses and its limits; nothing if there is no control table.
pub(crate) fn asked_of<C: QueueConnection>(
    connection: &mut C,
    queue: &str,
) -> QueryResult<(Vec<Paused>, Option<Limited>)> {
    match connection.own_lacks(OwnTable::Control)? {
        None => return Ok((Vec::new(), None)),
        Some(lacks) if !lacks.is_empty() => {
            let (problem, mend) = missing(OwnTable::Control, "control", &lacks);
            return Err(refused(format!("{problem}; {mend}")));
        }
        Some(_) => {}
    }
    let rows = rows(connection, Some(queue))?;
    let pauses = rows.iter().filter_map(|row| Some(pause::read(row)?.ok()?.paused)).collect();
    Ok((pauses, rows.iter().find_map(|row| limits::read(row)?.ok())))
}
