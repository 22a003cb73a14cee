//! Claims due rows under a lease, in one short transaction or one statement. Afterwards the rows are `IN_PROGRESS` and
//! their attempt is counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::connection::TransactionManager;
use diesel::result::{Error as DieselError, QueryResult};

use super::leased_rows::LeasedRow;
use crate::attempt::{AttemptError, SettleRules, UnsettledRow, set_leased_aside, stored, tries_before};
use crate::backend::{ErrorClass, QueueConnection, Session};
use crate::claim::{HeldPlaces, KeptRows, LaneClaim, claim_some, update_then_select};
use crate::entity::Key;
use crate::erased_entity::ErasedEntity;
use crate::error::refused;
use crate::fault::fail_point;
use crate::handler::{Failure, LeaseClock, PanicSafeDrop};
use crate::row::{Details, ErrorText, Fence, LEASE_EXPIRED, Missed, QueueState, RowKey, Settlement, Status};
use crate::statement::{Change, Claimed, ErasedQueue, LeasedAtOnce, Next, Scope};

/// How often a claim begins anew because another claim has drawn the same token.
const DRAWS: u32 = 5;

/// How rows are claimed under a lease.
pub(crate) struct LeaseClaim<'a, K: Key, C: QueueConnection> {
    pub(crate) rules: &'a SettleRules,
    pub(crate) lease: Duration,
    /// How many rows a claim takes at most.
    pub(crate) limit: u32,
    pub(crate) skips_locked_rows: bool,
    /// Whether the database can pass over locked rows, or has one writer.
    pub(crate) can_lock: bool,
    /// Whether one statement makes the claim, as its own transaction.
    pub(crate) at_once: bool,
    /// Which of the due rows are claimed.
    pub(crate) scope: Scope<'a, K>,
    /// The places in lanes that the claim holds while it counts the leases there.
    pub(crate) places: Option<&'a HeldPlaces<'a, K, C>>,
    /// The rows that were written lately.
    pub(crate) kept_rows: &'a KeptRows,
}

/// A leased row with its message.
pub(crate) struct LeasedMessage<K> {
    pub(crate) held: Arc<LeasedRow<K>>,
    pub(crate) message: PanicSafeDrop<(ErasedEntity, QueueState)>,
}

/// A leased row whose handler is not to run, and its new state instead.
pub(crate) struct UncalledRow<K> {
    pub(crate) held: Arc<LeasedRow<K>>,
    pub(crate) settled: Settlement,
    pub(crate) change: Change,
}

/// The result of a claim.
pub(crate) struct ClaimedBatch<K> {
    pub(crate) leased: Vec<LeasedMessage<K>>,
    /// Rows that the claim has settled: they cannot be decoded, or their last attempt never ended and was the last one.
    pub(crate) settled: Vec<(RowKey<K>, Settlement, Change)>,
    /// Such rows, if the claim had written the lease on them before it could know.
    pub(crate) decided: Vec<UncalledRow<K>>,
    /// How many rows have failed because their keys cannot be decoded.
    pub(crate) set_aside: u64,
    /// The rows that cannot be written, each with the error if there is one: a trigger may keep a row as it is without
    /// an error.
    pub(crate) unwritable: Vec<(UnsettledRow<K>, Option<DieselError>)>,
    /// Whether the database refused the one statement for rows that could then be written in steps.
    pub(crate) refuses_one_statement: bool,
}

impl<K> ClaimedBatch<K> {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows() == 0
    }

    /// Returns how many rows the claim has found.
    pub(crate) fn rows(&self) -> usize {
        let set_aside = usize::try_from(self.set_aside).unwrap_or(usize::MAX);
        self.leased.len() + self.settled.len() + self.decided.len() + self.unwritable.len() + set_aside
    }
}

