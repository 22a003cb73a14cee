//! One entity and its handler inside a poller, with the types erased: what a worker and the scout ask for.

use std::any::TypeId;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, Utc};

use diesel::result::QueryResult;

use crate::ahead::Ahead;
use crate::attempt::{Attempted, End, HeldRow, Plan, Rest, attempt};
use crate::attempt_end::over_budget;
use crate::backend::{ErrorClass, QueueBackend, QueueConnection};
use crate::conclude::{Conclusion, conclude};
use crate::crash::strict::{Mark, unmark};
use crate::entity::QueueTable;
use crate::error::{Error, Finding};
use crate::failure_text::failure_text;
use crate::handler::Handler;
use crate::link::Link;
use crate::low_water::{LowWater, Reach};
use crate::noise::Noise;
use crate::pauses::Pauses;
use crate::rows_ahead::RowsAhead;
use crate::slot::{Held, Slot};
use crate::statement::{ErrorText, Fence, QueueOn, Scope};
use crate::tally::Tally;
use crate::verdict::{Rules, Settled, tries_before};

/// How often the rest of an attempt is tried on a new session before it is left to the row's next attempt.
pub(crate) const CONCLUSIONS: u32 = 3;

/// What a worker's turn came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing was due.
    Idle,
    /// A row's new state was committed.
    Settled(Settled),
    /// A row was claimed, but nothing was recorded: it is due again.
    Interrupted,
    /// The row belonged to somebody else when the attempt ended.
    Lost,
    /// Several rows were claimed; this became of them.
    Group(Tally),
    /// A row was claimed that is suspected of ending its process: take another turn, alone in the process.
    Suspect,
    /// A handler returned long after its budget, which is recorded already.
    GivenUp,
    /// The database did not answer as it should: wait before the next turn.
    Trouble,
}

/// One entity in a poller on connections of type `C`.
pub(crate) trait Lane<C: QueueConnection>: Send + Sync {
    /// The entity's name.
    fn entity(&self) -> &'static str;

    /// The type by which enqueuers announce a row of this queue.
    fn queue(&self) -> TypeId;

    /// The queue's name in the records of what is in the air, if this lane keeps any: if a turn holds its transaction, and
    /// so the process's turn to write, while the handler runs.
    fn recorded_as(&self) -> Option<&str> {
        None
    }

    /// Whether one message is worked at a time, wherever: no other worker finds work while a turn is taken.
    fn is_exclusive(&self) -> bool {
        false
    }

    /// How long a handler may hold its transaction.
    fn budget(&self) -> Duration;

    /// Compares the live table with what the queue needs.
    fn check(&self, connection: &mut C) -> QueryResult<Vec<Finding>>;

    /// Looks how long it is until the next row is due, `thorough`ly if nothing may be overlooked that is due earlier than
    /// what was claimed last.
    fn look(&self, connection: &mut C, thorough: bool) -> QueryResult<Option<Duration>>;

    /// Looks, while workers are at it, whether their claims walk over what was settled long ago.
    fn sound(&self, _connection: &mut C) -> QueryResult<()> {
        Ok(())
    }

    /// The window in which its messages may be worked, as its attributes say.
    fn window(&self) -> Option<&'static str>;

    /// The channel on which the database tells of its rows that become due, if it does.
    fn channel(&self) -> QueryResult<Option<String>>;

    /// Reads the database's present.
    fn present(&self, connection: &mut C) -> QueryResult<DateTime<Utc>>;

    /// Attempts one message or a group. `claimed` is called once a row is locked, and between the messages of a group, and
    /// says whether to go on.
    fn turn(&self, link: &mut Link<C>, slot: &Slot, noise: &Noise, claimed: &dyn Fn() -> bool) -> Turn;

    /// Records that the handler of this row is over its budget, in place of the worker that it does not return to. A
    /// row of another lane is given back.
    fn give_up(&self, _link: &mut Link<C>, _slot: &Slot, _noise: &Noise, row: Held) -> Result<Turn, Held> {
        Err(row)
    }

    /// Whether rows were interrupted and wait for their next attempt.
    fn has_interrupted(&self) -> bool;

    /// Whether rows are claimed that no worker has begun.
    fn has_more_claimed(&self) -> bool {
        false
    }

    /// Has claims begin at the low-water mark from the first on.
    fn use_low_water_at_once(&mut self);

    /// Reads rows ahead however slowly messages come.
    fn read_ahead_at_once(&mut self) {}

