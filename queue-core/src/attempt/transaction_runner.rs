//! One entity in transaction mode: a turn claims a message, attempts it, and does what is left of it.

use std::any::TypeId;
use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::result::QueryResult;

use super::attempt::{Attempted, End, attempt};
use super::conclude::{Conclusion, conclude};
use super::crash_mark::unmark;
use super::end::timed_out;
use super::plan::{HeldRow, Plan, Remainder};
use super::preflight::{channel, check_claim, key_prefix};
use super::runner::Runner;
use super::settle_rules::{SettleRules, tries_before};
use super::slot::{ErasedRow, Slot};
use super::turn::Turn;
use crate::backend::{QueueBackend, QueueConnection, SessionHolder};
use crate::claim::{LowWater, LowWaterFloor, PrefetchedKeys, PrefetchedRows, RowBackoff};
use crate::crash::CrashMark;
use crate::entity::QueueTable;
use crate::error::{Error, Finding};
use crate::handler::Handler;
use crate::log::RateLimitedLog;
use crate::row::{ErrorText, Fence, failure_text};
use crate::statement::{QueueOn, Scope};

/// How often the remainder of an attempt is tried on a new session before it is left to the row's next attempt.
pub(crate) const CONCLUSIONS: u32 = 3;

/// An entity, its handler and its settings.
pub(crate) struct TransactionRunner<Q: QueueOn<C>, C: QueueConnection> {
    handler: Box<dyn Handler<Q, C>>,
    pub(crate) rules: SettleRules,
    pub(crate) key_prefix: String,
    pub(crate) row_backoff: RowBackoff<Q::Key>,
    pub(crate) low_water: LowWater,
    pub(crate) prefetched_keys: PrefetchedKeys<Q::Key>,
    pub(crate) prefetched_rows: PrefetchedRows<Q>,
    /// The stages that are served, if not all.
    stages: Option<Vec<&'static str>>,
}

impl<Q: QueueOn<C> + Send, C: QueueConnection> TransactionRunner<Q, C> {
    pub(crate) fn new(handler: Box<dyn Handler<Q, C>>, error_text_limit: usize) -> Result<Self, Error> {
        Ok(TransactionRunner {
            handler,
            rules: SettleRules {
                settings: Q::SETTINGS,
                options: Q::Queue::OPTIONS,
                retry: Q::retry_policy(),
                error_text_limit,
                leased: false,
            },
            key_prefix: key_prefix::<Q, C>()?,
            row_backoff: RowBackoff::new(),
            low_water: LowWater::of::<Q, C>(),
            prefetched_keys: PrefetchedKeys::new(),
            prefetched_rows: PrefetchedRows::new(),
            stages: None,
        })
    }

