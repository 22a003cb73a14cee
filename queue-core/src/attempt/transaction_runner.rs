//! One entity in transaction mode: a turn claims a message, attempts it, and continues with the next one if that is
//! locked already.

use std::cell::Cell;
use std::sync::Arc;

use diesel::result::QueryResult;

use super::attempt::attempt;
use super::begin::{ClaimPlan, Plan, SharedBody};
use super::end::timed_out;
use super::ended::{Attempted, End, Turn, UnsettledRow};
use super::runner::{AnyQueue, Runner, RunnerSettings, WorkerTurn};
use super::served_queue::ServedQueue;
use super::settle_rules::tries_before;
use super::slot::{ErasedRow, Slot};
use crate::backend::{QueueConnection, SessionHolder};
use crate::claim::{HeldPlaces, PickedRows, Places, PrefetchedKeys, PrefetchedRows, ReadRow};
use crate::entity::{Entity, Key};
use crate::error::{Error, Finding};
use crate::handler::Handler;
use crate::row::failure_text;
use crate::statement::QueueOn;
use crate::sync::opened;

/// A queue whose messages have a transaction each, and its handler.
pub(crate) struct TransactionRunner<'h, K: Key, C: QueueConnection> {
    pub(crate) served: ServedQueue<K, C>,
    handler: SharedBody<'h, C>,
    pub(crate) prefetched_keys: PrefetchedKeys<K>,
    pub(crate) prefetched_rows: PrefetchedRows<K>,
    /// Whether whole rows can be prefetched.
    prefetches_rows: bool,
}

impl<'h, K: Key, C: QueueConnection> TransactionRunner<'h, K, C> {
    pub(crate) fn new<Q>(handler: Arc<dyn Handler<Q, C> + 'h>, settings: RunnerSettings) -> Result<Self, Error>
    where
        Q: Entity<Key = K> + QueueOn<C>,
    {
        Ok(TransactionRunner {
            handler: Box::new(move |entity, message| handler.handle(opened(entity), message)),
            prefetched_keys: PrefetchedKeys::new(),
            prefetched_rows: PrefetchedRows::new(settings.prefetch_at_once),
            prefetches_rows: Q::QUEUE.prefetches_rows(),
            served: ServedQueue::new::<Q>(settings)?,
        })
    }

    /// Returns how messages are attempted in this slot. `stays`: the worker's next turn is most likely for this runner
    /// too.
    pub(crate) fn plan<'a>(
        &'a self,
        slot: &'a Slot,
        stays: bool,
        rows: &'a PickedRows<'a, K>,
        places: Option<&'a HeldPlaces<'a, K, C>>,
    ) -> Plan<'a, K, C> {
        let scope = rows.scope();
        // A worker that is alone in the process is so for the row that has been due longest.
        let is_alone = slot.recorder().is_alone();
        // Strict crash accounting commits its mark before the handler runs, in a transaction of its own.
        let prefetches_rows =
            self.prefetches_rows && scope.only.is_none() && stays && !is_alone && !slot.recorder().is_strict();
        Plan {
            served: &self.served,
            handler: &*self.handler,
            slot,
            claim: ClaimPlan {
                scope,
                floor: Some(&rows.claim_floor),
                prefetched_keys: (!is_alone).then_some(&self.prefetched_keys),
                prefetched_rows: prefetches_rows.then_some(&self.prefetched_rows),
                next: Cell::default(),
                places,
            },
        }
    }

    /// Picks the rows for the next turn. An error is the end of the turn: there are none, or they cannot be read.
    pub(crate) fn pick_rows(&self, holder: &mut SessionHolder<C>, limit: u32) -> Result<PickedRows<'_, K>, Turn> {
        let picked =
            self.served.due_rows.pick(holder, limit).map_err(|error| self.served.end_unclaimed(holder, &error))?;
        if picked.as_ref().is_some_and(|picked| picked.is_new) {
            self.forget_prefetched();
        }
        picked.ok_or(Turn::Idle)
    }

    /// Attempts one of these rows, and goes on with others while the next one is locked already.
    pub(crate) fn turn_of<'a>(&'a self, worker: &mut WorkerTurn<'_, '_, C>, mut rows: PickedRows<'a, K>) -> Turn {
        let mut locked = None;
        loop {
            let attempted = match self.attempt_one(worker, &rows, &mut locked) {
                Ok(attempted) => attempted,
                Err(error) => {
                    self.served.warn(&failure_text(&error, 500));
                    return Turn::Trouble;
                }
            };
            if let Some(turn) = self.after_attempt(worker, &rows, attempted)
                && (locked.is_none() || !worker.calls.try_take_next(turn))
            {
                return turn;
            }
            drop(rows);
            rows = match self.pick_rows(worker.holder, 1) {
                Ok(rows) => rows,
                Err(turn) => return turn,
            };
        }
    }

    /// Attempts the row that is `locked` already, or else one of these, on the worker's session. Closes the session if
    /// it is in doubt afterwards. If the end of the message has locked the next row, that one is `locked` now. An error means
    /// that there is no session.
    fn attempt_one(
        &self,
        worker: &mut WorkerTurn<'_, '_, C>,
        rows: &PickedRows<'_, K>,
        locked: &mut Option<ReadRow<K>>,
    ) -> Result<Attempted<K>, Error> {
        let places = self.served.due_rows.places.as_ref().map(Places::hold);
        let plan = self.plan(worker.slot, worker.stays, rows, places.as_ref());
        plan.claim.next.set(locked.take());
        let session = match worker.holder.fit_session() {
            Some(session) => session,
            None => worker.holder.session_as_it_is()?,
        };
        let Attempted { end, session_is_sound } = attempt(session, &plan, worker.calls);
        *locked = plan.claim.next.take();
        // If the session is in doubt, the lock ends with it.
        let session_is_sound = session_is_sound
            && self.served.queue.end_exclusion(session).is_ok()
            && places.as_ref().is_none_or(|places| places.leave(&mut **session).is_ok());
        if !session_is_sound {
            worker.holder.close();
        }
        if plan.claim.prefetched_rows.is_some() {
            self.prefetched_rows.note_end();
        }
        Ok(Attempted { end, session_is_sound })
    }

    /// Does what is left after an attempt. `None`: the claim found none of the rows that were known to be due.
    fn after_attempt(
        &self,
        worker: &mut WorkerTurn<'_, '_, C>,
        rows: &PickedRows<'_, K>,
        attempted: Attempted<K>,
    ) -> Option<Turn> {
        // A worker that has not got the lock of its queue has read no row.
        if self.served.stall.is_refused() && !matches!(attempted.end, End::NotClaimed(_) | End::Idle) {
            self.served.note_answer();
        }
        Some(match attempted.end {
            End::Idle => {
                self.prefetched_rows.forget();
                if attempted.session_is_sound && self.served.due_rows.note_found_none(rows) && worker.calls.goes_on() {
                    return None;
                }
                Turn::Idle
            }
            End::NotClaimed(error) => {
                let turn = self.served.end_unclaimed(worker.holder, &error.into());
                if turn != Turn::Trouble {
                    worker.calls.note_claim();
                }
                turn
            }
            End::Known(turn @ (Turn::Settled(_) | Turn::GivenUp)) => turn,
            End::Known(turn) => {
                self.forget_prefetched();
                turn
            }
            End::Unsettled(mut row, rest) => {
                row.fence = self.served.unmarked(worker.holder, worker.slot, &row.key, row.fence);
                self.served.conclude(worker.holder, *row, rest)
            }
        })
    }

    /// Forgets the prefetched keys and rows: the rows that are to run next may not be among them.
    fn forget_prefetched(&self) {
        self.prefetched_keys.forget();
        self.prefetched_rows.forget();
    }
}