    /// Serves rows in these stages only.
    fn serve_stages(&mut self, stages: Vec<&'static str>);

    /// Has a lane that writes for moments only take turns with the others of the poller, where the database has one writer.
    fn take_turns_with(&mut self, _writer: &Arc<Mutex<()>>) {}

    /// How long the heart may rest at most, where rows are held by leases.
    fn pulse(&self) -> Option<Duration> {
        None
    }

    /// Extends the leases of this process. `is_stopping`: rows that no worker has begun are given back.
    fn beat(&self, _link: &mut Link<C>, _noise: &Noise, _is_stopping: bool) {}

    /// Ends the leases of all running handlers, for shutdown.
    fn revoke_leases(&self) {}

    /// Gives back the rows whose leases were ended by shutdown.
    fn give_back_revoked(&self, _link: &mut Link<C>, _noise: &Noise) {}
}

/// Compares the live table with what a queue needs whose claim passes over rows that others hold.
pub(crate) fn check_claim<Q: QueueOn<C>, C: QueueConnection>(connection: &mut C) -> QueryResult<Vec<Finding>> {
    let mut findings = connection.check(&Q::target()?)?;
    let finding = |problem, mend: &str| Finding { entity: Q::ENTITY.to_owned(), problem, mend: mend.to_owned() };
    if !<C::Backend as QueueBackend>::ONE_WRITER && !connection.skips_locked_rows()? {
        findings.push(finding(
            "the server has no SKIP LOCKED, without which a worker waits for every other".to_owned(),
            "upgrade it to MariaDB 10.6 or MySQL 8.0.1, or work the queue in lease mode",
        ));
    }
    if !findings.is_empty() {
        return Ok(findings);
    }
    // The claim itself, outside a transaction: it shows whether the entity's own columns are there, and the right to
    // lock them.
    match Q::try_claim(connection) {
        Err(error) if C::classify(&error) == ErrorClass::Other => findings.push(finding(
            format!("its rows cannot be claimed: {error}"),
            "make the struct and its `table!` say what the table has, or migrate the table",
        )),
        tried => tried?,
    }
    findings.extend(check_stages::<Q, C>(connection)?);
    Ok(findings)
}

/// Finds the rows that are pending in a stage that the entity does not know: they would never be claimed.
pub(crate) fn check_stages<Q: QueueOn<C>, C: QueueConnection>(connection: &mut C) -> QueryResult<Vec<Finding>> {
    let Some(stages) = Q::Queue::OPTIONS.stages else { return Ok(Vec::new()) };
    let (unknown, table) = (Q::unknown_stages(connection)?, Q::target()?.table);
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let column = table.quoted(stages.column);
    let findings = unknown.into_iter().map(|stage| Finding {
        entity: Q::ENTITY.to_owned(),
        problem: format!(
            "rows are pending in the stage `{stage}`, which is none of its stages {}: they would never be worked",
            stages.names.join(", "),
        ),
        mend: format!(
            "UPDATE {table} SET {column} = {} WHERE {column} = {}",
            quoted(stages.names.first().copied().unwrap_or_default()),
            quoted(&stage),
        ),
    });
    Ok(findings.collect())
}

/// What stands before the primary key in an idempotency key: the table and the queue's status column.
pub(crate) fn key_prefix<Q: QueueOn<C>, C: QueueConnection>() -> QueryResult<String> {
    let table = Q::target()?.table;
    let schema = table.schema.map(|schema| schema + ".").unwrap_or_default();
    Ok(format!("{schema}{}.{}", table.name, Q::Queue::COLUMNS.status))
}

/// The channel on which the database tells of a queue's rows that become due, if it does.
pub(crate) fn channel<Q: QueueOn<C>, C: QueueConnection>() -> QueryResult<Option<String>> {
    let is_told = Q::Queue::OPTIONS.notifies && <C::Backend as QueueBackend>::NOTIFIES;
    is_told.then(|| Ok(Q::target()?.channel())).transpose()
}

/// A lane on its way into a poller.
#[doc(hidden)]
pub struct BoxedLane<C: QueueConnection>(pub(crate) Box<dyn Lane<C>>);

/// An entity, its handler and its settings.
pub(crate) struct Served<Q: QueueOn<C>, C: QueueConnection> {
    handler: Box<dyn Handler<Q, C>>,
    pub(crate) rules: Rules,
    key_prefix: String,
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
            budget: self.budget(),
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

    fn budget(&self) -> Duration {
        self.rules.settings.budget.unwrap_or(<C::Backend as QueueBackend>::DEFAULT_BUDGET)
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
        let rest = over_budget(&self.rules, tries_before(fence) + 1, self.budget(), &details);
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
