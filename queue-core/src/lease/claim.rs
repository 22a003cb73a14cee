//! Claims due rows under a lease, in one short transaction or one statement. Afterwards the rows are `IN_PROGRESS` and
//! their attempt is counted.

use std::sync::Arc;
use std::time::{Duration, Instant as LocalTime};

use diesel::connection::TransactionManager;
use diesel::result::{Error as DieselError, QueryResult};

use super::claimed::{ClaimedBatch, GivenUp, LeaseClaim, due, expect, expired_in, held_as, nothing, panic_safe};
use super::leased_rows::{DecidedLease, LeasedRow};
use super::runner::LeaseRunner;
use crate::attempt::{UnsettledRow, in_transaction, record, stored, tries_before};
use crate::backend::{ErrorClass, QueueConnection, Session};
use crate::claim::{ClaimTerms, LeaseWay, claim, update_then_select};
use crate::entity::Key;
use crate::error::refused;
use crate::handler::LeaseClock;
use crate::row::{ErrorText, Fence, Instant, Status};
use crate::statement::{Change, Claimed, LeasedAtOnce, Next};
use crate::sync::in_test::is_in_turn;

type ClaimIn<'h, K, C> =
    fn(&LeaseRunner<'h, K, C>, &mut C, &LeaseClaim<'_, K, C>, LocalTime) -> Result<Option<ClaimedBatch<K>>, GivenUp<K>>;

impl<'h, K: Key, C: QueueConnection> LeaseRunner<'h, K, C> {
    /// Claims the rows that have been due longest.
    ///
    /// If the answer to COMMIT is lost, the rows wait for the end of their lease: such a row looks like one that
    /// another worker has claimed as the same attempt.
    pub(crate) fn claim_leases(
        &self,
        session: &mut Session<C>,
        claim: &LeaseClaim<'_, K, C>,
    ) -> QueryResult<ClaimedBatch<K>> {
        if claim.way == LeaseWay::AtOnce {
            match self.lease_at_once(session, claim) {
                // The database has leased rows, but the worker could not read which.
                Err(error @ DieselError::DeserializationError(_)) => return Err(error),
                // One of the rows may be impossible to write, or a rule of the table may forbid such a statement.
                Err(error) if C::classify(&error) == ErrorClass::Other => {}
                claimed => return claimed,
            }
        }
        let in_steps = if claim.way == LeaseWay::Take { Self::take } else { Self::lock_and_lease };
        match self.in_one_commit(session, claim, in_steps) {
            Ok(Some(batch)) => {
                let refuses_one_statement =
                    claim.way == LeaseWay::AtOnce && batch.unwritable.is_empty() && !batch.is_empty();
                return Ok(ClaimedBatch { refuses_one_statement, ..batch });
            }
            Err(error) if C::classify(&error) != ErrorClass::Other => return Err(error),
            // One of the rows may be impossible to write. A claim of one row finds out, and the neighbours get their turn.
            Ok(None) | Err(_) => {}
        }
        let alone = LeaseClaim { limit: 1, ..*claim };
        Ok(self.in_one_commit(session, &alone, Self::lock_and_lease)?.unwrap_or_else(nothing))
    }

    /// Runs a claim in a transaction. `None`: the claim was given up, and nothing is changed.
    fn in_one_commit(
        &self,
        session: &mut Session<C>,
        claim: &LeaseClaim<'_, K, C>,
        way: ClaimIn<'h, K, C>,
    ) -> QueryResult<Option<ClaimedBatch<K>>> {
        let sent = LocalTime::now();
        session.begin_claim()?;
        let connection = &mut **session;
        let mut batch = match way(self, connection, claim, sent) {
            Ok(batch) => batch,
            // If the row was claimed alone, it is left to its pause.
            Err(GivenUp::Unwritable(row, error)) => {
                (claim.limit == 1).then(|| ClaimedBatch { unwritable: vec![(*row, error)], ..nothing() })
            }
            Err(GivenUp::Failed(error)) => {
                // The transaction may have ended with the error; the caller closes a connection that stays in doubt.
                let _ = C::TransactionManager::rollback_transaction(connection);
                return Err(error);
            }
        };
        if batch.as_ref().is_none_or(|batch| batch.leased.is_empty() && batch.settled.is_empty()) {
            C::TransactionManager::rollback_transaction(connection)?;
        } else if let Err(error) = C::TransactionManager::commit_transaction(connection) {
            if claim.limit > 1 || C::classify(&error) != ErrorClass::Other {
                return Err(error);
            }
            batch = batch.and_then(|batch| self.unwritten(connection, batch, error));
        }
        self.served.queue.end_exclusion(connection)?;
        if let Some(places) = claim.places {
            places.leave(connection)?;
        }
        Ok(batch)
    }

