//! One entity in lease mode: its handler, its settings, and the rows that it has leased.

use std::any::TypeId;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use diesel::result::QueryResult;

use super::any_handler::AnyLeaseHandler;
use super::claim::{LeasedMessage, UncalledRow, leases_at_once};
use super::claim_size::ClaimSize;
use super::claim_style::ClaimStyle;
use super::claim_way::ClaimWay;
use super::leased_rows::{LeasedRow, LeasedRows};
use crate::attempt::{RunnerInfo, RunnerSettings, SettleRules, describe_way, in_transaction, key_prefix};
use crate::backend::{LockSql, QueueBackend, QueueConnection, SessionHolder};
use crate::claim::{DueRows, HeldPlaces, Places, Standing};
use crate::entity::{Entity, QueueTable};
use crate::error::Error;
use crate::event::Watch;
use crate::handler::LeaseEnd;
use crate::lock::unpoisoned;
use crate::log::RateLimitedLog;
use crate::row::{Settlement, failure_text};
use crate::statement::{Change, Next, QueueOn, Scope};

/// A leased row, for the thread that records that its handler is late.
pub(crate) struct LateRow<Q: Entity> {
    pub(crate) held: Arc<LeasedRow<Q::Key>>,
    /// How long the handler was given.
    pub(crate) timeout: Duration,
    pub(crate) watch: Watch,
}

/// How many times the heartbeat extends a lease within its length. It passes over a row that is locked at that moment,
/// and has to find it free once in half a lease.
pub(crate) const HEARTBEATS_PER_LEASE: u32 = 8;

/// An entity, its handler, its settings, and the rows that it has leased.
pub(crate) struct LeaseRunner<Q: Entity, C> {
    pub(crate) info: RunnerInfo,
    pub(crate) handler: Box<dyn AnyLeaseHandler<Q, C>>,
    pub(crate) rules: SettleRules,
    pub(crate) leased_rows: LeasedRows<Q::Key>,
    pub(crate) due_rows: DueRows<Q::Key>,
    pub(crate) size: ClaimSize,
    pub(crate) way: ClaimWay,
    pub(crate) ready: Mutex<VecDeque<(Instant, Ready<Q>)>>,
    pub(crate) writer: Arc<Mutex<()>>,
    pub(crate) log: RateLimitedLog,
}

impl<Q: QueueOn<C> + Send, C: QueueConnection> LeaseRunner<Q, C> {
    pub(crate) fn new(
        handler: Box<dyn AnyLeaseHandler<Q, C>>,
        settings: RunnerSettings,
        claim_batch: Option<u32>,
        style: ClaimStyle,
    ) -> Result<Self, Error> {
        let options = Q::Queue::OPTIONS;
        Ok(LeaseRunner {
            info: RunnerInfo {
                entity: Q::ENTITY,
                queue: TypeId::of::<Q::Queue>(),
                way: describe_way::<Q>(Q::SETTINGS.timeout.unwrap_or(Q::SETTINGS.lease)),
                key_prefix: key_prefix::<Q, C>()?,
                is_recorded: false,
                is_exclusive: options.exclusive,
                // For the transactions only: the lease limits the handler's own time.
                timeout: C::Backend::DEFAULT_TIMEOUT,
                stages: options.stages.map(|stages| stages.names),
                window: options.window,
                heartbeat_interval: Some(Q::SETTINGS.lease / HEARTBEATS_PER_LEASE),
            },
            handler,
            leased_rows: LeasedRows::new(),
            due_rows: DueRows::of::<Q, C>(settings.low_water_at_once, Some(Q::SETTINGS.lease))?,
            size: ClaimSize::of(claim_batch, Q::SETTINGS),
            way: ClaimWay::new(style),
            ready: Mutex::default(),
            writer: Arc::default(),
            log: settings.log(),
            rules: SettleRules {
                teller: settings.teller(Q::ENTITY),
                settings: Q::SETTINGS,
                options,
                retry: Q::retry_policy(),
                texts: settings.texts,
                leased: true,
            },
        })
    }

    /// Returns how long a claimed row belongs to this process if its lease is not extended.
    pub(crate) fn length(&self) -> Duration {
        self.rules.settings.lease
    }

