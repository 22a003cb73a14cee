//! Recovers a group whose transaction a handler has ended. The handlers before it did not end it, and the group's
//! reservation shows whether their effects are committed.

use diesel::result::QueryResult;

use super::end::{DecidedRow, GroupRow, Reservation};
use crate::attempt::in_transaction;
use crate::backend::{ErrorClass, QueueConnection};
use crate::entity::Key;
use crate::row::{Fence, Settlement, Status};
use crate::statement::{Change, ErasedQueue};

/// Finds out, under the rows' locks, whether the transaction was committed. If so, it settles `handled`, whose effects
/// are committed, and gives back the reserved rows that are `left`. `None`: it was rolled back, and its rows are as they
/// were, and due. In the list, `None`: another session has changed the row meanwhile, although it was reserved.
pub(crate) fn settle_if_committed<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    reservation: &Reservation,
    handled: &[DecidedRow<K>],
    left: &[&GroupRow<K>],
) -> QueryResult<Option<Vec<Option<Settlement>>>> {
    in_transaction(connection, |connection| {
        let mut committed = false;
        let mut settled = Vec::new();
        for DecidedRow { key, fence, settled: state, change, .. } in handled {
            let changed = match queue.recall_reservation(connection, key)? {
                Some(text) if text == reservation.text => {
                    committed = true;
                    settle_where_it_is(queue, connection, key, reservation.fence(*fence), *state, change)?
                }
                _ => 0,
            };
            settled.push((changed == 1).then_some(*state));
        }
        for row @ GroupRow { key, fence, .. } in left {
            if queue.recall_reservation(connection, key)?.is_some_and(|text| text == reservation.text) {
                committed = true;
                queue.settle(connection, key, reservation.fence(*fence), &row.restored())?;
            }
        }
        Ok(committed.then_some(settled))
    })
}

/// Settles a row whose effects are committed. A row that cannot leave its table stays there as a success: nothing can
/// be undone any more, the other rows must be settled too, and none of them may run again.
fn settle_where_it_is<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    key: &K,
    fence: Fence,
    settled: Settlement,
    change: &Change,
) -> QueryResult<usize> {
    if !matches!(settled, Settlement::Succeeded | Settlement::Deleted) {
        return queue.settle(connection, key, fence, change);
    }
    connection.batch_execute("SAVEPOINT queueable_recovery")?;
    match queue.settle(connection, key, fence, change) {
        Ok(rows) => {
            connection.batch_execute("RELEASE SAVEPOINT queueable_recovery")?;
            Ok(rows)
        }
        Err(error) if C::classify(&error) == ErrorClass::Other => {
            connection.batch_execute("ROLLBACK TO SAVEPOINT queueable_recovery")?;
            tracing::error!(entity = queue.sql.entity, ?key, %error, "a row that has succeeded cannot leave the table");
            let stays = Change { status: Some(Status::Success), stays: true, removes: false, ..change.clone() };
            queue.settle(connection, key, fence, &stays)
        }
        Err(error) => Err(error),
    }
}
