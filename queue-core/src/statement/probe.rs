//! Looks at a queue without a lock: where it is, when its next row is due, how long the oldest has been due, and which of
//! its pending rows no worker claims.

use std::time::Duration;

use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Text};

use super::ahead::{push_due_head, time_until};
use super::claim::due_keys;
use super::key_text::push_key_text;
use super::queue::ErasedQueue;
use super::walk::{Claimable, Walk};
use super::writer::{Writer, statement};
use crate::backend::{
    QueueBackend, QueueConnection, Statement, Target, column_names, load, load_first, statement_time,
    statement_time_plus,
};
use crate::entity::{Key, QueueSql};
use crate::error::refused;
use crate::row::{HORIZON, Instant, SET_ASIDE, microseconds};

/// Reads the microseconds until the next row is due, 0 or less if one is due already. In an exclusive queue the
/// next row is the one at the head. It looks ten minutes into the future; the limit also keeps `infinity` out.
pub fn probe_due<DB: QueueBackend>(due: Claimable<DB>) -> impl Statement<DB> {
    statement(due.queue, due, |due, sql| {
        let horizon = statement_time_plus::<DB>(microseconds(HORIZON));
        if sql.queue.options.exclusive {
            sql.push_microseconds_until("{next_attempt_time}")?;
            return push_due_head(due, sql, &horizon);
        }
        sql.push_microseconds_until("{.next_attempt_time}")?;
        due.push_rows(sql, Walk::OLDEST, &horizon, &1)
    })
}

/// Reads the microseconds for which the oldest due row has been due, without a lock: one entry of the index, also in
/// a queue with another order. 0 if its time is odd.
///
/// A probe asks for the opposite: it stops at zero, because a worker only has to know whether a row is due.
pub fn oldest_due<DB: QueueBackend>(due: Claimable<DB>) -> impl Statement<DB> {
    statement(due.queue, due, |due, sql| {
        sql.push("SELECT COALESCE(")?;
        sql.push_microseconds("{statement_time}")?;
        sql.push(" - ")?;
        sql.push_microseconds("{.next_attempt_time}")?;
        sql.push(", 0)")?;
        due.push_rows(sql, Walk::OLDEST, &statement_time::<DB>(), &1)
    })
}

/// Reads the time of the row that is due next, of those that are not due yet.
pub fn next_time<DB: QueueBackend>(queue: &'static QueueSql<DB>) -> impl Statement<DB> {
    statement(queue, (), |(), sql| {
        sql.push("SELECT MIN({next_attempt_time}) FROM {table} WHERE {.next_attempt_time} > {statement_time}")
    })
}

/// Counts the rows that wait for their time, up to a `limit`.
fn count_waiting<DB: QueueBackend>(queue: &'static QueueSql<DB>, limit: i64) -> impl Statement<DB> {
    statement(queue, limit, |limit, sql| {
        sql.push("SELECT COUNT(*) FROM (SELECT {.next_attempt_time}")?;
        Walk::OLDEST.push_from(sql)?;
        sql.push("{.next_attempt_time} > {statement_time}")?;
        sql.push_limit(limit)?;
        sql.push(") AS queueable_waiting")
    })
}

/// Counts the due rows among the first pending ones by the entity's order, of which it reads so many.
pub fn due_among_first<DB: QueueBackend>(queue: &'static QueueSql<DB>, limit: i64) -> impl Statement<DB> {
    statement(queue, limit, |limit, sql| {
        let walk = Walk::of(sql.queue.options);
        sql.push("SELECT COUNT(CASE WHEN {next_attempt_time} <= {statement_time} THEN 1 END) FROM (SELECT ")?;
        sql.push("{.next_attempt_time}")?;
        walk.push_from(sql)?;
        sql.push("{.next_attempt_time} IS NOT NULL")?;
        walk.push_order(sql, limit)?;
        sql.push(") AS queueable_first")
    })
}

/// Reads the stages of pending rows that the entity does not have: some of them, in order. No worker claims these rows.
pub fn unknown_stages<DB: QueueBackend>(queue: &'static QueueSql<DB>) -> impl Statement<DB> {
    statement(queue, (), |_, sql| {
        let Some(stages) = sql.queue.options.stages else {
            return Err(refused("an entity without stages has no unknown stages".to_owned()));
        };
        sql.push_with("SELECT DISTINCT {} FROM {table} WHERE {.next_attempt_time} IS NOT NULL AND ", &[stages.column])?;
        sql.push_stage_in(" NOT IN (", stages.names)?;
        sql.push(" ORDER BY 1 LIMIT 5")
    })
}

/// Reads the pending rows whose next attempt is the soonest, or was the longest ago.
pub fn first_pending<DB: QueueBackend>(queue: &'static QueueSql<DB>, limit: i64) -> impl Statement<DB> {
    statement(queue, limit, |limit, sql| {
        sql.within(("SELECT ", ", "), push_key_text)?;
        sql.push_within(DB::AS_TEXT, "{.status}")?;
        sql.push(", {.try_count}, ")?;
        sql.push_microseconds("{statement_time}")?;
        sql.push(" - ")?;
        sql.push_microseconds("{.next_attempt_time}")?;
        sql.push(", ")?;
        match sql.queue.options.stages {
            Some(stages) => sql.within(DB::AS_TEXT, |sql| sql.push_with("{.}", &[stages.column]))?,
            None => sql.push_within(DB::AS_TEXT, "NULL")?,
        }
        push_first_pending(sql, limit)
    })
}

