//! How a group's messages are handled inside its transaction: all at once, in turn with a savepoint for each, or in
//! turn under one savepoint.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use super::body::Entities;
use super::end::{GroupEnd, GroupRow, Reservation, Undone};
use super::reread::reread;
use super::reserve::reserve;
use super::savepoint::is_refusal;
use super::work::{Handled, OpenGroup, conflict, undone};
use crate::attempt::{AttemptError, RELEASE, ROLLBACK_TO, Rest, Revocation, SAVEPOINT};
use crate::backend::QueueConnection;
use crate::entity::Key;
use crate::erased_entity::ErasedEntity;
use crate::fault::fail_point;
use crate::handler::{
    BeforeUse, Failure, Group, GroupedMessage, HandlerResult, Message, Outcome, Panicked, drop_safely,
};

/// The handler's response to the offer to handle a group at once.
struct Offered<K> {
    answer: thread::Result<Option<Vec<HandlerResult>>>,
    has_used_connection: bool,
    /// The result of reserving the rows, if that was tried.
    reserved: Option<Result<Reservation, GroupEnd<K>>>,
}

/// The meaning of a handler's answer for a whole group.
enum GroupAnswer {
    /// The handler wants the messages one by one, and has written nothing.
    Untouched,
    /// It has handled all messages, with these outcomes.
    Handled(Vec<Outcome>),
    /// It has not handled them all, and may have written something.
    NotHandled,
}

/// Why a group is undone whose handlers may have seen a setting that one of them has changed.
const HAS_SET: &str = "a handler changed a setting of the session";

