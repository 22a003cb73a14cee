//! One entity in lease mode: its handler, its settings, and the rows that it has leased.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use diesel::result::QueryResult;

use super::calls::Calls;
use super::claim_size::ClaimSize;
use super::leased_rows::{DecidedLease, LeasedMessage, LeasedRow, LeasedRows, WatchedRow};
use crate::attempt::{RunnerSettings, ServedQueue};
use crate::backend::{Dialect, QueueConnection};
use crate::claim::{HeldPlaces, LeaseStatements, Places, Standing};
use crate::entity::{Entity, Key};
use crate::error::Error;
use crate::handler::{Answer, Background, Failure, HandlerResult, Lease, LeaseHandler, Message};
use crate::row::{QueueState, Settlement, idempotency_key};
use crate::statement::{ErasedQueue, QueueOn};
use crate::sync::{ErasedEntity, Mutex, TurnToWrite, opened};

/// A leased row, for the thread that records that its handler is late.
pub(crate) struct LateRow<K> {
    pub(crate) row: WatchedRow<K>,
    /// How long the handler was given.
    pub(crate) timeout: Duration,
}

/// A queue whose messages are handled under leases, its handler, and the rows that it has leased.
pub(crate) struct LeaseRunner<'h, K: Key, C: QueueConnection> {
    pub(super) served: ServedQueue<K, C>,
    pub(crate) handler: Box<dyn AnyLeaseHandler<C> + 'h>,
    pub(crate) calls: Arc<Calls<K>>,
    pub(crate) leased_rows: LeasedRows<K>,
    pub(crate) size: ClaimSize,
    pub(crate) statements: LeaseStatements,
    pub(crate) ready: Mutex<VecDeque<(Instant, Ready<K>)>>,
    pub(crate) writer: Arc<TurnToWrite>,
}

impl<'h, K: Key, C: QueueConnection> LeaseRunner<'h, K, C> {
    pub(crate) fn new<Q>(handler: Box<dyn AnyLeaseHandler<C> + 'h>, settings: RunnerSettings) -> Result<Self, Error>
    where
        Q: Entity<Key = K> + QueueOn<C>,
    {
        let calls = Calls::new(handler.background()?, Q::QUEUE.sql.options.exclusive);
        let size = ClaimSize::of(settings.claim_batch, Q::SETTINGS);
        let statements = LeaseStatements::new(settings.claim_style);
        let (writer, mut served) = (settings.writer.clone(), ServedQueue::new::<Q>(settings)?);
        if calls.run_beside() {
            served.info.way.push_str(&format!(", up to {} calls in flight", calls.counts.most));
        }
        let (leased_rows, ready) = (LeasedRows::new(), Mutex::default());
        Ok(LeaseRunner { served, handler, calls, leased_rows, size, statements, ready, writer })
    }

    /// Returns how long a claimed row belongs to this process if its lease is not extended.
    pub(crate) fn length(&self) -> Duration {
        self.served.rules.settings.lease
    }

    /// Returns how long the handler's call may take.
    pub(crate) fn time_to_call(&self) -> Duration {
        self.served.rules.settings.timeout.unwrap_or(self.length())
    }

    /// Waits for the process's turn to write, if the database has one writer, because the database's lock is unfair.
    pub(crate) fn turn_to_write(&self) -> Option<MutexGuard<'_, ()>> {
        C::Backend::ONE_WRITER.then(|| self.writer.take())
    }

    /// Waits for it before all who come later: a lease would end meanwhile.
    pub(super) fn next_turn_to_write(&self) -> Option<MutexGuard<'_, ()>> {
        C::Backend::ONE_WRITER.then(|| self.writer.take_next())
    }

    /// Tells whether the queue limits how many rows are processed at a time.
    pub(crate) fn keeps_turns(&self) -> bool {
        self.served.queue.sql.options.exclusive || self.limits().is_some()
    }

    /// Returns the lanes, if they or the queue have a limit.
    pub(crate) fn limits(&self) -> Option<&Places<K, C>> {
        self.served.due_rows.places.as_ref().filter(|lanes| lanes.limit())
    }

    /// Tells whether a leased row still has its place among those that are processed. No other worker can take it before
    /// the end of the transaction and [`leave`].
    pub(crate) fn standing(
        &self,
        connection: &mut C,
        held: &LeasedRow<K>,
        places: Option<&HeldPlaces<'_, K, C>>,
    ) -> QueryResult<Standing> {
        if self.served.queue.sql.options.exclusive {
            return Ok(match self.served.queue.exclude(connection)? {
                false => Standing::Unknown,
                true if self.served.queue.another_is_leased(connection, Some(&held.key))? => Standing::Lost,
                true => Standing::Holds,
            });
        }
        let Some(places) = places else { return Ok(Standing::Holds) };
        places.standing(connection, held.details.lane.as_ref(), &held.key)
    }

    /// Watches the attempt on a leased row.
    pub(crate) fn watch(&self, held: Arc<LeasedRow<K>>) -> WatchedRow<K> {
        let watch = self.served.rules.teller.watch(&held.key, held.tries, held.due, &held.details);
        WatchedRow { held, watch }
    }

    /// Returns the lease that a call holds. Its time begins with the call.
    pub(crate) fn lease_of(&self, held: &LeasedRow<K>, state: &QueueState) -> Lease {
        let lease = Lease {
            clock: held.clock.clone(),
            state: state.clone(),
            details: held.details.clone(),
            try_number: held.tries,
            idempotency_key: idempotency_key(&self.served.info.key_prefix, &held.key, &held.details),
            timeout: self.time_to_call(),
        };
        if let Some(claimed) = held.claimed_as {
            self.served.due_rows.passed_rows.record_written(claimed);
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
    DecidedLease(DecidedLease<K>),
    /// The claim has settled the row already, so the worker only counts it.
    Settled(Settlement),
}

/// A handler under a lease, whose entity and answer have no types.
pub(crate) trait AnyLeaseHandler<C>: Send + Sync {
    fn call(&self, entity: &ErasedEntity, lease: &Lease) -> Result<Answer, Failure>;

    fn apply(&self, entity: &ErasedEntity, answer: &Answer, message: &mut Message<'_, C>) -> HandlerResult;

    fn background(&self) -> Result<Option<Background>, Error>;
}

/// A handler of entities of type `Q`.
pub(crate) struct Calling<Q, H>(H, PhantomData<fn(&Q)>);

impl<Q, H> Calling<Q, H> {
    pub(crate) fn new(handler: H) -> Self {
        Calling(handler, PhantomData)
    }
}

impl<Q, C, H> AnyLeaseHandler<C> for Calling<Q, H>
where
    Q: 'static,
    C: 'static,
    H: LeaseHandler<Q, C>,
{
    fn call(&self, entity: &ErasedEntity, lease: &Lease) -> Result<Answer, Failure> {
        Ok(Box::new(self.0.call(opened(entity), lease)?))
    }

    fn apply(&self, entity: &ErasedEntity, answer: &Answer, message: &mut Message<'_, C>) -> HandlerResult {
        let answer = answer.downcast_ref().expect("the answer of this handler's call");
        self.0.apply(opened(entity), answer, message)
    }

    fn background(&self) -> Result<Option<Background>, Error> {
        self.0.background()
    }
}
