//! The split of a report: the value of a domain column, as text.

use diesel::query_builder::QueryFragment;
use diesel::result::QueryResult;

use super::writer::Writer;
use crate::backend::QueueBackend;

/// A column by whose values a report is split, or none.
pub(crate) type Split<'a, DB> = Option<&'a dyn QueryFragment<DB>>;

impl<'b, DB: QueueBackend> Writer<'_, 'b, DB> {
    /// Writes the value of a split as text; null without a split.
    pub(crate) fn push_split(&mut self, split: Split<'b, DB>) -> QueryResult<()> {
        self.within(DB::AS_TEXT, |sql| match split {
            Some(column) => sql.push_fragment(column),
            None => sql.push("NULL"),
        })
    }

    /// Writes the expression that distinguishes two values, after `before`; nothing without a split.
    pub(crate) fn push_group(&mut self, before: &str, split: Split<'b, DB>) -> QueryResult<()> {
        if split.is_none() {
            return Ok(());
        }
        self.push(before)?;
        self.within(DB::EXACTLY, |sql| sql.push_split(split))
    }
}
