//! Extends the leases of one entity, for the heartbeat, and gives leased rows back as they were before their claim: due, with
//! no try used.

use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::result::QueryResult;

use super::leased_rows::LeasedRow;
use super::runner::{LeaseRunner, leave};
use crate::attempt::in_transaction;
use crate::backend::{Dialect, ErrorClass, QueueConnection, SessionHolder};
use crate::claim::{Places, Standing};
use crate::entity::Key;
use crate::error::Error;
use crate::event::Measure;
use crate::handler::LeaseLost;
use crate::row::failure_text;
use crate::statement::{Change, Next};
use crate::sync::fail_point;

/// How many leases one statement extends at most, and how many rows one transaction gives back. A thousand calls may be in
/// flight when a poller shuts down, and it waits for a second at most.
const TOGETHER: usize = 100;

impl<K: Key, C: QueueConnection> LeaseRunner<'_, K, C> {
    /// Extends the leases that were not confirmed lately.
    pub(crate) fn extend_leases(&self, holder: &mut SessionHolder<C>) {
        let held: Vec<_> = self.leased_rows.all().into_iter().filter(|held| held.clock.is_due_for_renewal()).collect();
        let late = held.iter().filter(|held| held.clock.becomes_late()).count();
        if late > 0 {
            let (info, late) = (&self.served.info, late.try_into().unwrap_or(u64::MAX));
            let measure = || Measure::LateHeartbeats(info.entity, &info.key_prefix, late);
            self.served.rules.teller.events.measure(measure);
        }
        for held in held.chunks(TOGETHER) {
            if let Err(error) = self.extend(holder, held) {
                // After half a lease without success, the handlers learn that they may have lost their rows.
                self.served.warn(&format!("leases cannot be extended: {}", failure_text(&error, 500)));
                holder.close();
                return;
            }
        }
    }

    fn extend(&self, holder: &mut SessionHolder<C>, held: &[Arc<LeasedRow<K>>]) -> Result<(), Error> {
        fail_point("heartbeat");
        let change = Change { next: Some(Next::In(self.length())), unless_stopped: true, ..Change::default() };
        if !self.keeps_turns() {
            return self.extend_together(holder, held, &change);
        }
        // A lease that is far from its end keeps its place, whoever counts the places at this moment.
        let far = Instant::now() + self.length() / 2;
        let (sure, others): (Vec<_>, Vec<_>) = held.iter().cloned().partition(|held| held.clock.holds_until() > far);
        self.extend_together(holder, &sure, &change)?;
        others.iter().try_for_each(|held| self.extend_in_turn(holder, held, &change))
    }

    fn extend_together(
        &self,
        holder: &mut SessionHolder<C>,
        held: &[Arc<LeasedRow<K>>],
        change: &Change,
    ) -> Result<(), Error> {
        if held.is_empty() {
            return Ok(());
        }
        let writing = self.next_turn_to_write();
        let session = holder.session()?;
        let sent = Instant::now();
        let mut held: Vec<_> = held.iter().collect();
        let together = in_transaction(&mut **session, |connection| {
            if held.len() > 1 && !C::Backend::ONE_WRITER && self.statements.can_lock() {
                // A heartbeat that waits for the lock of one row cannot extend the leases of the others.
                held = self.free(connection, &held)?;
            }
            let rows: Vec<_> = held.iter().map(|held| (&held.key, held.fence)).collect();
            match self.keeps_turns() {
                true => self.served.queue.extend_leased(connection, &rows, change),
                false => self.served.queue.settle_many(connection, &rows, change),
            }
        });
        drop(writing);
        fail_point("heartbeat-sent");
        match together {
            Ok(changed) if changed == held.len() => {
                held.iter().for_each(|held| held.clock.confirm(sent));
                return Ok(());
            }
            // Another session has changed or locked one of the rows. The loop below finds out which one.
            Ok(_) => {}
            Err(error) if C::classify(&error) != ErrorClass::ConnectionLost => {}
            Err(error) => return Err(error.into()),
        }
        self.extend_one_by_one(holder, held, change)
    }

    fn extend_one_by_one(
        &self,
        holder: &mut SessionHolder<C>,
        held: Vec<&Arc<LeasedRow<K>>>,
        change: &Change,
    ) -> Result<(), Error> {
        for held in held {
            if self.keeps_turns() {
                // Its lease may have ended.
                self.extend_in_turn(holder, held, change)?;
                continue;
            }
            let _writing = self.next_turn_to_write();
            let session = holder.session()?;
            let sent = Instant::now();
            match in_transaction(&mut **session, |connection| {
                self.served.queue.settle(connection, &held.key, held.fence, change)
            }) {
                Ok(1) => held.clock.confirm(sent),
                Ok(_) => self.overtaken(held),
                Err(error) if C::classify(&error) != ErrorClass::ConnectionLost => {
                    self.served.warn(&format!("the lease of row {} cannot be extended: {error}", held.key));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Extends the lease of a row in a queue that limits how many rows are processed at a time. A lease that has ended is
    /// renewed only if others have not taken its place meanwhile, so that there are never too many.
    fn extend_in_turn(
        &self,
        holder: &mut SessionHolder<C>,
        held: &Arc<LeasedRow<K>>,
        change: &Change,
    ) -> Result<(), Error> {
        let _writing = self.next_turn_to_write();
        let session = holder.session()?;
        let sent = Instant::now();
        let places = self.limits().map(Places::hold);
        let extended = in_transaction(&mut **session, |connection| {
            match self.standing(connection, held, places.as_ref())? {
                Standing::Holds => self.served.queue.settle(connection, &held.key, held.fence, change).map(Some),
                Standing::Lost => Ok(Some(0)),
                // Another worker checks whose turn it is. The next heartbeat extends the lease.
                Standing::Unknown => Ok(None),
            }
        })?;
        leave(self.served.queue, session, places)?;
        match extended {
            Some(1) => held.clock.confirm(sent),
            Some(_) => self.overtaken(held),
            None => {}
        }
        Ok(())
    }

    /// Locks and returns the rows that no other session has locked.
    fn free<'h>(&self, connection: &mut C, held: &[&'h Arc<LeasedRow<K>>]) -> QueryResult<Vec<&'h Arc<LeasedRow<K>>>> {
        let keys: Vec<_> = held.iter().map(|held| &held.key).collect();
        let (mut free, found) = (Vec::with_capacity(held.len()), self.served.queue.lock_free(connection, &keys)?);
        for (place, state) in found {
            let held = held[place];
            match state.is_some_and(|state| state.reads_as(held.fence)) {
                true => free.push(held),
                false => self.overtaken(held),
            }
        }
        Ok(free)
    }

    fn overtaken(&self, held: &Arc<LeasedRow<K>>) {
        held.clock.end(LeaseLost::Overtaken);
        self.leased_rows.remove(held);
    }
}

