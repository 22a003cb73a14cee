//! What is left when a handler has ended its group's transaction: the messages before it did not, and whether their
//! effects are committed is read from the group's reservation.

use diesel::result::QueryResult;

use super::end::{DecidedRow, Reservation, UntouchedRow};
use crate::attempt::in_transaction;
use crate::backend::{ErrorClass, QueueConnection};
use crate::row::{Fence, Settlement, Status};
use crate::statement::{Change, QueueOn};

/// What became of a transaction that a handler ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CommitState {
    /// It was committed. The messages whose effects came with it are settled now; `None` where somebody else has changed
    /// the row meanwhile, reserved as it was.
    Committed(Vec<Option<Settlement>>),
    /// It was rolled back: its rows are as they were, and due.
    RolledBack,
}

/// Finds out, under the rows' locks, whether the transaction was committed. If so, it settles `handled`, whose effects came
/// with it, and gives back the reserved rows that are `left`.
pub(crate) fn settle_if_committed<Q, C>(
    connection: &mut C,
    reservation: &Reservation,
    handled: &[DecidedRow<Q::Key>],
    left: &[&UntouchedRow<Q::Key>],
) -> QueryResult<CommitState>
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    in_transaction(connection, |connection| {
        let mut committed = false;
        let mut settled = Vec::new();
        for DecidedRow { key, fence, settled: state, change, .. } in handled {
            let changed = match Q::recall_reservation(connection, key)? {
                Some(text) if text == reservation.text => {
                    committed = true;
                    settle_where_it_is::<Q, C>(connection, key, reservation.fence(*fence), *state, change)?
                }
                _ => 0,
            };
            settled.push((changed == 1).then_some(*state));
        }
        for UntouchedRow { key, fence, change, .. } in left {
            if Q::recall_reservation(connection, key)?.is_some_and(|text| text == reservation.text) {
                committed = true;
                Q::settle(connection, key, reservation.fence(*fence), change)?;
            }
        }
        Ok(if committed { CommitState::Committed(settled) } else { CommitState::RolledBack })
    })
}

/// Settles a row whose effects are committed. One that cannot leave its table stays there as a success: nothing can be undone any
/// more, the others must be settled too, and none of them may run again.
fn settle_where_it_is<Q, C>(
    connection: &mut C,
    key: &Q::Key,
    fence: Fence,
    settled: Settlement,
    change: &Change,
) -> QueryResult<usize>
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    if !matches!(settled, Settlement::Succeeded | Settlement::Deleted) {
        return Q::settle(connection, key, fence, change);
    }
    connection.batch_execute("SAVEPOINT queueable_recovery")?;
    let written = match settled {
        Settlement::Deleted => Q::remove(connection, key, fence),
        _ => Q::settle(connection, key, fence, change),
    };
    match written {
        Ok(rows) => {
            connection.batch_execute("RELEASE SAVEPOINT queueable_recovery")?;
            Ok(rows)
        }
        Err(error) if C::classify(&error) == ErrorClass::Other => {
            connection.batch_execute("ROLLBACK TO SAVEPOINT queueable_recovery")?;
            tracing::error!(entity = Q::ENTITY, ?key, %error, "a row that has succeeded cannot leave the table");
            let stays = Change { status: Some(Status::Success), stays: true, ..change.clone() };
            Q::settle(connection, key, fence, &stays)
        }
        Err(error) => Err(error),
    }
}
