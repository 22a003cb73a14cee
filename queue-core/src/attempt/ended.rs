//! How an attempt and a turn end, and what is left to do for a row whose transaction is gone.

use std::time::{Duration, Instant as LocalTime};

use diesel::result::Error as DieselError;
use serde::{Deserialize, Serialize};

use crate::backend::{ErrorClass, QueueConnection};
use crate::claim::ClaimedAs;
use crate::event::Watch;
use crate::row::{Details, Fence, Instant, RowKey, Settlement};
use crate::statement::Change;

/// The number of rows that a poller has processed, by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Tally {
    /// Rows that became `SUCCESS` or were removed by their handler.
    pub succeeded: u64,
    /// Rows that failed and will be retried.
    pub retried: u64,
    /// Rows that became `FAILED`, or whose run failed for good while their schedule goes on.
    pub failed: u64,
    /// Rows that run again later without a failure, including those whose scheduled run came too late.
    pub again: u64,
    /// Rows that went on to another stage.
    pub advanced: u64,
    /// Rows that became `SKIPPED`.
    pub skipped: u64,
    /// Attempts that ended without recording anything, because of a conflict, a lost connection or a shutdown.
    pub interrupted: u64,
    /// Attempts whose end the database refused to write on their row, because of a constraint or a trigger. Such a row
    /// stays due and is tried again after pauses that grow to an hour.
    #[serde(default)]
    pub refused: u64,
    /// Attempts in lease mode that no longer held their row when they ended. They wrote nothing.
    pub lost: u64,
}

impl Tally {
    /// Counts the result of a row, or of the rows of a group.
    pub(crate) fn count(&mut self, turn: Turn) {
        match turn {
            Turn::Settled(Settlement::Succeeded | Settlement::Deleted) => self.succeeded += 1,
            Turn::Settled(Settlement::Retried) => self.retried += 1,
            Turn::Settled(Settlement::Failed) => self.failed += 1,
            Turn::Settled(Settlement::Again) => self.again += 1,
            Turn::Settled(Settlement::Advanced) => self.advanced += 1,
            Turn::Settled(Settlement::Skipped) => self.skipped += 1,
            Turn::Interrupted => self.interrupted += 1,
            Turn::Refused => self.refused += 1,
            Turn::Lost => self.lost += 1,
            Turn::Group(rows) => {
                self.succeeded += rows.succeeded;
                self.retried += rows.retried;
                self.failed += rows.failed;
                self.again += rows.again;
                self.advanced += rows.advanced;
                self.skipped += rows.skipped;
                self.interrupted += rows.interrupted;
                self.refused += rows.refused;
                self.lost += rows.lost;
            }
            Turn::Idle | Turn::Suspect | Turn::GivenUp | Turn::Trouble => {}
        }
    }
}

/// The result of a worker's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing was due.
    Idle,
    /// A row's new state was committed.
    Settled(Settlement),
    /// A row was claimed, but nothing was recorded: it is due again.
    Interrupted,
    /// The database refused to write on the claimed row. The row is left alone for a while.
    Refused,
    /// The attempt no longer held the row when it ended.
    Lost,
    /// Several rows were claimed, with these results.
    Group(Tally),
    /// The claimed row is suspected of ending its process: the worker takes another turn, alone in the process.
    Suspect,
    /// A handler returned long after its timeout, and another thread has recorded that already.
    GivenUp,
    /// The database returned an error: the worker waits before its next turn.
    Trouble,
}

impl Turn {
    /// Tells whether a handler has failed.
    pub(crate) fn has_failures(self) -> bool {
        matches!(self, Turn::Settled(settled) if settled.is_failure())
            || matches!(self, Turn::Group(tally) if tally.retried + tally.failed > 0)
    }
}

/// How an attempt in transaction mode ended.
pub(crate) struct Attempted<K> {
    pub(crate) end: End<K>,
    /// Whether the session may be used again.
    pub(crate) session_is_sound: bool,
}

pub(crate) enum End<K> {
    /// No row was due, or others hold the due rows.
    Idle,
    /// Nothing was claimed, because the database returned an error.
    NotClaimed(DieselError),
    /// The end of the turn is known.
    Known(Turn),
    /// The message's transaction is gone; the rest is to be written in another one.
    Unsettled(Box<UnsettledRow<K>>, Rest),
}

impl<K> Attempted<K> {
    /// An attempt after which the session may be used again.
    pub(crate) fn sound(end: End<K>) -> Self {
        Attempted { end, session_is_sound: true }
    }

    /// An attempt after which the session is closed.
    pub(crate) fn lost(end: End<K>) -> Self {
        Attempted { end, session_is_sound: false }
    }
}

/// A claimed row, with what is needed if the end of its attempt has to be recorded in another transaction than its own.
#[derive(Clone)]
pub(crate) struct UnsettledRow<K> {
    pub(crate) key: RowKey<K>,
    pub(crate) fence: Fence,
    /// When the row was due, if that is known.
    pub(crate) due: Option<Instant>,
    pub(crate) details: Details,
    /// The state by which this process recognizes the row if a trigger restores its old values.
    pub(crate) claimed_as: Option<ClaimedAs>,
    /// What the listeners hear of the attempt.
    pub(crate) watch: Watch,
}

impl<K> UnsettledRow<K> {
    pub(crate) fn new(key: RowKey<K>, fence: Fence, due: Option<Instant>, details: Details) -> Self {
        UnsettledRow { key, fence, due, details, claimed_as: None, watch: Watch::default() }
    }
}