    /// Returns how long the handler's call may take.
    pub(crate) fn time_to_call(&self) -> Duration {
        self.rules.settings.timeout.unwrap_or(self.length())
    }

    /// Waits for the process's turn to write, if the database has one writer, because the database's lock is unfair.
    pub(crate) fn turn_to_write(&self) -> Option<MutexGuard<'_, ()>> {
        C::Backend::ONE_WRITER.then(|| unpoisoned(self.writer.lock()))
    }

    /// Tells whether others may hold rows, and the heartbeat can pass over them.
    pub(crate) fn passes_over_locked_rows(&self) -> bool {
        !C::Backend::ONE_WRITER && self.way.can_lock()
    }

    /// Tells whether the next claim begins no transaction.
    pub(crate) fn claims_at_once(&self) -> bool {
        let scope = Scope { stages: self.due_rows.stages(), ..Scope::ALL };
        !self.way.is_in_steps() && leases_at_once::<Q, C>(self.way.skips_locked_rows(), scope)
    }

    /// Tells whether the queue limits how many rows are processed at a time.
    pub(crate) fn keeps_turns(&self) -> bool {
        self.info.is_exclusive || self.limits().is_some()
    }

    /// Returns the lanes, if they or the queue have a limit.
    pub(crate) fn limits(&self) -> Option<&Places> {
        self.due_rows.places.as_ref().filter(|lanes| lanes.limit())
    }

    /// Tells whether a leased row still has its place among those that are processed. No other worker can take it before
    /// the end of the transaction and [`leave`].
    pub(crate) fn standing(
        &self,
        connection: &mut C,
        held: &LeasedRow<Q::Key>,
        places: Option<&HeldPlaces<'_>>,
    ) -> QueryResult<Standing> {
        if self.info.is_exclusive {
            return Ok(match Q::exclude(connection)? {
                false => Standing::Unknown,
                true if Q::another_is_leased(connection, Some(&held.key))? => Standing::Lost,
                true => Standing::Holds,
            });
        }
        let Some(places) = places else { return Ok(Standing::Holds) };
        places.standing::<Q, C>(connection, held.details.lane.as_ref(), &held.key)
    }

    /// Gives a row back as it was before its claim: due, with no try used. Returns whether the database has answered.
    pub(crate) fn give_back(&self, holder: &mut SessionHolder<C>, held: &Arc<LeasedRow<Q::Key>>) -> bool {
        if held.clock.ended() == Some(LeaseEnd::Overtaken) {
            // The row belongs to another attempt.
            self.leased_rows.remove(held);
            return true;
        }
        let change = Change {
            status: Some(held.before.status),
            next: Some(held.due.map_or(Next::In(Duration::ZERO), Next::At)),
            try_count: Some(held.before.try_count),
            unless_stopped: true,
            ..Change::default()
        };
        let _writing = self.turn_to_write();
        let given = holder.session().and_then(|session| {
            let settle = |connection: &mut C| Q::settle(connection, &held.key, held.fence, &change);
            Ok(in_transaction(&mut **session, settle)?)
        });
        if let (Ok(_), Some(due)) = (&given, held.due) {
            // The row may have been due below the low-water mark.
            self.due_rows.low_water.fall(due);
        }
        if let Err(error) = &given {
            // The row becomes due when its lease ends.
            self.log.warn(Q::ENTITY, &format!("a row cannot be given back: {}", failure_text(error, 500)));
            holder.close();
        }
        self.leased_rows.remove(held);
        given.is_ok()
    }
}

/// Gives back what [`standing`](LeaseRunner::standing) has locked, after the end of the transaction.
pub(crate) fn leave<Q, C>(connection: &mut C, places: Option<HeldPlaces<'_>>) -> QueryResult<()>
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    Q::end_exclusion(connection)?;
    places.map_or(Ok(()), |places| places.leave(connection))
}

/// A claimed row that no worker has taken yet.
pub(crate) enum Ready<Q: Entity> {
    LeasedMessage(LeasedMessage<Q>),
    /// The row is under its lease, and a worker settles it without its handler.
    UncalledRow(UncalledRow<Q>),
    /// The claim has settled the row already, so the worker only counts it.
    Settled(Settlement),
}
