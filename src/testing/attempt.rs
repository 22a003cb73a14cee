//! One attempt on one row, by hand.

use std::fmt;

use diesel::connection::TransactionManager;
use diesel::result::Error as DieselError;
use queue_core::internals::testing::Workbench;

use super::drain::{Attempt, attempts_of};
use super::statements::{RanStatement, Recorder};
use crate::__derive::QueueTable;
use crate::bounds::{AsQueueConnection, Explains, Filtered, HandlerFor, LoadsRows, QueueConnection, RowCondition};
use crate::{Error, Explanation, QueueState, Queueable, Status};

/// A row with its queue state.
type Row<Q> = (Q, QueueState);

/// What an attempt by hand did.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Attempted<Q> {
    /// The attempt: its end, its error, the next time.
    pub attempt: Attempt,
    /// The row as it was found, before it was made due if it was not.
    pub before: (Q, QueueState),
    /// The row afterwards. `None`: it left its table, as by `#[queue(on_success = "delete")]`.
    pub after: Option<(Q, QueueState)>,
    /// Whether the row was not due, and was made due for the attempt.
    pub was_made_due: bool,
    /// The statements that the handler ran, if the call was [`attempt_with_sql`](super::TestQueue::attempt_with_sql).
    pub statements: Vec<RanStatement>,
}

impl<Q> fmt::Display for Attempted<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.attempt)?;
        self.statements.iter().try_for_each(|statement| writeln!(f, "  {statement}"))
    }
}

/// Makes an attempt for [`TestQueue::attempt`](super::TestQueue::attempt), and records the handler's statements if asked.
pub(super) fn attempt_by_hand<Q, C, H>(
    connection: &mut C,
    handler: &H,
    key: &Q::Key,
    records: bool,
) -> Result<Attempted<Q>, Error>
where
    Q: Queueable + 'static,
    C: AsQueueConnection + Explains<Q> + LoadsRows<Q, Filtered<Q::IsKey>>,
    H: HandlerFor<Q, C::Connection>,
    Q::IsKey: RowCondition<<Q::Queue as QueueTable>::Table>,
{
    let before = load::<Q, C>(connection, key)?.ok_or_else(|| kept::<Q>(key, &Explanation::NoSuchRow))?;
    let was_made_due = make_due::<Q, C>(connection, key, &before.1)?;
    let recorder = records.then(|| Recorder::begin(connection.as_queue_connection()));
    let attempted = attempt_row::<Q, _, _>(connection.as_queue_connection(), handler, key);
    let statements = recorder.map_or_else(Vec::new, |recorder| recorder.end(connection.as_queue_connection()));
    let attempt = match attempted? {
        Some(attempt) => attempt,
        None => return Err(kept::<Q>(key, &Q::explain(connection, key)?)),
    };
    let after = load::<Q, C>(connection, key)?;
    Ok(Attempted { attempt, before, after, was_made_due, statements })
}

fn load<Q, C>(connection: &mut C, key: &Q::Key) -> Result<Option<Row<Q>>, Error>
where
    Q: Queueable + 'static,
    C: LoadsRows<Q, Filtered<Q::IsKey>>,
    Q::IsKey: RowCondition<<Q::Queue as QueueTable>::Table>,
{
    Ok(Q::queue().filter(Q::is_key(key.clone())).load(connection)?.pop())
}

/// Makes a row due that waits for its time. Returns whether it was not due.
fn make_due<Q, C>(connection: &mut C, key: &Q::Key, state: &QueueState) -> Result<bool, Error>
where
    Q: Queueable + 'static,
    C: Explains<Q> + LoadsRows<Q, Filtered<Q::IsKey>>,
    Q::IsKey: RowCondition<<Q::Queue as QueueTable>::Table>,
{
    let waits = state.next_attempt_time.is_some() && state.status != Status::InProgress;
    if !waits {
        return match Q::explain(connection, key)? {
            // Its lease has ended.
            Explanation::Due => Ok(false),
            explanation => Err(kept::<Q>(key, &explanation)),
        };
    }
    if Q::queue().filter(Q::is_key(key.clone())).due().count(connection)? > 0 {
        return Ok(false);
    }
    Ok(Q::queue().filter(Q::is_key(key.clone())).retry_now(connection)? > 0)
}

