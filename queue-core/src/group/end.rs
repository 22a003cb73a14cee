//! A group's rows, and the ways in which the group may end: what is then known of each row.

use diesel::result::Error as DieselError;

use crate::attempt::{AttemptError, Rest, SettleRules, UnsettledRow, tries_before};
use crate::event::Watch;
use crate::handler::Failure;
use crate::row::{Details, ErrorText, Fence, Instant, Options, QueueState, RowKey, Settlement};
use crate::statement::{Change, Next};

/// How a group ended.
pub(crate) struct WorkedGroup<K> {
    pub(crate) end: GroupEnd<K>,
    /// How many rows were claimed.
    pub(crate) claimed: usize,
    /// How many of them were handled, or begun.
    pub(crate) begun: usize,
    pub(crate) session_is_sound: bool,
    /// Whether the handler did not return in time, and another thread has done the rest.
    pub(crate) given_up: bool,
    /// A remark about the handler for the log.
    pub(crate) remark: Option<String>,
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
    /// One of the handlers of these rows may have ended the transaction. Nobody knows which one, or which effects are
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
    pub(crate) settled: Settlement,
    pub(crate) change: Change,
    /// Whether the group's transaction contains the change already.
    pub(crate) written: bool,
    pub(crate) watch: Watch,
}

/// A row whose handler may have ended the transaction, and the rest for it.
pub(crate) struct Offender<K> {
    pub(crate) row: GroupRow<K>,
    pub(crate) rest: Rest,
}

/// The mark that a [reserved](super::reserve) group writes on its rows before any handler runs. It replaces the last
/// failure's text, and makes the rows due later. Nobody sees it, because the settlement replaces both values, unless a
/// handler ends the transaction with a COMMIT. Then the rows show this by the reservation, whose text is unique. The
/// rows of the earlier messages, whose effects stay, are not due for other workers before they are settled.
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
    pub(crate) fn decided(&self, settled: Settlement, change: Change, written: bool) -> DecidedRow<K> {
        let (key, fence, watch) = (self.key.clone(), self.fence, self.watch.clone());
        DecidedRow { key, fence, settled, change, written, watch }
    }

    /// Returns the row, whose effects may or may not be committed: it is reported, and does not run again by itself.
    pub(crate) fn in_doubt(&self, rules: &SettleRules) -> DecidedRow<K> {
        let (settled, change) = rules.after_failure(self.tries, &Failure::fatal(AttemptError::InDoubt), &self.details);
        self.decided(settled, change, false)
    }
}

impl<K> GroupRow<K> {
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
        UnsettledRow { key: self.key, fence: self.fence, due, details: self.details, claimed_as: None }
    }
}

impl<K: Clone> DecidedRow<K> {
    /// Returns the row for the rest of its attempt.
    pub(crate) fn unsettled(&self) -> UnsettledRow<K> {
        UnsettledRow {
            key: self.key.clone(),
            fence: self.fence,
            due: None,
            details: Details::default(),
            claimed_as: None,
        }
    }
}

impl<K> DecidedRow<K> {
    /// Tells whether the row succeeded and its tries go up by one, so that one statement settles all rows of its kind.
    pub(crate) fn is_plain_success(&self) -> bool {
        let tries = self.fence.try_count;
        self.settled == Settlement::Succeeded
            && tries < i32::MAX
            && i64::from(tries) == i64::from(tries_before(self.fence))
    }

    /// Returns the state in which a commit leaves the row. `None`: the row is gone.
    pub(crate) fn reached(&self, options: &Options) -> Option<Fence> {
        self.change.reached(self.fence, options)
    }
}
