//! Detects a handler that waits for a queue while the queue waits for the handler.

use std::any::TypeId;
use std::cell::RefCell;
use std::sync::Arc;

use crate::attempt::Runner;
use crate::backend::{LockSql, QueueConnection};
use crate::error::Error;

thread_local! {
    /// The database and the queue of the turn that this thread takes, whose transaction is open while its handler runs.
    static TURN: RefCell<Option<(Arc<str>, TypeId)>> = const { RefCell::new(None) };
}

/// Notes until it is dropped that this thread takes a turn.
pub(crate) struct InTurn;

impl InTurn {
    pub(crate) fn of(database: &Arc<str>, queue: TypeId) -> Self {
        TURN.with_borrow_mut(|turn| *turn = Some((database.clone(), queue)));
        InTurn
    }
}

impl Drop for InTurn {
    fn drop(&mut self) {
        TURN.with_borrow_mut(|turn| *turn = None);
    }
}

/// Returns what makes another thread, for which this one waits, count as being in this thread's turn.
pub(crate) fn inherit_turn() -> impl FnOnce() + Send + 'static {
    let turn = TURN.with_borrow(Clone::clone);
    move || TURN.with_borrow_mut(|inherited| *inherited = turn)
}

/// Refuses to process queues until nothing is due, if that cannot be before the calling handler has returned: its own
/// row is due and locked until then. If the database has one writer, every row is.
pub(crate) fn check_reentrance<C: QueueConnection>(
    database: &str,
    runners: &[Box<dyn Runner<C>>],
) -> Result<(), Error> {
    TURN.with_borrow(|turn| {
        let waits = turn.as_ref().filter(|(in_database, _)| **in_database == *database).and_then(|(_, queue)| {
            runners.iter().find(|runner| C::Backend::ONE_WRITER || runner.info().queue == *queue)
        });
        match waits {
            None => Ok(()),
            Some(runner) => Err(Error::Setting {
                setting: "run_until_idle",
                found: format!("called for {} inside a handler whose end it would wait for", runner.info().entity),
                expected: "a call outside of handlers; what a handler enqueues is worked when its transaction is committed",
            }),
        }
    })
}
