//! A group's rows, and the ways in which the group may end: what is then known of each row.

use std::time::Duration;

use chrono::{SubsecRound, TimeDelta};
use diesel::result::{Error as DieselError, QueryResult};

use crate::attempt::{AttemptError, NewState, Rest, SettleRules, UnsettledRow, is_interruption, tries_before};
use crate::backend::QueueConnection;
use crate::entity::Key;
use crate::event::Watch;
use crate::handler::Failure;
use crate::row::{Details, ErrorText, Fence, Instant, MAX_DELAY, Options, QueueState, RESERVING, RowKey, Settlement};
use crate::statement::{Change, ErasedQueue, Next};

/// How many rows one statement settles: SQLite accepts expressions of up to 1000 levels, and every `OR` is one.
pub(crate) const SETTLED_AT_ONCE: usize = 400;

/// How long reserved rows are not due after their group's timeout. In this time the worker writes what is left after a
/// handler's COMMIT, even if the database is away for a moment.
const RESERVED: Duration = Duration::from_secs(60);

/// How a group ended.
pub(crate) struct WorkedGroup<K> {
    pub(crate) end: GroupEnd<K>,
    /// How many rows were claimed.
    pub(crate) claimed: usize,
    /// How many of them were handled, or begun.
    pub(crate) begun: usize,
    /// How long one of them took on average, if that is known.
    pub(crate) turn: Option<Duration>,
    pub(crate) session_is_sound: bool,
    /// Whether the handler did not return in time, and another thread has done the rest.
    pub(crate) given_up: bool,
    /// A remark about the handler for the log.
    pub(crate) remark: Option<String>,
}

impl<K> WorkedGroup<K> {
    /// Returns the end of a group none of whose rows was handled.
    pub(crate) fn without_rows(end: GroupEnd<K>, session_is_sound: bool) -> Self {
        WorkedGroup { end, claimed: 0, begun: 0, turn: None, session_is_sound, given_up: false, remark: None }
    }
}

/// The rows of a group, for the thread that gives it up because a handler does not return.
pub(crate) struct HeldGroup {
    /// How many rows there are.
    pub(crate) claimed: usize,
}

pub(crate) enum GroupEnd<K> {
    /// No row was due, or others hold the due rows.
    Idle,
    /// Nothing was claimed, because the database returned an error.
    NotClaimed(DieselError),
    /// The new state of these rows is committed. The other claimed rows are as they were.
    Settled(Vec<DecidedRow<K>>),
    /// The transaction was the group's to its end and is rolled back: all rows are as they were.
    Undone(Undone),
    /// The handler of the offender may have ended the transaction, and may have committed the effects of the messages
    /// before it.
    EndedByHandler {
        reservation: Option<Reservation>,
        before: Vec<DecidedRow<K>>,
        offender: Box<Offender<K>>,
        after: Vec<GroupRow<K>>,
    },
    /// One of the handlers of these rows may have ended the transaction. It is unknown which one, or which effects are
    /// committed. If there is another reason why it is gone, and nothing was committed, it was rolled back for that
    /// reason.
    EndedByUnknown {
        reservation: Option<Reservation>,
        rows: Vec<DecidedRow<K>>,
        after: Vec<GroupRow<K>>,
        why: Option<Undone>,
    },
    /// The answer to COMMIT was lost.
    Unknown(Vec<DecidedRow<K>>, String),
}

/// Why a group was rolled back.
#[derive(Debug)]
pub(crate) enum Undone {
    /// A deadlock, a lock timeout or a lost connection: groups get in each other's way.
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
    /// Whether the group's transaction contains the change already.
    pub(crate) written: bool,
    pub(crate) watch: Watch,
}

/// A row whose handler may have ended the transaction, and the rest for it.
pub(crate) struct Offender<K> {
    pub(crate) row: GroupRow<K>,
    pub(crate) rest: Rest,
}

/// The mark that a [reserved](reserve) group writes on its rows before any handler runs. It replaces the last failure's
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

