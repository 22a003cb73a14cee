//! Operations on many rows: how many, how many of each status, the rows themselves, some of them to show, or their keys in
//! portions; changes, removals and copies. An operation on very many rows reads and locks those in small transactions.

use super::change::Change;
use super::change::push_schedule;
use super::claim::Claim;
use super::condition::Condition;
use super::condition::StateCondition;
use super::writer::{Writer, statement};
use crate::backend::{Named, QueueBackend, Statement, TableName, column_names};
use crate::entity::KeyedRow;
use crate::entity::{IsKey, SelectedIn, queue_state};
use crate::error::refused;
use crate::row::Status;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;
use serde::{Deserialize, Serialize};
use std::rc::Rc;

/// Counts the rows that a condition picks.
pub fn count<DB: QueueBackend>(condition: Condition<'_, DB>) -> impl Statement<DB> {
    statement(condition.queue, condition, |condition, sql| {
        sql.push("SELECT COUNT(*)")?;
        condition.push_rows(sql)
    })
}

/// Counts the rows of each status that a condition picks.
pub fn count_by_status<DB: QueueBackend>(condition: Condition<'_, DB>) -> impl Statement<DB> {
    statement(condition.queue, condition, |condition, sql| {
        sql.push("SELECT {.status}, COUNT(*) FROM {table}")?;
        condition.push(sql)?;
        sql.push(" GROUP BY {.status}")
    })
}

/// Loads the rows that a condition picks, at most `limit` of them, each with its queue state, ordered by primary key.
pub fn load_rows<Q: SelectedIn<DB>, DB: QueueBackend>(
    condition: Condition<'_, DB>,
    limit: Option<i64>,
) -> impl Statement<DB> {
    let columns = (Q::selection(), queue_state::<Q::Queue>());
    statement(condition.queue, (columns, condition, limit), |((selection, state), condition, limit), sql| {
        sql.push("SELECT ")?;
        sql.push_fragment(&**selection)?;
        sql.push(", ")?;
        sql.push_fragment(state)?;
        sql.push(" FROM {table}")?;
        condition.push(sql)?;
        sql.push(" ORDER BY {key}")?;
        if let Some(limit) = limit {
            sql.push(" LIMIT ")?;
            DB::bind_big_integer(&mut sql.out, limit)?;
        }
        Ok(())
    })
}

/// Reads the first rows that a condition picks, in the order of the primary key: the key and the state of each as they
/// are, and the entity if it can be decoded. `row`: what is read of each.
pub fn sample<DB: QueueBackend>(row: Claim<DB>, condition: Condition<'_, DB>, limit: usize) -> impl Statement<DB> {
    statement(condition.queue, (row, condition, limit), |(row, condition, limit), sql| {
        row.push_columns(sql)?;
        condition.push_rows(sql)?;
        sql.push_with(&format!(" ORDER BY {{key}} LIMIT {limit}"), &[])
    })
}

/// The order of a page of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PageOrder {
    /// By the time of the last attempt, the latest first.
    LatestAttempt,
    /// By the time of the next attempt, the soonest first.
    NextAttempt,
    /// By the primary key.
    Key,
    /// By the primary key, the highest first.
    KeyDescending,
}

/// Where a page of rows begins.
pub struct PageFrom<DB: QueueBackend> {
    /// The order.
    pub order: PageOrder,
    /// Whether the rows come the other way round.
    pub backwards: bool,
    /// Whether it has the rows that have a time, or those that have none or an odd one. An order by key makes no difference.
    pub timed: bool,
    /// The row before the first one: its time as text, and the condition that picks the rows whose keys come after its key in this order.
    pub after: Option<(Option<String>, IsKey<DB>)>,
}

/// Reads rows that a condition picks, from there on: the key and the state of each as they are, the time by which they come in
/// their order as text, and the entity if it can be decoded.
pub fn read_page<DB: QueueBackend>(
    row: Claim<DB>,
    condition: Condition<'_, DB>,
    from: PageFrom<DB>,
    limit: usize,
) -> impl Statement<DB> {
    statement(condition.queue, (row, condition, from, limit), |(row, condition, from, limit), sql| {
        let time = from.time(condition, sql)?;
        sql.push("SELECT {key}, ")?;
        match time.as_deref().filter(|_| from.timed) {
            Some(time) => sql.within(DB::TEXT_OF_TIME, |sql| sql.push_with("{.}", &[time]))?,
            None => sql.push("''")?,
        }
        row.push_row(sql)?;
        condition.push_rows(sql)?;
        from.push(time.as_deref(), condition.is_empty(), sql)?;
        sql.push_with(&format!(" LIMIT {limit}"), &[])
    })
}

