//! Operations on many rows: how many, how many of each status, the rows themselves, some of them to show, or their keys in
//! portions; changes, removals and copies. An operation on very many rows reads and locks those in small transactions.

use diesel::result::QueryResult;

use super::change::Change;
use super::claim::Claim;
use super::condition::Condition;
use super::walk::{push_hint, push_index_hint};
use super::writer::{Writer, statement};
use crate::backend::{QueueBackend, Statement, TableName, ordered_index_of};
use crate::entity::{SelectedIn, queue_state};
use crate::error::refused;

/// Counts the rows that a condition picks.
pub fn count<DB: QueueBackend>(condition: Condition<'_, DB>) -> impl Statement<DB> {
    statement(condition.queue, condition, |condition, sql| {
        sql.push("SELECT COUNT(*)")?;
        condition.push_from(sql)?;
        condition.push(sql)
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
        condition.push_from(sql)?;
        condition.push(sql)?;
        sql.push_with(&format!(" ORDER BY {{key}} LIMIT {limit}"), &[])
    })
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
/// them.
pub fn lock_keys<DB: QueueBackend>(condition: Condition<'_, DB>, passes_over: bool) -> impl Statement<DB> {
    statement(condition.queue, (condition, passes_over), |(condition, passes_over), sql| {
        push_keys_of(sql, condition)?;
        sql.push(if *passes_over { "{claim_lock}" } else { "{row_lock}" })
    })
}

/// Writes `SELECT key FROM table WHERE .. ORDER BY key`.
fn push_keys_of<'b, DB: QueueBackend>(
    sql: &mut Writer<'_, 'b, DB>,
    condition: &'b Condition<'_, DB>,
) -> QueryResult<()> {
    sql.push("SELECT {key}")?;
    condition.push_from(sql)?;
    condition.push(sql)?;
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
        push_index_hint(sql, DB::IGNORE_INDEX.filter(|_| *keep_off_index))?;
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
        push_index_hint(sql, ignore)?;
        push_hint(sql, ignore, ordered_index_of)?;
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
        if let Some(archive) = condition.archive.filter(|_| DB::DELETE_NAMES_ALIAS) {
            sql.push_with(" {}", &[&archive.alias])?;
        }
        condition.push_from(sql)?;
        condition.push(sql)
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
        condition.push_from(sql)?;
        condition.push(sql)
    })
}