/// Claims the rows that have been due longest.
///
/// If the answer to COMMIT is lost, the rows wait for the end of their lease: nobody can tell such a row from one that
/// another worker has claimed as the same attempt.
pub(crate) fn claim_leases<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    session: &mut Session<C>,
    claim: &LeaseClaim<'_, K, C>,
) -> QueryResult<ClaimedBatch<K>> {
    // A queue that processes one row at a time claims one, under a lock that keeps others from claiming. A queue that
    // leaves out late runs has to know when the row was due, and an update overwrites that time.
    let periodic = queue.sql.options.periodic;
    let keeps_due = periodic.is_some_and(|periodic| matches!(periodic.missed, Missed::Skip(_)));
    let takes_turns = claim.places.is_some() || queue.sql.options.exclusive;
    let locks = claim.scope.only.is_some() || claim.skips_locked_rows || takes_turns || keeps_due;
    if claim.at_once {
        match lease_at_once(queue, session, claim) {
            // The rows are leased, and nobody knows which ones.
            Err(error @ DieselError::DeserializationError(_)) => return Err(error),
            // One of the rows may be impossible to write, or a rule of the table may forbid such a statement.
            Err(error) if C::classify(&error) == ErrorClass::Other => {}
            claimed => return claimed,
        }
    }
    // Rows that a survey has found are also locked first, by their keys.
    match in_one_commit(queue, session, claim, if locks { lock_and_lease } else { take }) {
        Ok(Some(batch)) => {
            let refuses_one_statement = claim.at_once && batch.unwritable.is_empty() && !batch.is_empty();
            return Ok(ClaimedBatch { refuses_one_statement, ..batch });
        }
        Err(error) if C::classify(&error) != ErrorClass::Other => return Err(error),
        // One of the rows may be impossible to write. A claim of one row finds out, and the neighbours get their turn.
        Ok(None) | Err(_) => {}
    }
    let alone = LeaseClaim { limit: 1, ..*claim };
    Ok(in_one_commit(queue, session, &alone, lock_and_lease)?.unwrap_or_else(nothing))
}

/// Tells whether one statement leases the rows. It is its own transaction, so that none has to begin.
pub(crate) fn leases_at_once<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    skips_locked_rows: bool,
    scope: Scope<'_, K>,
) -> bool {
    skips_locked_rows && queue.is_leased_at_once(scope)
}

type ClaimIn<K, C> =
    fn(&ErasedQueue<K, C>, &mut C, &LeaseClaim<'_, K, C>, Instant) -> QueryResult<Option<ClaimedBatch<K>>>;

/// Runs a claim in a transaction. `None`: the claim was given up, and nothing is changed.
fn in_one_commit<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    session: &mut Session<C>,
    claim: &LeaseClaim<'_, K, C>,
    way: ClaimIn<K, C>,
) -> QueryResult<Option<ClaimedBatch<K>>> {
    let sent = Instant::now();
    session.begin_claim()?;
    let connection = &mut **session;
    let batch = way(queue, connection, claim, sent).inspect_err(|_| {
        // The transaction may have ended with the error; the caller closes a connection that stays in doubt.
        let _ = C::TransactionManager::rollback_transaction(connection);
    })?;
    if batch.as_ref().is_some_and(|batch| !batch.leased.is_empty() || !batch.settled.is_empty()) {
        C::TransactionManager::commit_transaction(connection)?;
    } else {
        C::TransactionManager::rollback_transaction(connection)?;
    }
    queue.end_exclusion(connection)?;
    if let Some(places) = claim.places {
        places.leave(connection)?;
    }
    Ok(batch)
}

fn nothing<K>() -> ClaimedBatch<K> {
    ClaimedBatch {
        leased: Vec::new(),
        settled: Vec::new(),
        decided: Vec::new(),
        set_aside: 0,
        unwritable: Vec::new(),
        refuses_one_statement: false,
    }
}

/// Returns the result of a claim one of whose rows was not written. If the row was claimed alone, it is left to its
/// pause.
fn not_written<K: Key, C: QueueConnection>(
    claim: &LeaseClaim<'_, K, C>,
    row: UnsettledRow<K>,
    written: QueryResult<usize>,
) -> QueryResult<Option<ClaimedBatch<K>>> {
    Ok((claim.limit == 1).then(|| ClaimedBatch { unwritable: vec![(row, written.err())], ..nothing() }))
}

