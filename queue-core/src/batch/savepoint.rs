//! How a message of a batch leaves its savepoint: the worker releases it with the effects, or rolls back to it.

use diesel::result::Error as DieselError;

use super::open::{BatchBody, OpenBatch};
use super::rows::{BatchEnd, BatchRow, Handled, Undone, undone, write};
use crate::attempt::{AttemptError, Interruption, NewState, RELEASE, ROLLBACK_TO, Rest, SAVEPOINT, is_interruption};
use crate::backend::{COMMIT_REFUSED, Dialect, ErrorClass, QueueConnection, Unfinished};
use crate::entity::Key;
use crate::handler::{Failure, Outcome};
use crate::row::ErrorText;
use crate::sync::fail_point;

impl<K: Key, C: QueueConnection, B: BatchBody<K, C>> OpenBatch<'_, '_, K, C, B> {
    /// Releases the handler's savepoint, and sets it again if another message follows. If it is gone, the transaction
    /// is not ours.
    pub(crate) fn release(&mut self, row: &BatchRow<K>, outcome: Outcome, goes_on: bool) -> Handled<K> {
        fail_point("releasing");
        let has_ended = self.session.is_in_no_transaction();
        if self.session.has_inner_transaction() && self.session.control(ROLLBACK_TO).is_ok() {
            return Err(BatchEnd::Undone(Undone::Alone("a handler has left a transaction open".to_owned())));
        }
        if self.settles_in_turn {
            return self.release_and_settle(row, outcome, goes_on, has_ended);
        }
        let Err(error) = self.session.end_handler(RELEASE, goes_on.then_some(SAVEPOINT)) else {
            fail_point("released");
            self.decide(row, outcome);
            return Ok(());
        };
        self.not_released(row, error, has_ended)
    }

    /// The same, but settles the row before the next handler runs: a handler that commits then commits the row with its
    /// effects.
    fn release_and_settle(
        &mut self,
        row: &BatchRow<K>,
        outcome: Outcome,
        goes_on: bool,
        has_ended: bool,
    ) -> Handled<K> {
        let served = self.served;
        let new = served.rules.after_outcome(row.before, row.tries, outcome, &row.details);
        let passed = if goes_on { served.pass_on(self.session, &row.key, row.fence, &new) } else { None };
        let decided = row.decided(new, true);
        match passed {
            Some(Ok(())) => {
                fail_point("released");
            }
            Some(Err(Unfinished::Savepoint(error))) => return self.not_released(row, error, has_ended),
            Some(Err(Unfinished::RowChanged(error))) => {
                return Err(BatchEnd::Undone(Undone::RowsChanged(error.to_string())));
            }
            Some(Err(unfinished)) => {
                let error = unfinished.into_error();
                return match is_interruption::<C>(&error) {
                    true => self.not_released(row, error, has_ended),
                    false => Err(BatchEnd::Undone(Undone::Alone(error.to_string()))),
                };
            }
            None => {
                if let Err(error) = self.session.control(RELEASE) {
                    return self.not_released(row, error, has_ended);
                }
                fail_point("released");
                write(served.queue, self.session, &decided)?;
                if goes_on {
                    self.session.control(SAVEPOINT).map_err(undone::<K, C>)?;
                }
            }
        }
        self.decided.push(decided);
        Ok(())
    }

    /// Decides what becomes of a message whose savepoint could not be released. `has_ended`: its handler has ended the
    /// transaction, or has tried to.
    fn not_released(&mut self, row: &BatchRow<K>, error: DieselError, has_ended: bool) -> Handled<K> {
        if has_ended && is_commit_refusal::<C>(&error) {
            return Err(self.ended_by(row, Rest::record(self.after(row, AttemptError::SharedCommitRefused))));
        }
        if is_interruption::<C>(&error) {
            return Err(self.interrupted(row, Interruption::of::<C>(&error)));
        }
        if self.session.control(ROLLBACK_TO).is_ok() {
            // The savepoint still exists, for the next message.
            self.decided.push(row.decided(self.after(row, AttemptError::SwallowedError(error)), false));
            return Ok(());
        }
        Err(self.ended_by(row, Rest::record(self.after(row, AttemptError::TransactionEnded(error)))))
    }

    /// Undoes the handler's writes. The savepoint stays for the next message.
    pub(crate) fn undo(&mut self, row: &BatchRow<K>, failure: Failure) -> Handled<K> {
        let judged = self.judge(row.tries, failure, &row.details);
        let has_ended = self.session.is_in_no_transaction();
        // A handler has answered with the database's own refusal of its COMMIT. Not every client sees in an answer that the
        // transaction is over.
        let says_refused = |error: &ErrorText| error.text().is_some_and(|text| text.contains(COMMIT_REFUSED));
        match (judged, self.session.control(ROLLBACK_TO)) {
            (Ok(new), Ok(())) if self.settles_in_turn => self.settle_failure(row, new),
            (Ok(new), Ok(())) => {
                self.decided.push(row.decided(new, false));
                Ok(())
            }
            (Ok(mut new), Err(error))
                if is_commit_refusal::<C>(&error) && (has_ended || says_refused(&new.change.error)) =>
            {
                if let ErrorText::Set(text) = new.change.error {
                    // The handler may have answered with the database's own message. Only the row's text depends on
                    // that.
                    let error = match text.contains(COMMIT_REFUSED) {
                        true => AttemptError::SharedCommitRefused,
                        false => AttemptError::FailedAndRefused(text),
                    };
                    new.change.error = ErrorText::Set(self.served.rules.texts.of(&error));
                }
                Err(self.ended_by(row, Rest::record(new)))
            }
            // The savepoint existed, so nobody has ended the transaction, and nothing of it will be committed.
            (Err(by), Ok(())) => Err(BatchEnd::Undone(Undone::Conflict(by.cause))),
            (Err(by), Err(_)) => Err(self.interrupted(row, by)),
            (Ok(_), Err(error)) if is_interruption::<C>(&error) => {
                Err(self.interrupted(row, Interruption::of::<C>(&error)))
            }
            (Ok(mut new), Err(_)) => {
                if let ErrorText::Set(text) = new.change.error {
                    let error = AttemptError::FailedAndEnded(text);
                    new.change.error = ErrorText::Set(self.served.rules.texts.of(&error));
                }
                Err(self.ended_by(row, Rest::record(new)))
            }
        }
    }

    /// Writes a failure before the next handler runs: a handler that commits then commits the failure too. It is
    /// written outside the savepoint, because the next failure is rolled back to that.
    fn settle_failure(&mut self, row: &BatchRow<K>, new: NewState) -> Handled<K> {
        self.session.control(RELEASE).map_err(undone::<K, C>)?;
        let decided = row.decided(new, true);
        fail_point("recording");
        write(self.served.queue, self.session, &decided)?;
        fail_point("recorded");
        self.session.control(SAVEPOINT).map_err(undone::<K, C>)?;
        self.decided.push(decided);
        Ok(())
    }
}

/// Tells whether an error after the end of the transaction means that the database has refused a handler's COMMIT. The
/// database then ends the session.
pub(crate) fn is_commit_refusal<C: QueueConnection>(error: &DieselError) -> bool {
    C::Backend::REFUSES_COMMITS && C::classify(error) == ErrorClass::ConnectionLost
}
