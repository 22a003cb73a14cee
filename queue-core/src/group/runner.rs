//! One entity in group mode inside a poller: a turn takes a group, whose size follows the backlog.

use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::result::QueryResult;

use super::group::{GroupEnd, HeldGroup, WorkedGroup, work_group};
use super::work::{GroupBody, Rereading};
use crate::attempt::{
    AnyQueue, ErasedRow, Rest, Runner, RunnerSettings, Size, Slot, TransactionRunner, Turn, WorkerTurn,
};
use crate::backend::{Dialect, QueueConnection, SessionHolder};
use crate::batch::{BatchEnd, Undone};
use crate::claim::{PickedRows, Places};
use crate::entity::{Entity, Key};
use crate::error::{Error, Finding};
use crate::handler::{Handler, Message};
use crate::row::failure_text;
use crate::statement::QueueOn;
use crate::sync::Mutex;

/// An entity whose messages share transactions. A message that runs alone is attempted as in transaction mode.
pub(crate) struct GroupRunner<'h, K: Key, C: QueueConnection> {
    pub(super) runner: TransactionRunner<'h, K, C>,
    handler: Box<dyn GroupBody<C> + 'h>,
    size: Arc<Mutex<Size>>,
    rereading: Rereading,
}

impl<'h, K: Key, C: QueueConnection> GroupRunner<'h, K, C> {
    pub(crate) fn new<Q>(handler: Arc<dyn Handler<Q, C> + 'h>, settings: RunnerSettings) -> Result<Self, Error>
    where
        Q: Entity<Key = K> + QueueOn<C> + Send,
    {
        let (most, together) = Q::SETTINGS.most_together();
        let most = if Q::SETTINGS.optimistic { most } else { most.min(C::Backend::MOST_SAVEPOINTS) };
        let size = Arc::new(Mutex::new(Size::new(1, most)));
        // A group measures itself. Here it is the handler alone: a slow commit is a reason for larger groups.
        let (alone, next) = (handler.clone(), size.clone());
        let alone = move |entity: &Q, message: &mut Message<'_, C>| {
            let begun = Instant::now();
            let answer = Handler::handle(&alone, entity, message);
            next.lock().note_turn(begun.elapsed(), together);
            answer
        };
        let runner = TransactionRunner::new::<Q>(Arc::new(alone), settings)?;
        Ok(GroupRunner { runner, handler: Box::new(handler), size, rereading: Rereading::default() })
    }

    /// Attempts one message as in transaction mode.
    fn turn_alone(&self, worker: &mut WorkerTurn<'_, '_, C>, picked: Result<PickedRows<'_, K>, Turn>) -> Turn {
        // Otherwise the runner would go on with one message after the other as long as some are due.
        worker.stays = false;
        let turn = picked.map_or_else(|turn| turn, |rows| self.runner.turn_of(worker, rows));
        match turn {
            Turn::Idle => self.size.lock().note_idle(),
            Turn::Settled(settled) if settled.is_failure() => self.size.lock().note_failure(1),
            Turn::Settled(_) => self.size.lock().note_claim(1, 1),
            // Such a message says nothing about groups.
            _ => {}
        }
        turn
    }

    /// Attempts a group of these rows. `None`: the claim found none of the rows that were known to be due.
    fn attempt_several(&self, worker: &mut WorkerTurn<'_, '_, C>, size: u32, rows: &PickedRows<'_, K>) -> Option<Turn> {
        let places = self.runner.served.due_rows.places.as_ref().map(Places::hold);
        let plan = self.runner.plan(worker.slot, false, rows, places.as_ref());
        let grouped = match worker.holder.session_as_it_is() {
            Ok(session) => {
                let grouped = work_group(session, &plan, &*self.handler, size, worker.calls, &self.rereading);
                let is_left = places.as_ref().is_none_or(|places| places.leave(&mut **session).is_ok());
                WorkedGroup { session_is_sound: grouped.session_is_sound && is_left, ..grouped }
            }
            Err(error) => {
                self.runner.served.warn(&failure_text(&error, 500));
                return Some(Turn::Trouble);
            }
        };
        if !matches!(grouped.end, GroupEnd::NotClaimed(_) | GroupEnd::Idle) {
            self.runner.served.note_answer();
        }
        let is_idle = matches!(grouped.end, GroupEnd::Idle) && grouped.session_is_sound;
        if is_idle && self.runner.served.due_rows.note_found_none(rows) && worker.calls.goes_on() {
            return None;
        }
        if !grouped.session_is_sound {
            worker.holder.close();
        }
        if grouped.given_up {
            return Some(Turn::GivenUp);
        }
        if let Some(remark) = &grouped.remark {
            self.runner.served.warn(remark);
        }
        let are_changed = matches!(grouped.end, GroupEnd::Worked(BatchEnd::Undone(Undone::RowsChanged(_))));
        // A row that a trigger keeps as it is looks like one that a neighbour's handler has changed. Where some are refused,
        // it mostly is one of those.
        if are_changed && self.runner.served.due_rows.refused() == 0 {
            self.rereading.begin();
        }
        if !matches!(grouped.end, GroupEnd::Worked(BatchEnd::Settled(_)) | GroupEnd::Idle) {
            // Its rows run next, one by one.
            self.runner.prefetched_keys.forget();
        }
        // If the group was closed early, some rows were given back.
        if matches!(&grouped.end, GroupEnd::Worked(BatchEnd::Settled(rows)) if rows.len() == grouped.claimed) {
            rows.claim_floor.keep();
        }
        let (_, together) = self.runner.served.rules.settings.most_together();
        learn(&mut self.size.lock(), &grouped, size, together);
        Some(self.conclude(worker.holder, grouped))
    }
}

