//! A turn in lease mode: claim, begin a call, settle, give back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::result::{Error as DieselError, QueryResult};

use super::answers::LateBatch;
use super::claim_size::MOST;
use super::claimed::{ClaimedBatch, LeaseClaim};
use super::leased_rows::{DecidedLease, LeasedMessage, LeasedRow};
use super::runner::{LeaseRunner, Ready};
use crate::attempt::{
    AnyQueue, AttemptError, BackgroundCalls, Conclusion, ErasedRow, HEARTBEATS_PER_LEASE, KEPT, Runner, Slot, Turn,
    UnsettledRow, WorkerTurn, in_transaction,
};
use crate::backend::{QueueConnection, SessionHolder};
use crate::claim::{LeaseWay, PickedRows, Places};
use crate::entity::Key;
use crate::error::{Error, Finding};
use crate::handler::LeaseLost;
use crate::row::{ErrorText, Settlement};
use crate::sync::fail_point;

impl<K: Key, C: QueueConnection> LeaseRunner<'_, K, C> {
    /// Gives back the rows that no worker has begun for this long.
    pub(crate) fn give_back_unstarted(&self, holder: &mut SessionHolder<C>, since: Duration) {
        // If the database refuses one now, the rest has to wait, because the leases of running calls cannot.
        while let Some(held) = self.take_unstarted(since)
            && self.give_back(holder, &held)
        {}
    }

    /// Takes a row that was claimed at least this long ago, and that no worker has begun.
    fn take_unstarted(&self, since: Duration) -> Option<Arc<LeasedRow<K>>> {
        let mut ready = self.ready.lock();
        let is_old =
            |(claimed, ready): &(Instant, Ready<K>)| !matches!(ready, Ready::Settled(_)) && claimed.elapsed() >= since;
        let place = ready.iter().position(is_old)?;
        match ready.remove(place)?.1 {
            Ready::LeasedMessage(LeasedMessage { held, .. }) | Ready::DecidedLease(DecidedLease { held, .. }) => {
                Some(held)
            }
            Ready::Settled(_) => None,
        }
    }

    /// Takes a claimed row that no worker has begun.
    pub(crate) fn take_ready(&self) -> Option<Ready<K>> {
        let (claimed, ready) = self.ready.lock().pop_front()?;
        self.size.note_wait(claimed.elapsed());
        Some(ready)
    }

    /// Takes a turn whose call the worker makes itself.
    fn turn_here(&self, worker: &mut WorkerTurn<'_, '_, C>) -> Turn {
        let goes_on = worker.calls.goes_on();
        let left = if goes_on { self.calls.take_left() } else { self.calls.take_ended() };
        if let Some(ended) = left {
            return self.settle(worker, ended, MOST);
        }
        if !goes_on && self.claimed_ahead() == 0 {
            // Another worker was faster, and nothing new may begin.
            return Turn::Idle;
        }
        let limit = if self.served.queue.sql.options.exclusive { 1 } else { self.size.next() };
        let ready = match self.next(worker, limit) {
            Ok(ready) => ready,
            Err(turn) => return turn,
        };
        worker.calls.note_claim();
        match ready {
            Ready::Settled(settled) => Turn::Settled(settled),
            Ready::LeasedMessage(leased) if worker.calls.goes_on() && self.may_begin(&leased.held) => {
                self.call_in_turn(worker, leased)
            }
            Ready::DecidedLease(decided) if worker.calls.goes_on() && self.may_begin(&decided.held) => {
                self.settle_decided(worker.holder, &decided)
            }
            Ready::LeasedMessage(LeasedMessage { held, .. }) | Ready::DecidedLease(DecidedLease { held, .. }) => {
                // The heartbeat may have passed already, or may have ended.
                self.give_back(worker.holder, &held);
                self.give_back_unstarted(worker.holder, Duration::ZERO);
                Turn::Idle
            }
        }
    }

    /// Takes a claimed row whose handler a worker may call.
    pub(super) fn take_message(&self) -> Option<LeasedMessage<K>> {
        let mut ready = self.ready.lock();
        let is_message = |ready: &(Instant, Ready<K>)| matches!(&ready.1, Ready::LeasedMessage(leased) if self.may_begin(&leased.held));
        let (claimed, ready) = ready.front().is_some_and(is_message).then(|| ready.pop_front())??;
        self.size.note_wait(claimed.elapsed());
        match ready {
            Ready::LeasedMessage(leased) => Some(leased),
            Ready::DecidedLease(_) | Ready::Settled(_) => None,
        }
    }

    /// Returns the next claimed row, and claims up to `limit` rows if none is left. An error is the end of the turn.
    pub(crate) fn next(&self, worker: &mut WorkerTurn<'_, '_, C>, limit: u32) -> Result<Ready<K>, Turn> {
        if let Some(ready) = self.take_ready() {
            return Ok(ready);
        }
        let (holder, calls) = (&mut *worker.holder, worker.calls);
        loop {
            let picked =
                self.served.due_rows.pick(holder, limit).map_err(|error| self.served.end_unclaimed(holder, &error))?;
            let Some(rows) = picked else { return Err(Turn::Idle) };
            let batch = self.claim(holder, limit, &rows)?;
            if !batch.is_empty() || !self.served.due_rows.note_found_none(&rows) || !calls.goes_on() {
                return self.take_up(holder, batch, &rows);
            }
        }
    }

    /// Claims up to `limit` of these rows.
    fn claim(
        &self,
        holder: &mut SessionHolder<C>,
        limit: u32,
        rows: &PickedRows<'_, K>,
    ) -> Result<ClaimedBatch<K>, Turn> {
        let places = self.served.due_rows.places.as_ref().map(Places::hold);
        let claim = LeaseClaim {
            limit,
            way: self.statements.way(self.served.queue, rows.only.is_some(), places.is_some()),
            scope: rows.scope(),
            places: places.as_ref(),
        };
        let is_one_statement = claim.way == LeaseWay::AtOnce;
        let writing = self.turn_to_write();
        let mut watched = is_one_statement.then(|| self.statements.watch());
        let claimed = holder.session_as_it_is().and_then(|session| Ok(self.claim_leases(session, &claim)?));
        let can_be_read = !matches!(claimed, Err(Error::Database(DieselError::DeserializationError(_))));
        watched.iter_mut().for_each(|watched| watched.can_be_read = can_be_read);
        drop(watched);
        let batch = claimed.map_err(|error| self.served.end_unclaimed(holder, &error));
        drop(writing);
        let batch = batch?;
        if !batch.is_empty() {
            self.served.note_answer();
        }
        // Rows that were picked one by one say nothing about the number of due rows, and neither does a refused row
        // that was claimed alone.
        if rows.only.is_none() && batch.unwritable.is_empty() {
            self.size.note_claim(limit, batch.rows());
        }
        if is_one_statement {
            self.statements.note_answer(batch.refuses_one_statement);
        }
        Ok(batch)
    }

    /// Notes on a row that could not be leased what the database allows, and leaves it alone for a while.
    fn refuse(&self, holder: &mut SessionHolder<C>, row: &UnsettledRow<K>, error: Option<DieselError>) -> Turn {
        let Some(error) = error else {
            let set_aside = |connection: &mut C| self.served.set_lost_aside(connection, &row.key, None);
            return match holder.session().and_then(|session| Ok(set_aside(session)?)) {
                Ok(true) => Turn::Settled(Settlement::Failed),
                Ok(false) => self.served.leave_alone(row, KEPT, false),
                Err(error) => self.served.end_unclaimed(holder, &error),
            };
        };
        let pause = self.served.due_rows.passed_rows.refusal_pause(&row.key);
        let text = ErrorText::Set(self.served.rules.texts.of(&AttemptError::NotLeased(error)));
        let _writing = self.turn_to_write();
        let noted = holder.session().and_then(|session| Ok(self.served.note_refusal(session, row, &text, pause)?));
        match noted {
            Ok(Conclusion::Refused { is_noted }) => self.served.leave_alone(row, text.text().unwrap_or(KEPT), is_noted),
            Ok(Conclusion::Kept) => self.served.leave_alone(row, KEPT, false),
            Ok(_) => Turn::Interrupted,
            Err(error) => self.served.end_unclaimed(holder, &error),
        }
    }

    /// Leaves a row alone that is as it was when it was last claimed and called: despite the claim, no lease is on it.
    fn leave_returned_alone(&self, holder: &mut SessionHolder<C>, held: &LeasedRow<K>) -> Option<Turn> {
        let LeasedRow { key, before, fence, due, details, claimed_as, .. } = held;
        let claimed_as = (*claimed_as)?;
        let times = self.served.due_rows.passed_rows.take_returned(claimed_as)?;
        let is_leased = |connection: &mut C| {
            in_transaction(connection, |connection| self.served.queue.is_still(connection, key, *fence))
        };
        if holder.session().and_then(|session| Ok(is_leased(session)?)).unwrap_or(true) {
            self.served.due_rows.passed_rows.forget_written(claimed_as);
            return None;
        }
        Some(self.served.leave_kept_alone(&UnsettledRow::new(key.clone(), *before, *due, details.clone()), times))
    }

    /// Passes claimed rows on to the workers, and takes the first one.
    fn take_up(
        &self,
        holder: &mut SessionHolder<C>,
        mut batch: ClaimedBatch<K>,
        rows: &PickedRows<'_, K>,
    ) -> Result<Ready<K>, Turn> {
        if batch.is_empty() {
            return Err(Turn::Idle);
        }
        if batch.unwritable.is_empty() {
            rows.claim_floor.keep();
        }
        fail_point("lease-claimed");
        let mut nothing_left = Turn::Interrupted;
        for (row, error) in batch.unwritable {
            match self.refuse(holder, &row, error) {
                Turn::Settled(_) => batch.set_aside += 1,
                turn => nothing_left = turn,
            }
        }
        batch.leased.retain(|leased| {
            let returned = self.leave_returned_alone(holder, &leased.held);
            nothing_left = returned.unwrap_or(nothing_left);
            returned.is_none()
        });
        let (now, mut ready) = (Instant::now(), self.ready.lock());
        for (key, new) in batch.settled {
            self.served.rules.teller.tell_settled_unhandled(&key, &new);
            tracing::debug!(entity = self.served.queue.sql.entity, ?key, outcome = ?new.settled, "settled by the claim");
            ready.push_back((now, Ready::Settled(new.settled)));
        }
        for _ in 0..batch.set_aside {
            ready.push_back((now, Ready::Settled(Settlement::Failed)));
        }
        for decided in batch.decided {
            self.leased_rows.add(decided.held.clone());
            ready.push_back((now, Ready::DecidedLease(decided)));
        }
        for leased in batch.leased {
            self.leased_rows.add(leased.held.clone());
            ready.push_back((now, Ready::LeasedMessage(leased)));
        }
        ready.pop_front().map(|(_, ready)| ready).ok_or(nothing_left)
    }
}

