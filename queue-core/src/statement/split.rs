//! The split of a report: the value of a domain column, as text.

use diesel::query_builder::QueryFragment;
use diesel::result::QueryResult;

use super::writer::Writer;
use crate::backend::QueueBackend;

/// A column by whose values a report is split, or none.
pub(crate) struct Split<'a, DB>(pub(crate) Option<&'a dyn QueryFragment<DB>>);

impl<DB: QueueBackend> Split<'_, DB> {
    /// Writes the value as text; null without a split.
    pub(crate) fn push_value<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>) -> QueryResult<()> {
        sql.within(DB::AS_TEXT, |sql| match self.0 {
            Some(column) => sql.push_fragment(column),
            None => sql.push("NULL"),
        })
    }

    /// Writes the expression that distinguishes two values, after `before`; nothing without a split.
    pub(crate) fn push_group<'b>(&'b self, before: &str, sql: &mut Writer<'_, 'b, DB>) -> QueryResult<()> {
        if self.0.is_none() {
            return Ok(());
        }
        sql.push(before)?;
        sql.within(DB::EXACTLY, |sql| self.push_value(sql))
    }
}