/// A message of the group without its entity.
#[derive(Clone)]
pub(crate) struct GroupRow<K> {
    pub(crate) key: RowKey<K>,
    pub(crate) fence: Fence,
    pub(crate) tries: u32,
    pub(crate) state: QueueState,
    pub(crate) details: Details,
    pub(crate) idempotency_key: String,
    pub(crate) watch: Watch,
}

impl<K: Clone> GroupRow<K> {
    /// Returns the row with its new state. `written`: the group's transaction contains it already.
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
        let tries = self.fence.try_count;
        self.new.settled == Settlement::Succeeded
            && tries < i32::MAX
            && i64::from(tries) == i64::from(tries_before(self.fence))
    }

    /// Returns the state in which a commit leaves the row. `None`: the row is gone.
    pub(crate) fn reached(&self, options: &Options) -> Option<Fence> {
        self.new.change.reached(self.fence, options)
    }
}

pub(crate) type Handled<K> = Result<(), GroupEnd<K>>;

/// Returns the end of a group after an error of a statement that was not a handler's.
pub(crate) fn undone<K, C: QueueConnection>(error: DieselError) -> GroupEnd<K> {
    GroupEnd::Undone(conflict::<C>(&error).unwrap_or_else(|| Undone::Alone(error.to_string())))
}

pub(crate) fn conflict<C: QueueConnection>(error: &DieselError) -> Option<Undone> {
    is_interruption::<C>(error).then(|| Undone::Conflict(error.to_string()))
}

/// Writes the new state of one row, under the fence and on exactly one row.
pub(crate) fn write<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    row: &DecidedRow<K>,
) -> Result<(), GroupEnd<K>> {
    expect_rows::<K, C>(queue.settle(connection, &row.key, row.fence, &row.new.change), 1)
}

/// Checks how many rows were written. A row that cannot be written, or that its handler has changed, is identified when
/// it runs alone.
pub(crate) fn expect_rows<K, C: QueueConnection>(
    written: QueryResult<usize>,
    expected: usize,
) -> Result<(), GroupEnd<K>> {
    let rows = written.map_err(undone::<K, C>)?;
    let changed = || GroupEnd::Undone(Undone::RowsChanged(format!("{rows} rows were settled instead of {expected}")));
    (rows == expected).then_some(()).ok_or_else(changed)
}

/// Makes the rows due long after their group's timeout, and reserves them.
///
/// A reservation writes every row once more, so a group makes it only if nothing else helps: before an optimistic
/// group, before a handler for the whole group uses the connection, and if a success leaves its table. Otherwise each
/// success is settled before the next handler runs. If the server [refuses such a
/// COMMIT](crate::backend::QueueBackend::REFUSES_COMMITS), no group is reserved.
pub(crate) fn reserve<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    rows: &[GroupRow<K>],
    timeout: Duration,
) -> Result<Reservation, GroupEnd<K>> {
    let text = format!("{RESERVING}{:032x}", fastrand::u128(..));
    // One known time for all rows: a handler may make a row of its group due at another time, and the fence has to show
    // it.
    let present = queue.present(connection).map_err(undone::<K, C>)?;
    let delay = TimeDelta::from_std(timeout.saturating_add(RESERVED).min(MAX_DELAY)).ok();
    let until = delay.and_then(|delay| present.checked_add_signed(delay));
    // In the milliseconds that every database keeps.
    let until = until.map_or(present, |until| Instant::from(until.trunc_subsecs(3)));
    let change = Change { next: Some(Next::At(until)), error: ErrorText::Set(text.clone()), ..Change::default() };
    let fenced: Vec<_> = rows.iter().map(|row| (&row.key, row.fence)).collect();
    for fenced in fenced.chunks(SETTLED_AT_ONCE) {
        expect_rows::<K, C>(queue.settle_many(connection, fenced, &change), fenced.len())?;
    }
    Ok(Reservation { text, until })
}
