//! One entity and its handler inside a poller, with the types erased: what a worker and the scout ask for.

use std::any::TypeId;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use diesel::result::QueryResult;

use crate::attempt::{Attempted, End, Plan, Rest, attempt};
use crate::backend::{ErrorClass, QueueBackend, QueueConnection};
use crate::conclude::{Conclusion, conclude};
use crate::entity::QueueTable;
use crate::error::{Error, Finding};
use crate::failure_text::failure_text;
use crate::handler::Handler;
use crate::noise::Noise;
use crate::pauses::Pauses;
use crate::session::Link;
use crate::slot::Slot;
use crate::statement::{Fence, QueueOn};
use crate::verdict::{Rules, Settled};

/// How often the rest of an attempt is tried on a new session before it is left to the row's next attempt.
const CONCLUSIONS: u32 = 3;

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
    /// The database did not answer as it should: wait before the next turn.
    Trouble,
}

/// One entity in a poller on connections of type `C`.
pub(crate) trait Lane<C: QueueConnection>: Send + Sync {
    /// The entity's name.
    fn entity(&self) -> &'static str;

    /// The type by which enqueuers announce a row of this queue.
    fn queue(&self) -> TypeId;

    /// How long a handler may hold its transaction.
    fn budget(&self) -> Duration;

    /// Compares the live table with what the queue needs.
    fn check(&self, connection: &mut C) -> QueryResult<Vec<Finding>>;

    /// Looks how long it is until the next row is due.
    fn look(&self, connection: &mut C) -> QueryResult<Option<Duration>>;

    /// Attempts one message. `claimed` is called once a row is locked, and says whether to go on.
    fn turn(&self, link: &mut Link<C>, slot: &Slot, noise: &Noise, claimed: &dyn Fn() -> bool) -> Turn;

    /// Whether rows were interrupted and wait for their next attempt.
    fn has_interrupted(&self) -> bool;

    /// Whether rows are claimed that no worker has begun.
    fn has_more_claimed(&self) -> bool {
        false
    }

    /// Whether a turn holds its transaction, and so the process's turn to write, while the handler runs.
    fn writes_throughout(&self) -> bool {
        true
    }

    /// Has a lane that writes for moments only take turns with the others of the poller, where the database has one writer.
    fn take_turns_with(&mut self, _writer: &Arc<Mutex<()>>) {}

    /// How long the heart may rest at most, where rows are held by leases.
    fn pulse(&self) -> Option<Duration> {
        None
    }

    /// Extends the leases of this process, and records what became of handlers that are over their time. `is_stopping`:
    /// rows that no worker has begun are given back.
    fn beat(&self, _link: &mut Link<C>, _noise: &Noise, _is_stopping: bool) {}

    /// Ends the leases of all running handlers, for shutdown, and returns how many those are.
    fn revoke_leases(&self) -> usize {
        0
    }

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
    Ok(findings)
}

/// A lane on its way into a poller.
#[doc(hidden)]
pub struct BoxedLane<C: QueueConnection>(pub(crate) Box<dyn Lane<C>>);

/// An entity, its handler and its settings.
pub(crate) struct Served<Q: QueueOn<C>, C: QueueConnection> {
    handler: Box<dyn Handler<Q, C>>,
    rules: Rules,
    key_prefix: String,
    pauses: Pauses<Q::Key>,
}

impl<Q: QueueOn<C>, C: QueueConnection> Served<Q, C> {
    pub(crate) fn new(handler: Box<dyn Handler<Q, C>>, error_text_limit: usize) -> Result<Self, Error> {
        let target = Q::target()?;
        let schema = target.table.schema.map(|schema| schema + ".").unwrap_or_default();
        Ok(Served {
            handler,
            rules: Rules { settings: Q::SETTINGS, retry: Q::retry_policy(), error_text_limit, leased: false },
            key_prefix: format!("{schema}{}.{}", target.table.name, Q::Queue::COLUMNS.status),
            pauses: Pauses::new(),
        })
    }

    /// Does the rest of an attempt, on a new session if the old one is in doubt.
    fn conclude(&self, link: &mut Link<C>, noise: &Noise, key: Q::Key, fence: Fence, rest: Rest) -> Turn {
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
                    noise.warn(
                        Q::ENTITY,
                        &format!("row {key:?} was changed by somebody else, or a trigger keeps it from changing"),
                    );
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

impl<Q: QueueOn<C>, C: QueueConnection> Lane<C> for Served<Q, C> {
    fn entity(&self) -> &'static str {
        Q::ENTITY
    }

    fn queue(&self) -> TypeId {
        TypeId::of::<Q::Queue>()
    }

    fn budget(&self) -> Duration {
        self.rules.settings.budget.unwrap_or(<C::Backend as QueueBackend>::DEFAULT_BUDGET)
    }

    fn check(&self, connection: &mut C) -> QueryResult<Vec<Finding>> {
        check_claim::<Q, C>(connection)
    }

    fn look(&self, connection: &mut C) -> QueryResult<Option<Duration>> {
        Q::look(connection)
    }

    fn turn(&self, link: &mut Link<C>, slot: &Slot, noise: &Noise, claimed: &dyn Fn() -> bool) -> Turn {
        let plan = Plan {
            handler: &|entity, message| self.handler.handle(entity, message),
            rules: &self.rules,
            budget: self.budget(),
            slot,
            key_prefix: &self.key_prefix,
            passed_over: &self.pauses.passed_over(),
        };
        let Attempted { end, session_is_sound } = match link.session() {
            Ok(session) => attempt::<Q, C>(session, &plan, claimed),
            Err(error) => {
                noise.warn(Q::ENTITY, &failure_text(&error, 500));
                return Turn::Trouble;
            }
        };
        if !session_is_sound {
            link.close();
        }
        match end {
            End::Idle => Turn::Idle,
            End::NotClaimed(error) => {
                noise.warn(Q::ENTITY, &format!("no message can be claimed: {error}"));
                Turn::Trouble
            }
            End::Settled(key, settled) => {
                self.pauses.end(&key);
                Turn::Settled(settled)
            }
            End::Unsettled(key, fence, rest) => self.conclude(link, noise, key, fence, rest),
        }
    }

    fn has_interrupted(&self) -> bool {
        self.pauses.any()
    }
}
