//! One attempt on one row, by hand.

use std::fmt;

use queue_core::internals::testing::Workbench;

use super::drained::{Attempt, attempts_of, expect_no_trouble};
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
    let trouble = expect_no_trouble(&turned, Q::ENTITY);
    let attempt = attempts_of(turned).pop();
    if attempt.is_none() {
        trouble?;
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