/// Tells whether a write failed because of one of the rows.
fn fails<C: QueueConnection>(written: &QueryResult<usize>, rows: usize) -> bool {
    match written {
        Ok(changed) => *changed != rows,
        Err(error) => C::classify(error) == ErrorClass::Other,
    }
}

/// Writes the lease on rows with one statement. Only then does it see rows that are not to be called; the workers
/// settle them.
fn lease_at_once<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    session: &mut Session<C>,
    claim: &LeaseClaim<'_, K, C>,
) -> QueryResult<ClaimedBatch<K>> {
    session.roll_back_idle()?;
    if !session.is_in_no_transaction() {
        return Err(refused("a claim under a lease cannot be part of another transaction".to_owned()));
    }
    let sent = Instant::now();
    let mut batch = nothing();
    let LeasedAtOnce { rows: leased, undecodable } =
        queue.lease_at_once(session, claim.lease, claim.limit, claim.scope)?;
    let (rows, began): (Vec<_>, Vec<_>) = leased.into_iter().unzip();
    for ((key, fence, message, details), began) in panic_safe(rows).into_iter().zip(began) {
        if began.is_none() {
            let due = due(&message);
            batch.unwritable.push((UnsettledRow { key, fence, due, details, claimed_as: None }, None));
            continue;
        }
        if fence.status == Status::InProgress {
            fail_point("lease-expired");
        }
        let clock = Arc::new(LeaseClock::new(sent, claim.lease));
        match decided(claim.rules, fence, message, &details) {
            Ok(message) => batch.leased.push(leased_from(claim, key, fence, message, details, began, clock)),
            Err((settled, change)) => {
                let tries = tries_before(fence) + 1;
                // Given back, the row is in the state in which it was, so that the next claim decides the same.
                let held = LeasedRow {
                    key,
                    before: fence,
                    due: None,
                    claimed_as: None,
                    fence: held_as(fence, tries, began),
                    tries,
                    details,
                    clock,
                };
                batch.decided.push(UncalledRow { held: Arc::new(held), settled, change });
            }
        }
    }
    // The other rows are leased: an error here must not cost them their worker. The lease of such a row ends by itself.
    batch.set_aside = set_leased_aside(queue, &mut **session, claim.rules, &undecodable).unwrap_or_else(|error| {
        tracing::warn!(entity = queue.sql.entity, %error, "a row whose key cannot be decoded cannot be set aside");
        0
    });
    Ok(batch)
}

/// Locks rows, passing over those that others hold, and writes the lease on them. `None`: one of them cannot be written.
fn lock_and_lease<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    claim: &LeaseClaim<'_, K, C>,
    sent: Instant,
) -> QueryResult<Option<ClaimedBatch<K>>> {
    let mut batch = nothing();
    let mut plain = Vec::new();
    let mut rows = match (claim.places, claim.can_lock) {
        (Some(places), locks) => {
            let some = LaneClaim { limit: claim.limit, locks, begins_again: true };
            places.claim(connection, some, claim.scope)?
        }
        (None, locks) => claim_some(queue, connection, locks, claim.limit, claim.scope)?,
    };
    if !claim.can_lock && queue.sql.options.rerun_on_change.is_some() {
        // A peek may have read the content before a change and the count of changes after it.
        rows = retaken(queue, connection, rows)?;
    }
    let rows = panic_safe(rows);
    if rows.is_empty() {
        return Ok(Some(batch));
    }
    let began = Some(queue.present(connection)?);
    for (key, fence, message, details) in rows {
        let row =
            UnsettledRow { key: key.clone(), fence, due: due(&message), details: details.clone(), claimed_as: None };
        let before = tries_before(fence);
        let expired = fence.status == Status::InProgress;
        if expired {
            fail_point("lease-expired");
        }
        let leased = Change {
            status: Some(Status::InProgress),
            next: Some(Next::In(claim.lease)),
            try_count: Some(stored(before + 1)),
            // A newer version took the row from its worker before this attempt: that is no failure.
            error: if expired && before > 0 { ErrorText::Set(expired_in(before)) } else { ErrorText::Keep },
            began,
            ..Change::default()
        };
        match decided(claim.rules, fence, message, &details) {
            Err((settled, change)) => {
                let written = queue.settle(connection, &key, fence, &change);
                if fails::<C>(&written, 1) {
                    return not_written(claim, row, written);
                }
                written?;
                batch.settled.push((key, settled, change));
            }
            Ok(message) => {
                let is_plain = !expired && leased.try_count == fence.try_count.checked_add(1);
                if !is_plain {
                    let written = queue.settle(connection, &key, fence, &leased);
                    if fails::<C>(&written, 1) {
                        return not_written(claim, row, written);
                    }
                    written?;
                }
                if is_plain {
                    plain.push(row);
                }
                let clock = Arc::new(LeaseClock::new(sent, claim.lease));
                batch.leased.push(leased_from(claim, key, fence, message, details, began, clock));
            }
        }
    }
    let change = Change {
        status: Some(Status::InProgress),
        next: Some(Next::In(claim.lease)),
        another_try: true,
        began,
        ..Change::default()
    };
    let rows: Vec<_> = plain.iter().map(|row| (row.key.value(), row.fence)).collect();
    let written = queue.settle_many(connection, &rows, &change);
    if let (true, Some(row)) = (fails::<C>(&written, rows.len()), plain.pop()) {
        return not_written(claim, row, written);
    }
    written?;
    Ok(Some(batch))
}