    /// Returns what a claim of one row comes to whose COMMIT was refused, because of a rule that the database checks there. A row
    /// that has failed stays in its table.
    fn unwritten(&self, connection: &mut C, mut batch: ClaimedBatch<K>, error: DieselError) -> Option<ClaimedBatch<K>> {
        let row = batch.written.pop()?;
        let settle = |connection: &mut C, change: &Change| {
            self.served.queue.settle_anew(connection, &row.key, row.fence, change)
        };
        if let Some((key, new)) = batch.settled.pop()
            && matches!(record(connection, &new.change, &settle), Ok(1))
        {
            return Some(ClaimedBatch { settled: vec![(key, new)], ..nothing() });
        }
        Some(ClaimedBatch { unwritable: vec![(row, Some(error))], ..nothing() })
    }

    /// Writes the lease on rows with one statement. Only then does it see rows that are not to be called; the workers
    /// settle them.
    fn lease_at_once(&self, session: &mut Session<C>, claim: &LeaseClaim<'_, K, C>) -> QueryResult<ClaimedBatch<K>> {
        session.roll_back_idle()?;
        if !session.is_in_no_transaction() {
            return Err(refused("a claim under a lease cannot be part of another transaction".to_owned()));
        }
        let sent = LocalTime::now();
        let mut batch = nothing();
        let LeasedAtOnce { rows: leased, undecodable } =
            self.served.queue.lease_at_once(session, self.length(), claim.limit, claim.scope)?;
        let (rows, began): (Vec<_>, Vec<_>) = leased.into_iter().unzip();
        let is_any_decoded = rows.iter().any(|row| row.message.is_ok());
        if !is_any_decoded
            && (rows.len() + undecodable.len() > 0)
            && let Err(error) = self.served.expect_types(session)
        {
            self.give_back_undecoded(session, &rows, &began)?;
            self.served.give_leased_back(session, &undecodable)?;
            return Err(error);
        }
        for ((key, fence, message, details), began) in panic_safe(rows).into_iter().zip(began) {
            if began.is_none() {
                batch.unwritable.push((UnsettledRow::new(key, fence, due(&message), details), None));
                continue;
            }
            match self.decide(fence, message, &details) {
                Ok(message) => batch.leased.push(self.leased_from(key, fence, message, details, began, sent)),
                Err(new) => {
                    let tries = tries_before(fence) + 1;
                    // Given back, the row is in the state in which it was, so that the next claim decides the same.
                    let (before, fence) = (fence, held_as(fence, tries, began));
                    let clock = Arc::new(LeaseClock::new(sent, self.length()));
                    let held = LeasedRow { key, before, due: None, claimed_as: None, fence, tries, details, clock };
                    batch.decided.push(DecidedLease { held: Arc::new(held), new });
                }
            }
        }
        // An error here must not discard the other leased rows. The undecodable row is due when its lease ends.
        batch.set_aside = self.served.set_leased_aside(&mut **session, &undecodable).unwrap_or_else(|error| {
            tracing::warn!(entity = self.served.info.entity, %error, "cannot set aside a row whose key cannot be decoded");
            0
        });
        Ok(batch)
    }

    /// Gives rows back that one statement has leased, because no row can be decoded.
    fn give_back_undecoded(
        &self,
        connection: &mut C,
        rows: &[Claimed<K>],
        began: &[Option<Instant>],
    ) -> QueryResult<()> {
        in_transaction(connection, |connection| {
            rows.iter().zip(began).filter(|(_, began)| began.is_some()).try_for_each(|(row, began)| {
                let before = row.fence;
                let next = Some(Next::In(Duration::ZERO));
                let change = Change {
                    status: Some(before.status),
                    next,
                    try_count: Some(before.try_count),
                    ..Change::default()
                };
                let fence = held_as(before, tries_before(before) + 1, *began);
                self.served.queue.settle(connection, &row.key, fence, &change).map(drop)
            })
        })
    }

    /// Locks rows, passing over those that others hold, and writes the lease on them. `None`: one of them cannot be written.
    fn lock_and_lease(
        &self,
        connection: &mut C,
        claim: &LeaseClaim<'_, K, C>,
        sent: LocalTime,
    ) -> Result<Option<ClaimedBatch<K>>, GivenUp<K>> {
        let mut batch = nothing();
        let mut plain = Vec::new();
        let rows = panic_safe(self.locked(connection, claim)?);
        if rows.is_empty() {
            return Ok(Some(batch));
        }
        let began = Some(self.served.queue.present(connection)?);
        let leased = Change {
            status: Some(Status::InProgress),
            next: Some(Next::In(self.length())),
            began,
            ..Change::default()
        };
        for (key, fence, message, details) in rows {
            let row = UnsettledRow::new(key.clone(), fence, due(&message), details.clone());
            let before = tries_before(fence);
            let expired = fence.status == Status::InProgress;
            batch.written.push(row.clone());
            match self.decide(fence, message, &details) {
                Err(new) => {
                    self.write_claimed(connection, &row, &new.change)?;
                    batch.settled.push((key, new));
                }
                Ok(message) => {
                    let try_count = stored(before + 1);
                    if !expired && Some(try_count) == fence.try_count.checked_add(1) {
                        plain.push(row);
                    } else {
                        // A newer version took the row from its worker before this attempt: that is no failure.
                        let is_lost = expired && before > 0;
                        let error = if is_lost { ErrorText::Set(expired_in(before)) } else { ErrorText::Keep };
                        let leased = Change { try_count: Some(try_count), error, ..leased.clone() };
                        self.write_claimed(connection, &row, &leased)?;
                    }
                    batch.leased.push(self.leased_from(key, fence, message, details, began, sent));
                }
            }
        }
        if let Some(last) = plain.last() {
            let rows: Vec<_> = plain.iter().map(|row| (&row.key, row.fence)).collect();
            let written = self.served.queue.settle_many(connection, &rows, &Change { another_try: true, ..leased });
            expect::<K, C>(written, rows.len(), last)?;
        }
        Ok(Some(batch))
    }