impl<K: Key, C: QueueConnection> LeaseRunner<'_, K, C> {
    /// Gives a row back. Returns whether the database has answered.
    pub(crate) fn give_back(&self, holder: &mut SessionHolder<C>, held: &Arc<LeasedRow<K>>) -> bool {
        // First: while the database does not answer, nobody extends its lease.
        self.leased_rows.remove(held);
        let given = self.write_back(holder, slice::from_ref(held));
        if let Err(error) = &given {
            // The row becomes due when its lease ends.
            self.served.warn(&format!("a row cannot be given back: {}", failure_text(error, 500)));
            holder.close();
        }
        given.is_ok()
    }

    /// Gives several rows back, if possible with few transactions.
    pub(crate) fn give_back_all(&self, holder: &mut SessionHolder<C>, held: &[Arc<LeasedRow<K>>]) {
        for held in held.chunks(TOGETHER) {
            held.iter().for_each(|held| self.leased_rows.remove(held));
            if self.write_back(holder, held).is_err() {
                // It may be the fault of one of them.
                holder.close();
                for held in held {
                    self.give_back(holder, held);
                }
            }
        }
    }

    /// Writes rows back in one transaction. Those that belong to another attempt by now are left alone.
    fn write_back(&self, holder: &mut SessionHolder<C>, held: &[Arc<LeasedRow<K>>]) -> Result<(), Error> {
        let held: Vec<_> = held.iter().filter(|held| held.clock.ended() != Some(LeaseLost::Overtaken)).collect();
        if held.is_empty() {
            return Ok(());
        }
        let _writing = self.next_turn_to_write();
        let session = holder.session()?;
        in_transaction(&mut **session, |connection| {
            held.iter().try_for_each(|held| {
                let change = Change {
                    status: Some(held.before.status),
                    next: Some(held.due.map_or(Next::In(Duration::ZERO), Next::At)),
                    try_count: Some(held.before.try_count),
                    unless_stopped: true,
                    ..Change::default()
                };
                self.served.queue.settle(connection, &held.key, held.fence, &change).map(drop)
            })
        })?;
        // The rows may have been due below the low-water mark.
        held.iter().filter_map(|held| held.due).for_each(|due| self.served.due_rows.low_water.fall(due));
        Ok(())
    }
}