impl<K: Key, C: QueueConnection> Runner<C> for LeaseRunner<'_, K, C> {
    fn served(&self) -> &dyn AnyQueue<C> {
        &self.served
    }

    fn check(&self, connection: &mut C) -> QueryResult<Vec<Finding>> {
        self.statements.learn::<C>(connection.skips_locked_rows()?);
        self.served.check(connection)
    }

    fn calls(&self) -> Option<&dyn BackgroundCalls> {
        Some(&*self.calls)
    }

    fn turn(&self, worker: &mut WorkerTurn<'_, '_, C>) -> Turn {
        if self.calls.run_beside() {
            return self.turn_beside(worker);
        }
        let turn = self.turn_here(worker);
        self.calls.leave_answers(worker.slot);
        turn
    }

    fn give_up(&self, holder: &mut SessionHolder<C>, slot: &Slot, row: ErasedRow) -> Turn {
        slot.give_up_thread();
        // Its worker does not come back for those that it has kept.
        self.calls.leave_answers(slot);
        match row.downcast::<LateBatch<K>>() {
            Ok(late) => self.settle_late_batch(holder, &late),
            Err(row) => self.settle_late(holder, &row.downcast().expect("what this runner has put there")),
        }
    }

    fn put_back(&self, row: ErasedRow) {
        if let Ok(late) = row.downcast::<LateBatch<K>>() {
            self.put_back_applied(&late);
        }
    }

    fn claimed_ahead(&self) -> usize {
        self.ready.lock().len()
    }

    fn heartbeat(&self, holder: &mut SessionHolder<C>, is_stopping: bool) {
        self.extend_leases(holder);
        // The heartbeat may have found that rows are lost.
        self.calls.abort_ended();
        if is_stopping {
            self.give_back_unstarted(holder, Duration::ZERO);
        } else if self.size.is_free() {
            // The size is not fixed, so nobody has asked for rows to wait behind slow calls.
            self.give_back_unstarted(holder, self.length() / HEARTBEATS_PER_LEASE);
        }
    }

    fn revoke(&self) -> usize {
        for held in self.leased_rows.all() {
            held.clock.end(LeaseLost::Shutdown);
        }
        self.calls.close()
    }

    fn give_back_revoked(&self, holder: &mut SessionHolder<C>) {
        let mut held = self.leased_rows.all();
        if self.keeps_turns() {
            // Nobody may take its place before the call has ended, or its lease. Its worker gives the row back.
            held.retain(|held| !held.clock.is_in_call());
        }
        self.give_back_all(holder, &held);
    }
}