/// Sets the size of the next group by the end of this one, which was to have this size, and by the time that groups have.
fn learn<K>(next: &mut Size, grouped: &WorkedGroup<K>, size: u32, together: Duration) {
    grouped.turn.inspect(|turn| next.note_turn(*turn, together));
    let number = |rows: usize| u32::try_from(rows).unwrap_or(u32::MAX);
    let end = match &grouped.end {
        GroupEnd::Idle => return next.note_idle(),
        GroupEnd::NotClaimed(_) => return,
        GroupEnd::Worked(end) => end,
    };
    match end {
        BatchEnd::Settled(rows) if rows.iter().any(|row| row.new.settled.is_failure()) => next.note_failure(size),
        // A group that was closed early is as large as it should be.
        BatchEnd::Settled(rows) => next.note_claim(number(rows.len()), size),
        BatchEnd::Undone(Undone::Conflict(_))
        | BatchEnd::Unknown(..)
        | BatchEnd::EndedByUnknown { why: Some(Undone::Conflict(_)), .. } => next.note_conflict(Instant::now()),
        BatchEnd::EndedByHandler { offender, .. } if matches!(offender.1, Rest::Postpone(_)) => {
            next.note_conflict(Instant::now());
        }
        BatchEnd::Undone(_) | BatchEnd::EndedByHandler { .. } | BatchEnd::EndedByUnknown { .. } => {
            next.note_undone(number(grouped.claimed));
        }
    }
}

impl<K: Key, C: QueueConnection> Runner<C> for GroupRunner<'_, K, C> {
    fn served(&self) -> &dyn AnyQueue<C> {
        self.runner.served()
    }

    fn check(&self, connection: &mut C) -> QueryResult<Vec<Finding>> {
        self.runner.check(connection)
    }

    fn turn(&self, worker: &mut WorkerTurn<'_, '_, C>) -> Turn {
        let size = self.size.lock().next(Instant::now());
        // A worker that is alone in the process is so for a suspect, and nobody else runs meanwhile.
        let slot = worker.slot;
        let is_alone = slot.recorder().is_strict() || slot.recorder().is_alone() || slot.recorder().marks();
        let size = if is_alone { 1 } else { size };
        loop {
            let rows = match self.runner.pick_rows(worker.holder, size) {
                Ok(rows) if size > 1 && !rows.is_trial => rows,
                picked => return self.turn_alone(worker, picked),
            };
            if let Some(turn) = self.attempt_several(worker, size, &rows) {
                return turn;
            }
        }
    }

    fn unmark(&self, connection: &mut C, slot: &Slot, row: ErasedRow) {
        self.runner.unmark(connection, slot, row);
    }

    fn put_back(&self, row: ErasedRow) {
        match row.downcast::<HeldGroup>() {
            Ok(_) => self.runner.prefetched_keys.forget(),
            Err(row) => self.runner.put_back(row),
        }
    }

    fn give_up(&self, holder: &mut SessionHolder<C>, slot: &Slot, row: ErasedRow) -> Turn {
        let group = match row.downcast::<HeldGroup>() {
            Ok(group) => group,
            Err(row) => return self.runner.give_up(holder, slot, row),
        };
        slot.give_up_thread();
        // The messages run alone next, which shows whose handler was late.
        self.size.lock().note_undone(u32::try_from(group.claimed).unwrap_or(u32::MAX));
        self.runner.prefetched_keys.forget();
        Turn::Interrupted
    }
}