impl<K: Key, C: QueueConnection> Runner<C> for TransactionRunner<'_, K, C> {
    fn served(&self) -> &dyn AnyQueue<C> {
        &self.served
    }

    fn check(&self, connection: &mut C) -> QueryResult<Vec<Finding>> {
        self.served.check(connection)
    }

    fn turn(&self, worker: &mut WorkerTurn<'_, '_, C>) -> Turn {
        self.pick_rows(worker.holder, 1).map_or_else(|turn| turn, |rows| self.turn_of(worker, rows))
    }

    fn unmark(&self, connection: &mut C, slot: &Slot, row: ErasedRow) {
        if let Ok(row) = row.downcast::<UnsettledRow<K>>() {
            self.served.unmark_left(connection, slot, &row.key);
        }
    }

    fn put_back(&self, row: ErasedRow) {
        if let Ok(row) = row.downcast::<UnsettledRow<K>>()
            && let Some(due) = row.due
        {
            self.served.due_rows.low_water.fall(due);
        }
    }

    fn give_up(&self, holder: &mut SessionHolder<C>, slot: &Slot, row: ErasedRow) -> Turn {
        let mut row = *row.downcast::<UnsettledRow<K>>().expect("what this runner has put there");
        // Its lock is free already. No other worker may take it before its end is recorded.
        let in_hand = self.served.due_rows.rows_in_hand.hold_with_others(row.key.text().clone());
        slot.give_up_thread();
        row.fence = self.served.unmarked(holder, slot, &row.key, row.fence);
        let rest = timed_out(&self.served.rules, tries_before(row.fence) + 1, self.served.info.timeout, &row.details);
        let turn = self.served.conclude(holder, row, rest);
        drop(in_hand);
        turn
    }
}
