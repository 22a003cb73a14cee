//! The upkeep: walks over a queue's table by the primary key, and removes the rows that the entity keeps no longer.
//!
//! No index has the finished rows by their ages, and one would cost every success a write. The primary key needs no other index,
//! bounds what one statement reads, and in most tables the oldest rows come first by it.

use std::any::Any;
use std::sync::Arc;

use diesel::result::QueryResult;

use super::condition::{Condition, StateCondition};
use super::queue::{ErasedQueue, ExpiredRow};
use super::settle::let_go;
use super::writer::statement;
use crate::backend::{QueueBackend, QueueConnection, Statement};
use crate::entity::{IsKey, Key, QueueSql};
use crate::row::Leaving;

/// A primary key without its type.
pub(crate) type ErasedKey = Arc<dyn Any + Send + Sync>;

/// Reads the keys of the first rows after a key, in their order, each with its status if it has expired, or else an empty text.
pub fn next_rows<DB: QueueBackend>(
    queue: &'static QueueSql<DB>,
    after: Option<IsKey<DB>>,
    limit: i64,
) -> impl Statement<DB> {
    statement(queue, (after, limit), |(after, limit), sql| {
        sql.push("SELECT {key}, CASE WHEN ")?;
        StateCondition::Expired.push(sql)?;
        sql.push(" THEN {.status} ELSE '' END FROM {table}")?;
        if let Some(after) = after {
            sql.push_is_key(" WHERE ", after)?;
        }
        sql.push(" ORDER BY {key} LIMIT ")?;
        DB::bind_big_integer(&mut sql.out, limit)
    })
}

/// Locks the rows that a condition picks, and reads the same of them.
pub fn lock_expired<DB: QueueBackend>(condition: Condition<'_, DB>, passes_over: bool) -> impl Statement<DB> {
    statement(condition.queue, (condition, passes_over), |(condition, passes_over), sql| {
        sql.push("SELECT {key}, {.status} FROM {table}")?;
        condition.push(sql)?;
        sql.push(" ORDER BY {key}")?;
        sql.push(if *passes_over { "{removal_lock}" } else { "{row_lock}" })
    })
}

/// The next rows of a walk over the table.
pub(crate) struct NextRows<DB: QueueBackend> {
    /// Those that have expired, each with its status.
    pub(crate) expired: Vec<(String, IsKey<DB>)>,
    /// How many were looked at.
    pub(crate) looked_at: usize,
    /// How many of them have keys that cannot be decoded.
    pub(crate) undecodable: usize,
    /// The last one. `None`: there are no more rows.
    pub(crate) last: Option<ErasedKey>,
}

impl<K: Key, C: QueueConnection> ErasedQueue<K, C> {
    /// Looks at up to `limit` rows after a key, and finds up to `most` that have expired.
    pub(crate) fn next_rows(
        &self,
        connection: &mut C,
        after: Option<&ErasedKey>,
        (limit, most): (usize, usize),
    ) -> QueryResult<NextRows<C::Backend>> {
        let after = after.and_then(|key| key.downcast_ref::<K>()).map(self.is_after);
        let read = next_rows(self.sql, after, i64::try_from(limit).unwrap_or(i64::MAX));
        let rows: Vec<ExpiredRow<K>> = (self.load_expired)(connection, &read)?;
        let is_end = rows.len() < limit;
        let mut next = NextRows { expired: Vec::new(), looked_at: 0, undecodable: 0, last: None };
        let mut last = None;
        for (key, status) in rows {
            if next.expired.len() == most {
                next.last = last;
                return Ok(next);
            }
            next.looked_at += 1;
            match key.0 {
                Ok((key,)) => {
                    next.expired.extend((!status.is_empty()).then(|| (status, (self.is_key)(&key))));
                    last = Some(Arc::new(key) as ErasedKey);
                }
                Err(_) => next.undecodable += 1,
            }
        }
        next.last = last.filter(|_| !is_end);
        Ok(next)
    }

    /// Removes those of some rows that still have expired with the same status. Returns how many. It passes over rows that others
    /// have locked, if the database can.
    pub(crate) fn remove_expired(
        &self,
        connection: &mut C,
        keys: &[IsKey<C::Backend>],
        (of, _, leaves): Leaving,
        passes_over: bool,
    ) -> QueryResult<usize> {
        let states = [StateCondition::In(of), StateCondition::Expired];
        let locked = lock_expired(Condition::new(self.sql, None, &states).among(keys), passes_over);
        let locked = (self.load_expired)(connection, &locked)?;
        let keys: Vec<_> = locked.into_iter().filter_map(|(key, _)| Some((self.is_key)(&key.0.ok()?.0))).collect();
        if !keys.is_empty() {
            let_go(connection, self.sql, &keys, leaves)?;
        }
        Ok(keys.len())
    }
}