/// Writes the lease on rows first, and then reads which rows those were. `None`: none is due, or one of them cannot be
/// written.
fn take<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    claim: &LeaseClaim<'_, K, C>,
    sent: Instant,
) -> QueryResult<Option<ClaimedBatch<K>>> {
    let mut taken = None;
    for draw in 0..DRAWS {
        if draw > 0 {
            C::TransactionManager::rollback_transaction(connection)?;
            connection.begin()?;
        }
        taken = update_then_select(queue, connection, claim.lease, claim.limit, claim.scope)?;
        if taken.is_some() {
            break;
        }
    }
    let Some((began, rows)) = taken.filter(|(_, rows)| !rows.is_empty()) else { return Ok(None) };
    let mut batch = nothing();
    for (key, fence, message, details) in panic_safe(rows) {
        let row = UnsettledRow { key: key.clone(), fence, due: None, details: details.clone(), claimed_as: None };
        let tries = u32::try_from(fence.try_count).unwrap_or(1).max(1);
        let text = message.as_ref().ok().and_then(|message| message.1.last_attempt_error_message.as_deref());
        let expired = text == Some(&expired_in(tries - 1));
        if expired {
            fail_point("lease-expired");
        }
        // The update has overwritten the row's earlier state. This one is as good for giving the row back.
        let status = if tries > 1 { Status::Error } else { Status::NotAttempted };
        let before = Fence::new(status, stored(tries - 1));
        let decided = match message {
            _ if expired && tries > claim.rules.settings.max_tries => Err(given_up(claim.rules, tries - 1, &details)),
            Ok(message) => claim.rules.instead_of_handling(before, tries, None, &details).map_or(Ok(message), Err),
            Err(error) => {
                Err(claim.rules.after_failure(tries, &Failure::retry(AttemptError::Undecodable(error)), &details))
            }
        };
        match decided {
            Err((settled, change)) => {
                let written = queue.settle(connection, &key, fence, &change);
                if fails::<C>(&written, 1) {
                    return not_written(claim, row, written);
                }
                written?;
                batch.settled.push((key, settled, change));
            }
            Ok(mut message) => {
                message.1.next_attempt_time = None;
                let fence = held_as(fence, tries, Some(began));
                let clock = Arc::new(LeaseClock::new(sent, claim.lease));
                let held = LeasedRow { key, before, due: None, claimed_as: None, fence, tries, details, clock };
                batch.leased.push(LeasedMessage { held: Arc::new(held), message });
            }
        }
    }
    Ok(Some(batch))
}