impl PageOrder {
    /// Tells whether rows with lower keys come after those with higher ones.
    pub fn descends(self, backwards: bool) -> bool {
        matches!(self, PageOrder::LatestAttempt | PageOrder::KeyDescending) != backwards
    }

    /// Tells whether no time decides the order.
    pub(crate) fn is_by_key(self) -> bool {
        matches!(self, PageOrder::Key | PageOrder::KeyDescending)
    }
}

impl<DB: QueueBackend> PageFrom<DB> {
    /// Returns the name of the column by whose time the rows come, if they do.
    pub(super) fn time(&self, condition: &Condition<'_, DB>, sql: &Writer<'_, '_, DB>) -> QueryResult<Option<String>> {
        let names = sql.queue.names;
        Ok(match self.order {
            PageOrder::Key | PageOrder::KeyDescending => None,
            PageOrder::NextAttempt => Some(names.next_attempt_time.to_owned()),
            PageOrder::LatestAttempt => {
                Some(condition.reported(names.last_attempt_time)?.unwrap_or_else(|| names.last_attempt_time.to_owned()))
            }
        })
    }

    /// Writes the condition and the order. `is_first`: there is no condition before it.
    pub(super) fn push<'b>(
        &'b self,
        time: Option<&str>,
        is_first: bool,
        sql: &mut Writer<'_, 'b, DB>,
    ) -> QueryResult<()> {
        let is_descending = self.order.descends(self.backwards);
        sql.push(if is_first { " WHERE " } else { " AND " })?;
        match self.order {
            PageOrder::Key | PageOrder::KeyDescending => sql.push("1 = 1")?,
            PageOrder::LatestAttempt => sql.push_microseconds("{.last_attempt_time}")?,
            PageOrder::NextAttempt => sql.push_microseconds("{.next_attempt_time}")?,
        }
        if time.is_some() {
            sql.push(if self.timed { " IS NOT NULL" } else { " IS NULL" })?;
        }
        let time = time.filter(|_| self.timed);
        if let Some((text, is_beyond)) = &self.after {
            sql.push(" AND ")?;
            match (time, text) {
                (Some(time), Some(text)) => {
                    // A range for the index, and within it what comes after the row.
                    let compared = if is_descending { ["{.} <= ", "{.} < "] } else { ["{.} >= ", "{.} > "] };
                    for (compared, after) in compared.into_iter().zip([" AND (", " OR "]) {
                        sql.push_with(compared, &[time])?;
                        sql.within(DB::TIME_OF_TEXT, |sql| DB::bind_text(&mut sql.out, text))?;
                        sql.push(after)?;
                    }
                    sql.within(("(", "))"), |sql| sql.push_fragment(&**is_beyond))?;
                }
                _ => sql.within(("(", ")"), |sql| sql.push_fragment(&**is_beyond))?,
            }
        }
        sql.push(" ORDER BY ")?;
        // The way back along an index finds the nulls at the other end. No row here has one, which the planner does not know.
        let order = match (is_descending, self.backwards) {
            (true, false) => DB::DESCENDING,
            (true, true) => " DESC",
            (false, true) => DB::NULLS_FIRST,
            (false, false) => "",
        };
        if let Some(time) = time {
            sql.push_with(&format!("{{.}}{order}, "), &[time])?;
        }
        let key = column_names(sql.queue.key_columns, &DB::default())?;
        sql.each(&key, ", ", |sql, column| sql.push_with(if is_descending { "{.} DESC" } else { "{.}" }, &[column]))
    }
}

/// Returns the condition that picks the rows beyond a key: those after it, or those before it if the order descends.
pub(crate) fn beyond<DB: QueueBackend>(descends: bool, is_after: IsKey<DB>, is_key: IsKey<DB>) -> IsKey<DB> {
    if descends { Rc::new(Before(is_after, is_key)) } else { is_after }
}

/// The condition that a row's key comes before another.
struct Before<DB>(IsKey<DB>, IsKey<DB>);

