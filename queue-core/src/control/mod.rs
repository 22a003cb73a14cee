//! What operators ask of running queues, in the optional control table: pauses and limits. Whose database this is. And who
//! serves the queues, in a table of its own.
//!
//! Pollers that take part read the control table once a second, and no claim does. Here are the values, their reading and
//! writing, and the checks of the tables before such a poller starts; what they do is in `poller`.

mod environment;
mod limits;
mod pause;
mod pollers;
mod table;

use diesel::result::QueryResult;

pub use self::environment::environment;
pub(crate) use self::environment::{adopt, check_environment};
pub use self::limits::{Limited, Limits, limits};
pub(crate) use self::limits::{end_limits, limited, set_limits};
pub use self::pause::{Pause, Paused, pauses};
pub(crate) use self::pause::{PauseScope, StandingPause, pause, pauses_of, shown, unpause};
pub(crate) use self::pollers::{PRESENT_EVERY, Presence, check_pollers, runner_of, unserved};
pub use self::pollers::{PollerProcess, PollerState, ProcessedQueue, RunningMessage, Unserved, pollers};
use self::table::rows;
pub(crate) use self::table::{
    LONGEST_BY, Nonsense, check_author, check_control, check_own, check_text, expect_control, expect_own, name_of,
};
use crate::backend::QueueConnection;

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
