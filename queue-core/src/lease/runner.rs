//! One entity in lease mode: its handler, its settings, and the rows that it has leased.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use diesel::result::QueryResult;

use super::any_handler::AnyLeaseHandler;
use super::calls::Calls;
use super::claim::{LeasedMessage, UncalledRow, leases_at_once};
use super::claim_size::ClaimSize;
use super::claim_style::ClaimStyle;
use super::claim_way::ClaimWay;
use super::leased_rows::{LeasedRow, LeasedRows, WatchedRow};
use crate::attempt::{RunnerInfo, RunnerSettings, SettleRules, describe_way, key_prefix};
use crate::backend::{LockSql, QueueBackend, QueueConnection};
use crate::claim::{DueRows, HeldPlaces, Places, Standing};
use crate::entity::{Entity, Key};
use crate::error::Error;
use crate::handler::Lease;
use crate::lock::unpoisoned;
use crate::log::RateLimitedLog;
use crate::row::{QueueState, Settlement, idempotency_key};
use crate::statement::{ErasedQueue, QueueOn, Scope};

/// A leased row, for the thread that records that its handler is late.
pub(crate) struct LateRow<K> {
    pub(crate) row: WatchedRow<K>,
    /// How long the handler was given.
    pub(crate) timeout: Duration,
}

/// How many times the heartbeat extends a lease within its length. It passes over a row that is locked at that moment,
/// and has to find it free once in half a lease.
pub(crate) const HEARTBEATS_PER_LEASE: u32 = 8;

/// An entity, its handler, its settings, and the rows that it has leased.
pub(crate) struct LeaseRunner<K: Key, C: QueueConnection> {
    pub(super) queue: &'static ErasedQueue<K, C>,
    pub(crate) info: RunnerInfo,
    pub(crate) handler: Box<dyn AnyLeaseHandler<C>>,
    /// The handler's calls, if they run beside the workers.
    pub(crate) calls: Option<Arc<Calls<K, C>>>,
    pub(crate) rules: SettleRules,
    pub(crate) leased_rows: LeasedRows<K>,
    pub(crate) due_rows: DueRows<K, C>,
    pub(crate) size: ClaimSize,
    pub(crate) way: ClaimWay,
    pub(crate) ready: Mutex<VecDeque<(Instant, Ready<K>)>>,
    pub(crate) writer: Arc<Mutex<()>>,
    pub(crate) log: RateLimitedLog,
}

impl<K: Key, C: QueueConnection> LeaseRunner<K, C> {
    pub(crate) fn new<Q>(
        handler: Box<dyn AnyLeaseHandler<C>>,
        settings: RunnerSettings,
        claim_batch: Option<u32>,
        style: ClaimStyle,
    ) -> Result<Self, Error>
    where
        Q: Entity<Key = K> + QueueOn<C>,
    {
        let (queue, options) = (Q::QUEUE, *Q::QUEUE.sql.options);
        let calls = handler.background()?.map(|background| Calls::new(background, options.exclusive));
        let mut way = describe_way::<Q>(Q::SETTINGS.timeout.unwrap_or(Q::SETTINGS.lease));
        if let Some(calls) = &calls {
            way.push_str(&format!(", up to {} calls in flight", calls.counts.most()));
        }
        Ok(LeaseRunner {
            queue,
            info: RunnerInfo {
                entity: queue.sql.entity,
                queue: queue.id(),
                way,
                key_prefix: key_prefix(queue)?,
                is_recorded: false,
                is_exclusive: options.exclusive,
                // For the transactions only: the lease limits the handler's own time.
                timeout: C::Backend::DEFAULT_TIMEOUT,
                stages: options.stages.map(|stages| stages.names),
                window: options.window,
                heartbeat_interval: Some(Q::SETTINGS.lease / HEARTBEATS_PER_LEASE),
            },
            handler,
            calls,
            leased_rows: LeasedRows::new(),
            due_rows: DueRows::of(queue, settings.low_water_at_once, Some(Q::SETTINGS.lease))?,
            size: ClaimSize::of(claim_batch, Q::SETTINGS),
            way: ClaimWay::new(style),
            ready: Mutex::default(),
            writer: Arc::default(),
            log: settings.log(),
            rules: SettleRules {
                teller: settings.teller(queue.sql.entity),
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
        !self.way.is_in_steps() && leases_at_once(self.queue, self.way.skips_locked_rows(), scope)
    }

    /// Tells whether the queue limits how many rows are processed at a time.
    pub(crate) fn keeps_turns(&self) -> bool {
        self.info.is_exclusive || self.limits().is_some()
    }

    /// Returns the lanes, if they or the queue have a limit.
    pub(crate) fn limits(&self) -> Option<&Places<K, C>> {
        self.due_rows.places.as_ref().filter(|lanes| lanes.limit())
    }

    /// Tells whether a leased row still has its place among those that are processed. No other worker can take it before
    /// the end of the transaction and [`leave`].
    pub(crate) fn standing(
        &self,
        connection: &mut C,
        held: &LeasedRow<K>,
        places: Option<&HeldPlaces<'_, K, C>>,
    ) -> QueryResult<Standing> {
        if self.info.is_exclusive {
            return Ok(match self.queue.exclude(connection)? {
                false => Standing::Unknown,
                true if self.queue.another_is_leased(connection, Some(&held.key))? => Standing::Lost,
                true => Standing::Holds,
            });
        }
        let Some(places) = places else { return Ok(Standing::Holds) };
        places.standing(connection, held.details.lane.as_ref(), &held.key)
    }

    /// Watches the attempt on a leased row.
    pub(crate) fn watch(&self, held: Arc<LeasedRow<K>>) -> WatchedRow<K> {
        let watch = self.rules.teller.watch(&held.key, held.tries, held.due);
        WatchedRow { held, watch }
    }

    /// Returns the span of an attempt.
    pub(crate) fn span(&self, row: &LeasedRow<K>) -> tracing::Span {
        tracing::debug_span!("attempt", entity = self.queue.sql.entity, key = ?row.key, try_number = row.tries)
    }

    /// Begins the time of a call, and returns the lease that it holds.
    pub(crate) fn begin(&self, held: &LeasedRow<K>, state: &QueueState) -> Lease {
        let lease = Lease {
            clock: held.clock.clone(),
            state: state.clone(),
            details: held.details.clone(),
            try_number: held.tries,
            idempotency_key: idempotency_key(&self.info.key_prefix, &held.key, &held.details),
        };
        held.clock.begin(self.time_to_call());
        if let Some(claimed) = held.claimed_as {
            self.due_rows.kept_rows.is_written(claimed);
        }
        lease
    }
}

/// Gives back what [`standing`](LeaseRunner::standing) has locked, after the end of the transaction.
pub(crate) fn leave<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    places: Option<HeldPlaces<'_, K, C>>,
) -> QueryResult<()> {
    queue.end_exclusion(connection)?;
    places.map_or(Ok(()), |places| places.leave(connection))
}

/// A claimed row that no worker has taken yet.
pub(crate) enum Ready<K> {
    LeasedMessage(LeasedMessage<K>),
    /// The row is under its lease, and a worker settles it without its handler.
    UncalledRow(UncalledRow<K>),
    /// The claim has settled the row already, so the worker only counts it.
    Settled(Settlement),
}
