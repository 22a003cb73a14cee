//! One entity in transaction mode: a turn claims a message, attempts it, and does what is left of it.

use std::any::TypeId;
use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::result::{Error as DieselError, QueryResult};

use super::attempt::{Attempted, End, attempt};
use super::attempt_error::AttemptError;
use super::conclude::conclude;
use super::conclusion::Conclusion;
use super::crash_mark::unmark;
use super::end::timed_out;
use super::plan::{HeldRow, Plan, Remainder, UnsettledRow};
use super::preflight::{channel, check_claim, key_prefix};
use super::refusal::{KEPT, leave_alone, leave_kept_alone};
use super::runner::Runner;
use super::settle_rules::{SettleRules, tries_before};
use super::slot::{ErasedRow, Slot};
use super::tell_failed::tell_failed;
use super::turn::Turn;
use super::undecodable::set_aside;
use crate::backend::{QueueBackend, QueueConnection, SessionHolder, Target};
use crate::claim::{DueRows, PickedRows, PrefetchedKeys, PrefetchedRows};
use crate::crash::CrashMark;
use crate::entity::QueueTable;
use crate::error::{Error, Finding};
use crate::handler::{Failure, Handler};
use crate::log::RateLimitedLog;
use crate::row::{FailureTexts, Fence, RowKey, failure_text};
use crate::statement::QueueOn;

/// How often the remainder of an attempt is tried on a new session before it is left to the row's next attempt.
pub(crate) const CONCLUSIONS: u32 = 3;

/// After how many interruptions in a row, none of which uses a try, one counts as a failure.
const INTERRUPTIONS: u32 = 20;

/// The same for a full disk, which is hardly ever one row's matter: a day of the longest pauses.
const INTERRUPTIONS_BY_FULL_DISK: u32 = 1440;

/// An entity, its handler and its settings.
pub(crate) struct TransactionRunner<Q: QueueOn<C>, C: QueueConnection> {
    handler: Box<dyn Handler<Q, C>>,
    pub(crate) rules: SettleRules,
    pub(crate) key_prefix: String,
    pub(crate) due_rows: DueRows<Q::Key>,
    pub(crate) prefetched_keys: PrefetchedKeys<Q::Key>,
    pub(crate) prefetched_rows: PrefetchedRows<Q>,
}

impl<Q: QueueOn<C> + Send, C: QueueConnection> TransactionRunner<Q, C> {
    pub(crate) fn new(handler: Box<dyn Handler<Q, C>>, texts: FailureTexts) -> Result<Self, Error> {
        Ok(TransactionRunner {
            handler,
            rules: SettleRules {
                settings: Q::SETTINGS,
                options: Q::Queue::OPTIONS,
                retry: Q::retry_policy(),
                texts,
                leased: false,
            },
            key_prefix: key_prefix::<Q, C>()?,
            due_rows: DueRows::of::<Q, C>(),
            prefetched_keys: PrefetchedKeys::new(),
            prefetched_rows: PrefetchedRows::new(),
        })
    }

    /// How its messages are attempted in this slot. `stays`: the worker's next turn is most likely for this runner too.
    pub(crate) fn plan<'a>(&'a self, slot: &'a Slot, stays: bool, rows: &'a PickedRows<'a, Q::Key>) -> Plan<'a, Q, C> {
        let scope = rows.scope();
        // Who is alone in the process is so for a row that is due longest.
        let is_alone = slot.recorder().is_alone();
        // A strict account commits its mark before the handler runs, in a transaction of its own.
        let prefetches_rows = Q::prefetches_rows(scope) && stays && !is_alone && !slot.recorder().is_strict();
        Plan {
            handler: &self.handler,
            rules: &self.rules,
            timeout: self.timeout(),
            slot,
            key_prefix: &self.key_prefix,
            scope,
            claim_floor: Some(&rows.claim_floor),
            prefetched_keys: (Q::is_claimed_by_key(scope) && !is_alone).then_some(&self.prefetched_keys),
            prefetched_rows: prefetches_rows.then_some(&self.prefetched_rows),
            kept_rows: Some(&self.due_rows.kept_rows),
            rows_in_hand: Some(&self.due_rows.rows_in_hand),
        }
    }

    /// Takes the row's mark off, if it bears one. Returns the state in which the row is now.
    fn unmarked(
        &self,
        holder: &mut SessionHolder<C>,
        slot: &Slot,
        log: &RateLimitedLog,
        key: &RowKey<Q::Key>,
        fence: Fence,
    ) -> Fence {
        let Some(mark) = slot.recorder().take_mark() else { return fence };
        self.unmark(holder, log, key, fence, &mark);
        fence.at_any_time()
    }

