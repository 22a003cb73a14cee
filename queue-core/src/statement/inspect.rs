//! Reads everything that decides whether rows run, without a lock.

use diesel::query_builder::QueryFragment;
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Integer, Nullable, Text};

use super::condition::{Condition, StateCondition};
use super::key_text::push_key_text;
use super::lane::push_lane_text;
use super::queue::KeyType;
use super::writer::{Writer, statement};
use crate::backend::{Captured, CapturedKey, DatabaseText, QueueBackend, Statement, TableName};
use crate::entity::{ClaimCondition, IsKey, KeyedRow};

/// The row as it is loaded: the status, the tries, the text of the last failure; whether it is pending, due, and its
/// condition true; the times of its next and its last attempt and the current time, in microseconds since 1970; its
/// stage; and the texts of the two times if they are odd.
pub type InspectedRow = (
    DatabaseText,
    i32,
    Option<DatabaseText>,
    (i64, i64, i64),
    (Option<i64>, Option<i64>, Option<i64>),
    Option<DatabaseText>,
    (Option<DatabaseText>, Option<DatabaseText>),
);

/// The SQL type of an [`InspectedRow`].
pub type InspectedRowType = (
    Text,
    Integer,
    Nullable<Text>,
    (BigInt, BigInt, BigInt),
    (Nullable<BigInt>, Nullable<BigInt>, Nullable<BigInt>),
    Nullable<Text>,
    (Nullable<Text>, Nullable<Text>),
);

/// Reads the state of the row with one key. Of a row whose columns cannot all be decoded it reads what it can.
pub fn inspect<DB: QueueBackend>(row: KeyedRow<DB>) -> impl Statement<DB> {
    let claim_if = (row.queue.claim_condition)();
    statement(row.queue, (row, claim_if), |(row, claim_if), sql| {
        push_state(sql, claim_if.as_ref())?;
        sql.push_is_key(" FROM {table} WHERE ", &row.is_key)
    })
}

/// A row of a list as it is loaded: its state, the text of its key, the value of its lane as text, and its key, if it can be
/// decoded.
pub type ListedRow<K> = (InspectedRow, String, Captured<(Option<String>,)>, CapturedKey<K>);

/// The SQL type of a [`ListedRow`].
pub(crate) type ListedRowType<Q> = (InspectedRowType, Text, (Nullable<Text>,), (KeyType<Q>,));

/// Reads the same of the pending rows that a condition picks, those first whose next attempt is the soonest: at most `limit`.
pub fn inspect_pending<DB: QueueBackend>(condition: Condition<'_, DB>, limit: usize) -> impl Statement<DB> {
    let claim_if = (condition.queue.claim_condition)();
    statement(condition.queue, (condition, claim_if, limit), |(condition, claim_if, limit), sql| {
        push_state(sql, claim_if.as_ref())?;
        sql.within((", ", ", "), push_key_text)?;
        push_lane_text(sql)?;
        sql.push(", {key}")?;
        condition.push_rows(sql)?;
        sql.push(if condition.is_empty() { " WHERE " } else { " AND " })?;
        StateCondition::Pending.push(sql)?;
        sql.push_with(&format!(" ORDER BY {{.next_attempt_time}} LIMIT {limit}"), &[])
    })
}

/// Writes `SELECT`, and the parts of an [`InspectedRow`].
fn push_state<'b, DB: QueueBackend>(
    sql: &mut Writer<'_, 'b, DB>,
    claim_if: Option<&'b ClaimCondition<DB>>,
) -> QueryResult<()> {
    sql.push("SELECT {.status}, {.try_count}, {.last_attempt_error_message}")?;
    push_whether(sql, |sql| sql.push("{.next_attempt_time} IS NOT NULL"))?;
    push_whether(sql, |sql| sql.push("{.next_attempt_time} <= {statement_time}"))?;
    push_whether(sql, |sql| match claim_if {
        Some(claim_if) => claim_if.walk_ast(sql.out.reborrow()),
        None => sql.push("1 = 1"),
    })?;
    for time in ["{.next_attempt_time}", "{.last_attempt_time}", "{statement_time}"] {
        sql.push(", ")?;
        sql.push_microseconds(time)?;
    }
    sql.push(", ")?;
    match sql.queue.options.stages {
        Some(stages) => sql.out.push_identifier(stages.column)?,
        None => sql.push_within(DB::AS_TEXT, "NULL")?,
    }
    for time in ["{.next_attempt_time}", "{.last_attempt_time}"] {
        sql.push(", ")?;
        sql.push_odd_text(time)?;
    }
    Ok(())
}

/// Writes `, 1` if a condition holds, and `, 0` if it does not.
fn push_whether<'a, 'b, DB: QueueBackend>(
    sql: &mut Writer<'a, 'b, DB>,
    push_condition: impl FnOnce(&mut Writer<'a, 'b, DB>) -> QueryResult<()>,
) -> QueryResult<()> {
    sql.push(", ")?;
    sql.within(DB::AS_INTEGER, |sql| sql.within(("CASE WHEN ", " THEN 1 ELSE 0 END"), push_condition))
}

/// Counts the rows that have both keys: one if the database takes them for the same.
pub fn is_same<DB: QueueBackend>(row: KeyedRow<DB>, is_other: IsKey<DB>) -> impl Statement<DB> {
    statement(row.queue, (row, is_other), |(row, is_other), sql| {
        sql.push_is_key("SELECT COUNT(*) FROM {table} WHERE (", &row.is_key)?;
        sql.push_is_key(") AND (", is_other)?;
        sql.push(")")
    })
}

/// Counts the rows with one key in an archive table.
pub fn is_archived<DB: QueueBackend>(row: KeyedRow<DB>, archive: &'static str) -> impl Statement<DB> {
    statement(row.queue, (row, archive), |(row, archive), sql| {
        // The key's condition names the live table, so the archive gets that name as its alias.
        let live = TableName::of(sql.queue.table, sql.out.backend())?;
        sql.push_with("SELECT COUNT(*) FROM {} AS {} WHERE ", &[archive, &live.name])?;
        sql.push_is_key("", &row.is_key)
    })
}
