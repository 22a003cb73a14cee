//! How a message of a group leaves its savepoint: released with its effects, or rolled back.

use diesel::result::Error as DieselError;

use super::end::{Decided, GroupEnd, Row, Why};
use super::work::{Handled, Work, conflict, undone, write};
use crate::attempt::{Misfortune, Rest, is_interruption};
use crate::backend::{COMMIT_REFUSED, ErrorClass, QueueBackend, QueueConnection};
use crate::fault::fail_point;
use crate::handler::{Failure, Outcome};
use crate::row::{ErrorText, Settled, failure_text};
use crate::statement::{Change, QueueOn};

pub(crate) const SAVEPOINT: &str = "SAVEPOINT queueable_handler";

pub(crate) const RELEASE: &str = "RELEASE SAVEPOINT queueable_handler";

pub(crate) const ROLLBACK_TO: &str = "ROLLBACK TO SAVEPOINT queueable_handler";

const RELEASE_AND_SAVEPOINT: &str = "RELEASE SAVEPOINT queueable_handler; SAVEPOINT queueable_handler";

impl<Q: QueueOn<C>, C: QueueConnection> Work<'_, Q, C> {
    /// Releases the sentinel, and sets it anew if another message follows. If it is gone, the transaction is not ours.
    pub(crate) fn release(&mut self, row: &Row<Q::Key>, outcome: Outcome, goes_on: bool) -> Handled<Q> {
        fail_point!("releasing");
        if self.settles_in_turn {
            return self.release_and_settle(row, outcome, goes_on);
        }
        let has_ended = self.session.is_in_no_transaction();
        let released = match goes_on {
            true if C::Backend::STATEMENTS_TRAVEL_TOGETHER => self.execute(RELEASE_AND_SAVEPOINT),
            true => self.execute(RELEASE).and_then(|()| self.execute(SAVEPOINT)),
            false => self.execute(RELEASE),
        };
        let Err(error) = released else {
            fail_point!("released");
            self.decide(row, outcome);
            return Ok(());
        };
        if has_ended && is_refusal::<C>(&error) {
            let (settled, change) = self.after(row, Misfortune::GroupCommitRefused);
            return Err(self.ended_by(row, Rest::Record(settled, Box::new(change))));
        }
        self.not_released(row, error)
    }

    /// The same, and the row is settled before the next handler runs: whoever commits, commits it with its effects.
    fn release_and_settle(&mut self, row: &Row<Q::Key>, outcome: Outcome, goes_on: bool) -> Handled<Q> {
        let (settled, change) = self.plan.rules.after_outcome(row.fence, row.tries, outcome, &row.details);
        let passed = match settled {
            Settled::Deleted => None,
            _ if !goes_on => None,
            _ => Q::pass_on(self.session, &row.key, row.fence, &change),
        };
        let decided = Decided { key: row.key.clone(), fence: row.fence, settled, change, written: true };
        match passed {
            Some(Ok(())) => {
                fail_point!("released");
            }
            Some(Err(error)) if is_interruption::<C>(&error) || says_of_savepoint(&error) => {
                return self.not_released(row, error);
            }
            Some(Err(error)) => return Err(GroupEnd::Undone(Why::Alone(error.to_string()))),
            None => {
                if let Err(error) = self.execute(RELEASE) {
                    return self.not_released(row, error);
                }
                fail_point!("released");
                write::<Q, C>(self.session, &decided)?;
                if goes_on {
                    self.execute(SAVEPOINT).map_err(undone::<Q, C>)?;
                }
            }
        }
        self.decided.push(decided);
        Ok(())
    }

    /// What it means that the sentinel could not be released.
    pub(crate) fn not_released(&mut self, row: &Row<Q::Key>, error: DieselError) -> Handled<Q> {
        if is_interruption::<C>(&error) {
            return Err(self.ended_by(row, Rest::Postpone(error.to_string())));
        }
        if self.execute(ROLLBACK_TO).is_ok() {
            // The savepoint is still there, for the next message.
            let (settled, change) = self.after(row, Misfortune::SwallowedError(error));
            self.push(row, settled, change);
            return Ok(());
        }
        let (settled, change) = self.after(row, Misfortune::TransactionEnded(error));
        Err(self.ended_by(row, Rest::Record(settled, Box::new(change))))
    }

    /// Undoes what the handler wrote. The savepoint stays, for the next message.
    pub(crate) fn undo(&mut self, row: &Row<Q::Key>, failure: Failure) -> Handled<Q> {
        let judged = self.judge(row.tries, failure, &row.details);
        let has_ended = self.session.is_in_no_transaction();
        match (judged, self.execute(ROLLBACK_TO)) {
            (Ok((settled, change)), Ok(())) if self.settles_in_turn => self.settle_failure(row, settled, change),
            (Ok((settled, change)), Ok(())) => {
                self.push(row, settled, change);
                Ok(())
            }
            (Ok((settled, mut change)), Err(error)) if has_ended && is_refusal::<C>(&error) => {
                if let ErrorText::Set(text) = change.error {
                    let misfortune = match text.contains(COMMIT_REFUSED) {
                        // It has answered what the database said.
                        true => Misfortune::GroupCommitRefused,
                        false => Misfortune::FailedAndRefused(text),
                    };
                    change.error = ErrorText::Set(failure_text(&misfortune, self.plan.rules.error_text_limit));
                }
                Err(self.ended_by(row, Rest::Record(settled, Box::new(change))))
            }
            // The sentinel was there: nobody has ended the transaction, and nothing of it will be committed.
            (Err(cause), Ok(())) => Err(GroupEnd::Undone(Why::Conflict(cause))),
            (Err(cause), Err(_)) => Err(self.ended_by(row, Rest::Postpone(cause))),
            (Ok(_), Err(error)) if is_interruption::<C>(&error) => {
                Err(self.ended_by(row, Rest::Postpone(error.to_string())))
            }
            (Ok((settled, mut change)), Err(_)) => {
                if let ErrorText::Set(text) = change.error {
                    let misfortune = Misfortune::FailedAndEnded(text);
                    change.error = ErrorText::Set(failure_text(&misfortune, self.plan.rules.error_text_limit));
                }
                Err(self.ended_by(row, Rest::Record(settled, Box::new(change))))
            }
        }
    }

    /// Writes a failure before the next handler runs: who commits, commits it too. Outside of the savepoint, because the next
    /// failure is rolled back to that.
    fn settle_failure(&mut self, row: &Row<Q::Key>, settled: Settled, change: Change) -> Handled<Q> {
        self.execute(RELEASE).map_err(undone::<Q, C>)?;
        let decided = Decided { key: row.key.clone(), fence: row.fence, settled, change, written: true };
        fail_point!("recording");
        write::<Q, C>(self.session, &decided)?;
        fail_point!("recorded");
        self.execute(SAVEPOINT).map_err(undone::<Q, C>)?;
        self.decided.push(decided);
        Ok(())
    }

    /// Undoes all that the handlers wrote, if the transaction is still ours.
    pub(crate) fn undo_all(&mut self, rows: &[Row<Q::Key>], why: Why) -> GroupEnd<Q::Key> {
        match (self.execute(ROLLBACK_TO), why) {
            (Ok(()), why) => GroupEnd::Undone(why),
            // MySQL has rolled the whole transaction back when it chose it to end a deadlock.
            (Err(_), Why::Conflict(cause)) => self.untold(rows, Some(Why::Conflict(cause))),
            (Err(error), _) => self.untold(rows, conflict::<C>(&error)),
        }
    }
}

/// Whether an error that comes after the transaction has ended means that the database has refused a handler's COMMIT: it
/// ends the session then.
pub(crate) fn is_refusal<C: QueueConnection>(error: &DieselError) -> bool {
    C::Backend::REFUSES_COMMITS && C::classify(error) == ErrorClass::ConnectionLost
}

/// Whether a compound statement has failed because the sentinel is gone, and not later.
fn says_of_savepoint(error: &DieselError) -> bool {
    let text = error.to_string();
    text.contains("SAVEPOINT") && text.contains("does not exist")
}