    /// Takes a mark off that was written before the handler ran, so that the remainder of the attempt finds the row due.
    fn unmark(
        &self,
        holder: &mut SessionHolder<C>,
        log: &RateLimitedLog,
        key: &RowKey<Q::Key>,
        fence: Fence,
        mark: &CrashMark,
    ) {
        for _ in 0..CONCLUSIONS {
            let unmarked = holder.session().and_then(|session| Ok(unmark::<Q, C>(session, key, fence, mark)?));
            let Err(error) = unmarked else { return };
            log.warn(Q::ENTITY, &format!("a row cannot be unmarked: {}", failure_text(&error, 500)));
            holder.close();
        }
    }

    /// Does the remainder of an attempt, on a new session if the old one is in doubt.
    pub(crate) fn conclude(
        &self,
        holder: &mut SessionHolder<C>,
        log: &RateLimitedLog,
        row: UnsettledRow<Q::Key>,
        remainder: Remainder,
    ) -> Turn {
        let (remainder, delay) = self.count_interruption(log, &row, remainder);
        let key = &row.key;
        let _passed_over = self.due_rows.row_backoff.while_concluded(key);
        for _ in 0..CONCLUSIONS {
            let concluded =
                holder.session().and_then(|session| Ok(conclude::<Q, C>(session, &row, &remainder, delay)?));
            match concluded {
                Ok(Conclusion::Settled(settled)) => {
                    self.due_rows.is_written(key);
                    match &remainder {
                        Remainder::Record(_, change) | Remainder::RecordReserved(_, change) => {
                            tell_failed::<Q>(key, change);
                        }
                        Remainder::FindOut(in_doubt) => {
                            in_doubt.change.iter().for_each(|change| tell_failed::<Q>(key, change))
                        }
                        Remainder::Postpone(_) | Remainder::Leave => {}
                    }
                    tracing::debug!(entity = Q::ENTITY, ?key, outcome = ?settled, "settled in a transaction of its own");
                    return Turn::Settled(settled);
                }
                Ok(Conclusion::Interrupted) => return Turn::Interrupted,
                Ok(Conclusion::Overtaken) => {
                    // The row cannot tell what happened: of a handler that has committed, its effects may stay.
                    let untold = match &remainder {
                        Remainder::Record(_, change) => change.error.text().map(|text| format!(": {text}")),
                        _ => None,
                    };
                    let untold = untold.unwrap_or_default();
                    log.warn(Q::ENTITY, &format!("row {key} was changed by somebody else{untold}"));
                    return Turn::Interrupted;
                }
                Ok(Conclusion::Refused { is_noted }) => {
                    let cause = match &remainder {
                        Remainder::Record(_, change) => change.error.text().unwrap_or(KEPT),
                        Remainder::Postpone(interruption) => &interruption.cause,
                        _ => KEPT,
                    };
                    return leave_alone::<Q>(&self.due_rows.refused_rows, log, &row, cause, is_noted);
                }
                Ok(Conclusion::Kept) => return leave_alone::<Q>(&self.due_rows.refused_rows, log, &row, KEPT, false),
                Err(error) => {
                    let error = failure_text(&error, 500);
                    log.warn(Q::ENTITY, &format!("the end of an attempt cannot be recorded: {error}"));
                    holder.close();
                }
            }
        }
        // The row is as it was before the attempt, and due.
        self.due_rows.row_backoff.skip_for_a_while(key);
        Turn::Trouble
    }

    /// Logs an interruption, and makes a failure of it if there were too many: whatever interrupts this row alone must come
    /// to an end. Returns how long the row waits, if that is all that can be written.
    fn count_interruption(
        &self,
        log: &RateLimitedLog,
        row: &UnsettledRow<Q::Key>,
        remainder: Remainder,
    ) -> (Remainder, Duration) {
        let interruption = match &remainder {
            Remainder::Postpone(interruption) => Some(&interruption.cause),
            Remainder::FindOut(in_doubt) => Some(&in_doubt.cause),
            _ => None,
        };
        if let Some(cause) = interruption {
            log.warn(Q::ENTITY, &format!("an attempt was interrupted: {cause}"));
        }
        let Remainder::Postpone(interruption) = remainder else {
            return (remainder, self.due_rows.refused_rows.pause_of(&row.key));
        };
        let (delay, times) = self.due_rows.row_backoff.pause(&row.key, interruption.disk_is_full);
        let most = if interruption.disk_is_full { INTERRUPTIONS_BY_FULL_DISK } else { INTERRUPTIONS };
        if times < most {
            return (Remainder::Postpone(interruption), delay);
        }
        let failure = Failure::retry(AttemptError::Interrupted(times, interruption.cause));
        let (settled, change) = self.rules.after_failure(tries_before(row.fence) + 1, &failure, &row.details);
        (Remainder::Record(settled, Box::new(change)), delay)
    }

