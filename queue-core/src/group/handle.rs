//! How a group's messages are handled inside its transaction: [at once](super::at_once), in turn with a savepoint for each,
//! or in turn under one savepoint.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::end::{GroupEnd, GroupRow, Handled, Undone, conflict, undone};
use super::work::{Entities, OpenGroup, reread};
use crate::attempt::{AttemptError, RELEASE, Rest, Revocation, SAVEPOINT};
use crate::backend::QueueConnection;
use crate::entity::Key;
use crate::handler::{HandlerResult, Message, Panicked, drop_safely};
use crate::sync::{ErasedEntity, fail_point};

/// Why a group is undone whose handlers may have seen a setting that one of them has changed.
const HAS_SET: &str = "a handler changed a setting of the session";

impl<K: Key, C: QueueConnection> OpenGroup<'_, '_, K, C> {
    /// Handles the messages with a savepoint for each, so that a failure is undone alone.
    pub(crate) fn handle_in_turn(&mut self, entities: Entities, rows: &[GroupRow<K>]) -> Handled<K> {
        if rows.len() > 1 {
            self.session.share_settings();
        }
        let handled = self.handle_each(entities, rows);
        let were_shared = self.session.end_sharing();
        handled?;
        if were_shared && self.session.detect_shared_changes().map_err(undone::<K, C>)? {
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
            let _span = row.watch.enter_span();
            let mut anew = None;
            let Some(entity) = self.as_it_is_now(entity, row, &mut anew)? else { continue };
            let row = anew.as_ref().unwrap_or(row);
            let (answer, panicked) = self.call(entity, row);
            if let Some(why) = self.plan.slot.check_revoked() {
                drop_safely(answer);
                let rest = self.rest_of_revoked(row, why);
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
        match reread(self.plan.served.queue, self.session, &self.plan.served.info.key_prefix, row)
            .map_err(undone::<K, C>)?
        {
            Some((entity, row)) => {
                *anew = Some(row);
                Ok(Some(entity))
            }
            None => {
                rereading.begin();
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
            let _span = row.watch.enter_span();
            let (answer, _) = self.call(entity, row);
            if let Some(why) = self.plan.slot.check_revoked() {
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
        row.watch.begin();
        let handler = self.handler;
        let answer = catch_unwind(AssertUnwindSafe(|| {
            let answer = handler.handle(&entity, &mut message);
            drop(entity);
            fail_point("handled");
            answer
        }));
        match answer {
            Ok(answer) => (self.plan.served.rules.accept(answer), false),
            Err(panic) => {
                self.session_is_sound = false;
                (Err(Panicked::failure(panic)), true)
            }
        }
    }

    /// Returns the rest for a row whose handler ran when the transaction was taken away. Only the first handler
    /// had the whole timeout.
    fn rest_of_revoked(&self, row: &GroupRow<K>, why: Revocation) -> Rest {
        match why {
            Revocation::TimedOut if self.begun == 1 => {
                Rest::record(self.after(row, AttemptError::TimedOut(self.plan.served.info.timeout)))
            }
            Revocation::TimedOut | Revocation::Shutdown => Rest::Leave,
        }
    }
}
