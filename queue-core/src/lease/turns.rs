//! How a turn is taken in lease mode: claim, begin a call, settle, give back.

use std::any::TypeId;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use diesel::result::{Error as DieselError, QueryResult};

use super::claim::{LeaseClaim, LeasedMessage, UncalledRow, claim_leases};
use super::claim_style::ClaimStyle;
use super::leased_rows::LeasedRow;
use super::runner::{HEARTBEATS_PER_LEASE, LateRow, LeaseRunner, Ready};
use crate::attempt::{ErasedRow, Runner, Slot, Turn, channel, check_claim, check_stages};
use crate::backend::{QueueBackend, QueueConnection, SessionHolder};
use crate::entity::QueueTable;
use crate::error::{Error, Finding};
use crate::fault::fail_point;
use crate::handler::{LeaseEnd, LeaseHandler};
use crate::lock::unpoisoned;
use crate::log::RateLimitedLog;
use crate::row::failure_text;
use crate::statement::{QueueOn, Scope};

/// After how many refusals of a claim by one statement none is sent any more.
const REFUSALS: u32 = 3;

/// Unless it is forgotten, the claims of an entity are made in steps from now on: a key could not be read, or that panicked.
struct FallBackToSteps<'a>(&'a AtomicBool);

impl Drop for FallBackToSteps<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<Q: QueueOn<C> + Send, C: QueueConnection, H: LeaseHandler<Q, C>> LeaseRunner<Q, C, H> {
    /// Gives back the rows that no worker has begun for so long.
    fn give_back_unstarted(&self, holder: &mut SessionHolder<C>, log: &RateLimitedLog, since: Duration) {
        // What a database in trouble refuses now has to wait: the leases of running calls have not.
        while let Some(held) = self.take_unstarted(since)
            && self.give_back(holder, log, &held)
        {}
    }

    /// Takes a row that was claimed so long ago, and that no worker has begun.
    fn take_unstarted(&self, since: Duration) -> Option<Arc<LeasedRow<Q::Key>>> {
        let mut ready = unpoisoned(self.ready.lock());
        let is_old =
            |(claimed, ready): &(Instant, Ready<Q>)| !matches!(ready, Ready::Settled(_)) && claimed.elapsed() >= since;
        let place = ready.iter().position(is_old)?;
        match ready.remove(place)?.1 {
            Ready::LeasedMessage(LeasedMessage { held, .. }) | Ready::UncalledRow(UncalledRow { held, .. }) => {
                Some(held)
            }
            Ready::Settled(_) => None,
        }
    }

    /// Counts the claims by one statement that were refused. On PostgreSQL a rule of the table's may do so to all of them.
    fn is_refused(&self, is_refused: bool) {
        if !is_refused {
            self.refusals.store(0, Ordering::Relaxed);
        } else if self.refusals.fetch_add(1, Ordering::Relaxed) + 1 >= REFUSALS {
            self.claims_in_steps.store(true, Ordering::Relaxed);
        }
    }

    /// Claims more rows, if none is left of the last claim. An error: the turn ends with it.
    fn next(&self, holder: &mut SessionHolder<C>, log: &RateLimitedLog) -> Result<Ready<Q>, Turn> {
        if let Some((claimed, ready)) = unpoisoned(self.ready.lock()).pop_front() {
            self.size.has_waited(claimed.elapsed());
            return Ok(ready);
        }
        let limit = if self.is_exclusive() { 1 } else { self.size.next() };
        let (passed_over, claim_floor) = (self.row_backoff.passed_over(), self.low_water.claim_floor());
        let claim = LeaseClaim {
            rules: &self.rules,
            lease: self.length(),
            limit,
            skips_locked_rows: self.skips_locked_rows.load(Ordering::Relaxed),
            can_lock: self.can_lock.load(Ordering::Relaxed),
            at_once: self.claims_at_once(),
            scope: Scope { except: &passed_over, stages: self.stages.as_deref(), claim_floor: Some(&claim_floor) },
        };
        let writing = self.turn_to_write();
        let reads_all = claim.at_once.then(|| FallBackToSteps(&self.claims_in_steps));
        let claimed = holder.session_as_it_is().and_then(|session| Ok(claim_leases::<Q, C>(session, &claim)?));
        if let (Some(reads_all), false) =
            (reads_all, matches!(claimed, Err(Error::Database(DieselError::DeserializationError(_)))))
        {
            std::mem::forget(reads_all);
        }
        drop(writing);
        let batch = claimed.map_err(|error| {
            log.warn(Q::ENTITY, &format!("no message can be claimed: {}", failure_text(&error, 500)));
            holder.close();
            Turn::Trouble
        })?;
        self.size.has_claimed(limit, batch.rows());
        if claim.at_once {
            self.is_refused(batch.refuses_one_statement);
        }
        if batch.is_empty() {
            return Err(Turn::Idle);
        }
        if batch.unwritable.is_empty() {
            claim_floor.keep();
        }
        fail_point!("lease-claimed");
        let mut nothing_left = Turn::Interrupted;
        for (key, error) in batch.unwritable {
            // Whatever refused this row may refuse the others too: the worker waits a little.
            let cause = error.map(|error| {
                nothing_left = Turn::Trouble;
                failure_text(&error, 500)
            });
            let cause = cause.as_deref().unwrap_or("a trigger keeps it from changing");
            log.warn(Q::ENTITY, &format!("row {key:?} cannot be claimed: {cause}"));
            self.row_backoff.skip_for_a_while(&key);
        }
        let (now, mut ready) = (Instant::now(), unpoisoned(self.ready.lock()));
        for (key, settled) in batch.settled {
            tracing::debug!(entity = Q::ENTITY, ?key, outcome = ?settled, "settled by the claim");
            ready.push_back((now, Ready::Settled(settled)));
        }
        for decided in batch.decided {
            self.leased_rows.add(decided.held.clone());
            ready.push_back((now, Ready::UncalledRow(decided)));
        }
        for leased in batch.leased {
            self.leased_rows.add(leased.held.clone());
            ready.push_back((now, Ready::LeasedMessage(leased)));
        }
        ready.pop_front().map(|(_, ready)| ready).ok_or(nothing_left)
    }
}