    /// Picks the rows of which the next turn is for some. `None`: there are none.
    pub(crate) fn pick_rows(
        &self,
        holder: &mut SessionHolder<C>,
        log: &RateLimitedLog,
        limit: u32,
    ) -> Result<Option<PickedRows<'_, Q::Key>>, Turn> {
        let picked = self.due_rows.pick::<Q, C>(holder, limit).map_err(|error| {
            holder.close();
            if let Error::Database(error) = &error
                && let Some(turn) = set_aside::<Q, C>(holder, log, &self.rules, error)
            {
                return turn;
            }
            log.warn(Q::ENTITY, &format!("no message can be claimed: {}", failure_text(&error, 500)));
            Turn::Trouble
        })?;
        if picked.as_ref().is_some_and(|picked| picked.is_new) {
            self.forget_prefetched();
        }
        Ok(picked)
    }

    /// Attempts one of these rows. `None`: there was none among those of which it is known that they were due.
    fn attempt_one(
        &self,
        holder: &mut SessionHolder<C>,
        slot: &Slot,
        log: &RateLimitedLog,
        claimed: &dyn Fn() -> bool,
        rows: &PickedRows<'_, Q::Key>,
    ) -> Option<Turn> {
        let Attempted { end, session_is_sound } = match self.attempt_on_session(holder, slot, claimed, rows) {
            Ok(attempted) => attempted,
            Err(error) => {
                log.warn(Q::ENTITY, &failure_text(&error, 500));
                return Some(Turn::Trouble);
            }
        };
        Some(match end {
            End::Idle => return self.idle_turn(rows, session_is_sound),
            End::NotClaimed(error) => self.unclaimed_turn(holder, log, claimed, &error),
            End::Settled(key, settled) => {
                rows.claim_floor.keep();
                self.due_rows.is_written(&key);
                Turn::Settled(settled)
            }
            End::SettledInVain(key, settled, due, times) => {
                self.due_rows.row_backoff.end(&key);
                // If it does not come back this time, it is found not to be due when it is tried again.
                self.due_rows.refused_rows.refuse::<Q>(&key, due, times);
                Turn::Settled(settled)
            }
            End::InOtherHands(key) => {
                // Its handler has ended its transaction. It is passed over until that handler has returned.
                self.forget_prefetched();
                self.due_rows.row_backoff.skip_for_a_while(&key);
                Turn::Interrupted
            }
            End::Returned(row, times) => {
                self.forget_prefetched();
                leave_kept_alone::<Q>(&self.due_rows.refused_rows, &row, times)
            }
            End::Suspect => {
                self.forget_prefetched();
                Turn::Suspect
            }
            End::GivenUp => Turn::GivenUp,
            End::Unsettled(mut row, remainder) => {
                row.fence = self.unmarked(holder, slot, log, &row.key, row.fence);
                self.conclude(holder, log, *row, remainder)
            }
        })
    }

    /// Attempts one of these rows on the worker's session, and closes the session if it is in doubt afterwards. An error: there
    /// is no session.
    fn attempt_on_session(
        &self,
        holder: &mut SessionHolder<C>,
        slot: &Slot,
        claimed: &dyn Fn() -> bool,
        rows: &PickedRows<'_, Q::Key>,
    ) -> Result<Attempted<Q::Key>, Error> {
        let plan = self.plan(slot, holder.stays(), rows);
        let session = holder.session_as_it_is()?;
        let Attempted { end, session_is_sound } = attempt::<Q, C>(session, &plan, claimed);
        // Of a session in doubt the lock ends with it.
        let session_is_sound = session_is_sound && Q::end_exclusion(session).is_ok();
        if !session_is_sound {
            holder.close();
        }
        if plan.prefetched_rows.is_some() {
            self.prefetched_rows.ends();
        }
        Ok(Attempted { end, session_is_sound })
    }

    /// The turn of an attempt that found no row. `None`: the next pick may find others.
    fn idle_turn(&self, rows: &PickedRows<'_, Q::Key>, session_is_sound: bool) -> Option<Turn> {
        self.prefetched_rows.forget();
        if let (Some(keys), true) = (&rows.only, session_is_sound) {
            // They are held, or not due any more.
            self.due_rows.refused_rows.end(keys);
            return None;
        }
        if session_is_sound && self.due_rows.refused_rows.release_found() {
            return None;
        }
        Some(Turn::Idle)
    }

    /// The turn of an attempt whose claim met an error. A row that cannot be read is set aside.
    fn unclaimed_turn(
        &self,
        holder: &mut SessionHolder<C>,
        log: &RateLimitedLog,
        claimed: &dyn Fn() -> bool,
        error: &DieselError,
    ) -> Turn {
        if let Some(turn) = set_aside::<Q, C>(holder, log, &self.rules, error) {
            claimed();
            return turn;
        }
        log.warn(Q::ENTITY, &format!("no message can be claimed: {error}"));
        Turn::Trouble
    }

    /// Forgets what was prefetched: what is to run next may not be among it.
    fn forget_prefetched(&self) {
        self.prefetched_keys.forget();
        self.prefetched_rows.forget();
    }
}