/// The work that is left for a row whose transaction is gone.
pub(crate) enum Rest {
    /// A conflict, a lost connection or a full disk: no try is used.
    Postpone(Interruption),
    /// The attempt failed: record it.
    Record(Box<NewState>),
    /// The same for a row that its group has reserved, and that is not due for this reason.
    RecordReserved(Box<NewState>),
    /// The answer to COMMIT was lost: find out whether the row reached its new state.
    FindOut(Box<InDoubt>),
    /// The poller shut down: leave the row as it was.
    Leave,
}

impl Rest {
    /// Returns what is left for a row whose new state is decided and not written.
    pub(crate) fn record(new: NewState) -> Self {
        Rest::Record(Box::new(new))
    }

    /// Returns why the attempt was interrupted, or why its end is not known.
    pub(crate) fn cause(&self) -> Option<&str> {
        match self {
            Rest::Postpone(interruption) => Some(&interruption.cause),
            Rest::FindOut(in_doubt) => Some(&in_doubt.cause),
            _ => None,
        }
    }

    /// Returns the text of the failure that is to be recorded.
    pub(crate) fn failure(&self) -> Option<&str> {
        let Rest::Record(new) = self else { return None };
        new.change.error.text()
    }
}

/// The new state of a row.
#[derive(Debug, Clone)]
pub(crate) struct NewState {
    pub(crate) settled: Settlement,
    pub(crate) change: Change,
}

/// A new state of a row that may or may not be committed.
pub(crate) struct InDoubt {
    pub(crate) new: NewState,
    /// The state. `None`: the row was removed.
    pub(crate) reached: Option<Fence>,
    /// The error that came instead of the answer to COMMIT.
    pub(crate) cause: String,
    /// When it came.
    pub(crate) since: LocalTime,
    /// Whether the caller tells the log and the listeners if it is committed.
    pub(crate) is_told_by_caller: bool,
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

pub(crate) fn is_interruption<C: QueueConnection>(error: &DieselError) -> bool {
    C::classify(error) != ErrorClass::Other
}

/// The result of writing the rest of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conclusion {
    /// The row's new state is committed.
    Settled(Settlement),
    /// Nothing was recorded; the row is due again, now or a little later.
    Interrupted,
    /// Another session has changed the row meanwhile, so there was nothing to write. `is_due`: it is due all the same.
    Overtaken { is_due: bool },
    /// No statement finds the row by its key, and the row has failed for it.
    SetAside,
    /// The database refuses to write this on this row. `is_noted`: the row is due later, and gives the reason if the
    /// database allows that.
    Refused { is_noted: bool },
    /// Nothing is written on the row although the database reports no error: a trigger keeps it as it is.
    Kept,
}

/// The errors of an attempt besides the handler's own. Their texts are written on the row.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttemptError {
    #[error("the row cannot be decoded")]
    Undecodable(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("cannot decode the primary key `{0}`: {1}")]
    UndecodableKey(String, String),
    #[error("cannot decode the column `{0}`, by which the rows are scheduled: {1}")]
    UndecodableLane(&'static str, String),
    #[error(
        "no statement finds the row by its primary key `{0}`: the key's type in Rust, or the column's own, changes it (as \
         PostgreSQL's character(n) adds spaces to a text)"
    )]
    LostKey(String),
    #[error("the handler ignored the error of one of its statements")]
    SwallowedError(#[source] DieselError),
    #[error(
        "the handler ended the message's transaction (by COMMIT, ROLLBACK, a statement that commits, or an error that it \
         swallowed); what it committed itself is not undone"
    )]
    TransactionEnded(#[source] DieselError),
    #[error(
        "{0}; besides, the message's transaction had ended before, and what the handler committed itself is not undone"
    )]
    FailedAndEnded(String),
    // The refused COMMIT has released the row too, so another attempt may have run. Alone, its COMMIT is not refused.
    #[error(
        "the handler tried to commit a transaction that it shares, which was refused; what another attempt has committed \
         meanwhile is not undone"
    )]
    SharedCommitRefused,
    #[error(
        "{0}; besides, the handler had tried to commit a transaction that it shares, which was refused; what another attempt \
         has committed meanwhile is not undone"
    )]
    FailedAndRefused(String),
    #[error("the handler removed the row or changed its queue columns: answer Outcome::Delete, Again or Skip instead")]
    RowChanged,
    /// The handler has named a stage that its entity does not have.
    #[error("the handler named the next stage `{0}`, but {1}")]
    NoSuchStage(&'static str, String),
    /// A failure asks for a new key, and the entity has no column that could make one. It is retried with the old key, as
    /// it would be without the request.
    #[error(
        "there is no new idempotency key for the next attempt: add `#[queue(occasion)]` to the entity; the failure: {0}"
    )]
    NoNewKey(String),
    #[error("the row's new state cannot be written")]
    NotWritten(#[source] DieselError),
    #[error("the row cannot be marked before it is handled")]
    NotMarked(#[source] DieselError),
    #[error("the row cannot be leased")]
    NotLeased(#[source] DieselError),
    #[error("the commit was refused")]
    CommitRefused(#[source] DieselError),
    #[error("interrupted {0} times in a row; the last cause: {1}")]
    Interrupted(u32, String),
    #[error("the handler took longer than its timeout of {0:?}")]
    TimedOut(Duration),
    #[error(
        "a handler of the same group ended the transaction (by COMMIT, ROLLBACK, a statement that commits, or an error that it \
         swallowed), and the effects of this message may have been committed: check them before you rerun the message"
    )]
    InDoubt,
}
