//! How an attempt ends: the worker settles its row and commits, in one round trip if possible.

use std::time::{Duration, Instant};

use diesel::result::Error as DieselError;

use super::begin::{Attempt, Decision, Effects};
use super::ended::{AttemptError, InDoubt, Interruption, NewState, Rest, is_interruption};
use super::settle_rules::{SettleRules, stored};
use super::slot::Revocation;
use crate::backend::{Dialect, FINISH_LEASE, QueueConnection, Unfinished};
use crate::claim::LowWaterFloor;
use crate::entity::Key;
use crate::handler::Failure;
use crate::row::{Details, ErrorText, Fence, Settlement, Status, literal, time_literal};
use crate::sync::fail_point;
use crate::sync::in_test::fails_to_commit;

/// Why a message is handled again: its handler was the first to change something on its session.
const SET_SOMETHING: &str =
    "its handler changed a setting of the session; from now on the worker puts the settings back first";

/// The statements of the savepoint under which a handler runs.
pub(crate) const SAVEPOINT: &str = "SAVEPOINT queueable_handler";

pub(crate) const RELEASE: &str = "RELEASE SAVEPOINT queueable_handler";

pub(crate) const ROLLBACK_TO: &str = "ROLLBACK TO SAVEPOINT queueable_handler";

/// The way to end a message in one round trip.
pub(crate) enum OneTrip {
    /// The call of the statement that settles it, without the last parenthesis.
    Text(String),
    /// A block of statements.
    Block,
    /// The statement that settles it, on a server without blocks.
    Update(String),
}

impl<K: Key, C: QueueConnection> Attempt<'_, '_, K, C> {
    /// Returns how this message ends in one round trip, if it can: only its five columns are to be written, and its key
    /// has an unambiguous text if it needs one.
    pub(crate) fn one_trip(&mut self, decision: &Decision) -> Option<OneTrip> {
        let Fence { status, try_count, began, due, change_count: None } = self.row.fence else { return None };
        if (decision.new.settled, decision.effects) != (Settlement::Succeeded, Effects::Stand)
            || !self.session.is_in_our_transaction_alone()
            || self.session.may_have_moved()
            || self.session.is_of_test()
            || fails_to_commit()
        {
            return None;
        }
        let (prepared, queue) = (&self.session.prepared, self.plan.served.queue.id());
        let tries = stored(self.row.tries);
        if C::Backend::FINISHES_IN_A_BLOCK {
            return match (began, prepared.finish_of(queue)) {
                (None, Some(_)) => due.map(|_| OneTrip::Block),
                (None, None) => {
                    self.plan.served.queue.text_of_success(self.row.key, self.row.fence, tries).map(OneTrip::Update)
                }
                (Some(_), _) => None,
            };
        }
        let key = literal(self.row.key)?;
        let (name, since) = match began {
            None => (prepared.finish_of(queue)?.to_owned(), due?),
            Some(began) => (format!("{FINISH_LEASE}_{}", prepared.lease_finish_of(queue)?), began),
        };
        let (success, since) = (Status::Success, time_literal(since, "+00")?);
        Some(OneTrip::Text(format!("{name}({key}, '{success}', {tries}, '{status}', {try_count}, {since}")))
    }

