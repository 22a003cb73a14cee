//! Reads everything that decides whether one row runs, without a lock.

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Integer, Nullable, Text};

use super::names::{push_column, push_columns, push_names, push_table};
use super::odd_time::{push_microseconds, push_odd_text};
use crate::backend::{DatabaseText, QueueBackend, Statement, TableName};
use crate::entity::{ClaimCondition, IsKey, KeyedRow};

/// Reads the state of the row with one key. Of a row whose columns cannot all be decoded it reads what it can.
pub struct Inspect<DB: QueueBackend> {
    row: KeyedRow<DB>,
    claim_if: Option<ClaimCondition<DB>>,
}

/// The row as it is loaded: the status, the tries, the text of the last failure; whether it is pending, due, and its
/// condition true; the times of its next and its last attempt and the current time, in microseconds since 1970; its
/// stage; and the texts of the two times if they are odd.
pub type InspectedRow = (
    String,
    i32,
    Option<String>,
    (i64, i64, i64),
    (Option<i64>, Option<i64>, Option<i64>),
    Option<String>,
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

impl<DB: QueueBackend> Inspect<DB> {
    /// Inspects the row with this key.
    pub fn new(row: KeyedRow<DB>) -> Self {
        Inspect { claim_if: (row.queue.claim_condition)(), row }
    }
}

impl<DB: QueueBackend> Statement<DB> for Inspect<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.row.queue;
        let names = queue.names;
        push_columns(
            queue,
            &mut out,
            "SELECT {}, {}, {}",
            &[names.status, names.try_count, names.last_attempt_error_message],
        )?;
        push_whether(&mut out, |out| {
            push_columns(queue, out, "{} IS NOT NULL", &[names.next_attempt_time])?;
            Ok(())
        })?;
        push_whether(&mut out, |out| {
            push_columns(queue, out, "{} <= ", &[names.next_attempt_time])?;
            out.push_sql(DB::STATEMENT_TIME);
            Ok(())
        })?;
        push_whether(&mut out, |out| match &self.claim_if {
            Some(claim_if) => claim_if.walk_ast(out.reborrow()),
            None => {
                out.push_sql("1 = 1");
                Ok(())
            }
        })?;
        out.push_sql(", ");
        push_microseconds(&mut out, &|out| push_column(queue, out, queue.names.next_attempt_time))?;
        out.push_sql(", ");
        push_microseconds(&mut out, &|out| push_column(queue, out, queue.names.last_attempt_time))?;
        out.push_sql(", ");
        push_microseconds(&mut out, &|out| {
            out.push_sql(DB::STATEMENT_TIME);
            Ok(())
        })?;
        out.push_sql(", ");
        match queue.options.stages {
            Some(stages) => out.push_identifier(stages.column)?,
            None => {
                out.push_sql(DB::AS_TEXT.0);
                out.push_sql("NULL");
                out.push_sql(DB::AS_TEXT.1);
            }
        }
        out.push_sql(", ");
        push_odd_text(&mut out, &|out| push_column(queue, out, queue.names.next_attempt_time))?;
        out.push_sql(", ");
        push_odd_text(&mut out, &|out| push_column(queue, out, queue.names.last_attempt_time))?;
        push_table(queue, &mut out, " FROM ")?;
        out.push_sql(" WHERE ");
        self.row.is_key.walk_ast(out)
    }
}

/// Writes `, 1` if a condition holds, and `, 0` if it does not.
fn push_whether<'a, 'b, DB: QueueBackend>(
    out: &mut AstPass<'a, 'b, DB>,
    push_condition: impl FnOnce(&mut AstPass<'a, 'b, DB>) -> QueryResult<()>,
) -> QueryResult<()> {
    out.push_sql(", ");
    out.push_sql(DB::AS_INTEGER.0);
    out.push_sql("CASE WHEN ");
    push_condition(out)?;
    out.push_sql(" THEN 1 ELSE 0 END");
    out.push_sql(DB::AS_INTEGER.1);
    Ok(())
}

/// Counts the rows that have both keys: one if the keys are the same.
pub struct IsSame<DB: QueueBackend>(KeyedRow<DB>, IsKey<DB>);

impl<DB: QueueBackend> IsSame<DB> {
    /// Compares two keys as the database does.
    pub fn new(row: KeyedRow<DB>, other: IsKey<DB>) -> Self {
        IsSame(row, other)
    }
}

impl<DB: QueueBackend> Statement<DB> for IsSame<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_table(self.0.queue, &mut out, "SELECT COUNT(*) FROM ")?;
        out.push_sql(" WHERE (");
        self.0.is_key.walk_ast(out.reborrow())?;
        out.push_sql(") AND (");
        self.1.walk_ast(out.reborrow())?;
        out.push_sql(")");
        Ok(())
    }
}

/// Counts the rows with one key in an archive table.
pub struct IsArchived<DB: QueueBackend> {
    row: KeyedRow<DB>,
    archive: &'static str,
}

impl<DB: QueueBackend> IsArchived<DB> {
    /// Searches for the row with this key.
    pub fn new(row: KeyedRow<DB>, archive: &'static str) -> Self {
        IsArchived { row, archive }
    }
}

impl<DB: QueueBackend> Statement<DB> for IsArchived<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.row.queue;
        // The key's condition names the live table, so the archive gets that name as its alias.
        let live = TableName::of(queue.table, out.backend())?;
        push_names(&mut out, "SELECT COUNT(*) FROM {} AS {} WHERE ", &[self.archive, &live.name])?;
        self.row.is_key.walk_ast(out)
    }
}
