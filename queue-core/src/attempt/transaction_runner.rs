//! One entity in transaction mode: a turn claims a message, attempts it, and does what is left of it.

use std::any::TypeId;
use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::result::QueryResult;

use super::attempt::{Attempted, End, attempt};
use super::conclude::{Conclusion, conclude};
use super::crash_mark::unmark;
use super::end::timed_out;
use super::in_flight::{Held, Slot};
use super::plan::{HeldRow, Plan, Rest};
use super::preflight::{channel, check_claim, key_prefix};
use super::runner::Lane;
use super::settlement::{Rules, tries_before};
use super::turn::Turn;
use crate::backend::{Link, QueueBackend, QueueConnection};
use crate::claim::{Ahead, LowWater, Pauses, Reach, RowsAhead};
use crate::crash::Mark;
use crate::entity::QueueTable;
use crate::error::{Error, Finding};
use crate::handler::Handler;
use crate::log::Noise;
use crate::row::{ErrorText, Fence, failure_text};
use crate::statement::{QueueOn, Scope};

/// How often the rest of an attempt is tried on a new session before it is left to the row's next attempt.
pub(crate) const CONCLUSIONS: u32 = 3;

/// An entity, its handler and its settings.
pub(crate) struct Served<Q: QueueOn<C>, C: QueueConnection> {
    handler: Box<dyn Handler<Q, C>>,
    pub(crate) rules: Rules,
    pub(crate) key_prefix: String,
    pub(crate) pauses: Pauses<Q::Key>,
    pub(crate) low_water: LowWater,
    pub(crate) ahead: Ahead<Q::Key>,
    pub(crate) rows_ahead: RowsAhead<Q>,
    /// The stages that are served, if not all.
    stages: Option<Vec<&'static str>>,
}

impl<Q: QueueOn<C> + Send, C: QueueConnection> Served<Q, C> {
    pub(crate) fn new(handler: Box<dyn Handler<Q, C>>, error_text_limit: usize) -> Result<Self, Error> {
        Ok(Served {
            handler,
            rules: Rules {
                settings: Q::SETTINGS,
                options: Q::Queue::OPTIONS,
                retry: Q::retry_policy(),
                error_text_limit,
                leased: false,
            },
            key_prefix: key_prefix::<Q, C>()?,
            pauses: Pauses::new(),
            low_water: LowWater::of::<Q, C>(),
            ahead: Ahead::new(),
            rows_ahead: RowsAhead::new(),
            stages: None,
        })
    }

    /// How its messages are attempted in this slot. `stays`: the worker's next turn is most likely on this lane too.
    pub(crate) fn plan<'a>(
        &'a self,
        slot: &'a Slot,
        stays: bool,
        passed_over: &'a [Q::Key],
        reach: &'a Reach<'a>,
    ) -> Plan<'a, Q, C> {
        let scope = Scope { except: passed_over, stages: self.stages.as_deref(), reach: Some(reach) };
        // Who is alone in the process is so for a row that is due longest.
        let is_alone = slot.recorder().is_alone();
        // A strict account commits its mark before the handler runs, in a transaction of its own.
        let is_read_ahead = Q::is_read_ahead(scope) && stays && !is_alone && !slot.recorder().is_strict();
        Plan {
            handler: &self.handler,
            rules: &self.rules,
            timeout: self.timeout(),
            slot,
            key_prefix: &self.key_prefix,
            scope,
            reach: Some(reach),
            ahead: (Q::is_claimed_by_key(scope) && !is_alone).then_some(&self.ahead),
            rows_ahead: is_read_ahead.then_some(&self.rows_ahead),
        }
    }

    /// Takes a mark off that was written before the handler ran, so that the rest of the attempt finds the row due.
    fn unmark(&self, link: &mut Link<C>, noise: &Noise, key: &Q::Key, fence: Fence, mark: &Mark) {
        for _ in 0..CONCLUSIONS {
            let unmarked = link.session().and_then(|session| Ok(unmark::<Q, C>(session, key, fence, mark)?));
            let Err(error) = unmarked else { return };
            noise.warn(Q::ENTITY, &format!("a row cannot be unmarked: {}", failure_text(&error, 500)));
            link.close();
        }
    }

    /// Does the rest of an attempt, on a new session if the old one is in doubt.
    pub(crate) fn conclude(&self, link: &mut Link<C>, noise: &Noise, key: Q::Key, fence: Fence, rest: Rest) -> Turn {
        if let Rest::Postpone(cause) | Rest::FindOut(_, _, cause) = &rest {
            noise.warn(Q::ENTITY, &format!("an attempt was interrupted: {cause}"));
        }
        let delay = if matches!(rest, Rest::Postpone(_)) { self.pauses.pause(&key) } else { Duration::ZERO };
        for _ in 0..CONCLUSIONS {
            let concluded =
                link.session().and_then(|session| Ok(conclude::<Q, C>(session, &key, fence, &rest, delay)?));
            match concluded {
                Ok(Conclusion::Settled(settled)) => {
                    self.pauses.end(&key);
                    tracing::debug!(entity = Q::ENTITY, ?key, outcome = ?settled, "settled in a transaction of its own");
                    return Turn::Settled(settled);
                }
                Ok(Conclusion::Interrupted) => return Turn::Interrupted,
                Ok(Conclusion::Overtaken) => {
                    // The row cannot tell what happened: of a handler that has committed, its effects may stay.
                    let untold = match &rest {
                        Rest::Record(_, change) => match &change.error {
                            ErrorText::Set(text) => format!(": {text}"),
                            _ => String::new(),
                        },
                        _ => String::new(),
                    };
                    let what = "was changed by somebody else, or a trigger keeps it from changing";
                    noise.warn(Q::ENTITY, &format!("row {key:?} {what}{untold}"));
                    // A row that a trigger keeps as it is stays due, and would be claimed again at once.
                    self.pauses.set_aside(&key);
                    return Turn::Interrupted;
                }
                Err(error) => {
                    let error = failure_text(&error, 500);
                    noise.warn(Q::ENTITY, &format!("the end of an attempt cannot be recorded: {error}"));
                    link.close();
                }
            }
        }
        // The row is as it was before the attempt, and due.
        self.pauses.set_aside(&key);
        Turn::Trouble
    }
}

