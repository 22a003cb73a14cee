//! Writes the end of a leased attempt, again and again until it is written or the lease ends.

use std::thread;
use std::time::{Duration, Instant};

use diesel::result::QueryResult;

use super::leased_rows::{LeasedRow, WatchedRow};
use super::runner::{LateRow, LeaseRunner};
use crate::attempt::{AttemptError, Conclusion, InDoubt, NewState, Turn, in_transaction, is_refusal, record};
use crate::backend::{ErrorClass, QueueConnection, Session, SessionHolder};
use crate::entity::{Key, Retry, RetryPolicy, jittered};
use crate::error::Error;
use crate::event::Event;
use crate::handler::{Failure, LeaseLost};
use crate::row::{ErrorText, Settlement, failure_text};
use crate::statement::{Change, Next};

/// How long an attempt waits before it writes its answer again, after a conflict or a lost connection.
const BACKOFF: Retry = Retry::exponential(Duration::from_millis(10)).max(Duration::from_secs(1));

/// The result of one transaction for the answer.
pub(crate) enum Written {
    /// The attempt has ended: the row's new state is committed, or the row is no longer this attempt's.
    Ended(Turn),
    /// Nothing was written, for a reason that may pass.
    NotYet(String),
    /// The attempt failed, and the failure is to be recorded in another transaction.
    Failed(Box<NewState>),
    /// The database refuses to write this on this row, for this reason.
    Refused(String),
}