/// Makes one attempt on a row that is due. `None`: something keeps it from being worked.
pub(super) fn attempt_row<Q, C, H>(connection: &mut C, handler: &H, key: &Q::Key) -> Result<Option<Attempt>, Error>
where
    Q: Queueable + 'static,
    C: QueueConnection,
    H: HandlerFor<Q, C>,
{
    let mut bench = Workbench::new(connection);
    bench.serve::<Q>(handler)?;
    bench.look()?;
    // A closed window is a matter of the time, as a due time is.
    bench.ignore_window(0);
    bench.only::<Q>(0, [key.clone()]);
    let turned = bench.turn(0)?;
    let is_trouble = turned.is_trouble;
    let attempt = attempts_of(turned).pop();
    if attempt.is_none() && is_trouble {
        let found = format!("{}: the worker could not work; its warnings are in the log", Q::ENTITY);
        return Err(Error::Setting { setting: "the database", found, expected: "a queue that a worker can serve" });
    }
    Ok(attempt)
}

/// Says why a row cannot be attempted.
fn kept<Q: Queueable>(key: &Q::Key, why: &Explanation) -> Error {
    if let Explanation::NoSuchRow = why {
        return Error::Setting {
            setting: "the row of an attempt",
            found: format!("missing: there is no {} with the key {key:?}", Q::ENTITY),
            expected: "the key of a row that is in the table; insert it on this connection first",
        };
    }
    let (found, expected) = match why {
        Explanation::Due => (
            "due, and no worker would take it now: another session has locked it, or its turn, its order or a limit keeps it \
             back"
                .to_owned(),
            "a row that nobody else holds, and whose turn it is",
        ),
        why => (
            why.to_string(),
            "a row that waits for an attempt; `explain` says the same of a row that does not, and a finished row is enqueued \
             again by an update with `due_now()`",
        ),
    };
    Error::Setting { setting: "the row of an attempt", found: format!("{} {key:?}: {found}", Q::ENTITY), expected }
}

/// Takes back all that is done on a connection meanwhile, when it ends or is dropped.
pub(super) struct RolledBack<'c, C: QueueConnection> {
    connection: &'c mut C,
    /// How many transactions were open before.
    outer: u32,
    has_ended: bool,
}

impl<'c, C: QueueConnection> RolledBack<'c, C> {
    /// Begins a transaction, or a savepoint if one is open.
    pub(super) fn begin(connection: &'c mut C) -> Result<Self, Error> {
        let outer = depth(connection)?;
        C::TransactionManager::begin_transaction(connection)?;
        Ok(RolledBack { connection, outer, has_ended: false })
    }

    /// Returns the connection, inside the transaction.
    pub(super) fn connection(&mut self) -> &mut C {
        self.connection
    }

    /// Rolls back.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if the transaction is gone already, and [`Error::Database`].
    pub(super) fn end(mut self) -> Result<(), Error> {
        self.has_ended = true;
        self.roll_back()
    }

    fn roll_back(&mut self) -> Result<(), Error> {
        if depth(self.connection)? <= self.outer {
            return Err(Error::Database(DieselError::NotInTransaction));
        }
        while depth(self.connection)? > self.outer {
            C::TransactionManager::rollback_transaction(self.connection)?;
        }
        Ok(())
    }
}

impl<C: QueueConnection> Drop for RolledBack<'_, C> {
    fn drop(&mut self) {
        if !self.has_ended {
            let _ = self.roll_back();
        }
    }
}

fn depth<C: QueueConnection>(connection: &mut C) -> Result<u32, Error> {
    let status = C::TransactionManager::transaction_manager_status_mut(connection);
    Ok(status.transaction_depth()?.map_or(0, std::num::NonZero::get))
}