    /// Releases, settles and commits in one round trip.
    pub(crate) fn end_at_once(&mut self, ending: OneTrip, decision: Decision) -> Result<Settlement, Rest> {
        fail_point("releasing");
        self.plan.slot.begin_commit().map_err(|why| self.rest_of_revocation(why))?;
        fail_point("released");
        fail_point("settled");
        fail_point("committing");
        let compares = self.session.take_back();
        let finished = match ending {
            OneTrip::Text(settle) => self.finish_and_lock_next(settle),
            OneTrip::Block => {
                let tries = stored(self.row.tries);
                let queue = self.plan.served.queue;
                let finished = queue.finish_in_a_block(self.session, self.row.key, self.row.fence, tries, compares);
                finished.map(|()| self.session.note_finished(compares))
            }
            OneTrip::Update(update) => self.session.finish_by_update("queueable_handler", &update),
        };
        let error = match finished {
            Ok(()) => {
                fail_point("committed");
                return Ok(self.tell_settled(&decision.new));
            }
            Err(error) => error,
        };
        self.is_refused = matches!(error, Unfinished::RowChanged(_) | Unfinished::NotWritten(_));
        match error {
            Unfinished::Savepoint(error) => {
                let decision = self.not_released(error)?;
                self.settle_and_commit(decision)
            }
            Unfinished::OtherSettings(_) => {
                self.session.note_other_settings();
                self.end_in_steps(decision)
            }
            Unfinished::RowChanged(_) => Err(self.rest_of_failure(&Failure::retry(AttemptError::RowChanged))),
            Unfinished::SettingsNotPutBack(error) => {
                let text = format!("{SET_SOMETHING}: {error}");
                Err(Rest::Postpone(Interruption::with_text::<C>(&error, text)))
            }
            Unfinished::NotWritten(error) => Err(self.rest_of_error(error, AttemptError::NotWritten)),
            Unfinished::NotCommitted(error) => Err(self.not_committed(error, &decision.new)),
        }
    }

    /// Ends the handler's savepoint, settles and commits, one after the other.
    pub(crate) fn end_in_steps(&mut self, decision: Decision) -> Result<Settlement, Rest> {
        let decision = match decision.effects {
            Effects::None => decision,
            Effects::Stand => self.release(decision)?,
            Effects::Undone => self.undo(decision)?,
        };
        self.settle_and_commit(decision)
    }

    /// Releases the handler's savepoint. If it is gone, the worker must not commit the handler's writes.
    fn release(&mut self, decision: Decision) -> Result<Decision, Rest> {
        fail_point("releasing");
        match self.session.control(RELEASE) {
            Ok(()) => {
                fail_point("released");
                Ok(decision)
            }
            Err(error) => self.not_released(error),
        }
    }

    /// Undoes the handler's writes and keeps the lock.
    fn undo(&mut self, decision: Decision) -> Result<Decision, Rest> {
        match self.session.control(ROLLBACK_TO) {
            Ok(()) => Ok(decision),
            Err(error) if is_interruption::<C>(&error) => Err(Rest::Postpone(Interruption::of::<C>(&error))),
            Err(_) => {
                let mut new = decision.new;
                let text = new.change.error.text().unwrap_or_default().to_owned();
                new.change.error = ErrorText::Set(self.plan.served.rules.texts.of(&AttemptError::FailedAndEnded(text)));
                Err(Rest::record(new))
            }
        }
    }

    /// Decides what becomes of an attempt whose savepoint cannot be released: a failure, while the row is still locked.
    fn not_released(&mut self, error: DieselError) -> Result<Decision, Rest> {
        if is_interruption::<C>(&error) {
            return Err(Rest::Postpone(Interruption::of::<C>(&error)));
        }
        match self.session.control(ROLLBACK_TO) {
            Ok(()) => Ok(self.decide(Err(Failure::retry(AttemptError::SwallowedError(error))), Effects::None)),
            Err(_) => Err(self.rest_of_failure(&Failure::retry(AttemptError::TransactionEnded(error)))),
        }
    }

    /// Writes the row's new state and commits.
    fn settle_and_commit(&mut self, Decision { mut new, .. }: Decision) -> Result<Settlement, Rest> {
        if new.change.error == ErrorText::Keep {
            new.change.error = self.row.kept.clone();
        }
        let is_failure = new.settled.is_failure();
        if is_failure {
            fail_point("recording");
        }
        self.settle(&new)?;
        fail_point("settled");
        if is_failure {
            fail_point("recorded");
        }
        self.commit(&new)
    }

    /// Ends the message. The same text locks the next row if one was prefetched.
    fn finish_and_lock_next(&mut self, settle: String) -> Result<(), Unfinished> {
        let is_leased = self.row.fence.began.is_some();
        // A row that is locked now would take the place of the one claim that is to look below the mark.
        let probes_below = self.plan.claim.floor.is_some_and(LowWaterFloor::has_to_probe_below);
        let next = if probes_below { None } else { self.plan.next_row(self.session) };
        let Some((lock, row)) = next else {
            return self.session.finish("queueable_handler", settle, is_leased, None).map(drop);
        };
        let is_locked = self.session.finish("queueable_handler", settle, is_leased, Some(&lock))?;
        self.plan.claim.prefetched_rows.inspect(|rows| rows.note_answer(is_locked));
        if is_locked {
            fail_point("next-locked");
            self.plan.claim.next.set(Some(row));
        }
        Ok(())
    }