impl<Q: QueueOn<C> + Send, C: QueueConnection> Lane<C> for Served<Q, C> {
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

    fn look(&self, connection: &mut C, thorough: bool) -> QueryResult<Option<Duration>> {
        self.low_water.look::<Q, C>(connection, self.stages.as_deref(), thorough)
    }

    fn sound(&self, connection: &mut C) -> QueryResult<()> {
        self.low_water.sound::<Q, C>(connection, self.stages.as_deref())
    }

    fn turn(&self, link: &mut Link<C>, slot: &Slot, noise: &Noise, claimed: &dyn Fn() -> bool) -> Turn {
        let (passed_over, reach) = (self.pauses.passed_over(), self.low_water.reach());
        let plan = self.plan(slot, link.stays(), &passed_over, &reach);
        let Attempted { end, session_is_sound } = match link.session_as_it_is() {
            Ok(session) => {
                let Attempted { end, session_is_sound } = attempt::<Q, C>(session, &plan, claimed);
                // Of a session in doubt the lock ends with it.
                Attempted { end, session_is_sound: session_is_sound && Q::end_exclusion(session).is_ok() }
            }
            Err(error) => {
                noise.warn(Q::ENTITY, &failure_text(&error, 500));
                return Turn::Trouble;
            }
        };
        if !session_is_sound {
            link.close();
        }
        if plan.rows_ahead.is_some() {
            self.rows_ahead.ends();
        }
        match end {
            End::Idle => {
                self.rows_ahead.forget();
                Turn::Idle
            }
            End::NotClaimed(error) => {
                noise.warn(Q::ENTITY, &format!("no message can be claimed: {error}"));
                Turn::Trouble
            }
            End::Settled(key, settled) => {
                reach.keep();
                self.pauses.end(&key);
                Turn::Settled(settled)
            }
            End::Suspect => {
                self.ahead.forget();
                self.rows_ahead.forget();
                Turn::Suspect
            }
            End::GivenUp => Turn::GivenUp,
            End::Unsettled(key, fence, rest) => {
                if let Some(mark) = slot.recorder().take_mark() {
                    self.unmark(link, noise, &key, fence, &mark);
                }
                self.conclude(link, noise, key, fence, rest)
            }
        }
    }

    fn give_up(&self, link: &mut Link<C>, slot: &Slot, noise: &Noise, row: Held) -> Result<Turn, Held> {
        let HeldRow::<Q> { key, fence, details } = *row.downcast()?;
        if let Some(mark) = slot.recorder().take_mark() {
            self.unmark(link, noise, &key, fence, &mark);
        }
        self.rows_ahead.is_given_up(&key);
        let rest = timed_out(&self.rules, tries_before(fence) + 1, self.timeout(), &details);
        Ok(self.conclude(link, noise, key, fence, rest))
    }

    fn has_interrupted(&self) -> bool {
        self.pauses.any()
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

    fn read_ahead_at_once(&mut self) {
        self.rows_ahead.use_at_once();
    }

    fn serve_stages(&mut self, stages: Vec<&'static str>) {
        self.stages = Some(stages);
    }
}
