//! The plan of an attempt, its row, its decision, and what it leaves to do.

use std::borrow::Borrow;
use std::ops::Deref;
use std::time::Instant as LocalTime;

use diesel::result::Error as DieselError;

use super::served_queue::ServedQueue;
use super::slot::Slot;
use crate::backend::{ErrorClass, QueueConnection, Session};
use crate::claim::{ClaimedAs, HeldPlaces, LowWaterFloor, PrefetchedKeys, PrefetchedRows, ReadRow, RowInHand};
use crate::entity::Key;
use crate::erased_entity::ErasedEntity;
use crate::event::Watch;
use crate::handler::{HandlerResult, Message};
use crate::row::{Details, ErrorText, Fence, Instant, QueueState, RowKey, Settlement};
use crate::statement::{Change, Scope};

/// The code that an attempt runs: a user's handler, or the finishing part of one.
pub(crate) type AttemptBody<'a, C> = dyn Fn(&ErasedEntity, &mut Message<'_, C>) -> HandlerResult + 'a;

/// A user's handler, which all workers run.
pub(crate) type SharedBody<C> = Box<dyn Fn(&ErasedEntity, &mut Message<'_, C>) -> HandlerResult + Send + Sync>;

/// A message to handle, which the attempt owns or borrows.
pub(crate) type ToHandle<'a> = Box<dyn Borrow<(ErasedEntity, QueueState)> + 'a>;

/// How the messages of one entity are attempted.
pub(crate) struct Plan<'a, K: Key, C: QueueConnection> {
    pub(crate) served: &'a ServedQueue<K, C>,
    pub(crate) handler: &'a AttemptBody<'a, C>,
    pub(crate) slot: &'a Slot,
    pub(crate) claim: ClaimPlan<'a, K, C>,
}

impl<K: Key, C: QueueConnection> Deref for Plan<'_, K, C> {
    type Target = ServedQueue<K, C>;

    fn deref(&self) -> &ServedQueue<K, C> {
        self.served
    }
}

/// How the row of an attempt is claimed.
pub(crate) struct ClaimPlan<'a, K: Key, C: QueueConnection> {
    /// Which of the due rows are attempted.
    pub(crate) scope: Scope<'a, K>,
    /// The low-water mark's record of the same claim.
    pub(crate) floor: Option<&'a LowWaterFloor<'a>>,
    /// The prefetched keys, if rows are claimed by them.
    pub(crate) prefetched_keys: Option<&'a PrefetchedKeys<K>>,
    /// The prefetched rows, if the end of a message may lock the next one.
    pub(crate) prefetched_rows: Option<&'a PrefetchedRows<K>>,
    /// The places in lanes that the worker holds, if the rows are scheduled by lanes or limited in number.
    pub(crate) places: Option<&'a HeldPlaces<'a, K, C>>,
}

impl<K: Key, C: QueueConnection> ClaimPlan<'_, K, C> {
    /// Returns the plan for a row that a lease's claim has already claimed and checked.
    pub(crate) fn none() -> Self {
        ClaimPlan { scope: Scope::ALL, floor: None, prefetched_keys: None, prefetched_rows: None, places: None }
    }
}

/// A row whose attempt is to be recorded in another transaction than its own.
#[derive(Debug, Clone)]
pub(crate) struct UnsettledRow<K> {
    pub(crate) key: RowKey<K>,
    pub(crate) fence: Fence,
    /// When the row was due, if that is known.
    pub(crate) due: Option<Instant>,
    pub(crate) details: Details,
    /// The state by which this process recognizes the row if a trigger restores its old values.
    pub(crate) claimed_as: Option<ClaimedAs>,
}

/// A new state of a row that may or may not be committed.
pub(crate) struct InDoubt {
    pub(crate) settled: Settlement,
    /// The state. `None`: the row was removed.
    pub(crate) reached: Option<Fence>,
    /// The error that came instead of the answer to COMMIT.
    pub(crate) cause: String,
    /// When it came.
    pub(crate) since: LocalTime,
    /// The change to log if it is committed. `None`: the caller logs it.
    pub(crate) change: Option<Change>,
}

