//! Reads claimed rows again, to see whether they are still as they were claimed.

use diesel::result::{Error, QueryResult};
use diesel::sql_types::{Integer, Nullable, Text};

use super::claim::{Claim, Claimed};
use super::details::with_details;
use super::last_attempt::LastAttempt;
use super::recall::{Recall, state};
use super::recall_reservation::RecallReservation;
use super::retake::Retake;
use super::rows::ReadFrom;
use crate::backend::{QueueConnection, Statement, load_first};
use crate::row::{Fence, Instant, TimestampUtc};

/// Reads claimed rows again, to see whether they are still as they were claimed. See
/// [`QueueOn`](super::queue_on::QueueOn).
pub trait RecallOn<C: QueueConnection>: ReadFrom<C::Backend> {
    /// Reads the row's state under its lock, and waits for another session that holds it.
    fn recall(connection: &mut C, key: &Self::Key) -> QueryResult<Option<Fence>>;

    /// Reads the row's state under its lock, unless another session holds it.
    fn recall_unless_locked(connection: &mut C, key: &Self::Key) -> QueryResult<Option<Fence>>;

    /// Reads the text of the row's last failure in the same way: it may be the reservation of a group.
    fn recall_reservation(connection: &mut C, key: &Self::Key) -> QueryResult<Option<String>>;

    /// Returns when the row's last attempt ended, or began under a lease. `None` also if the time is odd.
    fn last_attempt(connection: &mut C, key: &Self::Key) -> QueryResult<Option<Instant>>;

    /// Locks the row, waiting for another session that holds it, and tells whether it is exactly in this state.
    fn is_still(connection: &mut C, key: &Self::Key, fence: Fence) -> QueryResult<bool>;

    /// Locks and reads again a row that is still as it was claimed, due or not. It waits for another session that holds
    /// the row.
    fn retake(connection: &mut C, key: &Self::Key, fence: Fence) -> QueryResult<Option<Claimed<Self>>>;

    /// Does the same only if the condition of the row's claim still holds.
    fn retake_if_claimable(connection: &mut C, key: &Self::Key, fence: Fence) -> QueryResult<Option<Claimed<Self>>>;
}

#[diagnostic::do_not_recommend]
impl<Q: ReadFrom<C::Backend>, C: QueueConnection> RecallOn<C> for Q {
    fn recall(connection: &mut C, key: &Q::Key) -> QueryResult<Option<Fence>> {
        Ok(state_of(connection, &Recall::new(Q::row(key)))?.and_then(state))
    }

    fn recall_unless_locked(connection: &mut C, key: &Q::Key) -> QueryResult<Option<Fence>> {
        Ok(state_of(connection, &Recall::new(Q::row(key)).unless_locked())?.and_then(state))
    }

    fn recall_reservation(connection: &mut C, key: &Q::Key) -> QueryResult<Option<String>> {
        let text = load_first::<Nullable<Text>, Option<String>, _>(connection, &RecallReservation::new(Q::row(key)))?;
        Ok(text.flatten())
    }

    fn last_attempt(connection: &mut C, key: &Q::Key) -> QueryResult<Option<Instant>> {
        match load_first::<Nullable<TimestampUtc>, Option<Instant>, _>(connection, &LastAttempt::new(Q::row(key))) {
            Ok(time) => Ok(time.flatten()),
            Err(Error::DeserializationError(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn is_still(connection: &mut C, key: &Q::Key, fence: Fence) -> QueryResult<bool> {
        let row = state_of(connection, &Recall::new(Q::row(key)).in_state(fence))?;
        Ok(row.is_some())
    }

    fn retake(connection: &mut C, key: &Q::Key, fence: Fence) -> QueryResult<Option<Claimed<Q>>> {
        let rows = Q::load_claimed(connection, &Retake::new(Claim::new::<Q>(), Q::row(key), fence))?;
        Ok(with_details(connection, rows)?.pop())
    }

    fn retake_if_claimable(connection: &mut C, key: &Q::Key, fence: Fence) -> QueryResult<Option<Claimed<Q>>> {
        let rows =
            Q::load_claimed(connection, &Retake::new(Claim::new::<Q>(), Q::row(key), fence).if_condition_holds())?;
        Ok(with_details(connection, rows)?.pop())
    }
}

/// Reads the status and the try count of a row.
fn state_of<C: QueueConnection>(
    connection: &mut C,
    recall: &dyn Statement<C::Backend>,
) -> QueryResult<Option<(String, i32)>> {
    load_first::<(Text, Integer), _, _>(connection, recall)
}
