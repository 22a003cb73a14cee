//! Reads a claimed row again, under its lock: some columns, which show what happened if a COMMIT's answer was lost, or all of
//! it, in the state in which it was claimed.

use diesel::result::{Error, QueryResult};
use diesel::sql_types::{Integer, Nullable, Text};

use super::claim::Claim;
use super::claimed::Claimed;
use super::condition::push_fence;
use super::queue::ErasedQueue;
use super::writer::{padded, statement};
use crate::backend::{QueueBackend, QueueConnection, Statement, load, load_first};
use crate::entity::{IsKey, Key, KeyedRow, QueueSql};
use crate::row::{Fence, Instant, RowKey, TimestampUtc};

/// Reads the status and the try count of the row with one key, or only of one that is in this state.
pub fn recall<DB: QueueBackend>(row: KeyedRow<DB>, state: Option<Fence>) -> impl Statement<DB> {
    columns_of(row, "{.status}, {.try_count}", state)
}

/// Reads the time of the last attempt, which shows whose attempt that was.
pub fn recall_last_attempt<DB: QueueBackend>(row: KeyedRow<DB>) -> impl Statement<DB> {
    columns_of(row, "{.last_attempt_time}", None)
}

/// Reads the text of the last failure, which may be a group's reservation: it shows whether the group's transaction
/// was committed after all.
pub fn recall_reservation<DB: QueueBackend>(row: KeyedRow<DB>) -> impl Statement<DB> {
    columns_of(row, "{.last_attempt_error_message}", None)
}

fn columns_of<DB: QueueBackend>(row: KeyedRow<DB>, columns: &'static str, state: Option<Fence>) -> impl Statement<DB> {
    statement(row.queue, (row, columns, state), |(row, columns, state), sql| {
        sql.push("SELECT ")?;
        sql.push(columns)?;
        sql.push_is_key(" FROM {table} WHERE ", &row.is_key)?;
        if let Some(state) = state {
            push_fence(sql, state)?;
        }
        sql.push("{row_lock}")
    })
}

/// Locks several rows, and reads which of them each is, counted from 0, and its state. A row with a fence is locked only in that
/// state.
fn lock<DB: QueueBackend>(
    queue: &'static QueueSql<DB>,
    rows: Vec<(IsKey<DB>, Option<Fence>)>,
    waits: bool,
) -> impl Statement<DB> {
    statement(queue, (rows, waits), |(rows, waits), sql| {
        sql.keep_if_few(rows.len());
        sql.push("SELECT CASE")?;
        for (number, (is_key, _)) in rows.iter().enumerate() {
            sql.push_is_key(" WHEN ", is_key)?;
            sql.out.push_sql(&format!(" THEN {number}"));
        }
        sql.push(" END, {.status}, {.try_count} FROM {table} WHERE (")?;
        sql.each(rows, ") OR (", |sql, (is_key, fence)| {
            sql.push_is_key("", is_key)?;
            fence.as_ref().map_or(Ok(()), |fence| push_fence(sql, fence))
        })?;
        sql.push(if *waits { "){row_lock}" } else { "){claim_lock}" })
    })
}

/// Reads the row with one key, if it is still in the fence's state; it need not be due. It waits for another session
/// that holds the row. If it `judges`, the condition of its claim must still hold.
pub fn retake<DB: QueueBackend>(claim: Claim<DB>, row: KeyedRow<DB>, fence: Fence, judges: bool) -> impl Statement<DB> {
    statement(row.queue, (claim, row, fence, judges), |(claim, row, fence, judges), sql| {
        claim.push_columns(sql)?;
        sql.push_is_key(" FROM {table} WHERE ", &row.is_key)?;
        push_fence(sql, fence)?;
        if *judges {
            claim.due.push_condition(sql)?;
        }
        sql.push("{row_lock}")
    })
}

impl<K: Key, C: QueueConnection> ErasedQueue<K, C> {
    /// Reads the row's state under its lock, and waits for another session that holds it.
    pub fn recall(&self, connection: &mut C, key: &RowKey<K>) -> QueryResult<Option<Fence>> {
        state_of(connection, &recall(self.row(key), None))
    }

