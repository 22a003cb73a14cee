//! Writes the results of claimed rows.

use diesel::result::QueryResult;

use super::blocks::{FinishBlock, PassOn};
use super::change::{Change, hangs_on_content};
use super::erased::ErasedQueue;
use super::finish::{Finish, ends_at_once, text_of};
use super::on_finish;
use super::settle::Settle;
use super::undecodable::{SetAside, UndecodableRow};
use crate::backend::{QueueConnection, Unfinished, execute};
use crate::entity::Key;
use crate::error::refused;
use crate::row::{Fence, OnFinish};

impl<K: Key, C: QueueConnection> ErasedQueue<K, C> {
    /// Changes the row if it is still as it was claimed, and returns the number of rows changed. If the change is
    /// [`of_content`](Change::of_content) and the content has changed, the row is made due instead. A row whose work
    /// has ended leaves the table if the entity or the change says so, here and in the other methods that settle rows.
    pub fn settle(&self, connection: &mut C, key: &K, fence: Fence, change: &Change) -> QueryResult<usize> {
        on_finish::settle(connection, self.sql, &[(self.row(key).is_key, fence)], change, false)
    }

    /// Changes those of the rows that are still as they were claimed, and returns the number of rows changed.
    pub fn settle_many(&self, connection: &mut C, rows: &[(&K, Fence)], change: &Change) -> QueryResult<usize> {
        let rows: Vec<_> = rows.iter().map(|(key, fence)| (self.row(key).is_key, *fence)).collect();
        on_finish::settle(connection, self.sql, &rows, change, false)
    }

    /// Settles one row in another transaction than the claim's. The row is no longer locked, so it must still be due:
    /// another worker or an operator may have run or stopped it meanwhile and left its status and tries as they were.
    pub fn settle_anew(&self, connection: &mut C, key: &K, fence: Fence, change: &Change) -> QueryResult<usize> {
        on_finish::settle(connection, self.sql, &[(self.row(key).is_key, fence)], change, true)
    }

    /// Releases the sentinel of a message, settles its row and sets the sentinel of the next message, if that can be
    /// one round trip. `None`: it cannot, and nothing is done. A row that is not as it was claimed is an error.
    pub fn pass_on(&self, connection: &mut C, key: &K, fence: Fence, change: &Change) -> Option<QueryResult<()>> {
        let is_one_update = change.on_finish(self.sql.options) == OnFinish::Keep && !hangs_on_content(change, fence);
        if !is_one_update || !C::has_compounds(None) {
            return None;
        }
        match execute(connection, &PassOn(Settle::new(self.row(key), fence, change))) {
            // The server did not understand the text, so it did nothing of it.
            Err(error) if !C::has_compounds(Some(&error)) => None,
            passed => Some(passed.map(drop)),
        }
    }

    /// Changes a row whose key cannot be decoded, if it is still as it was found, and returns the number of rows
    /// changed.
    ///
    /// # Errors
    ///
    /// Also if it would change several rows: then the key's text does not distinguish one key from another.
    pub fn set_aside(&self, connection: &mut C, row: &UndecodableRow, change: &Change) -> QueryResult<usize> {
        match execute(connection, &SetAside::new(self.sql, row, change))? {
            rows @ (0 | 1) => Ok(rows),
            rows => Err(refused(format!("{rows} rows have the key {}", row.key::<C::Backend>()))),
        }
    }

    /// Writes the text that prepares [`Finish`], if a message can end by it: `None` if its end needs more.
    pub fn finish(&self) -> QueryResult<Option<String>> {
        ends_at_once::<K, C>(self.sql.options)
            .then(|| text_of::<C>(&Finish { queue: self.sql, leased: false }))
            .transpose()
    }

    /// Releases the handler's savepoint, settles a success and commits, in one statement.
    pub fn finish_in_a_block(&self, connection: &mut C, key: &K, fence: Fence, tries: i32) -> Result<(), Unfinished> {
        let finished = (self.finish_block)(connection, &FinishBlock { row: self.row(key), fence, tries });
        finished.map(drop).map_err(|error| C::unfinished(error, FinishBlock::<C::Backend>::NOT_ONE_ROW))
    }
}