impl<Q: QueueOn<C> + Send, C: QueueConnection, H: LeaseHandler<Q, C>> Runner<C> for LeaseRunner<Q, C, H> {
    fn entity(&self) -> &'static str {
        Q::ENTITY
    }

    fn queue(&self) -> TypeId {
        TypeId::of::<Q::Queue>()
    }

    fn is_exclusive(&self) -> bool {
        Q::Queue::OPTIONS.exclusive
    }

    /// Of the transactions: the handler's own time is kept by its lease.
    fn timeout(&self) -> Duration {
        <C::Backend as QueueBackend>::DEFAULT_TIMEOUT
    }

    fn check(&self, connection: &mut C) -> QueryResult<Vec<Finding>> {
        let skips = connection.skips_locked_rows()?;
        let can_lock = skips || <C::Backend as QueueBackend>::ONE_WRITER;
        self.skips_locked_rows.store(skips && self.style == ClaimStyle::Auto, Ordering::Relaxed);
        self.can_lock.store(can_lock, Ordering::Relaxed);
        if can_lock {
            return check_claim::<Q, C>(connection);
        }
        let mut findings = connection.check(&Q::target()?)?;
        if findings.is_empty() {
            findings.extend(check_stages::<Q, C>(connection)?);
        }
        Ok(findings)
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
        let ready = match self.next(holder, log) {
            Ok(ready) => ready,
            Err(turn) => return turn,
        };
        let goes_on = claimed();
        match ready {
            Ready::Settled(settled) => Turn::Settled(settled),
            Ready::LeasedMessage(leased) if goes_on => {
                let _at_work = self.size.begins();
                self.work(holder, slot, log, leased)
            }
            Ready::UncalledRow(decided) if goes_on => self.settle_decided(holder, log, &decided),
            Ready::LeasedMessage(LeasedMessage { held, .. }) | Ready::UncalledRow(UncalledRow { held, .. }) => {
                // The heartbeat may have passed already, and may have left.
                self.give_back(holder, log, &held);
                self.give_back_unstarted(holder, log, Duration::ZERO);
                Turn::Idle
            }
        }
    }

    fn give_up(
        &self,
        holder: &mut SessionHolder<C>,
        _slot: &Slot,
        log: &RateLimitedLog,
        row: ErasedRow,
    ) -> Result<Turn, ErasedRow> {
        let row = row.downcast::<LateRow<Q>>()?;
        Ok(self.settle_late(holder, log, &row))
    }

    fn has_interrupted(&self) -> bool {
        self.row_backoff.any()
    }

    fn has_more_claimed(&self) -> bool {
        !unpoisoned(self.ready.lock()).is_empty()
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

    fn serve_stages(&mut self, stages: Vec<&'static str>) {
        self.stages = Some(stages);
    }

    fn take_turns_with(&mut self, writer: &Arc<Mutex<()>>) {
        self.writer = writer.clone();
    }

    fn heartbeat_interval(&self) -> Option<Duration> {
        Some(self.length() / HEARTBEATS_PER_LEASE)
    }

    fn heartbeat(&self, holder: &mut SessionHolder<C>, log: &RateLimitedLog, is_stopping: bool) {
        self.extend_leases(holder, log);
        if is_stopping {
            self.give_back_unstarted(holder, log, Duration::ZERO);
        } else if self.size.is_free() {
            // Nobody has asked for them to wait behind slow calls.
            self.give_back_unstarted(holder, log, self.length() / HEARTBEATS_PER_LEASE);
        }
    }

    fn revoke_leases(&self) {
        for held in self.leased_rows.all() {
            held.clock.end(LeaseEnd::Shutdown);
        }
    }

    fn give_back_revoked(&self, holder: &mut SessionHolder<C>, log: &RateLimitedLog) {
        for held in self.leased_rows.all() {
            self.give_back(holder, log, &held);
        }
    }
}
