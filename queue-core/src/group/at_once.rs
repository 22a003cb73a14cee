//! A group whose handler is offered all messages at once.

use std::thread;

use super::work::{Entities, OpenGroup, reserve};
use crate::attempt::{RELEASE, ROLLBACK_TO};
use crate::backend::QueueConnection;
use crate::batch::{BatchEnd, BatchRow, Handled, Undone, conflict, is_commit_refusal};
use crate::entity::Key;
use crate::handler::{BeforeUse, Group, GroupedMessage, HandlerResult, Outcome, Panicked, drop_safely};
use crate::sync::fail_point;

/// The handler's response to the offer to handle a group at once, or its panic.
type Answer = thread::Result<Option<Vec<HandlerResult>>>;

impl<K: Key, C: QueueConnection> OpenGroup<'_, '_, '_, K, C> {
    /// Offers several messages to the handler at once. Returns whether it has handled them all; if not, its writes are
    /// undone.
    pub(super) fn handle_at_once(
        &mut self,
        entities: &mut Entities,
        rows: &[BatchRow<K>],
    ) -> Result<bool, BatchEnd<K>> {
        if rows.len() < 2 {
            return Ok(false);
        }
        self.begun = rows.len();
        let (answer, has_used_connection) = self.offer(entities, rows)?;
        // The handler wants the messages one by one, and has written nothing.
        let is_untouched = matches!(answer, Ok(None)) && !has_used_connection;
        let outcomes = self.classify(answer, rows)?;
        if is_untouched {
            self.begun = 0;
            return Ok(false);
        }
        if let Some(outcomes) = outcomes
            && self.release_at_once(rows, outcomes)?
        {
            return Ok(true);
        }
        self.undo_offer(rows)?;
        Ok(false)
    }

    /// Calls the handler with all messages. Returns its answer, and whether it has used the connection. If rows are settled
    /// one after the other, they are reserved only when the handler asks for the connection. A handler that wants its
    /// messages one by one does not ask for it, and a reservation writes every row.
    fn offer(&mut self, entities: &mut Entities, rows: &[BatchRow<K>]) -> Result<(Answer, bool), BatchEnd<K>> {
        let messages = rows.iter().map(|row| GroupedMessage {
            state: &row.state,
            details: &row.details,
            try_number: row.tries,
            idempotency_key: &row.idempotency_key,
        });
        let (handler, queue, timeout) = (self.body.handler, self.served.queue, self.served.info.timeout);
        self.slot.watch(rows.iter().map(|row| &row.watch));
        // A handler that wants its messages one by one has begun none of them.
        let begin = || rows.iter().for_each(|row| row.watch.begin());
        let (mut has_used_connection, mut reserved) = (false, None);
        let reserves = self.settles_in_turn;
        let mut before_connection = |connection: &mut C| {
            has_used_connection = true;
            begin();
            reserved = reserves.then(|| reserve(queue, connection, rows, timeout));
        };
        let mut connection = BeforeUse::new(self.session.lend(), &mut before_connection);
        let stop = self.slot.stop_signal();
        let mut group = Group { connection: &mut connection, messages: messages.collect(), stop };
        fail_point("offering");
        let answer = handler.handle_group(entities, &mut group);
        fail_point("offered");
        if matches!(answer, Ok(Some(_))) {
            begin();
        }
        match reserved.transpose() {
            Ok(reservation) => {
                self.reservation = reservation.or(self.reservation.take());
                Ok((answer, has_used_connection))
            }
            // Nothing that was written after that can stay. If the handler has ended the transaction, some of it may.
            Err(end) => {
                drop_safely(answer);
                let BatchEnd::Undone(why) = end else { return Err(end) };
                Err(self.undo_all(rows, why))
            }
        }
    }

    /// Evaluates the answer. `None`: the handler has not handled all messages. An error is the end of the group: its
    /// transaction was taken away or ended, or a message met a conflict.
    fn classify(&mut self, answer: Answer, rows: &[BatchRow<K>]) -> Result<Option<Vec<Outcome>>, BatchEnd<K>> {
        if let Some(why) = self.slot.check_revoked() {
            drop_safely(answer);
            let why = self.revoked(why);
            return Err(self.ended_by_unknown(rows, Some(why)));
        }
        if self.session.is_in_no_transaction()
            && self.session.control(ROLLBACK_TO).is_err_and(|error| is_commit_refusal::<C>(&error))
        {
            drop_safely(answer);
            let what =
                "handle_group tried to commit the transaction of its group, which was refused; its effects are undone";
            self.remark = Some(what.to_owned());
            return Err(BatchEnd::Undone(Undone::Alone(what.to_owned())));
        }
        match answer {
            Ok(None) => Ok(None),
            Ok(Some(results)) => self.classify_results(results, rows),
            Err(panic) => {
                self.session_is_sound = false;
                self.remark = Some(format!("in handle_group: {}", Panicked::new(panic)));
                Ok(None)
            }
        }
    }

    /// Evaluates the results: there must be one for each message, and all must be outcomes.
    fn classify_results(
        &mut self,
        results: Vec<HandlerResult>,
        rows: &[BatchRow<K>],
    ) -> Result<Option<Vec<Outcome>>, BatchEnd<K>> {
        let (found, expected) = (results.len(), rows.len());
        if found != expected {
            self.remark = Some(format!("handle_group answered {found} results for {expected} messages"));
            results.into_iter().for_each(drop_safely);
            return Ok(None);
        }
        let (mut outcomes, mut conflict) = (Vec::new(), None);
        for (row, result) in rows.iter().zip(results) {
            match self.served.rules.accept(result) {
                Ok(outcome) => outcomes.push(outcome),
                Err(failure) => conflict = conflict.or(self.judge(row.tries, failure, &row.details).err()),
            }
        }
        match conflict {
            Some(by) => Err(self.undo_all(rows, Undone::Conflict(by.cause))),
            None if outcomes.len() == expected => Ok(Some(outcomes)),
            None => Ok(None),
        }
    }

    /// Releases the savepoint under which the handler has handled all messages. Returns whether that was possible.
    fn release_at_once(&mut self, rows: &[BatchRow<K>], outcomes: Vec<Outcome>) -> Result<bool, BatchEnd<K>> {
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
    fn undo_offer(&mut self, rows: &[BatchRow<K>]) -> Handled<K> {
        if let Err(error) = self.session.control(ROLLBACK_TO) {
            return Err(self.ended_by_unknown(rows, conflict::<C>(&error)));
        }
        self.begun = 0;
        // A reservation that was made since the savepoint is undone too.
        self.reservation = self.reservation.take().filter(|_| !self.settles_in_turn);
        Ok(())
    }
}
