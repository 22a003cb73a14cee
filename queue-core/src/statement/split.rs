//! The split of a report: the value of a domain column, as text.

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::names::push_within;
use crate::backend::QueueBackend;

/// A column by whose values a report is split, or none.
pub(crate) struct Split<'a, DB>(pub(crate) Option<&'a dyn QueryFragment<DB>>);

impl<DB: QueueBackend> Split<'_, DB> {
    /// Writes the value as text; null without a split.
    pub(crate) fn push_value<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql(DB::AS_TEXT.0);
        match self.0 {
            Some(column) => column.walk_ast(out.reborrow())?,
            None => out.push_sql("NULL"),
        }
        out.push_sql(DB::AS_TEXT.1);
        Ok(())
    }

    /// Writes the expression that distinguishes two values, after `before`; nothing without a split.
    pub(crate) fn push_group<'b>(&'b self, before: &str, out: &mut AstPass<'_, 'b, DB>) -> QueryResult<()> {
        if self.0.is_some() {
            out.push_sql(before);
            push_within(out, DB::EXACTLY, |out| self.push_value(out))?;
        }
        Ok(())
    }
}
