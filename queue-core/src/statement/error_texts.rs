//! Reads the texts of failures: how many rows have each, and the rows that have some of them.

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::condition::{Condition, StateCondition};
use super::names::{push_column, push_columns, push_table, push_within};
use super::odd_time::{push_microseconds, push_odd_text};
use super::split::Split;
use crate::backend::{QueueBackend, Statement};
use crate::entity::QueueSql;
use crate::row::Status;

/// How many characters of a text distinguish it from others.
const CHARACTERS: u32 = 1000;

/// Reads the texts of failures, those on most rows first: each with the key of one row, and with numbers.
///
/// It needs window functions, which MySQL has from version 8.
pub struct ErrorTexts<'a, DB: QueueBackend> {
    condition: Condition<'a, DB>,
    split: Split<'a, DB>,
    limit: u32,
}

impl<'a, DB: QueueBackend> ErrorTexts<'a, DB> {
    /// Reads at most `limit` of the texts, distinguished by their first 1,000 characters.
    pub fn new(condition: Condition<'a, DB>, split: Option<&'a dyn QueryFragment<DB>>, limit: u32) -> Self {
        ErrorTexts { condition, split: Split(split), limit }
    }
}

impl<DB: QueueBackend> Statement<DB> for ErrorTexts<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.condition.queue;
        // Row numbers are counted inside, because nothing else gives one row of each text for any type of key.
        out.push_sql("SELECT * FROM (SELECT ");
        push_text(queue, &mut out)?;
        out.push_sql(" AS queueable_text, ");
        self.split.push_value(&mut out)?;
        out.push_sql(" AS queueable_value, COUNT(*)");
        self.push_over(&mut out, " AS queueable_rows")?;
        for (status, name) in [(Status::Error, " AS queueable_retrying"), (Status::Failed, " AS queueable_failed")] {
            push_columns(queue, &mut out, ", COUNT(CASE WHEN {} = '", &[queue.names.status])?;
            out.push_sql(status.as_str());
            out.push_sql("'");
            if status == Status::Error {
                out.push_sql(" AND ");
                StateCondition::Pending.push(queue, &mut out)?;
            }
            out.push_sql(" THEN 1 END)");
            self.push_over(&mut out, name)?;
        }
        for (function, name) in [(", MIN(", " AS queueable_first"), (", MAX(", " AS queueable_last")] {
            out.push_sql(function);
            push_microseconds(&mut out, &|out| push_column(queue, out, queue.names.last_attempt_time))?;
            out.push_sql(")");
            self.push_over(&mut out, name)?;
        }
        for (function, name) in [(", COUNT(", " AS queueable_odd"), (", MIN(", " AS queueable_odd_time")] {
            out.push_sql(function);
            push_odd_text(&mut out, &|out| push_column(queue, out, queue.names.last_attempt_time))?;
            out.push_sql(")");
            self.push_over(&mut out, name)?;
        }
        out.push_sql(", COUNT(*) OVER () AS queueable_all, ROW_NUMBER() OVER (PARTITION BY ");
        self.push_partition(&mut out)?;
        out.push_sql(" ORDER BY ");
        queue.key_columns.walk_ast(out.reborrow())?;
        out.push_sql(") AS queueable_place, ");
        queue.key_columns.walk_ast(out.reborrow())?;
        push_table(queue, &mut out, " FROM ")?;
        self.condition.walk_ast(out.reborrow())?;
        out.push_sql(
            ") AS queueable_texts WHERE queueable_place = 1 ORDER BY queueable_rows DESC, queueable_text LIMIT ",
        );
        out.push_sql(&self.limit.to_string());
        Ok(())
    }
}

impl<DB: QueueBackend> ErrorTexts<'_, DB> {
    fn push_over<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>, name: &str) -> QueryResult<()> {
        out.push_sql(" OVER (PARTITION BY ");
        self.push_partition(out)?;
        out.push_sql(")");
        out.push_sql(name);
        Ok(())
    }

    fn push_partition<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_identity(self.condition.queue, out)?;
        self.split.push_group(", ", out)
    }
}

/// Reads only the texts of failures, in a fixed order, after a given one.
pub struct TextsAfter<'a, DB: QueueBackend> {
    condition: Condition<'a, DB>,
    after: Option<&'a str>,
    limit: u32,
}

impl<'a, DB: QueueBackend> TextsAfter<'a, DB> {
    /// Reads at most `limit` of the texts, by their first 1,000 characters. There must be a condition.
    pub fn new(condition: Condition<'a, DB>, after: Option<&'a str>, limit: u32) -> Self {
        TextsAfter { condition, after, limit }
    }
}

impl<DB: QueueBackend> Statement<DB> for TextsAfter<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.condition.queue;
        // MIN, because the texts of a group are equal, and some databases demand an aggregate.
        out.push_sql("SELECT MIN(");
        push_text(queue, &mut out)?;
        push_table(queue, &mut out, ") FROM ")?;
        self.condition.walk_ast(out.reborrow())?;
        if let Some(after) = self.after {
            out.push_sql(" AND ");
            push_identity(queue, &mut out)?;
            out.push_sql(" > ");
            push_within(&mut out, DB::IDENTITY, |out| DB::bind_text(out, after))?;
        }
        out.push_sql(" GROUP BY ");
        push_identity(queue, &mut out)?;
        out.push_sql(" ORDER BY ");
        push_identity(queue, &mut out)?;
        out.push_sql(" LIMIT ");
        out.push_sql(&self.limit.to_string());
        Ok(())
    }
}

/// The condition that a row's text is one of these, by their first 1,000 characters. There must be at least one.
pub struct WithTexts<'a, DB: QueueBackend> {
    queue: &'static QueueSql<DB>,
    texts: &'a [String],
}

impl<'a, DB: QueueBackend> WithTexts<'a, DB> {
    /// Picks the rows with these texts.
    pub fn new(queue: &'static QueueSql<DB>, texts: &'a [String]) -> Self {
        WithTexts { queue, texts }
    }
}

impl<DB: QueueBackend> QueryFragment<DB> for WithTexts<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        // Each number of texts is a statement of its own, which is not worth caching.
        out.unsafe_to_cache_prepared();
        push_exact_text(self.queue, &mut out)?;
        let mut separator = " IN (";
        for text in self.texts {
            out.push_sql(std::mem::replace(&mut separator, ", "));
            push_within(&mut out, DB::EXACTLY, |out| DB::bind_text(out, text))?;
        }
        out.push_sql(")");
        Ok(())
    }
}

/// Writes the first characters of a failure's text.
fn push_text<DB: QueueBackend>(queue: &QueueSql<DB>, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    push_columns(queue, out, "SUBSTR({}", &[queue.names.last_attempt_error_message])?;
    out.push_sql(&format!(", 1, {CHARACTERS})"));
    Ok(())
}

/// Writes them in a form that compares exactly.
fn push_exact_text<DB: QueueBackend>(queue: &QueueSql<DB>, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    push_within(out, DB::EXACTLY, |out| push_text(queue, out))
}

/// Writes them in a form that distinguishes and sorts them.
fn push_identity<DB: QueueBackend>(queue: &QueueSql<DB>, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    push_within(out, DB::IDENTITY, |out| push_text(queue, out))
}