    /// Writes the row's new state, under the fence and on exactly one row.
    fn settle(&mut self, new: &NewState) -> Result<(), Rest> {
        let written = self.plan.served.queue.settle(self.session, self.row.key, self.row.fence, &new.change);
        self.is_refused = !matches!(written, Ok(1));
        match written {
            Ok(1) => Ok(()),
            // A failure stays what it was, even if its text could not be written at first.
            Err(error) if new.settled.is_failure() && !is_interruption::<C>(&error) => Err(Rest::record(new.clone())),
            Ok(_) => Err(self.rest_of_failure(&Failure::retry(AttemptError::RowChanged))),
            Err(error) => Err(self.rest_of_error(error, AttemptError::NotWritten)),
        }
    }

    /// Commits, unless the transaction was taken away, and evaluates the result.
    fn commit(&mut self, new: &NewState) -> Result<Settlement, Rest> {
        self.plan.slot.begin_commit().map_err(|why| self.rest_of_revocation(why))?;
        fail_point("committing");
        // Under a lease, the transaction that claimed the row ended before the handler began.
        let committed = match self.row.fence.began {
            None => self.session.commit(),
            Some(_) => self.session.commit_alone(),
        };
        let Err(error) = committed else {
            fail_point("committed");
            return Ok(self.tell_settled(new));
        };
        Err(self.not_committed(error, new))
    }

    fn tell_settled(&self, new: &NewState) -> Settlement {
        tracing::debug!(outcome = ?new.settled, "settled");
        self.plan.served.rules.teller.tell_settled(self.row.key, new, self.row.watch);
        new.settled
    }

    /// Returns what is left after a COMMIT that was refused, or whose answer was lost.
    fn not_committed(&self, error: DieselError, new: &NewState) -> Rest {
        if C::leaves_commit_in_doubt(&error) {
            let reached = new.change.reached(self.row.fence, self.plan.served.queue.sql.options);
            let (new, cause, since) = (new.clone(), error.to_string(), Instant::now());
            return Rest::FindOut(Box::new(InDoubt { new, reached, cause, since, is_told_by_caller: false }));
        }
        // A failure stays what it was, even if Diesel still counts an open transaction of the handler's, as after a
        // panic in one. Diesel then releases that transaction instead of committing ours.
        if new.settled.is_failure() && !is_interruption::<C>(&error) {
            return Rest::record(new.clone());
        }
        self.rest_of_error(error, AttemptError::CommitRefused)
    }

    /// Returns what is left after an error with which the transaction ends.
    pub(crate) fn rest_of_error(
        &self,
        error: DieselError,
        as_failure: impl FnOnce(DieselError) -> AttemptError,
    ) -> Rest {
        if is_interruption::<C>(&error) {
            Rest::Postpone(Interruption::of::<C>(&error))
        } else {
            self.rest_of_failure(&Failure::retry(as_failure(error)))
        }
    }

    pub(crate) fn rest_of_revocation(&self, why: Revocation) -> Rest {
        match why {
            Revocation::TimedOut => {
                timed_out(&self.plan.served.rules, self.row.tries, self.plan.served.info.timeout, self.row.details)
            }
            Revocation::Shutdown => Rest::Leave,
        }
    }

    pub(crate) fn rest_of_failure(&self, failure: &Failure) -> Rest {
        Rest::record(self.plan.served.rules.after_failure(self.row.tries, failure, self.row.details))
    }
}

/// Returns what is left of an attempt whose handler took longer than its timeout.
pub(crate) fn timed_out(rules: &SettleRules, tries: u32, timeout: Duration, details: &Details) -> Rest {
    Rest::record(rules.after_failure(tries, &Failure::retry(AttemptError::TimedOut(timeout)), details))
}