impl<DB: QueueBackend> QueryFragment<DB> for Before<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let Before(is_after, is_key) = self;
        out.push_sql("NOT (");
        is_after.walk_ast(out.reborrow())?;
        out.push_sql(") AND NOT (");
        is_key.walk_ast(out.reborrow())?;
        out.push_sql(")");
        Ok(())
    }
}

/// Reads the keys of the rows that a condition picks, in their order: at most `limit`, after the first `offset` of them.
pub fn read_keys<DB: QueueBackend>(condition: Condition<'_, DB>, limit: usize, offset: usize) -> impl Statement<DB> {
    let bounds = [limit, offset].map(|number| i64::try_from(number).unwrap_or(i64::MAX));
    statement(condition.queue, (condition, bounds), |(condition, [limit, offset]), sql| {
        push_keys_of(sql, condition)?;
        sql.push(" LIMIT ")?;
        DB::bind_big_integer(&mut sql.out, limit)?;
        sql.push(" OFFSET ")?;
        DB::bind_big_integer(&mut sql.out, offset)
    })
}

/// Locks the rows that a condition picks, and reads their keys. It either passes over rows that others hold, or waits for
/// them. `for_removal`: others also hold a row by referring to it.
pub fn lock_keys<DB: QueueBackend>(
    condition: Condition<'_, DB>,
    passes_over: bool,
    for_removal: bool,
) -> impl Statement<DB> {
    statement(condition.queue, (condition, passes_over, for_removal), |(condition, passes_over, for_removal), sql| {
        push_keys_of(sql, condition)?;
        let passing = if *for_removal { "{removal_lock}" } else { "{claim_lock}" };
        sql.push(if *passes_over { passing } else { "{row_lock}" })
    })
}

/// Writes `SELECT key FROM table WHERE .. ORDER BY key`.
fn push_keys_of<'b, DB: QueueBackend>(
    sql: &mut Writer<'_, 'b, DB>,
    condition: &'b Condition<'_, DB>,
) -> QueryResult<()> {
    sql.push("SELECT {key}")?;
    condition.push_rows(sql)?;
    sql.push(" ORDER BY {key}")
}

/// Changes all rows that a condition picks. It can `keep_off_index`, the queue's: that is right in a transaction of its own at
/// READ COMMITTED; at REPEATABLE READ it would lock the whole table without the index.
pub fn change_all<DB: QueueBackend>(
    condition: Condition<'_, DB>,
    change: &Change,
    keep_off_index: bool,
) -> impl Statement<DB> {
    statement(condition.queue, (condition, change, keep_off_index), |(condition, change, keep_off_index), sql| {
        sql.push("UPDATE {table}")?;
        sql.push_hint(DB::IGNORE_INDEX.filter(|_| *keep_off_index), Named::Index)?;
        change.push_set(sql)?;
        condition.push(sql)
    })
}

/// Changes the priority of many rows, and nothing else: an attempt's fence does not contain it. `keep_off_index`: as for
/// [`change_all`].
pub fn set_priority<DB: QueueBackend>(
    condition: Condition<'_, DB>,
    priority: i32,
    keep_off_index: bool,
) -> impl Statement<DB> {
    statement(condition.queue, (condition, priority, keep_off_index), |(condition, priority, keep_off_index), sql| {
        let Some(column) = sql.queue.options.priority else {
            return Err(refused("the queue has no priority: add #[queue(priority)] to the entity".to_owned()));
        };
        sql.push("UPDATE {table}")?;
        let ignore = DB::IGNORE_INDEX.filter(|_| *keep_off_index);
        sql.push_hint(ignore, Named::Index)?;
        sql.push_hint(ignore, Named::Order)?;
        sql.push_with(" SET {} = ", &[column])?;
        DB::bind_integer(&mut sql.out, priority)?;
        sql.push_updated()?;
        condition.push(sql)
    })
}

/// Removes all rows that a condition picks, from the queue's table or from an archive.
pub fn remove_all<DB: QueueBackend>(condition: Condition<'_, DB>) -> impl Statement<DB> {
    statement(condition.queue, condition, |condition, sql| {
        sql.push("DELETE")?;
        if condition.archive.is_none() {
            // Without a hint of an index, which a DELETE does not take.
            sql.push(" FROM {table}")?;
            return condition.push(sql);
        }
        if let Some(archive) = condition.archive.filter(|_| DB::DELETE_NAMES_ALIAS) {
            sql.push_with(" {}", &[&archive.alias])?;
        }
        condition.push_rows(sql)
    })
}

