//! Copies rows between the queue's table and another.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::condition::Condition;
use super::writer::Writer;
use crate::backend::{QueueBackend, Statement, TableName};

/// Copies whole rows from the queue's table to another, or from an archive back to the queue's table.
pub struct CopyRows<'a, DB: QueueBackend> {
    /// The rows, which may be those of an archive.
    pub condition: Condition<'a, DB>,
    /// The table to which they are copied, if not the queue's.
    pub to: Option<&'a TableName>,
    /// The columns that are copied.
    pub columns: &'a [String],
}

impl<DB: QueueBackend> Statement<DB> for CopyRows<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.condition.queue, out);
        sql.push("INSERT INTO ")?;
        match self.to {
            Some(table) => table.push(&mut sql.out)?,
            None => sql.push("{table}")?,
        }
        sql.within((" (", ")"), |sql| self.push_columns(sql))?;
        sql.out.push_sql(DB::INSERT_OWN_KEYS);
        sql.push(" SELECT ")?;
        self.push_columns(&mut sql)?;
        self.condition.push_from(&mut sql)?;
        self.condition.push(&mut sql)
    }
}

impl<DB: QueueBackend> CopyRows<'_, DB> {
    fn push_columns(&self, sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
        sql.each(self.columns, ", ", |sql, column| sql.out.push_identifier(column))
    }
}