impl<Q: QueueOn<C> + Send, C: QueueConnection> Runner<C> for TransactionRunner<Q, C> {
    fn entity(&self) -> &'static str {
        Q::ENTITY
    }

    fn queue(&self) -> TypeId {
        TypeId::of::<Q::Queue>()
    }

    fn recorded_as(&self) -> Option<&str> {
        Some(&self.key_prefix)
    }

    fn is_exclusive(&self) -> bool {
        Q::Queue::OPTIONS.exclusive
    }

    fn timeout(&self) -> Duration {
        self.rules.settings.timeout.unwrap_or(C::Backend::DEFAULT_TIMEOUT)
    }

    fn target(&self) -> QueryResult<Target> {
        Q::target()
    }

    fn check(&self, connection: &mut C) -> QueryResult<Vec<Finding>> {
        check_claim::<Q, C>(connection)
    }

    fn probe_due(&self, connection: &mut C, thorough: bool) -> QueryResult<Option<Duration>> {
        self.due_rows.probe_due::<Q, C>(connection, thorough)
    }

    fn probe_low_water(&self, connection: &mut C) -> QueryResult<()> {
        self.due_rows.probe_low_water::<Q, C>(connection)
    }

    fn turn(
        &self,
        holder: &mut SessionHolder<C>,
        slot: &Slot,
        log: &RateLimitedLog,
        claimed: &dyn Fn() -> bool,
    ) -> Turn {
        loop {
            let rows = match self.pick_rows(holder, log, 1) {
                Ok(Some(rows)) => rows,
                Ok(None) => return Turn::Idle,
                Err(turn) => return turn,
            };
            if let Some(turn) = self.attempt_one(holder, slot, log, claimed, &rows) {
                return turn;
            }
        }
    }

    fn give_up(
        &self,
        holder: &mut SessionHolder<C>,
        slot: &Slot,
        log: &RateLimitedLog,
        row: ErasedRow,
    ) -> Result<Turn, ErasedRow> {
        let HeldRow::<Q> { mut row } = *row.downcast()?;
        row.fence = self.unmarked(holder, slot, log, &row.key, row.fence);
        self.prefetched_rows.is_given_up(&row.key);
        self.due_rows.rows_in_hand.give_up(&row.key);
        let remainder = timed_out(&self.rules, tries_before(row.fence) + 1, self.timeout(), &row.details);
        Ok(self.conclude(holder, log, row, remainder))
    }

    fn has_interrupted(&self) -> bool {
        self.due_rows.row_backoff.any()
    }

    fn window(&self) -> Option<&'static str> {
        Q::Queue::OPTIONS.window
    }

    fn channel(&self) -> QueryResult<Option<String>> {
        channel::<Q, C>()
    }

    fn present(&self, connection: &mut C) -> QueryResult<DateTime<Utc>> {
        Q::present(connection).map(DateTime::from)
    }

    fn use_low_water_at_once(&mut self) {
        self.due_rows.low_water.use_at_once();
    }

    fn prefetch_at_once(&mut self) {
        self.prefetched_rows.use_at_once();
    }

    fn serve_stages(&mut self, stages: Vec<&'static str>) {
        self.due_rows.serve_stages(stages);
    }
}