/// Copies these columns of the rows that a condition picks from the queue's table to another, or from an archive back to the
/// queue's table. `to`: the table to which they are copied, if not the queue's.
pub fn copy_rows<DB: QueueBackend>(
    condition: Condition<'_, DB>,
    to: Option<&TableName>,
    columns: &[String],
) -> impl Statement<DB> {
    statement(condition.queue, (condition, to, columns), |(condition, to, columns), sql| {
        let push_columns =
            |sql: &mut Writer<'_, '_, DB>| sql.each(*columns, ", ", |sql, column| sql.out.push_identifier(column));
        sql.push("INSERT INTO ")?;
        match to {
            Some(table) => table.push(&mut sql.out)?,
            None => sql.push("{table}")?,
        }
        sql.within((" (", ")"), push_columns)?;
        sql.out.push_sql(DB::INSERT_OWN_KEYS);
        sql.push(" SELECT ")?;
        push_columns(sql)?;
        condition.push_rows(sql)
    })
}

/// The state of a row that an operator has stopped, whatever it was before: a finished row has no text, unless it
/// failed or is skipped.
const STOPPED: [StateCondition; 3] = [
    StateCondition::NotPending,
    StateCondition::WithErrorText,
    StateCondition::In(&[Status::NotAttempted, Status::InProgress, Status::Error, Status::Success]),
];

/// Sets the version, and makes the row due, if the stored version is older, or null. A stopped row stays stopped.
pub fn enqueue_if_newer<DB: QueueBackend>(row: KeyedRow<DB>, version: impl QueryFragment<DB>) -> impl Statement<DB> {
    statement(row.queue, (row, version), |(row, version), sql| {
        let column = sql.queue.options.version.ok_or_else(|| refused("the queue has no version".to_owned()))?;
        sql.push_with("UPDATE {table} SET {} = ", &[column])?;
        version.walk_ast(sql.out.reborrow())?;
        sql.push(", ")?;
        // Assignments that read other columns come before those columns, because MySQL assigns from left to right and
        // reads what it has assigned.
        push_schedule(sql)?;
        push_next_attempt_time(sql)?;
        push_status(sql)?;
        push_fresh_start(sql)?;
        sql.push_is_key(" WHERE ", &row.is_key)?;
        sql.push_with(" AND ({.} IS NULL OR {.} < ", &[column])?;
        version.walk_ast(sql.out.reborrow())?;
        sql.push(") AND ")?;
        StateCondition::NotIn(&[Status::Skipped]).push(sql)
    })
}

/// Makes the row due now, unless it is stopped or leased.
fn push_next_attempt_time<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    sql.push("{next_attempt_time} = CASE WHEN ")?;
    sql.each(STOPPED, " AND ", |sql, state| state.push(sql))?;
    sql.push(" THEN NULL")?;
    if sql.queue.options.exclusive {
        push_when_leased(sql)?;
        sql.push("{next_attempt_time}")?;
    }
    sql.push(" ELSE {now} END, ")
}

/// Makes the row not attempted, unless it is leased.
fn push_status<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    if !sql.queue.options.exclusive {
        return sql.push("{status} = 'NOT_ATTEMPTED', ");
    }
    sql.push("{status} = CASE")?;
    push_when_leased(sql)?;
    sql.push("{status} ELSE 'NOT_ATTEMPTED' END, ")
}

/// Writes the columns that begin anew: the stage, the tries and the occasion, and the time of this write.
fn push_fresh_start<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    let options = sql.queue.options;
    if let Some((stages, first)) = options.stages.and_then(|stages| Some((stages, stages.names.first()?))) {
        sql.push_with("{} = ", &[stages.column])?;
        DB::bind_text(&mut sql.out, first)?;
        sql.push(", ")?;
    }
    // The tries are part of the fence, so a worker that holds the row loses it.
    sql.push("{try_count} = 0")?;
    if let Some(occasion) = options.occasion {
        sql.push_with(", {} = {} + 1", &[occasion])?;
    }
    sql.push_updated()
}

/// Writes ` WHEN .. THEN `, for a row that a worker holds under a lease. In an exclusive queue such a row keeps the
/// others out until its lease ends, because its call is still running.
fn push_when_leased<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    sql.push(" WHEN ")?;
    StateCondition::In(&[Status::InProgress]).push(sql)?;
    sql.push(" AND {.next_attempt_time} > {statement_time} THEN ")
}