    /// How its messages are attempted in this slot. `stays`: the worker's next turn is most likely for this runner too.
    pub(crate) fn plan<'a>(
        &'a self,
        slot: &'a Slot,
        stays: bool,
        passed_over: &'a [Q::Key],
        claim_floor: &'a LowWaterFloor<'a>,
    ) -> Plan<'a, Q, C> {
        let scope = Scope { except: passed_over, stages: self.stages.as_deref(), claim_floor: Some(claim_floor) };
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
            claim_floor: Some(claim_floor),
            prefetched_keys: (Q::is_claimed_by_key(scope) && !is_alone).then_some(&self.prefetched_keys),
            prefetched_rows: prefetches_rows.then_some(&self.prefetched_rows),
        }
    }

    /// Takes a mark off that was written before the handler ran, so that the remainder of the attempt finds the row due.
    fn unmark(
        &self,
        holder: &mut SessionHolder<C>,
        log: &RateLimitedLog,
        key: &Q::Key,
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
        key: Q::Key,
        fence: Fence,
        remainder: Remainder,
    ) -> Turn {
        if let Remainder::Postpone(cause) | Remainder::FindOut(_, _, cause) = &remainder {
            log.warn(Q::ENTITY, &format!("an attempt was interrupted: {cause}"));
        }
        let delay =
            if matches!(remainder, Remainder::Postpone(_)) { self.row_backoff.pause(&key) } else { Duration::ZERO };
        for _ in 0..CONCLUSIONS {
            let concluded =
                holder.session().and_then(|session| Ok(conclude::<Q, C>(session, &key, fence, &remainder, delay)?));
            match concluded {
                Ok(Conclusion::Settled(settled)) => {
                    self.row_backoff.end(&key);
                    tracing::debug!(entity = Q::ENTITY, ?key, outcome = ?settled, "settled in a transaction of its own");
                    return Turn::Settled(settled);
                }
                Ok(Conclusion::Interrupted) => return Turn::Interrupted,
                Ok(Conclusion::Overtaken) => {
                    // The row cannot tell what happened: of a handler that has committed, its effects may stay.
                    let untold = match &remainder {
                        Remainder::Record(_, change) => match &change.error {
                            ErrorText::Set(text) => format!(": {text}"),
                            _ => String::new(),
                        },
                        _ => String::new(),
                    };
                    let what = "was changed by somebody else, or a trigger keeps it from changing";
                    log.warn(Q::ENTITY, &format!("row {key:?} {what}{untold}"));
                    // A row that a trigger keeps as it is stays due, and would be claimed again at once.
                    self.row_backoff.skip_for_a_while(&key);
                    return Turn::Interrupted;
                }
                Err(error) => {
                    let error = failure_text(&error, 500);
                    log.warn(Q::ENTITY, &format!("the end of an attempt cannot be recorded: {error}"));
                    holder.close();
                }
            }
        }
        // The row is as it was before the attempt, and due.
        self.row_backoff.skip_for_a_while(&key);
        Turn::Trouble
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
        self.rules.settings.timeout.unwrap_or(<C::Backend as QueueBackend>::DEFAULT_TIMEOUT)
    }

    fn check(&self, connection: &mut C) -> QueryResult<Vec<Finding>> {
        check_claim::<Q, C>(connection)
    }

    fn probe_due(&self, connection: &mut C, thorough: bool) -> QueryResult<Option<Duration>> {
        self.low_water.probe_due::<Q, C>(connection, self.stages.as_deref(), thorough)
    }

    fn probe_low_water(&self, connection: &mut C) -> QueryResult<()> {
        self.low_water.probe::<Q, C>(connection, self.stages.as_deref())
    }

    fn turn(
        &self,
        holder: &mut SessionHolder<C>,
        slot: &Slot,
        log: &RateLimitedLog,
        claimed: &dyn Fn() -> bool,
    ) -> Turn {
        let (passed_over, claim_floor) = (self.row_backoff.passed_over(), self.low_water.claim_floor());
        let plan = self.plan(slot, holder.stays(), &passed_over, &claim_floor);
        let Attempted { end, session_is_sound } = match holder.session_as_it_is() {
            Ok(session) => {
                let Attempted { end, session_is_sound } = attempt::<Q, C>(session, &plan, claimed);
                // Of a session in doubt the lock ends with it.
                Attempted { end, session_is_sound: session_is_sound && Q::end_exclusion(session).is_ok() }
            }
            Err(error) => {
                log.warn(Q::ENTITY, &failure_text(&error, 500));
                return Turn::Trouble;
            }
        };
        if !session_is_sound {
            holder.close();
        }
        if plan.prefetched_rows.is_some() {
            self.prefetched_rows.ends();
        }
        match end {
            End::Idle => {
                self.prefetched_rows.forget();
                Turn::Idle
            }
            End::NotClaimed(error) => {
                log.warn(Q::ENTITY, &format!("no message can be claimed: {error}"));
                Turn::Trouble
            }
            End::Settled(key, settled) => {
                claim_floor.keep();
                self.row_backoff.end(&key);
                Turn::Settled(settled)
            }
            End::Suspect => {
                self.prefetched_keys.forget();
                self.prefetched_rows.forget();
                Turn::Suspect
            }
            End::GivenUp => Turn::GivenUp,
            End::Unsettled(key, fence, remainder) => {
                if let Some(mark) = slot.recorder().take_mark() {
                    self.unmark(holder, log, &key, fence, &mark);
                }
                self.conclude(holder, log, key, fence, remainder)
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
        let HeldRow::<Q> { key, fence, details } = *row.downcast()?;
        if let Some(mark) = slot.recorder().take_mark() {
            self.unmark(holder, log, &key, fence, &mark);
        }
        self.prefetched_rows.is_given_up(&key);
        let remainder = timed_out(&self.rules, tries_before(fence) + 1, self.timeout(), &details);
        Ok(self.conclude(holder, log, key, fence, remainder))
    }

    fn has_interrupted(&self) -> bool {
        self.row_backoff.any()
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
        self.low_water.use_at_once();
    }

    fn prefetch_at_once(&mut self) {
        self.prefetched_rows.use_at_once();
    }

    fn serve_stages(&mut self, stages: Vec<&'static str>) {
        self.stages = Some(stages);
    }
}
