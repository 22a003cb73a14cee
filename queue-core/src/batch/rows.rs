//! The rows of a batch, and the ways in which the batch may end: what is then known of each row.

use diesel::result::{Error as DieselError, QueryResult};

use crate::attempt::{AttemptError, NewState, Rest, SettleRules, UnsettledRow, is_interruption};
use crate::backend::QueueConnection;
use crate::entity::Key;
use crate::event::Watch;
use crate::handler::Failure;
use crate::row::{Details, ErrorText, Fence, Instant, Options, QueueState, RowKey, Settlement};
use crate::statement::{Change, ErasedQueue, Next};

/// How many rows one statement settles: SQLite accepts expressions of up to 1000 levels, and every `OR` is one.
pub(crate) const SETTLED_AT_ONCE: usize = 400;

/// How a batch ended.
pub(crate) enum BatchEnd<K> {
    /// The new state of these rows is committed. The others are as they were.
    Settled(Vec<DecidedRow<K>>),
    /// The transaction was the batch's to its end and is rolled back: all rows are as they were.
    Undone(Undone),
    /// The handler of the offender may have ended the transaction, and may have committed the effects of the messages
    /// before it. The rest is left for the offender.
    EndedByHandler { before: Vec<DecidedRow<K>>, offender: Box<(BatchRow<K>, Rest)> },
    /// One of the handlers of these rows may have ended the transaction. It is unknown which one, or which effects are
    /// committed. If there is another reason why it is gone, and nothing was committed, it was rolled back for that
    /// reason.
    EndedByUnknown { rows: Vec<DecidedRow<K>>, why: Option<Undone> },
    /// The answer to COMMIT was lost.
    Unknown(Vec<DecidedRow<K>>, String),
}

/// Why a batch was rolled back.
#[derive(Debug)]
pub(crate) enum Undone {
    /// A deadlock, a lock timeout or a lost connection: batches get in each other's way.
    Conflict(String),
    /// One message has to run alone, to find out which one failed and why.
    Alone(String),
    /// A row was not as it was claimed: a handler has changed it, perhaps the one of a neighbour.
    RowsChanged(String),
    /// The poller shut down.
    Shutdown,
}

impl Undone {
    /// Returns the reason as a text.
    pub(crate) fn text(&self) -> &str {
        match self {
            Undone::Conflict(cause) | Undone::Alone(cause) | Undone::RowsChanged(cause) => cause,
            Undone::Shutdown => "the poller shuts down",
        }
    }
}

/// A row whose new state is decided, or written already.
pub(crate) struct DecidedRow<K> {
    pub(crate) key: RowKey<K>,
    pub(crate) fence: Fence,
    pub(crate) new: NewState,
    /// Whether the transaction contains the change already.
    pub(crate) written: bool,
    pub(crate) watch: Watch,
}

/// The mark that a reserved group writes on its rows before any handler runs. It replaces the last failure's
/// text, and makes the rows due later. It stays unseen, because the settlement replaces both values, unless a handler
/// ends the transaction with a COMMIT. Then the rows show this by the reservation, whose text is unique. The rows of
/// the earlier messages, whose effects stay, are not due for other workers before they are settled.
#[derive(Debug, Clone)]
pub(crate) struct Reservation {
    pub(crate) text: String,
    /// When the reserved rows are due.
    pub(crate) until: Instant,
}

impl Reservation {
    /// Returns the state of a reserved row that was claimed in the state `claimed`.
    pub(crate) fn fence(&self, claimed: Fence) -> Fence {
        Fence { due: Some(self.until), ..claimed }
    }
}

/// A message of a batch without its entity.
#[derive(Clone)]
pub(crate) struct BatchRow<K> {
    pub(crate) key: RowKey<K>,
    /// The fence of every write.
    pub(crate) fence: Fence,
    /// The state in which the row was claimed. Under a lease it is not the state that the row has now.
    pub(crate) before: Fence,
    /// The number of this attempt.
    pub(crate) tries: u32,
    pub(crate) state: QueueState,
    pub(crate) details: Details,
    pub(crate) idempotency_key: String,
    pub(crate) watch: Watch,
}

impl<K: Clone> BatchRow<K> {
    /// Returns the row with its new state. `written`: the transaction contains it already.
    pub(crate) fn decided(&self, new: NewState, written: bool) -> DecidedRow<K> {
        let (key, fence, watch) = (self.key.clone(), self.fence, self.watch.clone());
        DecidedRow { key, fence, new, written, watch }
    }

    /// Returns the row, whose effects may or may not be committed: it is reported, and does not run again by itself.
    pub(crate) fn in_doubt(&self, rules: &SettleRules) -> DecidedRow<K> {
        self.decided(rules.after_failure(self.tries, &Failure::fatal(AttemptError::InDoubt), &self.details), false)
    }

