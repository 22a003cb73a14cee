//! How a turn is taken in lease mode: claim, begin a call, settle, give back.

use std::any::TypeId;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use diesel::result::{Error as DieselError, QueryResult};

use super::claim::{Decided, Leased, Terms, claim_leases};
use super::claim_style::ClaimStyle;
use super::leased_rows::Held;
use super::runner::{BEATS, LateRow, LeaseLane, Ready};
use crate::attempt::{Lane, Slot, Turn, channel, check_claim, check_stages, in_flight as slot};
use crate::backend::{Link, QueueBackend, QueueConnection};
use crate::entity::QueueTable;
use crate::error::{Error, Finding};
use crate::fault::fail_point;
use crate::handler::{Ended, LeaseHandler};
use crate::lock::unpoisoned;
use crate::log::Noise;
use crate::row::failure_text;
use crate::statement::{QueueOn, Scope};

/// After how many refusals of a claim by one statement none is sent any more.
const REFUSALS: u32 = 3;

/// Unless it is forgotten, the claims of an entity are made in steps from now on: a key could not be read, or that panicked.
struct ReadsAll<'a>(&'a AtomicBool);

impl Drop for ReadsAll<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<Q: QueueOn<C> + Send, C: QueueConnection, H: LeaseHandler<Q, C>> LeaseLane<Q, C, H> {
    /// Gives back the rows that no worker has begun for so long.
    fn give_back_unstarted(&self, link: &mut Link<C>, noise: &Noise, since: Duration) {
        // What a database in trouble refuses now has to wait: the leases of running calls have not.
        while let Some(held) = self.take_unstarted(since)
            && self.give_back(link, noise, &held)
        {}
    }