    /// Writes on one of the claimed rows.
    fn write_claimed(&self, connection: &mut C, row: &UnsettledRow<K>, change: &Change) -> Result<(), GivenUp<K>> {
        expect::<K, C>(self.served.queue.settle(connection, &row.key, row.fence, change), 1, row)
    }

    /// Locks due rows, passing over those that others hold. If the server cannot do that, it reads them without a lock.
    fn locked(&self, connection: &mut C, leases: &LeaseClaim<'_, K, C>) -> QueryResult<Vec<Claimed<K>>> {
        let locks = self.statements.can_lock();
        let some = ClaimTerms { limit: leases.limit, locks, begins_again: !is_in_turn() };
        let rows = claim(self.served.queue, connection, leases.places, None, some, leases.scope)?;
        self.served.expect_decoded(connection, &rows)?;
        if locks || self.served.queue.sql.options.rerun_on_change.is_none() {
            return Ok(rows);
        }
        // A peek may have read the content before a change and the count of changes after it. So the rows are locked, and
        // read again.
        rows.into_iter()
            .filter_map(|row| self.served.queue.retake(connection, &row.key, row.fence).transpose())
            .collect()
    }

    /// Writes the lease on rows first, and then reads which rows those were. `None`: none is due, or one of them cannot be
    /// written, or another claim has drawn the same times.
    fn take(
        &self,
        connection: &mut C,
        claim: &LeaseClaim<'_, K, C>,
        sent: LocalTime,
    ) -> Result<Option<ClaimedBatch<K>>, GivenUp<K>> {
        let (began, rows) = update_then_select(self.served.queue, connection, self.length(), claim.limit, claim.scope)?;
        if rows.is_empty() {
            return Ok(None);
        }
        self.served.expect_decoded(connection, &rows)?;
        let mut batch = nothing();
        for (key, fence, mut message, details) in panic_safe(rows) {
            let row = UnsettledRow::new(key.clone(), fence, None, details.clone());
            let tries = u32::try_from(fence.try_count).unwrap_or(1).max(1);
            let text = message.as_ref().ok().and_then(|message| message.1.last_attempt_error_message.as_deref());
            // The update has overwritten the row's earlier state. This one is as good for giving the row back.
            let status = match tries {
                1 => Status::NotAttempted,
                _ if text == Some(&expired_in(tries - 1)) => Status::InProgress,
                _ => Status::Error,
            };
            let before = Fence { status, try_count: stored(tries - 1), ..fence.at_any_time() };
            if let Ok(message) = &mut message {
                message.1.next_attempt_time = None;
            }
            match self.decide(before, message, &details) {
                Err(new) => match self.write_claimed(connection, &row, &new.change) {
                    // A claim in steps finds the row as it was before the update.
                    Err(GivenUp::Unwritable(..)) => return Ok(None),
                    written => written.map(|()| batch.settled.push((key, new)))?,
                },
                Ok(message) => {
                    batch.leased.push(self.leased_from(key, before, message, details, Some(began), sent));
                }
            }
        }
        // A row that a trigger keeps as it is looks to the update like one that is not due. Without SKIP LOCKED, so does one that
        // another claim is writing.
        if batch.rows() < claim.limit as usize && self.statements.can_lock() {
            return self.with_one_locked(connection, claim, sent, batch).map(Some);
        }
        Ok(Some(batch))
    }

    /// Leases one more row, in steps.
    fn with_one_locked(
        &self,
        connection: &mut C,
        claim: &LeaseClaim<'_, K, C>,
        sent: LocalTime,
        mut batch: ClaimedBatch<K>,
    ) -> Result<ClaimedBatch<K>, GivenUp<K>> {
        match self.lock_and_lease(connection, &LeaseClaim { limit: 1, ..*claim }, sent) {
            Err(GivenUp::Unwritable(row, None)) => batch.unwritable.push((*row, None)),
            // The rows above wait for the next claim, which passes over this one.
            Err(GivenUp::Unwritable(row, error)) => {
                return Ok(ClaimedBatch { unwritable: vec![(*row, error)], ..nothing() });
            }
            // The client cannot read it.
            Err(GivenUp::Failed(DieselError::DeserializationError(_))) => {}
            next => {
                let next = next?.unwrap_or_else(nothing);
                batch.leased.extend(next.leased);
                batch.settled.extend(next.settled);
            }
        }
        Ok(batch)
    }
}