impl<K: Key, C: QueueConnection> LeaseRunner<'_, K, C> {
    /// Records a failure, again and again until it is written or the lease ends.
    pub(super) fn settle_failure(
        &self,
        holder: &mut SessionHolder<C>,
        held: &WatchedRow<K>,
        failure: &Failure,
    ) -> Turn {
        let new = self.served.rules.after_failure(held.tries, failure, &held.details);
        self.record_again_and_again(holder, held, &new)
    }

    /// Records a new state that is decided already, again and again until it is written or the lease ends.
    pub(crate) fn record_again_and_again(
        &self,
        holder: &mut SessionHolder<C>,
        held: &WatchedRow<K>,
        new: &NewState,
    ) -> Turn {
        self.persist(held, &mut || self.record(holder, held, new).inspect_err(|_| holder.close()))
    }

    /// Records that a handler took too long, in place of its worker, to which it does not return. If this cannot be
    /// written now, the end of the lease will show it.
    pub(crate) fn settle_late(&self, holder: &mut SessionHolder<C>, LateRow { row, timeout }: &LateRow<K>) -> Turn {
        let new =
            self.served.rules.after_failure(row.tries, &Failure::retry(AttemptError::TimedOut(*timeout)), &row.details);
        let recorded = self.record(holder, row, &new);
        self.leased_rows.remove(&row.held);
        match recorded {
            Ok(Written::Ended(turn)) => {
                if turn == Turn::Lost {
                    row.watch.end(Event::LeaseLost, None, None);
                }
                turn
            }
            Ok(_) => Turn::Interrupted,
            Err(error) => {
                self.served.warn(&format!("a late handler cannot be recorded: {}", failure_text(&error, 500)));
                holder.close();
                Turn::Interrupted
            }
        }
    }

    /// Writes again and again until something is written, or the row's lease may have ended.
    pub(super) fn persist(&self, held: &WatchedRow<K>, write: &mut dyn FnMut() -> Result<Written, Error>) -> Turn {
        let what = "the end of an attempt cannot be written yet";
        let ended = self.again_and_again(held, what, &mut || match write() {
            Ok(Written::Ended(turn)) => Ok(turn),
            Ok(Written::Refused(cause)) => {
                let what = "the database refuses to write the end of an attempt on row";
                self.served.warn(&format!("{what} {}: {cause}", held.key));
                held.watch.end(Event::Refused, Some(&self.served.redacted(&cause)), None);
                Ok(Turn::Refused)
            }
            Ok(Written::Failed(..)) => Err("a failure was not recorded".to_owned()),
            Ok(Written::NotYet(cause)) => Err(cause),
            Err(error) => Err(failure_text(&error, 500)),
        });
        match ended {
            Ok(turn) => {
                if matches!(turn, Turn::Settled(_)) {
                    self.served.due_rows.end(&held.key);
                }
                turn
            }
            // The row becomes due when its lease ends.
            Err(cause) => {
                held.watch.interrupt(&cause);
                Turn::Trouble
            }
        }
    }

    /// Finds out again and again whether a transaction was committed whose answer to COMMIT was lost, until the row's lease
    /// may have ended. `None`: it was not, or that cannot be found out.
    pub(crate) fn find_out(
        &self,
        holder: &mut SessionHolder<C>,
        held: &WatchedRow<K>,
        in_doubt: &InDoubt,
    ) -> Option<Settlement> {
        let found = self.again_and_again(held, "cannot yet tell whether the commit succeeded", &mut || {
            let found = holder.session().and_then(|session| Ok(self.written_in_doubt(session, held, in_doubt)?));
            found.inspect_err(|_| holder.close()).map_err(|error| failure_text(&error, 500))
        });
        match found {
            Ok(Written::Ended(Turn::Settled(settled))) => Some(settled),
            _ => None,
        }
    }

    /// Does this again and again until it succeeds, or the row's lease may have ended. Returns the last cause then.
    fn again_and_again<T>(
        &self,
        held: &LeasedRow<K>,
        what_fails: &str,
        work: &mut dyn FnMut() -> Result<T, String>,
    ) -> Result<T, String> {
        let until = held.clock.holds_until();
        let mut tries = 0;
        loop {
            let cause = match work() {
                Ok(done) => return Ok(done),
                Err(cause) => cause,
            };
            self.served.warn(&format!("{what_fails}: {cause}"));
            tries += 1;
            if !rest(held, until, tries) {
                return Err(cause);
            }
        }
    }

    /// Finds out what a transaction wrote whose answer to COMMIT was lost.
    pub(super) fn written_in_doubt(
        &self,
        session: &mut Session<C>,
        held: &WatchedRow<K>,
        in_doubt: &InDoubt,
    ) -> QueryResult<Written> {
        Ok(match self.served.find_out(session, &held.key, held.fence, in_doubt)? {
            Conclusion::Settled(settled) => {
                self.served.tell_found_out(&held.key, in_doubt, &held.watch);
                Written::Ended(Turn::Settled(settled))
            }
            Conclusion::Overtaken { .. } => Written::Ended(Turn::Lost),
            Conclusion::Interrupted | Conclusion::Refused { .. } | Conclusion::Kept | Conclusion::SetAside => {
                Written::NotYet(in_doubt.cause.clone())
            }
        })
    }

    /// Records a failure in a transaction of its own.
    pub(super) fn record(
        &self,
        holder: &mut SessionHolder<C>,
        held: &WatchedRow<K>,
        new: &NewState,
    ) -> Result<Written, Error> {
        let _writing = self.turn_to_write();
        let session = holder.session()?;
        let settle = |connection: &mut C, change: &Change| {
            // Under the lock, so that a row that was given back meanwhile is not mistaken for this attempt's row.
            if !self.served.queue.is_still(connection, &held.key, held.fence)? || taken_away(held).is_some() {
                return Ok(0);
            }
            self.served.queue.settle(connection, &held.key, held.fence, change)
        };
        match record(&mut **session, &new.change, &settle) {
            Ok(1) => {
                self.served.rules.teller.tell_settled(&held.key, new, &held.watch);
                Ok(Written::Ended(Turn::Settled(new.settled)))
            }
            Ok(_) => Ok(Written::Ended(taken_away(held).unwrap_or(Turn::Lost))),
            Err(error) if matches!(C::classify(&error), ErrorClass::Conflict | ErrorClass::NoRoom) => {
                Ok(Written::NotYet(error.to_string()))
            }
            Err(error) if is_refusal::<C>(&error) => {
                let cause = failure_text(&error, 500);
                self.note_on_leased(session, held, &new.change.error)?;
                Ok(Written::Refused(cause))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Notes on a row what the database allows after it has refused to settle it: the reason, and that the row waits.
    /// If it allows nothing, the row becomes due when its lease ends.
    fn note_on_leased(&self, connection: &mut C, held: &LeasedRow<K>, text: &ErrorText) -> Result<(), Error> {
        let pause = self.served.due_rows.passed_rows.refusal_pause(&held.key).max(self.length());
        for error in [text.clone(), ErrorText::Keep] {
            let change = Change { next: Some(Next::In(pause)), error, unless_stopped: true, ..Change::default() };
            match in_transaction(connection, |connection| {
                self.served.queue.settle(connection, &held.key, held.fence, &change)
            }) {
                Err(error) if is_refusal::<C>(&error) => {}
                noted => return noted.map(drop).map_err(Error::from),
            }
        }
        Ok(self.served.try_writing(connection, &held.key, held.fence)?)
    }
}

/// Waits before the next of so many tries to write the end of an attempt. Returns at once if it would come too late.
fn rest<K>(held: &LeasedRow<K>, until: Instant, tries: u32) -> bool {
    let pause = jittered(BACKOFF.delay(tries).unwrap_or_default(), 1.0, fastrand::f64());
    if Instant::now() + pause >= until || held.clock.ended() == Some(LeaseLost::Shutdown) {
        return false;
    }
    thread::sleep(pause);
    true
}

/// Returns the result of an attempt whose row this process has taken away: it writes nothing. The row may be in the
/// very state again in which the attempt left it.
pub(crate) fn taken_away<K>(held: &LeasedRow<K>) -> Option<Turn> {
    match held.clock.ended()? {
        LeaseLost::Shutdown => Some(Turn::Interrupted),
        LeaseLost::Overtaken => Some(Turn::Lost),
        LeaseLost::Unconfirmed | LeaseLost::TimedOut => None,
    }
}