    /// Takes a row that was claimed so long ago, and that no worker has begun.
    fn take_unstarted(&self, since: Duration) -> Option<Arc<Held<Q::Key>>> {
        let mut ready = unpoisoned(self.ready.lock());
        let is_old =
            |(claimed, ready): &(Instant, Ready<Q>)| !matches!(ready, Ready::Settled(_)) && claimed.elapsed() >= since;
        let place = ready.iter().position(is_old)?;
        match ready.remove(place)?.1 {
            Ready::Leased(Leased { held, .. }) | Ready::Decided(Decided { held, .. }) => Some(held),
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
    fn next(&self, link: &mut Link<C>, noise: &Noise) -> Result<Ready<Q>, Turn> {
        if let Some((claimed, ready)) = unpoisoned(self.ready.lock()).pop_front() {
            self.size.has_waited(claimed.elapsed());
            return Ok(ready);
        }
        let limit = if self.is_exclusive() { 1 } else { self.size.next() };
        let (passed_over, reach) = (self.pauses.passed_over(), self.low_water.reach());
        let terms = Terms {
            rules: &self.rules,
            lease: self.length(),
            limit,
            skips_locked_rows: self.skips_locked_rows.load(Ordering::Relaxed),
            can_lock: self.can_lock.load(Ordering::Relaxed),
            at_once: self.claims_at_once(),
            scope: Scope { except: &passed_over, stages: self.stages.as_deref(), reach: Some(&reach) },
        };
        let writing = self.turn_to_write();
        let reads_all = terms.at_once.then(|| ReadsAll(&self.claims_in_steps));
        let claimed = link.session_as_it_is().and_then(|session| Ok(claim_leases::<Q, C>(session, &terms)?));
        if let (Some(reads_all), false) =
            (reads_all, matches!(claimed, Err(Error::Database(DieselError::DeserializationError(_)))))
        {
            std::mem::forget(reads_all);
        }
        drop(writing);
        let harvest = claimed.map_err(|error| {
            noise.warn(Q::ENTITY, &format!("no message can be claimed: {}", failure_text(&error, 500)));
            link.close();
            Turn::Trouble
        })?;
        self.size.has_claimed(limit, harvest.rows());
        if terms.at_once {
            self.is_refused(harvest.refuses_one_statement);
        }
        if harvest.is_empty() {
            return Err(Turn::Idle);
        }
        if harvest.unwritable.is_empty() {
            reach.keep();
        }
        fail_point!("lease-claimed");
        let mut nothing_left = Turn::Interrupted;
        for (key, error) in harvest.unwritable {
            // Whatever refused this row may refuse the others too: the worker waits a little.
            let cause = error.map(|error| {
                nothing_left = Turn::Trouble;
                failure_text(&error, 500)
            });
            let cause = cause.as_deref().unwrap_or("a trigger keeps it from changing");
            noise.warn(Q::ENTITY, &format!("row {key:?} cannot be claimed: {cause}"));
            self.pauses.set_aside(&key);
        }
        let (now, mut ready) = (Instant::now(), unpoisoned(self.ready.lock()));
        for (key, settled) in harvest.settled {
            tracing::debug!(entity = Q::ENTITY, ?key, outcome = ?settled, "settled by the claim");
            ready.push_back((now, Ready::Settled(settled)));
        }
        for decided in harvest.decided {
            self.holds.add(decided.held.clone());
            ready.push_back((now, Ready::Decided(decided)));
        }
        for leased in harvest.leased {
            self.holds.add(leased.held.clone());
            ready.push_back((now, Ready::Leased(leased)));
        }
        ready.pop_front().map(|(_, ready)| ready).ok_or(nothing_left)
    }
}

impl<Q: QueueOn<C> + Send, C: QueueConnection, H: LeaseHandler<Q, C>> Lane<C> for LeaseLane<Q, C, H> {
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

    fn look(&self, connection: &mut C, thorough: bool) -> QueryResult<Option<Duration>> {
        self.low_water.look::<Q, C>(connection, self.stages.as_deref(), thorough)
    }

    fn sound(&self, connection: &mut C) -> QueryResult<()> {
        self.low_water.sound::<Q, C>(connection, self.stages.as_deref())
    }

    fn turn(&self, link: &mut Link<C>, slot: &Slot, noise: &Noise, claimed: &dyn Fn() -> bool) -> Turn {
        let ready = match self.next(link, noise) {
            Ok(ready) => ready,
            Err(turn) => return turn,
        };
        let goes_on = claimed();
        match ready {
            Ready::Settled(settled) => Turn::Settled(settled),
            Ready::Leased(leased) if goes_on => {
                let _at_work = self.size.begins();
                self.work(link, slot, noise, leased)
            }
            Ready::Decided(decided) if goes_on => self.settle_decided(link, noise, &decided),
            Ready::Leased(Leased { held, .. }) | Ready::Decided(Decided { held, .. }) => {
                // The heart may have looked already, and may have left.
                self.give_back(link, noise, &held);
                self.give_back_unstarted(link, noise, Duration::ZERO);
                Turn::Idle
            }
        }
    }

    fn give_up(&self, link: &mut Link<C>, _slot: &Slot, noise: &Noise, row: slot::Held) -> Result<Turn, slot::Held> {
        let row = row.downcast::<LateRow<Q>>()?;
        Ok(self.settle_late(link, noise, &row))
    }

    fn has_interrupted(&self) -> bool {
        self.pauses.any()
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

    fn pulse(&self) -> Option<Duration> {
        Some(self.length() / BEATS)
    }

    fn beat(&self, link: &mut Link<C>, noise: &Noise, is_stopping: bool) {
        self.extend_leases(link, noise);
        if is_stopping {
            self.give_back_unstarted(link, noise, Duration::ZERO);
        } else if self.size.is_free() {
            // Nobody has asked for them to wait behind slow calls.
            self.give_back_unstarted(link, noise, self.length() / BEATS);
        }
    }

    fn revoke_leases(&self) {
        for held in self.holds.all() {
            held.hold.end(Ended::Shutdown);
        }
    }

    fn give_back_revoked(&self, link: &mut Link<C>, noise: &Noise) {
        for held in self.holds.all() {
            self.give_back(link, noise, &held);
        }
    }
}
