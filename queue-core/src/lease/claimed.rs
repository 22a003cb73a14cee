//! A claim under a lease, and the rows that it has found: leased, or settled because they are not to be attempted.

use std::sync::Arc;
use std::time::Instant as LocalTime;

use diesel::result::{Error as DieselError, QueryResult};

use super::leased_rows::{DecidedLease, LeasedMessage, LeasedRow};
use super::runner::LeaseRunner;
use crate::attempt::{AttemptError, NewState, UnsettledRow, stored, tries_before};
use crate::backend::{ErrorClass, QueueConnection};
use crate::claim::{HeldPlaces, LeaseWay};
use crate::entity::Key;
use crate::handler::{Failure, LeaseClock, OwnedMessage, PanicSafeDrop};
use crate::row::{Details, ErrorText, Fence, Instant, LEASE_EXPIRED, RowKey, Settlement, Status};
use crate::statement::{Change, Claimed, Next, Scope};
use crate::sync::fail_point;

/// Which rows are claimed under a lease, and how.
pub(crate) struct LeaseClaim<'a, K: Key, C: QueueConnection> {
    /// How many rows a claim takes at most.
    pub(crate) limit: u32,
    /// How the lease is written on them.
    pub(crate) way: LeaseWay,
    /// Which of the due rows are claimed.
    pub(crate) scope: Scope<'a, K>,
    /// The places in lanes that the claim holds while it counts the leases there.
    pub(crate) places: Option<&'a HeldPlaces<'a, K, C>>,
}

/// The result of a claim.
pub(crate) struct ClaimedBatch<K> {
    pub(crate) leased: Vec<LeasedMessage<K>>,
    /// Rows that the claim has settled: they cannot be decoded, or their last attempt never ended and was the last one.
    pub(crate) settled: Vec<(RowKey<K>, NewState)>,
    /// Such rows on which the claim had written the lease before it saw what they are. The workers settle them without their
    /// handlers.
    pub(crate) decided: Vec<DecidedLease<K>>,
    /// How many rows have failed because their keys cannot be decoded.
    pub(crate) set_aside: u64,
    /// The rows that cannot be written, each with the error if there is one: a trigger may keep a row as it is without
    /// an error.
    pub(crate) unwritable: Vec<(UnsettledRow<K>, Option<DieselError>)>,
    /// Whether the database refused the one statement for rows that could then be written in steps.
    pub(crate) refuses_one_statement: bool,
    /// The rows that a claim in steps has written, as they were before.
    pub(super) written: Vec<UnsettledRow<K>>,
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

impl<K: Key, C: QueueConnection> LeaseRunner<'_, K, C> {
    /// Returns the message of a row that was claimed in this state, or the row's new state if it is not to be attempted.
    pub(super) fn decide(
        &self,
        fence: Fence,
        message: DecodedLease,
        details: &Details,
    ) -> Result<OwnedMessage, NewState> {
        let (rules, before) = (&self.served.rules, tries_before(fence));
        if fence.status == Status::InProgress {
            fail_point("lease-expired");
        }
        match message {
            _ if fence.status == Status::InProgress && before >= rules.settings.max_tries => {
                Err(self.given_up(before, details))
            }
            Ok(message) => {
                let due = message.1.next_attempt_time;
                rules.instead_of_handling(fence, before + 1, due, details).map_or(Ok(message), Err)
            }
            Err(error) => {
                Err(rules.after_failure(before + 1, &Failure::retry(AttemptError::Undecodable(error)), details))
            }
        }
    }