/// Reads how many characters the longest text of a column has among these rows.
pub fn longest_text<DB: QueueBackend>(
    queue: &'static QueueSql<DB>,
    column: &'static str,
    limit: i64,
) -> impl Statement<DB> {
    statement(queue, (column, limit), |(column, limit), sql| {
        sql.push("SELECT ")?;
        sql.within(DB::AS_INTEGER, |sql| {
            sql.within((DB::MOST_CHARACTERS, "))"), |sql| sql.within(DB::AS_TEXT, |sql| sql.push_with("{}", &[column])))
        })?;
        sql.push_with(" FROM (SELECT {.}", &[column])?;
        push_first_pending(sql, limit)?;
        sql.push(") AS queueable_first")
    })
}

/// Counts the rows that have ended their process too often, among those with the highest keys.
pub fn poison_among_last<DB: QueueBackend>(queue: &'static QueueSql<DB>, limit: i64) -> impl Statement<DB> {
    statement(queue, limit, |limit, sql| {
        sql.push("SELECT COUNT(*) FROM (SELECT {status}, {last_attempt_error_message} FROM {table} ORDER BY ")?;
        let keys = column_names(sql.queue.key_columns, sql.out.backend())?;
        sql.each(&keys, ", ", |sql, key| sql.push_with("{} DESC", &[key]))?;
        sql.push_limit(limit)?;
        sql.push(") AS queueable_last WHERE {status} = 'FAILED' AND ")?;
        sql.push_within(DB::AS_TEXT, "{last_attempt_error_message}")?;
        sql.push_with(&format!(" LIKE '{SET_ASIDE}%'"), &[])
    })
}

fn push_first_pending<'b, DB: QueueBackend>(sql: &mut Writer<'_, 'b, DB>, limit: &'b i64) -> QueryResult<()> {
    Walk::OLDEST.push_from(sql)?;
    sql.push("{.next_attempt_time} IS NOT NULL")?;
    Walk::OLDEST.push_order(sql, limit)
}

impl<K: Key, C: QueueConnection> ErasedQueue<K, C> {
    /// Returns where the queue's columns and index are.
    pub fn target(&self) -> QueryResult<Target> {
        self.sql.target()
    }

    /// Reads, without a lock, how long it is until the next row is due, in one of these stages if the entity has any, but
    /// not for rows that are due earlier than `floor`. `None`: no row is due within [`HORIZON`], or in an
    /// exclusive queue a lease keeps the others from being claimed.
    pub fn probe_due(
        &self,
        connection: &mut C,
        stages: Option<&[&'static str]>,
        floor: Option<Instant>,
    ) -> QueryResult<Option<Duration>> {
        if self.sql.options.exclusive && self.is_leased() && self.another_is_leased(connection, None)? {
            return Ok(None);
        }
        let mut soonest = None;
        for stages in self.each_of(stages) {
            let probe = probe_due(Claimable::new(self.sql, stages).not_below(floor));
            let due_in = load_first::<BigInt, i64, _>(connection, &probe)?.map(time_until);
            soonest = soonest.into_iter().chain(due_in).min();
            if soonest == Some(Duration::ZERO) {
                break;
            }
        }
        Ok(soonest)
    }

    /// Returns these stages one by one, since each has its part in the index of stages. An exclusive queue has one head for
    /// all of them.
    fn each_of<'s>(&self, stages: Option<&'s [&'static str]>) -> Vec<Option<&'s [&'static str]>> {
        let apart = stages.filter(|_| !self.sql.options.exclusive);
        apart.map_or_else(|| vec![stages], |stages| stages.chunks(1).map(Some).collect())
    }

    /// Reads, without a lock, how long the oldest due row has been due, in one of these stages if the entity has any.
    /// `None`: no row is due.
    pub fn oldest_due(&self, connection: &mut C, stages: Option<&[&'static str]>) -> QueryResult<Option<Duration>> {
        let mut oldest = None;
        for stages in self.each_of(stages) {
            let age = load_first::<BigInt, i64, _>(connection, &oldest_due(Claimable::new(self.sql, stages)))?;
            oldest = oldest.max(age.map(time_until));
        }
        Ok(oldest)
    }

    /// Counts the due rows in these stages, up to `limit`, without a lock.
    pub(crate) fn number_due(
        &self,
        connection: &mut C,
        stages: Option<&[&'static str]>,
        limit: u32,
    ) -> QueryResult<u32> {
        let mut due = 0;
        for stages in self.each_of(stages) {
            let keys = self.read_keys(connection, &due_keys(Claimable::new(self.sql, stages), limit.into()))?;
            due += u32::try_from(keys.len()).unwrap_or(limit);
            if due >= limit {
                break;
            }
        }
        Ok(due)
    }

    /// Tells whether at least so many rows wait for their time.
    pub(crate) fn do_wait(&self, connection: &mut C, many: u32) -> QueryResult<bool> {
        let count = count_waiting(self.sql, many.into());
        Ok(load_first::<BigInt, i64, _>(connection, &count)?.is_some_and(|waiting| waiting >= many.into()))
    }

    /// Tells whether any of the first so many pending rows by the entity's order is due.
    pub(crate) fn any_due_among_first(&self, connection: &mut C, limit: u32) -> QueryResult<bool> {
        let due: Option<i64> = load_first::<BigInt, i64, _>(connection, &due_among_first(self.sql, limit.into()))?;
        Ok(due.is_some_and(|due| due > 0))
    }

    /// Reads the stages of pending rows that the entity does not know, or some of them if there are many.
    pub fn unknown_stages(&self, connection: &mut C) -> QueryResult<Vec<String>> {
        match self.sql.options.stages {
            Some(_) => load::<Text, String, _>(connection, &unknown_stages(self.sql)),
            None => Ok(Vec::new()),
        }
    }
}
