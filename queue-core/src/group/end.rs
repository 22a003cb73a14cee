//! A group's rows, and how the group may end: what is then known of each of them.

use std::marker::PhantomData;

use diesel::result::Error as DieselError;

use crate::attempt::{AttemptError, Remainder, SettleRules, UnsettledRow, tries_before};
use crate::handler::Failure;
use crate::row::{Details, ErrorText, Fence, Instant, Options, QueueState, RowKey, Settlement};
use crate::statement::{Change, Next};

/// How a group ended.
pub(crate) struct WorkedGroup<K> {
    pub(crate) end: GroupEnd<K>,
    /// How many rows were claimed.
    pub(crate) claimed: usize,
    /// How many of them were handled, or begun to be.
    pub(crate) begun: usize,
    pub(crate) session_is_sound: bool,
    /// Whether the handler did not return in time, and others have done what was to be done.
    pub(crate) given_up: bool,
    /// What is to be said of the handler besides.
    pub(crate) remark: Option<String>,
}

/// The rows of a group, for whoever gives it up because a handler does not return.
pub(crate) struct HeldGroup<Q> {
    /// How many they are.
    pub(crate) claimed: usize,
    pub(crate) entity: PhantomData<fn() -> Q>,
}

pub(crate) enum GroupEnd<K> {
    /// No row was due, or others hold those that are.
    Idle,
    /// Nothing was claimed, because the database did not answer as it should.
    NotClaimed(DieselError),
    /// The new state of these rows is committed; the others that were claimed are as they were.
    Settled(Vec<DecidedRow<K>>),
    /// The transaction was ours to its end and is rolled back: all rows are as they were.
    Undone(UndoReason),
    /// The handler of the culprit may have ended the transaction, and may have committed the effects of those before it.
    EndedByHandler {
        reservation: Option<Reservation>,
        before: Vec<DecidedRow<K>>,
        offender: Box<Offender<K>>,
        after: Vec<UntouchedRow<K>>,
    },
    /// One of the handlers of these rows may have ended the transaction; nobody knows which, nor which effects are committed.
    /// If there is another reason why it is gone, and nothing was committed, it was rolled back for that.
    EndedByUnknown {
        reservation: Option<Reservation>,
        rows: Vec<DecidedRow<K>>,
        after: Vec<UntouchedRow<K>>,
        why: Option<UndoReason>,
    },
    /// The answer to COMMIT was lost.
    Unknown(Vec<DecidedRow<K>>, String),
}

/// Why a group was rolled back.
#[derive(Debug)]
pub(crate) enum UndoReason {
    /// A deadlock, a lock timeout, a lost connection: groups are in each other's way.
    Conflict(String),
    /// One of the messages is to be found out, or judged, alone.
    Alone(String),
    /// The poller shut down.
    Shutdown,
}

/// What is to become of a row, or has.
pub(crate) struct DecidedRow<K> {
    pub(crate) key: RowKey<K>,
    pub(crate) fence: Fence,
    pub(crate) settled: Settlement,
    pub(crate) change: Change,
    /// Whether it stands in the group's transaction already.
    pub(crate) written: bool,
}

/// A row whose handler may have ended the transaction, and what is left to do for it.
pub(crate) struct Offender<K> {
    pub(crate) row: UntouchedRow<K>,
    pub(crate) remainder: Remainder,
}

/// A reserved row that was not handled, and the change that makes it what it was.
pub(crate) struct UntouchedRow<K> {
    pub(crate) key: RowKey<K>,
    pub(crate) fence: Fence,
    pub(crate) change: Change,
    pub(crate) details: Details,
}

/// What a [reserved](super::reserve) group writes on its rows before any handler runs, in place of the last failure's text,
/// while it makes them due later. Nobody sees either, because the settlement replaces both, unless a handler ends the transaction with
/// a COMMIT. Then the rows tell so by the reservation, which is like no other text; and those of the messages before, whose effects
/// are there to stay, are not due for anybody else before they are settled.
#[derive(Debug, Clone)]
pub(crate) struct Reservation {
    pub(crate) text: String,
    /// When the reserved rows are due.
    pub(crate) until: Instant,
}

impl Reservation {
    /// The state of a reserved row that was claimed in this one.
    pub(crate) fn fence(&self, claimed: Fence) -> Fence {
        Fence { due: Some(self.until), ..claimed }
    }
}

/// A message of the group without its entity.
pub(crate) struct GroupRow<K> {
    pub(crate) key: RowKey<K>,
    pub(crate) fence: Fence,
    pub(crate) tries: u32,
    pub(crate) state: QueueState,
    pub(crate) details: Details,
    pub(crate) idempotency_key: String,
}

impl<K: Clone> GroupRow<K> {
    /// The row as it was when it was claimed.
    pub(crate) fn untouched(&self) -> UntouchedRow<K> {
        let change = Change {
            next: self.state.next_attempt_time.map(|time| Next::At(time.into())),
            error: self.text(),
            ..Change::default()
        };
        UntouchedRow { key: self.key.clone(), fence: self.fence, change, details: self.details.clone() }
    }

    pub(crate) fn text(&self) -> ErrorText {
        self.state.last_attempt_error_message.clone().map_or(ErrorText::Clear, ErrorText::Set)
    }
}

impl<K> UntouchedRow<K> {
    /// The row, for whatever is left to do for it.
    pub(crate) fn into_unsettled(self) -> UnsettledRow<K> {
        let due = match self.change.next {
            Some(Next::At(due)) => Some(due),
            _ => None,
        };
        UnsettledRow { key: self.key, fence: self.fence, due, details: self.details, claimed_as: None }
    }
}

impl<K: Clone> DecidedRow<K> {
    /// The row, for whatever is left to do for it.
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
    /// What is written on a row of which nobody knows whether its effects are committed: it is reported, and not run again
    /// by itself.
    pub(crate) fn in_doubt(rules: &SettleRules, key: RowKey<K>, fence: Fence, details: &Details) -> Self {
        let (settled, change) =
            rules.after_failure(tries_before(fence) + 1, &Failure::fatal(AttemptError::InDoubt), details);
        DecidedRow { key, fence, settled, change, written: false }
    }

    /// Whether the row succeeded and its tries go on by one, so that one statement does for all of its kind.
    pub(crate) fn is_plain_success(&self) -> bool {
        let tries = self.fence.try_count;
        self.settled == Settlement::Succeeded
            && tries < i32::MAX
            && i64::from(tries) == i64::from(tries_before(self.fence))
    }

    /// The state that a commit leaves the row in; `None`: it is gone.
    pub(crate) fn reached(&self, options: &Options) -> Option<Fence> {
        match self.settled {
            Settlement::Deleted => None,
            _ => self.change.reached(self.fence, options),
        }
    }
}