    /// Returns a row that was claimed in this state, with its message as it is under the lease.
    pub(super) fn leased_from(
        &self,
        key: RowKey<K>,
        fence: Fence,
        mut message: OwnedMessage,
        details: Details,
        began: Option<Instant>,
        sent: LocalTime,
    ) -> LeasedMessage<K> {
        let before = tries_before(fence);
        let expired = fence.status == Status::InProgress;
        let due = message.1.next_attempt_time.map(Into::into);
        let claimed_as = due.map(|_| self.served.due_rows.passed_rows.claimed_as(&key, &message.1));
        let state = &mut message.1;
        state.status = Status::InProgress;
        state.next_attempt_time = None;
        state.last_attempt_time = began.map(Into::into).or(state.last_attempt_time);
        state.try_count = stored(before + 1);
        if expired && before > 0 {
            state.last_attempt_error_message = Some(expired_in(before));
        }
        // Given back as it was, the row would once more count as one whose lease has expired.
        let before_it = if expired { Fence::new(Status::Error, fence.try_count) } else { fence };
        let (fence, clock) = (held_as(fence, before + 1, began), Arc::new(LeaseClock::new(sent, self.length())));
        let held = LeasedRow { key, before: before_it, due, claimed_as, fence, tries: before + 1, details, clock };
        LeasedMessage { held: Arc::new(held), message }
    }

    /// Returns the new state of a row whose last attempt never ended, and was the last one that its settings allow.
    pub(super) fn given_up(&self, tries: u32, details: &Details) -> NewState {
        let change = Change {
            status: Some(Status::Failed),
            next: Some(Next::Never),
            try_count: Some(stored(tries)),
            attempted: true,
            error: ErrorText::Set(expired_in(tries)),
            redact: self.served.rules.texts.redact.clone(),
            ..Change::default()
        };
        NewState { settled: Settlement::Failed, change: self.served.rules.failed_on_schedule(change, details) }
    }
}

pub(super) fn nothing<K>() -> ClaimedBatch<K> {
    ClaimedBatch {
        leased: Vec::new(),
        settled: Vec::new(),
        decided: Vec::new(),
        set_aside: 0,
        unwritable: Vec::new(),
        refuses_one_statement: false,
        written: Vec::new(),
    }
}

/// Why a claim is given up, and nothing is changed.
pub(super) enum GivenUp<K> {
    /// This row cannot be written, because of this error if there is one.
    Unwritable(Box<UnsettledRow<K>>, Option<DieselError>),
    /// The database returned an error that does not concern one of the rows.
    Failed(DieselError),
}

impl<K> From<DieselError> for GivenUp<K> {
    fn from(error: DieselError) -> Self {
        GivenUp::Failed(error)
    }
}

/// Checks how many rows were written. If one of them cannot be, it is `row`.
pub(super) fn expect<K: Clone, C: QueueConnection>(
    written: QueryResult<usize>,
    expected: usize,
    row: &UnsettledRow<K>,
) -> Result<(), GivenUp<K>> {
    match written {
        Ok(changed) if changed == expected => Ok(()),
        Ok(_) => Err(GivenUp::Unwritable(Box::new(row.clone()), None)),
        Err(error) if C::classify(&error) == ErrorClass::Other => {
            Err(GivenUp::Unwritable(Box::new(row.clone()), Some(error)))
        }
        Err(error) => Err(GivenUp::Failed(error)),
    }
}

pub(super) type DecodedLease = Result<OwnedMessage, Box<dyn std::error::Error + Send + Sync>>;

pub(super) type PanicSafeRow<K> = (RowKey<K>, Fence, DecodedLease, Details);

pub(super) fn panic_safe<K>(rows: Vec<Claimed<K>>) -> Vec<PanicSafeRow<K>> {
    let safe = |(entity, state)| PanicSafeDrop::new((entity, state));
    rows.into_iter().map(|row| (row.key, row.fence, row.message.map(safe), row.details)).collect()
}

/// Returns when a row was due, if that can be read.
pub(super) fn due(message: &DecodedLease) -> Option<Instant> {
    message.as_ref().ok().and_then(|message| message.1.next_attempt_time).map(Into::into)
}

/// Returns the state of a claimed row under its lease.
pub(super) fn held_as(claimed: Fence, tries: u32, began: Option<Instant>) -> Fence {
    Fence { status: Status::InProgress, try_count: stored(tries), began, ..claimed.at_any_time() }
}

pub(super) fn expired_in(attempt: u32) -> String {
    format!("{LEASE_EXPIRED}{attempt}")
}
