//! Reads the texts of failures: how many rows have each, and the rows that have some of them.

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::condition::Condition;
use super::writer::Writer;
use crate::backend::{QueueBackend, Statement};
use crate::entity::QueueSql;

/// How many characters of a text distinguish it from others.
const CHARACTERS: u32 = 1000;

/// Reads the texts of failures, those on most rows first: each with the key of one row, and with numbers.
///
/// It needs window functions, which MySQL has from version 8.
pub struct ErrorTexts<'a, DB: QueueBackend> {
    /// The condition.
    pub condition: Condition<'a, DB>,
    /// The column by whose values the rows are split.
    pub split: Option<&'a dyn QueryFragment<DB>>,
    /// The largest number of texts, distinguished by their first 1,000 characters.
    pub limit: u32,
}

impl<DB: QueueBackend> Statement<DB> for ErrorTexts<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.condition.queue, out);
        // Row numbers are counted inside, because nothing else gives one row of each text for any type of key.
        sql.push("SELECT * FROM (SELECT ")?;
        push_text(&mut sql)?;
        sql.push(" AS queueable_text, ")?;
        sql.push_split(self.split)?;
        sql.push(" AS queueable_value, COUNT(*)")?;
        self.push_over(&mut sql, " AS queueable_rows")?;
        sql.push(", COUNT(CASE WHEN {.status} = 'ERROR' AND {.next_attempt_time} IS NOT NULL THEN 1 END)")?;
        self.push_over(&mut sql, " AS queueable_retrying")?;
        sql.push(", COUNT(CASE WHEN {.status} = 'FAILED' THEN 1 END)")?;
        self.push_over(&mut sql, " AS queueable_failed")?;
        for (function, name) in [(", MIN(", " AS queueable_first"), (", MAX(", " AS queueable_last")] {
            sql.within((function, ")"), |sql| sql.push_microseconds("{.last_attempt_time}"))?;
            self.push_over(&mut sql, name)?;
        }
        for (function, name) in [(", COUNT(", " AS queueable_odd"), (", MIN(", " AS queueable_odd_time")] {
            sql.within((function, ")"), |sql| sql.push_odd_text("{.last_attempt_time}"))?;
            self.push_over(&mut sql, name)?;
        }
        sql.push(", COUNT(*) OVER () AS queueable_all, ROW_NUMBER() OVER (PARTITION BY ")?;
        self.push_partition(&mut sql)?;
        sql.push(" ORDER BY {key}) AS queueable_place, {key} FROM {table}")?;
        self.condition.push(&mut sql)?;
        sql.push(") AS queueable_texts WHERE queueable_place = 1 ORDER BY queueable_rows DESC, queueable_text")?;
        sql.push(&format!(" LIMIT {}", self.limit))
    }
}

impl<DB: QueueBackend> ErrorTexts<'_, DB> {
    fn push_over<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>, name: &str) -> QueryResult<()> {
        sql.within((" OVER (PARTITION BY ", ")"), |sql| self.push_partition(sql))?;
        sql.push(name)
    }

    fn push_partition<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>) -> QueryResult<()> {
        push_identity(sql)?;
        sql.push_group(", ", self.split)
    }
}

/// Reads only the texts of failures, in a fixed order, after a given one.
pub struct TextsAfter<'a, DB: QueueBackend> {
    /// The condition; there must be one.
    pub condition: Condition<'a, DB>,
    /// The text after which the first one comes.
    pub after: Option<&'a str>,
    /// The largest number of texts, by their first 1,000 characters.
    pub limit: u32,
}

impl<DB: QueueBackend> Statement<DB> for TextsAfter<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.condition.queue, out);
        // MIN, because the texts of a group are equal, and some databases demand an aggregate.
        sql.within(("SELECT MIN(", ")"), push_text)?;
        sql.push(" FROM {table}")?;
        self.condition.push(&mut sql)?;
        if let Some(after) = self.after {
            sql.push(" AND ")?;
            push_identity(&mut sql)?;
            sql.push(" > ")?;
            sql.within(DB::IDENTITY, |sql| DB::bind_text(&mut sql.out, after))?;
        }
        sql.push(" GROUP BY ")?;
        push_identity(&mut sql)?;
        sql.push(" ORDER BY ")?;
        push_identity(&mut sql)?;
        sql.push(&format!(" LIMIT {}", self.limit))
    }
}

/// The condition that a row's text is one of these, by their first 1,000 characters. There must be at least one.
pub struct WithTexts<'a, DB: QueueBackend>(pub &'static QueueSql<DB>, pub &'a [String]);

impl<DB: QueueBackend> QueryFragment<DB> for WithTexts<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.0, out);
        // Each number of texts is a statement of its own, which is not worth caching.
        sql.out.unsafe_to_cache_prepared();
        sql.within(DB::EXACTLY, push_text)?;
        sql.push(" IN (")?;
        sql.each(self.1, ", ", |sql, text| sql.within(DB::EXACTLY, |sql| DB::bind_text(&mut sql.out, text)))?;
        sql.push(")")
    }
}

/// Writes the first characters of a failure's text.
fn push_text<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    sql.push(&format!("SUBSTR({{.last_attempt_error_message}}, 1, {CHARACTERS})"))
}

/// Writes them in a form that distinguishes and sorts them.
fn push_identity<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    sql.within(DB::IDENTITY, push_text)
}