/// Locks rows that were read without a lock, and reads them again.
fn retaken<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    rows: Vec<Claimed<K>>,
) -> QueryResult<Vec<Claimed<K>>> {
    rows.into_iter().filter_map(|row| queue.retake(connection, &row.key, row.fence).transpose()).collect()
}

type Message = Result<PanicSafeDrop<(ErasedEntity, QueueState)>, Box<dyn std::error::Error + Send + Sync>>;

type PanicSafeRow<K> = (RowKey<K>, Fence, Message, Details);

fn panic_safe<K>(rows: Vec<Claimed<K>>) -> Vec<PanicSafeRow<K>> {
    let safe = |(entity, state)| PanicSafeDrop::new((entity, state));
    rows.into_iter().map(|row| (row.key, row.fence, row.message.map(safe), row.details)).collect()
}

/// Returns when a row was due, if that can be read.
fn due(message: &Message) -> Option<crate::row::Instant> {
    message.as_ref().ok().and_then(|message| message.1.next_attempt_time).map(Into::into)
}

/// Returns the message of a row that was claimed in this state, or the row's new state if it is not to be attempted.
fn decided(
    rules: &SettleRules,
    fence: Fence,
    message: Message,
    details: &Details,
) -> Result<PanicSafeDrop<(ErasedEntity, QueueState)>, (Settlement, Change)> {
    let before = tries_before(fence);
    match message {
        _ if fence.status == Status::InProgress && before >= rules.settings.max_tries => {
            Err(given_up(rules, before, details))
        }
        Ok(message) => {
            let due = message.1.next_attempt_time;
            rules.instead_of_handling(fence, before + 1, due, details).map_or(Ok(message), Err)
        }
        Err(error) => Err(rules.after_failure(before + 1, &Failure::retry(AttemptError::Undecodable(error)), details)),
    }
}

/// Returns a row that was claimed in this state, with its message as it is under the lease.
fn leased_from<K: Key, C: QueueConnection>(
    claim: &LeaseClaim<'_, K, C>,
    key: RowKey<K>,
    fence: Fence,
    mut message: PanicSafeDrop<(ErasedEntity, QueueState)>,
    details: Details,
    began: Option<crate::row::Instant>,
    clock: Arc<LeaseClock>,
) -> LeasedMessage<K> {
    let before = tries_before(fence);
    let expired = fence.status == Status::InProgress;
    let is_lost = expired && before > 0;
    let due = message.1.next_attempt_time.map(Into::into);
    let claimed_as = Some(claim.kept_rows.claimed_as(&key, &message.1));
    let state = &mut message.1;
    state.status = Status::InProgress;
    state.next_attempt_time = None;
    state.last_attempt_time = began.map(Into::into).or(state.last_attempt_time);
    state.try_count = stored(before + 1);
    if is_lost {
        state.last_attempt_error_message = Some(expired_in(before));
    }
    // Given back as it was, the row would once more count as one whose lease has expired.
    let before_it = if expired { Fence::new(Status::Error, fence.try_count) } else { fence };
    let fence = held_as(fence, before + 1, began);
    let held = LeasedRow { key, before: before_it, due, claimed_as, fence, tries: before + 1, details, clock };
    LeasedMessage { held: Arc::new(held), message }
}

/// Returns the state of a claimed row under its lease.
fn held_as(claimed: Fence, tries: u32, began: Option<crate::row::Instant>) -> Fence {
    Fence { status: Status::InProgress, try_count: stored(tries), began, ..claimed.at_any_time() }
}

fn expired_in(attempt: u32) -> String {
    format!("{LEASE_EXPIRED}{attempt}")
}

/// Returns the new state of a row whose last attempt never ended, and was the last one that its settings allow.
fn given_up(rules: &SettleRules, tries: u32, details: &Details) -> (Settlement, Change) {
    let change = Change {
        status: Some(Status::Failed),
        next: Some(Next::Never),
        try_count: Some(stored(tries)),
        attempted: true,
        error: ErrorText::Set(expired_in(tries)),
        redact: rules.texts.redact.clone(),
        ..Change::default()
    };
    (Settlement::Failed, rules.failed_on_schedule(change, details))
}
