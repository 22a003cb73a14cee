//! Reads the texts of failures: how many rows have each, and the rows that have some of them.

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::condition::{Condition, StateCondition};
use super::names::{push_column, push_columns, push_table, push_within};
use super::odd_time::{push_microseconds, push_odd_text};
use super::split::Split;
use crate::backend::{QueueBackend, Statement};
use crate::entity::{Entity, QueueTable, StoredIn, TableIn};
use crate::row::Status;

/// How many characters of a text distinguish it from others.
const CHARACTERS: u32 = 1000;

/// Reads the texts of failures, those on most rows first: each with the key of one row, and with numbers.
///
/// It needs window functions, which MySQL has from version 8.
pub struct ErrorTexts<'a, Q: Entity, F, S> {
    condition: Condition<'a, Q::Queue, F>,
    split: Split<'a, S>,
    limit: u32,
}

impl<'a, Q: Entity, F, S> ErrorTexts<'a, Q, F, S> {
    /// Reads at most `limit` of the texts, distinguished by their first 1,000 characters.
    pub fn new(condition: Condition<'a, Q::Queue, F>, split: Option<&'a S>, limit: u32) -> Self {
        ErrorTexts { condition, split: Split(split), limit }
    }
}

impl<Q, F, S, DB> Statement<DB> for ErrorTexts<'_, Q, F, S>
where
    Q: StoredIn<DB>,
    DB: QueueBackend,
    F: QueryFragment<DB>,
    S: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        // Row numbers are counted inside, because nothing else gives one row of each text for any type of key.
        out.push_sql("SELECT * FROM (SELECT ");
        push_text::<Q::Queue, DB>(&mut out)?;
        out.push_sql(" AS queueable_text, ");
        self.split.push_value(&mut out)?;
        out.push_sql(" AS queueable_value, COUNT(*)");
        self.push_over(&mut out, " AS queueable_rows")?;
        for (status, name) in [(Status::Error, " AS queueable_retrying"), (Status::Failed, " AS queueable_failed")] {
            push_columns::<Q::Queue, DB>(&mut out, ", COUNT(CASE WHEN {} = '", &[Q::Queue::COLUMNS.status])?;
            out.push_sql(status.as_str());
            out.push_sql("'");
            if status == Status::Error {
                out.push_sql(" AND ");
                StateCondition::Pending.push::<Q::Queue, DB>(&mut out)?;
            }
            out.push_sql(" THEN 1 END)");
            self.push_over(&mut out, name)?;
        }
        for (function, name) in [(", MIN(", " AS queueable_first"), (", MAX(", " AS queueable_last")] {
            out.push_sql(function);
            push_microseconds(&mut out, &|out| push_column::<Q::Queue, DB>(out, Q::Queue::COLUMNS.last_attempt_time))?;
            out.push_sql(")");
            self.push_over(&mut out, name)?;
        }
        for (function, name) in [(", COUNT(", " AS queueable_odd"), (", MIN(", " AS queueable_odd_time")] {
            out.push_sql(function);
            push_odd_text(&mut out, &|out| push_column::<Q::Queue, DB>(out, Q::Queue::COLUMNS.last_attempt_time))?;
            out.push_sql(")");
            self.push_over(&mut out, name)?;
        }
        out.push_sql(", COUNT(*) OVER () AS queueable_all, ROW_NUMBER() OVER (PARTITION BY ");
        self.push_partition(&mut out)?;
        out.push_sql(" ORDER BY ");
        Q::KEY_COLUMNS.walk_ast(out.reborrow())?;
        out.push_sql(") AS queueable_place, ");
        Q::KEY_COLUMNS.walk_ast(out.reborrow())?;
        push_table::<Q::Queue, DB>(&mut out, " FROM ")?;
        self.condition.walk_ast(out.reborrow())?;
        out.push_sql(
            ") AS queueable_texts WHERE queueable_place = 1 ORDER BY queueable_rows DESC, queueable_text LIMIT ",
        );
        out.push_sql(&self.limit.to_string());
        Ok(())
    }
}

