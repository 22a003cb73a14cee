//! A queue at a glance: how much work is left, counted no further than a person reads it.

use std::time::Duration;

use chrono::Utc;
use queue_core::internals::by_name::{Holds, PageOrder, TextColumn};
use queueable::Error;
use queueable::report::Backlog;

use super::queue::MOST;
use super::trouble::{Told, Trouble};
use crate::database::Database;
use crate::queue::{Paging, Queue, Rows, State};
use crate::shown::{Typed, number, typed};

/// The work that is left, as the overview shows it: [`MOST`] rows and one stand for more than [`MOST`].
pub(super) struct Glance {
    pub(super) backlog: Backlog,
    /// The states whose rows the database has needed too long to count: no index finds them.
    pub(super) uncounted: Vec<State>,
}

/// Looks at a queue.
pub(super) fn glance<C: Database>(queue: &dyn Queue<C>, connection: &mut C) -> Told<Glance> {
    let facts = queue.facts();
    if facts.options.conditional {
        // Only a whole count tells the due rows from those that their condition holds back.
        return Ok(Glance { backlog: queue.backlog(connection, &Rows::default())?, uncounted: Vec::new() });
    }
    let mut uncounted = Vec::new();
    let mut count = |state| match queue.figures(connection, &in_state(state), &[], MOST).map_err(Trouble::from) {
        Ok(figures) => Ok(figures.rows + i64::from(figures.more)),
        Err(trouble) => match trouble.seen::<C>() {
            Trouble::Slow => {
                uncounted.push(state);
                Ok(0)
            }
            trouble => Err(trouble),
        },
    };
    let mut backlog = Backlog::default();
    backlog.due = count(State::Due)?;
    backlog.scheduled = count(State::Scheduled)?;
    backlog.failed = count(State::Failed)?;
    if facts.leased {
        let running = count(State::Running)?;
        // The time of a row under a lease is the lease's end.
        if backlog.scheduled <= MOST {
            backlog.scheduled = (backlog.scheduled - running).max(0);
        }
        backlog.running = Some(running);
    }
    if backlog.due > 0 {
        backlog.oldest_due = oldest_due(queue, connection)?;
    }
    backlog.paused = match queueable::pauses(connection) {
        Ok(pauses) => {
            let pauses = pauses.into_iter().filter(|paused| paused.queue == facts.queue);
            pauses.map(|paused| facts.shown_pause(paused)).collect()
        }
        Err(Error::Control(_)) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    Ok(Glance { backlog, uncounted })
}

fn oldest_due<C: Database>(queue: &dyn Queue<C>, connection: &mut C) -> Told<Option<Duration>> {
    let time = TextColumn { name: queue.facts().names.next_attempt_time.to_owned(), holds: Holds::Instants };
    let (columns, order) = (vec![time], PageOrder::NextAttempt);
    let paging = Paging { columns, longest: LONGEST_TIME, order, after: None, limit: 1, backwards: false };
    let first = queue.page(connection, &in_state(State::Due), &paging)?.into_iter().next();
    let text = first.and_then(|line| line.values.into_iter().next()).flatten();
    let Typed::Time(time) = typed(text.as_deref(), Holds::Instants) else { return Ok(None) };
    Ok(Some((Utc::now() - time).to_std().unwrap_or_default()))
}

/// A time has no more characters.
const LONGEST_TIME: u32 = 40;

fn in_state(state: State) -> Rows {
    Rows { states: vec![state], ..Rows::default() }
}

/// A number of rows that were counted so.
pub(super) fn counted(rows: i64) -> String {
    if rows > MOST { format!("more than {}", number(MOST)) } else { number(rows) }
}
