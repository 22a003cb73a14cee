//! How an attempt begins: its plan, and how its row is claimed. The end of the last message has locked the row, or the worker
//! locks a prefetched row now, or it makes the plain claim.

use std::borrow::Borrow;
use std::cell::Cell;

use diesel::connection::TransactionManager;
use diesel::result::QueryResult;

use super::ended::NewState;
use super::served_queue::ServedQueue;
use super::slot::Slot;
use crate::backend::{QueueConnection, Session};
use crate::claim::{ClaimTerms, HeldPlaces, LowWaterFloor, PrefetchedKeys, PrefetchedRows, ReadRow, RowInHand, claim};
use crate::entity::Key;
use crate::event::Watch;
use crate::handler::{HandlerResult, Message};
use crate::row::{Details, ErrorText, Fence, QueueState, RowKey};
use crate::statement::{ClaimFloor, Claimed, Scope};
use crate::sync::ErasedEntity;

/// The code that an attempt runs: a user's handler, or the finishing part of one.
pub(crate) type AttemptBody<'a, C> = dyn Fn(&ErasedEntity, &mut Message<'_, C>) -> HandlerResult + 'a;

/// A user's handler, which all workers run.
pub(crate) type SharedBody<'h, C> = Box<dyn Fn(&ErasedEntity, &mut Message<'_, C>) -> HandlerResult + Send + Sync + 'h>;

/// A message to handle, which the attempt owns or borrows.
pub(crate) type ToHandle<'a> = Box<dyn Borrow<(ErasedEntity, QueueState)> + 'a>;

/// How the messages of one entity are attempted.
pub(crate) struct Plan<'a, K: Key, C: QueueConnection> {
    pub(crate) served: &'a ServedQueue<K, C>,
    pub(crate) handler: &'a AttemptBody<'a, C>,
    pub(crate) slot: &'a Slot,
    pub(crate) claim: ClaimPlan<'a, K, C>,
}

/// How the row of an attempt is claimed.
pub(crate) struct ClaimPlan<'a, K: Key, C: QueueConnection> {
    /// Which of the due rows are attempted.
    pub(crate) scope: Scope<'a, K>,
    /// The low-water mark's record of the same claim.
    pub(crate) floor: Option<&'a LowWaterFloor<'a>>,
    /// The prefetched keys, unless the worker is alone in the process. They count only if rows are claimed by keys.
    pub(crate) prefetched_keys: Option<&'a PrefetchedKeys<K>>,
    /// The prefetched rows, if the end of a message may lock the next one.
    pub(crate) prefetched_rows: Option<&'a PrefetchedRows<K>>,
    /// The row that the end of the last message has locked, and then the one that the end of this one locks.
    pub(crate) next: Cell<Option<ReadRow<K>>>,
    /// The places in lanes that the worker holds, if the rows are scheduled by lanes or limited in number.
    pub(crate) places: Option<&'a HeldPlaces<'a, K, C>>,
}

impl<K: Key, C: QueueConnection> ClaimPlan<'_, K, C> {
    /// Returns the plan for a row that a lease's claim has already claimed and checked.
    pub(crate) fn none() -> Self {
        let next = Cell::default();
        ClaimPlan { scope: Scope::ALL, floor: None, prefetched_keys: None, prefetched_rows: None, next, places: None }
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
pub(crate) struct Attempt<'a, 'c, K: Key, C: QueueConnection> {
    pub(crate) session: &'a mut Session<'c, C>,
    pub(crate) plan: &'a Plan<'a, K, C>,
    pub(crate) row: LockedRow<'a, K>,
    pub(crate) session_is_sound: bool,
    /// Whether the statement that settles the row was the last to fail. If the connection lives, the transaction is still open.
    pub(crate) is_refused: bool,
    /// Kept until the handler has returned.
    pub(crate) in_hand: Option<RowInHand>,
}

/// The new state of a row, and what becomes of its handler's writes.
pub(crate) struct Decision {
    pub(crate) new: NewState,
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

impl<K: Key, C: QueueConnection> Plan<'_, K, C> {
    /// Claims a row. The transaction may have begun already, and the row may be locked already; then the handler's
    /// savepoint exists too. The flag tells whether it does.
    pub(super) fn begin_and_claim(&self, session: &mut Session<C>) -> QueryResult<Option<(Claimed<K>, bool)>> {
        let (queue, plan) = (self.served.queue, &self.claim);
        if let (Some(rows), Some(row)) = (plan.prefetched_rows, plan.next.take())
            && session.try_continue_locked()?
        {
            return self.take_up(session, rows, row).map(Some);
        }
        session.begin_message(queue)?;
        if let Some(rows) = plan.prefetched_rows
            && !(session.take_miss() && rows.try_give_way())
            && !plan.floor.is_some_and(LowWaterFloor::probes_below)
            && let Some((lock, row)) = self.next_row(session)
        {
            let is_locked = session.lock_next(&lock, "queueable_handler")?;
            rows.note_answer(is_locked);
            if is_locked {
                return self.take_up(session, rows, row).map(Some);
            }
        }
        // In a test, the transaction may be the test's, and nobody else waits.
        let one = ClaimTerms { limit: 1, locks: true, begins_again: !session.is_of_test() };
        let claimed = claim(queue, session, plan.places, plan.prefetched_keys, one, plan.scope)?.pop();
        match (&claimed, plan.prefetched_rows) {
            (None, _) => C::TransactionManager::rollback_transaction(&mut **session)?,
            (Some(row), Some(rows)) => {
                rows.note_begin(&row.key);
                if session.prepared.lock_of(queue.id()).is_some() {
                    rows.replenish(queue, session, plan.scope)?;
                }
            }
            (Some(_), None) => {}
        }
        Ok(claimed.map(|row| (row, false)))
    }

    /// Continues with a prefetched row that is locked now.
    fn take_up(
        &self,
        session: &mut Session<C>,
        rows: &PrefetchedRows<K>,
        row: ReadRow<K>,
    ) -> QueryResult<(Claimed<K>, bool)> {
        let queue = self.served.queue;
        rows.note_begin_taken(&row);
        self.claim.floor.inspect(|floor| floor.note_claim(row.due(), row.due()));
        match self.claim.floor {
            // A prefetched row does not show what is below the mark, so the next claim has to look there. It is no time to
            // prefetch: reading from below the mark is as slow as that claim.
            Some(floor) if floor.probes_below() => floor.pass_on(),
            _ => rows.replenish(queue, session, self.claim.scope)?,
        }
        Ok((row.row.into_inner(), true))
    }

    /// Returns the next prefetched row, and the text that locks it.
    pub(super) fn next_row(&self, session: &Session<C>) -> Option<(String, ReadRow<K>)> {
        let queue = self.served.queue;
        let lock = session.prepared.lock_of(queue.id())?;
        let row = self.claim.prefetched_rows?.take(self.claim.scope.except)?;
        Some((format!("{lock}({})", row.lock()), row))
    }
}