impl<Q: Entity, F, S> ErrorTexts<'_, Q, F, S> {
    fn push_over<'b, DB>(&'b self, out: &mut AstPass<'_, 'b, DB>, name: &str) -> QueryResult<()>
    where
        Q: StoredIn<DB>,
        DB: QueueBackend,
        S: QueryFragment<DB>,
    {
        out.push_sql(" OVER (PARTITION BY ");
        self.push_partition(out)?;
        out.push_sql(")");
        out.push_sql(name);
        Ok(())
    }

    fn push_partition<'b, DB>(&'b self, out: &mut AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        Q: StoredIn<DB>,
        DB: QueueBackend,
        S: QueryFragment<DB>,
    {
        push_identity::<Q::Queue, DB>(out)?;
        self.split.push_group(", ", out)
    }
}

/// Reads only the texts of failures, in a fixed order, after a given one.
pub struct TextsAfter<'a, T, F> {
    condition: Condition<'a, T, F>,
    after: Option<&'a str>,
    limit: u32,
}

impl<'a, T, F> TextsAfter<'a, T, F> {
    /// Reads at most `limit` of the texts, by their first 1,000 characters. There must be a condition.
    pub fn new(condition: Condition<'a, T, F>, after: Option<&'a str>, limit: u32) -> Self {
        TextsAfter { condition, after, limit }
    }
}

impl<T: TableIn<DB>, F: QueryFragment<DB>, DB: QueueBackend> Statement<DB> for TextsAfter<'_, T, F> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        // MIN, because the texts of a group are equal, and some databases demand an aggregate.
        out.push_sql("SELECT MIN(");
        push_text::<T, DB>(&mut out)?;
        push_table::<T, DB>(&mut out, ") FROM ")?;
        self.condition.walk_ast(out.reborrow())?;
        if let Some(after) = self.after {
            out.push_sql(" AND ");
            push_identity::<T, DB>(&mut out)?;
            out.push_sql(" > ");
            push_within(&mut out, DB::IDENTITY, |out| DB::bind_text(out, after))?;
        }
        out.push_sql(" GROUP BY ");
        push_identity::<T, DB>(&mut out)?;
        out.push_sql(" ORDER BY ");
        push_identity::<T, DB>(&mut out)?;
        out.push_sql(" LIMIT ");
        out.push_sql(&self.limit.to_string());
        Ok(())
    }
}

/// The condition that a row's text is one of these, by their first 1,000 characters. There must be at least one.
pub struct WithTexts<'a, T> {
    texts: &'a [String],
    table: std::marker::PhantomData<fn() -> T>,
}

impl<'a, T> WithTexts<'a, T> {
    /// Picks the rows with these texts.
    pub fn new(texts: &'a [String]) -> Self {
        WithTexts { texts, table: std::marker::PhantomData }
    }
}

impl<T: TableIn<DB>, DB: QueueBackend> QueryFragment<DB> for WithTexts<'_, T> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        // Each number of texts is a statement of its own, which is not worth caching.
        out.unsafe_to_cache_prepared();
        push_exact_text::<T, DB>(&mut out)?;
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
fn push_text<T: TableIn<DB>, DB: QueueBackend>(out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    push_columns::<T, DB>(out, "SUBSTR({}", &[T::COLUMNS.last_attempt_error_message])?;
    out.push_sql(&format!(", 1, {CHARACTERS})"));
    Ok(())
}

/// Writes them in a form that compares exactly.
fn push_exact_text<T: TableIn<DB>, DB: QueueBackend>(out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    push_within(out, DB::EXACTLY, push_text::<T, DB>)
}

/// Writes them in a form that distinguishes and sorts them.
fn push_identity<T: TableIn<DB>, DB: QueueBackend>(out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    push_within(out, DB::IDENTITY, push_text::<T, DB>)
}
