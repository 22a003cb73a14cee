//! Writes the results of claimed rows.

use diesel::result::QueryResult;

use super::change::{Change, hangs_on_content};
use super::finish::{Finish, ends_at_once, text_of};
use super::finish_block::{FinishBlock, FinishBlockId};
use super::on_finish;
use super::pass_on::PassOn;
use super::rows::ReadFrom;
use super::undecodable::{SetAside, UndecodableRow};
use crate::backend::{QueueConnection, Unfinished, execute, execute_by_id};
use crate::entity::QueueTable;
use crate::error::refused;
use crate::row::{Fence, OnFinish};

/// Writes the results of claimed rows. See [`QueueOn`](super::queue_on::QueueOn).
pub trait SettleOn<C: QueueConnection>: ReadFrom<C::Backend> {
    /// Changes the row if it is still as it was claimed, and returns the number of rows changed. If the change is
    /// [`of_content`](Change::of_content) and the content has changed, the row is made due instead. A row whose work
    /// has ended leaves the table if the entity says so, here and in the other methods that settle rows.
    fn settle(connection: &mut C, key: &Self::Key, fence: Fence, change: &Change) -> QueryResult<usize>;

    /// Changes those of the rows that are still as they were claimed, and returns the number of rows changed.
    fn settle_many(connection: &mut C, rows: &[(&Self::Key, Fence)], change: &Change) -> QueryResult<usize>;

    /// Settles one row in another transaction than the claim's. The row is no longer locked, so it must still be due:
    /// another worker or an operator may have run or stopped it meanwhile and left its status and tries as they were.
    fn settle_anew(connection: &mut C, key: &Self::Key, fence: Fence, change: &Change) -> QueryResult<usize>;

    /// Releases the sentinel of a message, settles its row and sets the sentinel of the next message, if that can be
    /// one round trip. `None`: it cannot, and nothing is done. A row that is not as it was claimed is an error.
    fn pass_on(connection: &mut C, key: &Self::Key, fence: Fence, change: &Change) -> Option<QueryResult<()>>;

    /// Removes the row if it is still as it was claimed, and returns the number of rows removed. If its content has
    /// changed, the row is made due instead.
    fn remove(connection: &mut C, key: &Self::Key, fence: Fence) -> QueryResult<usize>;

    /// Changes a row whose key cannot be decoded, if it is still as it was found, and returns the number of rows
    /// changed.
    ///
    /// # Errors
    ///
    /// Also if it would change several rows: then the key's text does not distinguish one key from another.
    fn set_aside(connection: &mut C, row: &UndecodableRow, change: &Change) -> QueryResult<usize>;

    /// Writes the text that prepares [`Finish`], if a message can end by it: `None` if its end needs more.
    fn finish() -> QueryResult<Option<String>>;

    /// Releases the handler's savepoint, settles a success and commits, in one statement.
    fn finish_in_a_block(connection: &mut C, key: &Self::Key, fence: Fence, tries: i32) -> Result<(), Unfinished>;
}

#[diagnostic::do_not_recommend]
impl<Q: ReadFrom<C::Backend>, C: QueueConnection> SettleOn<C> for Q {
    fn settle(connection: &mut C, key: &Q::Key, fence: Fence, change: &Change) -> QueryResult<usize> {
        on_finish::settle(connection, Q::SQL, &[(Q::row(key).is_key, fence)], change, false)
    }

    fn settle_many(connection: &mut C, rows: &[(&Q::Key, Fence)], change: &Change) -> QueryResult<usize> {
        let rows: Vec<_> = rows.iter().map(|(key, fence)| (Q::row(key).is_key, *fence)).collect();
        on_finish::settle(connection, Q::SQL, &rows, change, false)
    }

    fn settle_anew(connection: &mut C, key: &Q::Key, fence: Fence, change: &Change) -> QueryResult<usize> {
        on_finish::settle(connection, Q::SQL, &[(Q::row(key).is_key, fence)], change, true)
    }

    fn pass_on(connection: &mut C, key: &Q::Key, fence: Fence, change: &Change) -> Option<QueryResult<()>> {
        let is_one_update = change.on_finish(&Q::Queue::OPTIONS) == OnFinish::Keep && !hangs_on_content(change, fence);
        if !is_one_update || !C::has_compounds(None) {
            return None;
        }
        match execute(connection, &PassOn::new(Q::row(key), fence, change)) {
            // The server did not understand the text, so it did nothing of it.
            Err(error) if !C::has_compounds(Some(&error)) => None,
            passed => Some(passed.map(drop)),
        }
    }

    fn remove(connection: &mut C, key: &Q::Key, fence: Fence) -> QueryResult<usize> {
        on_finish::remove(connection, &Q::row(key), fence)
    }

    fn set_aside(connection: &mut C, row: &UndecodableRow, change: &Change) -> QueryResult<usize> {
        match execute(connection, &SetAside::new(Q::SQL, row, change))? {
            rows @ (0 | 1) => Ok(rows),
            rows => Err(refused(format!("{rows} rows have the key {}", row.key::<C::Backend>()))),
        }
    }

    fn finish() -> QueryResult<Option<String>> {
        ends_at_once::<Q::Key, C>(&Q::Queue::OPTIONS).then(|| text_of::<C>(&Finish::new(Q::SQL))).transpose()
    }

    fn finish_in_a_block(connection: &mut C, key: &Q::Key, fence: Fence, tries: i32) -> Result<(), Unfinished> {
        let finished = execute_by_id::<FinishBlockId<Q>, C>(connection, &FinishBlock::new(Q::row(key), fence, tries));
        finished.map(drop).map_err(|error| C::unfinished(error, FinishBlock::<C::Backend>::NOT_ONE_ROW))
    }
}