impl<K: Key, C: QueueConnection> OpenGroup<'_, K, C> {
    /// Handles the messages with a savepoint for each, so that a failure is undone alone.
    pub(crate) fn handle_in_turn(&mut self, entities: Entities, rows: &[GroupRow<K>]) -> Handled<K> {
        if rows.len() > 1 {
            self.session.share_settings();
        }
        let handled = self.handle_each(entities, rows);
        let were_shared = self.session.end_sharing();
        handled?;
        if were_shared && self.session.has_shared_settings().map_err(undone::<K, C>)? {
            return Err(GroupEnd::Undone(Undone::Alone(HAS_SET.to_owned())));
        }
        Ok(())
    }

    fn handle_each(&mut self, mut entities: Entities, rows: &[GroupRow<K>]) -> Handled<K> {
        self.session.control(SAVEPOINT).map_err(undone::<K, C>)?;
        if self.rereading.is_none() && self.handle_at_once(&mut entities, rows)? {
            return Ok(());
        }
        let mut left = rows.len();
        for (row, entity) in rows.iter().zip(entities.0.by_ref()) {
            left -= 1;
            let _span = self.span(row);
            let mut anew = None;
            let Some(entity) = self.as_it_is_now(entity, row, &mut anew)? else { continue };
            let row = anew.as_ref().unwrap_or(row);
            let (answer, panicked) = self.call(entity, row);
            if let Some(why) = self.plan.slot.revoked() {
                drop_safely(answer);
                let rest = self.remainder_of_revoked(row, why);
                return Err(self.ended_by(row, rest));
            }
            let goes_on = left > 0 && !panicked && self.has_time();
            match answer {
                Ok(outcome) => self.release(row, outcome, goes_on)?,
                Err(failure) => self.undo(row, failure)?,
            }
            if !goes_on || self.session.is_spoilt() {
                break;
            }
        }
        Ok(())
    }

    /// Reads a row again if a neighbour's handler may have changed it, and returns its entity. If the row is no longer
    /// as it was claimed, it is left as it is.
    fn as_it_is_now(
        &mut self,
        entity: ErasedEntity,
        row: &GroupRow<K>,
        anew: &mut Option<GroupRow<K>>,
    ) -> Result<Option<ErasedEntity>, GroupEnd<K>> {
        let Some(rereading) = self.rereading.filter(|_| self.begun > 0) else { return Ok(Some(entity)) };
        drop_safely(entity);
        match reread(self.plan.queue, self.session, &self.plan.info.key_prefix, row).map_err(undone::<K, C>)? {
            Some((entity, row)) => {
                *anew = Some(row);
                Ok(Some(entity))
            }
            None => {
                rereading.is_needed();
                self.begun += 1;
                Ok(None)
            }
        }
    }

    /// Handles the messages under one savepoint. At the first failure the group is undone, and its messages run one by
    /// one.
    pub(crate) fn handle_under_one_savepoint(&mut self, mut entities: Entities, rows: &[GroupRow<K>]) -> Handled<K> {
        self.session.control(SAVEPOINT).map_err(undone::<K, C>)?;
        if self.handle_at_once(&mut entities, rows)? {
            return Ok(());
        }
        for (row, entity) in rows.iter().zip(entities.0.by_ref()) {
            if self.begun > 0 && !self.has_time() {
                drop_safely(entity);
                break;
            }
            let _span = self.span(row);
            let (answer, _) = self.call(entity, row);
            if let Some(why) = self.plan.slot.revoked() {
                drop_safely(answer);
                let why = self.revoked(why);
                return Err(self.ended_by_unknown(rows, Some(why)));
            }
            // The next handler's writes would be committed by themselves, and any worker could claim its row.
            if self.session.has_lost_savepoint() {
                match answer {
                    Ok(outcome) => self.release(row, outcome, false)?,
                    Err(failure) => self.undo(row, failure)?,
                }
                return Err(GroupEnd::Undone(Undone::Alone("a handler ended the transaction".to_owned())));
            }
            match answer {
                Ok(outcome) => self.decide(row, outcome),
                Err(failure) => {
                    let why = match self.judge(row.tries, failure, &row.details) {
                        Ok(_) => Undone::Alone("a message failed".to_owned()),
                        Err(by) => Undone::Conflict(by.cause),
                    };
                    return Err(self.undo_all(rows, why));
                }
            }
        }
        // Under one savepoint, each handler sees the settings that an earlier one has changed. A handler that changes
        // settings runs alone.
        let why = match self.session.has_other_settings() {
            Ok(is_set) => is_set.then(|| Undone::Alone(HAS_SET.to_owned())),
            // The release reports any other error.
            Err(error) => conflict::<C>(&error),
        };
        if let Some(why) = why {
            return Err(self.undo_all(rows, why));
        }
        let Err(error) = self.session.control(RELEASE) else { return Ok(()) };
        let why = conflict::<C>(&error);
        let why = why.unwrap_or_else(|| Undone::Alone(AttemptError::SwallowedError(error).to_string()));
        Err(self.undo_all(rows, why))
    }

    /// Offers several messages to the handler at once. Returns whether it has handled them all; if not, its writes are
    /// undone.
    fn handle_at_once(&mut self, entities: &mut Entities, rows: &[GroupRow<K>]) -> Result<bool, GroupEnd<K>> {
        if rows.len() < 2 {
            return Ok(false);
        }
        self.begun = rows.len();
        let offered = self.offer(entities, rows);
        match self.classify(offered, rows)? {
            GroupAnswer::Untouched => {
                self.begun = 0;
                return Ok(false);
            }
            GroupAnswer::Handled(outcomes) => {
                if self.release_at_once(rows, outcomes)? {
                    return Ok(true);
                }
            }
            GroupAnswer::NotHandled => {}
        }
        self.undo_offer(rows)?;
        Ok(false)
    }

    /// Calls the handler with all messages. If rows are settled one after the other, they are reserved only when the
    /// handler asks for the connection. A handler that wants its messages one by one does not ask for it, and a
    /// reservation writes every row.
    fn offer(&mut self, entities: &mut Entities, rows: &[GroupRow<K>]) -> Offered<K> {
        let messages = rows
            .iter()
            .map(|GroupRow { state, details, tries, idempotency_key, .. }| GroupedMessage {
                state,
                details,
                try_number: *tries,
                idempotency_key,
            })
            .collect();
        let (handler, queue, timeout) = (self.handler, self.plan.queue, self.plan.info.timeout);
        self.plan.slot.watch(rows.iter().map(|row| &row.watch));
        rows.iter().for_each(|row| row.watch.begins());
        let (mut has_used_connection, mut reserved) = (false, None);
        let reserves = self.settles_in_turn;
        let mut before_connection = |connection: &mut C| {
            has_used_connection = true;
            reserved = reserves.then(|| reserve(queue, connection, rows, timeout));
        };
        let mut connection = BeforeUse::new(self.session.lend(), &mut before_connection);
        let stop = self.plan.slot.stop_signal();
        let mut group = Group { connection: &mut connection, messages, stop };
        let answer = handler.handle_group(entities, &mut group);
        Offered { answer, has_used_connection, reserved }
    }

    /// Evaluates the answer. An error is the end of the group: its rows could not be reserved, its transaction was
    /// taken away or ended, or a message met a conflict.
    fn classify(&mut self, offered: Offered<K>, rows: &[GroupRow<K>]) -> Result<GroupAnswer, GroupEnd<K>> {
        let Offered { answer, has_used_connection, reserved } = offered;
        match reserved {
            Some(Ok(reservation)) => self.reservation = Some(reservation),
            // Nothing that was written after that can stay. If the handler has ended the transaction, some of it may.
            Some(Err(end)) => {
                drop_safely(answer);
                return Err(match end {
                    GroupEnd::Undone(why) => self.undo_all(rows, why),
                    end => end,
                });
            }
            None => {}
        }
        if let Some(why) = self.plan.slot.revoked() {
            drop_safely(answer);
            let why = self.revoked(why);
            return Err(self.ended_by_unknown(rows, Some(why)));
        }
        if self.session.is_in_no_transaction()
            && self.session.control(ROLLBACK_TO).is_err_and(|error| is_refusal::<C>(&error))
        {
            drop_safely(answer);
            let what =
                "handle_group tried to commit the transaction of its group, which was refused; its effects are undone";
            self.remark = Some(what.to_owned());
            return Err(GroupEnd::Undone(Undone::Alone(what.to_owned())));
        }
        match answer {
            Ok(None) if !has_used_connection => Ok(GroupAnswer::Untouched),
            Ok(None) => Ok(GroupAnswer::NotHandled),
            Ok(Some(results)) => self.classify_results(results, rows),
            Err(panic) => {
                self.session_is_sound = false;
                self.remark = Some(format!("in handle_group: {}", Panicked::new(panic)));
                Ok(GroupAnswer::NotHandled)
            }
        }
    }

    /// Evaluates the results: there must be one for each message, and all must be outcomes.
    fn classify_results(
        &mut self,
        results: Vec<HandlerResult>,
        rows: &[GroupRow<K>],
    ) -> Result<GroupAnswer, GroupEnd<K>> {
        let (found, expected) = (results.len(), rows.len());
        if found != expected {
            self.remark = Some(format!("handle_group answered {found} results for {expected} messages"));
            results.into_iter().for_each(drop_safely);
            return Ok(GroupAnswer::NotHandled);
        }
        let (mut outcomes, mut conflict) = (Vec::new(), None);
        for (row, result) in rows.iter().zip(results) {
            match self.plan.rules.accept(result) {
                Ok(outcome) => outcomes.push(outcome),
                Err(failure) => conflict = conflict.or(self.judge(row.tries, failure, &row.details).err()),
            }
        }
        match conflict {
            Some(by) => Err(self.undo_all(rows, Undone::Conflict(by.cause))),
            None if outcomes.len() == expected => Ok(GroupAnswer::Handled(outcomes)),
            None => Ok(GroupAnswer::NotHandled),
        }
    }

    /// Releases the savepoint under which the handler has handled all messages. Returns whether that was possible.
    fn release_at_once(&mut self, rows: &[GroupRow<K>], outcomes: Vec<Outcome>) -> Result<bool, GroupEnd<K>> {
        match self.session.control(RELEASE) {
            Ok(()) => {
                rows.iter().zip(outcomes).for_each(|(row, outcome)| self.decide(row, outcome));
                Ok(true)
            }
            Err(error) => conflict::<C>(&error).map_or(Ok(false), |why| Err(self.undo_all(rows, why))),
        }
    }

    /// Undoes the writes of a handler that has not handled all messages. This includes `None`: otherwise the first
    /// message would be credited with the writes.
    fn undo_offer(&mut self, rows: &[GroupRow<K>]) -> Handled<K> {
        match self.session.control(ROLLBACK_TO) {
            Ok(()) => {
                self.begun = 0;
                // A reservation that was made since the savepoint is undone too.
                self.reservation = self.reservation.take().filter(|_| !self.settles_in_turn);
                Ok(())
            }
            Err(error) => Err(self.ended_by_unknown(rows, conflict::<C>(&error))),
        }
    }

    /// Calls the handler. Returns its answer, and whether it panicked. The entity is dropped before the savepoint is
    /// released, because its `Drop` is user code too.
    fn call(&mut self, entity: ErasedEntity, row: &GroupRow<K>) -> (HandlerResult, bool) {
        self.begun += 1;
        fail_point("sentinel");
        let mut message = Message {
            connection: self.session.lend(),
            state: &row.state,
            details: &row.details,
            try_number: row.tries,
            idempotency_key: &row.idempotency_key,
            stop: self.plan.slot.stop_signal(),
        };
        self.plan.slot.watch([&row.watch]);
        row.watch.begins();
        let handler = self.handler;
        let answer = catch_unwind(AssertUnwindSafe(|| {
            let answer = handler.handle(&entity, &mut message);
            drop(entity);
            answer
        }));
        match answer {
            Ok(answer) => (self.plan.rules.accept(answer), false),
            Err(panic) => {
                self.session_is_sound = false;
                (Err(Failure::retry(Panicked::new(panic))), true)
            }
        }
    }

    /// Returns the rest for a row whose handler ran when the transaction was taken away. Only the first handler
    /// had the whole timeout.
    fn remainder_of_revoked(&self, row: &GroupRow<K>, why: Revocation) -> Rest {
        match why {
            Revocation::TimedOut if self.begun == 1 => {
                Rest::record(self.after(row, AttemptError::TimedOut(self.plan.info.timeout)))
            }
            Revocation::TimedOut | Revocation::Shutdown => Rest::Leave,
        }
    }

    fn span(&self, row: &GroupRow<K>) -> tracing::span::EnteredSpan {
        tracing::debug_span!("attempt", entity = self.plan.queue.sql.entity, key = ?row.key, try_number = row.tries)
            .entered()
    }
}