    /// Reads the row's state under its lock, unless another session holds it.
    pub fn recall_unless_locked(&self, connection: &mut C, key: &RowKey<K>) -> QueryResult<Option<Fence>> {
        Ok(self.lock_free(connection, &[key])?.pop().and_then(|(_, state)| state))
    }

    /// Locks those of the rows that no other session holds, and returns the place and the state of each. There must be at
    /// least one.
    pub fn lock_free(&self, connection: &mut C, keys: &[&RowKey<K>]) -> QueryResult<Vec<(usize, Option<Fence>)>> {
        self.lock(connection, keys.iter().map(|key| (*key, None)), false)
    }

    /// Locks those of the rows that are exactly in these states, waiting for other sessions that hold them, and returns their
    /// places. There must be at least one.
    pub fn lock_still(&self, connection: &mut C, rows: &[(&RowKey<K>, Fence)]) -> QueryResult<Vec<usize>> {
        let locked = self.lock(connection, rows.iter().map(|(key, fence)| (*key, Some(*fence))), true)?;
        Ok(locked.into_iter().map(|(place, _)| place).collect())
    }

    fn lock<'k>(
        &self,
        connection: &mut C,
        rows: impl Iterator<Item = (&'k RowKey<K>, Option<Fence>)>,
        waits: bool,
    ) -> QueryResult<Vec<(usize, Option<Fence>)>> {
        let rows = padded(rows.map(|(key, fence)| (self.row(key).is_key, fence)).collect());
        let rows = load::<(Integer, Text, Integer), (i32, String, i32), _>(connection, &lock(self.sql, rows, waits))?;
        let found = |(place, status, try_count): (i32, String, i32)| {
            let state = status.parse().ok().map(|status| Fence::new(status, try_count));
            usize::try_from(place).ok().map(|place| (place, state))
        };
        Ok(rows.into_iter().filter_map(found).collect())
    }

    /// Reads the text of the row's last failure in the same way: it may be the reservation of a group.
    pub fn recall_reservation(&self, connection: &mut C, key: &RowKey<K>) -> QueryResult<Option<String>> {
        let text = load_first::<Nullable<Text>, Option<String>, _>(connection, &recall_reservation(self.row(key)))?;
        Ok(text.flatten())
    }

    /// Returns when the row's last attempt ended, or began under a lease. `None` also if the time is odd.
    pub fn last_attempt(&self, connection: &mut C, key: &RowKey<K>) -> QueryResult<Option<Instant>> {
        match load_first::<Nullable<TimestampUtc>, Option<Instant>, _>(connection, &recall_last_attempt(self.row(key)))
        {
            Ok(time) => Ok(time.flatten()),
            Err(Error::DeserializationError(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Locks the row, waiting for another session that holds it, and tells whether it is exactly in this state.
    pub fn is_still(&self, connection: &mut C, key: &RowKey<K>, fence: Fence) -> QueryResult<bool> {
        let row = state_of(connection, &recall(self.row(key), Some(fence)))?;
        Ok(row.is_some())
    }

    /// Locks and reads again a row that is still as it was claimed, due or not. It waits for another session that holds
    /// the row.
    pub fn retake(&self, connection: &mut C, key: &RowKey<K>, fence: Fence) -> QueryResult<Option<Claimed<K>>> {
        let rows = (self.load_claimed)(connection, &retake(self.claim_all(), self.row(key), fence, false))?;
        Ok(self.with_details(connection, rows)?.pop())
    }

    /// Does the same only if the condition of the row's claim still holds.
    pub fn retake_if_claimable(
        &self,
        connection: &mut C,
        key: &RowKey<K>,
        fence: Fence,
    ) -> QueryResult<Option<Claimed<K>>> {
        let rows = (self.load_claimed)(connection, &retake(self.claim_all(), self.row(key), fence, true))?;
        Ok(self.with_details(connection, rows)?.pop())
    }
}

/// Reads the state of a row, if it is a known one.
fn state_of<C: QueueConnection>(connection: &mut C, recall: &dyn Statement<C::Backend>) -> QueryResult<Option<Fence>> {
    let row = load_first::<(Text, Integer), (String, i32), _>(connection, recall)?;
    Ok(row.and_then(|(status, try_count)| Some(Fence::new(status.parse().ok()?, try_count))))
}