/// The work that is left for a row whose transaction is gone.
pub(crate) enum Remainder {
    /// A conflict, a lost connection or a full disk: no try is used.
    Postpone(Interruption),
    /// The attempt failed: record it.
    Record(Settlement, Box<Change>),
    /// The same for a row that its group has reserved, and that is not due for this reason.
    RecordReserved(Settlement, Box<Change>),
    /// The answer to COMMIT was lost: find out whether the row reached its new state.
    FindOut(Box<InDoubt>),
    /// The poller shut down: leave the row as it was.
    Leave,
}

impl Remainder {
    /// Returns why the attempt was interrupted, or why its end is not known.
    pub(crate) fn cause(&self) -> Option<&str> {
        match self {
            Remainder::Postpone(interruption) => Some(&interruption.cause),
            Remainder::FindOut(in_doubt) => Some(&in_doubt.cause),
            _ => None,
        }
    }

    /// Returns the text of the failure that is to be recorded.
    pub(crate) fn failure(&self) -> Option<&str> {
        let Remainder::Record(_, change) = self else { return None };
        change.error.text()
    }
}

/// The interruption of an attempt.
pub(crate) struct Interruption {
    pub(crate) cause: String,
    /// Whether the server has rolled the whole transaction back.
    pub(crate) rolls_back: bool,
    /// Whether the server had no room left to write.
    pub(crate) disk_is_full: bool,
}

impl Interruption {
    pub(crate) fn of<C: QueueConnection>(error: &DieselError) -> Self {
        Interruption::with_text::<C>(error, error.to_string())
    }

    /// Makes an interruption with this text.
    pub(crate) fn with_text<C: QueueConnection>(error: &DieselError, cause: String) -> Self {
        Interruption { cause, rolls_back: C::rolls_back(error), disk_is_full: C::classify(error) == ErrorClass::NoRoom }
    }
}

/// A row whose lock this transaction holds.
#[derive(Clone, Copy)]
pub(crate) struct LockedRow<'a, K> {
    pub(crate) key: &'a RowKey<K>,
    /// The fence of every write.
    pub(crate) fence: Fence,
    /// The state in which the row was claimed. Under a lease it is not the state that the row has now.
    pub(crate) before: Fence,
    /// The number of this attempt.
    pub(crate) tries: u32,
    /// The error text to write if the outcome leaves the row's text as it is.
    pub(crate) kept: &'a ErrorText,
    pub(crate) details: &'a Details,
    /// Whether the handler's savepoint exists already.
    pub(crate) is_under_savepoint: bool,
    pub(crate) watch: &'a Watch,
}

/// A claimed message in its transaction.
pub(crate) struct Attempt<'a, K: Key, C: QueueConnection> {
    pub(crate) session: &'a mut Session<C>,
    pub(crate) plan: &'a Plan<'a, K, C>,
    pub(crate) row: LockedRow<'a, K>,
    pub(crate) session_is_sound: bool,
    /// Kept until the handler has returned.
    pub(crate) in_hand: Option<RowInHand<'a>>,
    /// The next row, which the end of this one has locked.
    pub(crate) next: Option<ReadRow<K>>,
}

/// The new state of a row, and what becomes of its handler's writes.
pub(crate) struct Decision {
    pub(crate) settled: Settlement,
    pub(crate) change: Change,
    pub(crate) effects: Effects,
}

/// What becomes of the writes in a handler's savepoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effects {
    /// There are none: the handler has not run, or all of them are undone.
    None,
    /// They are committed with the row's new state.
    Stand,
    /// They are to be undone.
    Undone,
}

pub(crate) type BoxedError = Box<dyn std::error::Error + Send + Sync>;

pub(crate) type DecodedMessage = Result<(ErasedEntity, QueueState), BoxedError>;

pub(crate) fn is_interruption<C: QueueConnection>(error: &DieselError) -> bool {
    C::classify(error) != ErrorClass::Other
}
