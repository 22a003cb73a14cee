//! One entity in lease mode: its handler, its settings, and the rows that it has leased.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::any_handler::AnyLeaseHandler;
use super::claim::{LeasedMessage, UncalledRow, leases_at_once};
use super::claim_size::ClaimSize;
use super::claim_style::ClaimStyle;
use super::leased_rows::{LeasedRow, LeasedRows};
use crate::attempt::{SettleRules, in_transaction, key_prefix};
use crate::backend::{LockSql, QueueConnection, SessionHolder};
use crate::claim::DueRows;
use crate::entity::{Entity, QueueTable};
use crate::error::Error;
use crate::handler::LeaseEnd;
use crate::lock::unpoisoned;
use crate::log::RateLimitedLog;
use crate::row::{FailureTexts, Settlement, failure_text};
use crate::statement::{Change, Next, QueueOn, Scope};

/// A leased row, for whoever records that its handler is late.
pub(crate) struct LateRow<Q: Entity> {
    pub(crate) held: Arc<LeasedRow<Q::Key>>,
    /// How long it was given.
    pub(crate) timeout: Duration,
}

/// How many times the heartbeat extends a lease within its length. It passes over a row that is locked just then, and has to find it free once
/// in half a lease.
pub(crate) const HEARTBEATS_PER_LEASE: u32 = 8;

/// An entity, its handler, its settings, and the rows that it has leased.
pub(crate) struct LeaseRunner<Q: Entity, C> {
    pub(crate) handler: Box<dyn AnyLeaseHandler<Q, C>>,
    pub(crate) rules: SettleRules,
    pub(crate) key_prefix: String,
    pub(crate) leased_rows: LeasedRows<Q::Key>,
    pub(crate) due_rows: DueRows<Q::Key>,
    pub(crate) size: ClaimSize,
    pub(crate) style: ClaimStyle,
    pub(crate) skips_locked_rows: AtomicBool,
    pub(crate) can_lock: AtomicBool,
    /// Whether the answer of a claim by one statement could not be read: its rows are leased to nobody then. Or it was refused
    /// again and again.
    pub(crate) claims_in_steps: AtomicBool,
    /// How often in a row it was refused, and the same rows could be claimed in steps.
    pub(crate) refusals: AtomicU32,
    pub(crate) ready: Mutex<VecDeque<(Instant, Ready<Q>)>>,
    pub(crate) writer: Arc<Mutex<()>>,
    pub(crate) connection: PhantomData<fn(C)>,
}

impl<Q: QueueOn<C> + Send, C: QueueConnection> LeaseRunner<Q, C> {
    pub(crate) fn new(
        handler: Box<dyn AnyLeaseHandler<Q, C>>,
        texts: FailureTexts,
        claim_batch: Option<u32>,
        style: ClaimStyle,
    ) -> Result<Self, Error> {
        Ok(LeaseRunner {
            handler,
            rules: SettleRules {
                settings: Q::SETTINGS,
                options: Q::Queue::OPTIONS,
                retry: Q::retry_policy(),
                texts,
                leased: true,
            },
            key_prefix: key_prefix::<Q, C>()?,
            leased_rows: LeasedRows::new(),
            due_rows: DueRows::of::<Q, C>(),
            size: ClaimSize::of(claim_batch, Q::SETTINGS),
            style,
            skips_locked_rows: AtomicBool::new(false),
            can_lock: AtomicBool::new(false),
            claims_in_steps: AtomicBool::new(false),
            refusals: AtomicU32::new(0),
            ready: Mutex::default(),
            writer: Arc::default(),
            connection: PhantomData,
        })
    }

    /// For how long a claimed row is this process's own without a sign of life.
    pub(crate) fn length(&self) -> Duration {
        self.rules.settings.lease
    }

    /// How long the handler's call may take.
    pub(crate) fn time_to_call(&self) -> Duration {
        self.rules.settings.timeout.unwrap_or(self.length())
    }

    /// Waits for the process's turn to write, where the database has one writer: its lock is unfair.
    pub(crate) fn turn_to_write(&self) -> Option<MutexGuard<'_, ()>> {
        C::Backend::ONE_WRITER.then(|| unpoisoned(self.writer.lock()))
    }

    /// Whether the heartbeat can pass over rows that others hold, and there are such.
    pub(crate) fn passes_over_locked_rows(&self) -> bool {
        !C::Backend::ONE_WRITER && self.can_lock.load(Ordering::Relaxed)
    }

    /// Whether the next claim begins no transaction.
    pub(crate) fn claims_at_once(&self) -> bool {
        let scope = Scope { stages: self.due_rows.stages(), ..Scope::ALL };
        !self.claims_in_steps.load(Ordering::Relaxed)
            && leases_at_once::<Q, C>(self.skips_locked_rows.load(Ordering::Relaxed), scope)
    }

    /// Gives a row back as it was before it was claimed: due, with no try used. Returns whether the database has answered.
    pub(crate) fn give_back(
        &self,
        holder: &mut SessionHolder<C>,
        log: &RateLimitedLog,
        held: &Arc<LeasedRow<Q::Key>>,
    ) -> bool {
        if held.clock.ended() == Some(LeaseEnd::Overtaken) {
            // It is somebody else's to give.
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
            // It may have been due below the mark.
            self.due_rows.low_water.fall(due);
        }
        if let Err(error) = &given {
            // The row becomes due when its lease ends.
            log.warn(Q::ENTITY, &format!("a row cannot be given back: {}", failure_text(error, 500)));
            holder.close();
        }
        self.leased_rows.remove(held);
        given.is_ok()
    }
}

/// What a claim has brought and no worker has taken yet.
pub(crate) enum Ready<Q: Entity> {
    LeasedMessage(LeasedMessage<Q>),
    /// It is under its lease, and settled without its handler.
    UncalledRow(UncalledRow<Q>),
    /// The claim has settled the row already: it is only to be counted.
    Settled(Settlement),
}