    /// Returns the change that makes the row what it was when it was claimed, if its group has reserved it.
    pub(crate) fn restored(&self) -> Change {
        let next = self.due().map(Next::At);
        Change { next, error: self.text(), ..Change::default() }
    }

    pub(crate) fn text(&self) -> ErrorText {
        self.state.last_attempt_error_message.clone().map_or(ErrorText::Clear, ErrorText::Set)
    }

    fn due(&self) -> Option<Instant> {
        self.state.next_attempt_time.map(Instant::from)
    }

    /// Returns the row for the rest of its attempt.
    pub(crate) fn into_unsettled(self) -> UnsettledRow<K> {
        let due = self.due();
        UnsettledRow { watch: self.watch, ..UnsettledRow::new(self.key, self.fence, due, self.details) }
    }
}

impl<K: Clone> DecidedRow<K> {
    /// Returns the row for the rest of its attempt.
    pub(crate) fn unsettled(&self) -> UnsettledRow<K> {
        let row = UnsettledRow::new(self.key.clone(), self.fence, None, Details::default());
        UnsettledRow { watch: self.watch.clone(), ..row }
    }

    /// Tells whether the row succeeded and its tries go up by one, so that one statement settles all rows of its kind.
    pub(crate) fn is_plain_success(&self) -> bool {
        let one_more = self.fence.try_count.checked_add(1);
        self.new.settled == Settlement::Succeeded && one_more.is_some() && self.new.change.try_count == one_more
    }

    /// Returns the state in which a commit leaves the row. `None`: the row is gone.
    pub(crate) fn reached(&self, options: &Options) -> Option<Fence> {
        self.new.change.reached(self.fence, options)
    }
}

pub(crate) type Handled<K> = Result<(), BatchEnd<K>>;

/// Returns the end of a group after an error of a statement that was not a handler's.
pub(crate) fn undone<K, C: QueueConnection>(error: DieselError) -> BatchEnd<K> {
    BatchEnd::Undone(conflict::<C>(&error).unwrap_or_else(|| Undone::Alone(error.to_string())))
}

pub(crate) fn conflict<C: QueueConnection>(error: &DieselError) -> Option<Undone> {
    is_interruption::<C>(error).then(|| Undone::Conflict(error.to_string()))
}

/// Writes the new state of one row, under the fence and on exactly one row.
pub(crate) fn write<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    row: &DecidedRow<K>,
) -> Result<(), BatchEnd<K>> {
    expect_rows::<K, C>(queue.settle(connection, &row.key, row.fence, &row.new.change), 1)
}

/// Checks how many rows were written. A row that cannot be written, or that its handler has changed, is identified when
/// it runs alone.
pub(crate) fn expect_rows<K, C: QueueConnection>(
    written: QueryResult<usize>,
    expected: usize,
) -> Result<(), BatchEnd<K>> {
    let rows = written.map_err(undone::<K, C>)?;
    let changed = || BatchEnd::Undone(Undone::RowsChanged(format!("{rows} rows were settled instead of {expected}")));
    (rows == expected).then_some(()).ok_or_else(changed)
}

/// Returns the place of the row that shows whether its batch was committed. A row that is not due again is best, because nobody
/// has processed it meanwhile.
pub(crate) fn witness<'r, K: Clone + 'r>(
    rows: impl Iterator<Item = &'r DecidedRow<K>>,
    options: &Options,
) -> Option<usize> {
    let moved = |row: &DecidedRow<K>| row.reached(options).is_none_or(|reached| !reached.reads_as(row.fence));
    let moved = rows.enumerate().filter(|(_, row)| moved(row));
    moved.max_by_key(|(_, row)| row.new.change.next == Some(Next::Never)).map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::row::Status;

    fn decided(key: u32, settled: Settlement, status: Status, next: Next) -> DecidedRow<u32> {
        let change = Change { status: Some(status), try_count: Some(1), next: Some(next), ..Change::default() };
        DecidedRow {
            key: RowKey::new(key, key.to_string()),
            fence: Fence::new(Status::NotAttempted, 0),
            new: NewState { settled, change },
            written: false,
            watch: Watch::default(),
        }
    }

    #[test]
    fn a_row_that_somebody_may_have_worked_meanwhile_does_not_tell_for_its_batch() {
        let retried = decided(1, Settlement::Retried, Status::Error, Next::In(Duration::ZERO));
        let succeeded = decided(2, Settlement::Succeeded, Status::Success, Next::Never);
        let mut again = decided(3, Settlement::Again, Status::NotAttempted, Next::In(Duration::ZERO));
        again.new.change = Change::default();
        let witness = |rows: &[DecidedRow<u32>]| witness(rows.iter(), &Options::NONE);
        let rows = [retried, succeeded, again];
        assert_eq!(witness(&rows), Some(1));
        assert_eq!(witness(&rows[..1]), Some(0));
        // It looks the same before and after.
        assert_eq!(witness(&rows[2..]), None);
    }
}
