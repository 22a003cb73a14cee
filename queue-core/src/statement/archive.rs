//! A table that takes the rows of another, and the statements that move rows between the two.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::archive_table::Archive;
use super::condition::push_keys;
use super::limit::padded;
use super::writer::Writer;
use crate::backend::{QueueBackend, Statement, TableName};
use crate::entity::{IsKey, QueueSql};

/// Copies whole rows from the queue's table to an archive, or back.
pub struct CopyRows<'a, DB: QueueBackend> {
    queue: &'static QueueSql<DB>,
    keys: Vec<IsKey<DB>>,
    columns: &'a [String],
    way: Way<'a>,
}

/// Where rows are copied.
#[derive(Clone, Copy)]
pub enum Way<'a> {
    /// To another table.
    To(&'a TableName),
    /// From an archive.
    From(&'a Archive),
}

impl<'a, DB: QueueBackend> CopyRows<'a, DB> {
    /// Copies the rows with these keys.
    pub fn new(queue: &'static QueueSql<DB>, way: Way<'a>, columns: &'a [String], keys: Vec<IsKey<DB>>) -> Self {
        CopyRows { queue, keys: padded(keys), columns, way }
    }
}

impl<DB: QueueBackend> Statement<DB> for CopyRows<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.queue, out);
        sql.push("INSERT INTO ")?;
        match self.way {
            Way::To(archive) => archive.push(&mut sql.out)?,
            Way::From(_) => sql.push("{table}")?,
        }
        sql.within((" (", ")"), |sql| self.push_columns(sql))?;
        sql.out.push_sql(DB::INSERT_OWN_KEYS);
        sql.within((" SELECT ", " FROM "), |sql| self.push_columns(sql))?;
        match self.way {
            Way::To(_) => sql.push("{table}")?,
            Way::From(archive) => archive.push_as_table(&mut sql.out)?,
        }
        sql.push(" WHERE ")?;
        push_keys(&mut sql, &self.keys)
    }
}

impl<DB: QueueBackend> CopyRows<'_, DB> {
    fn push_columns(&self, sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
        sql.each(self.columns, ", ", |sql, column| sql.out.push_identifier(column))
    }
}

/// Removes the rows with some keys from the queue's table, or from an archive.
pub struct RemoveKeys<'a, DB: QueueBackend> {
    queue: &'static QueueSql<DB>,
    keys: Vec<IsKey<DB>>,
    pub(crate) archive: Option<&'a Archive>,
}

impl<'a, DB: QueueBackend> RemoveKeys<'a, DB> {
    /// Removes the rows with these keys.
    pub fn new(queue: &'static QueueSql<DB>, keys: Vec<IsKey<DB>>, archive: Option<&'a Archive>) -> Self {
        RemoveKeys { queue, keys: padded(keys), archive }
    }
}

impl<DB: QueueBackend> Statement<DB> for RemoveKeys<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.queue, out);
        match self.archive {
            None => sql.push("DELETE FROM {table}")?,
            Some(archive) => {
                let alias = if DB::DELETE_NAMES_ALIAS { "{} " } else { "" };
                sql.within(("DELETE ", "FROM "), |sql| sql.push_with(alias, &[&archive.alias]))?;
                archive.push_as_table(&mut sql.out)?;
            }
        }
        sql.push(" WHERE ")?;
        push_keys(&mut sql, &self.keys)
    }
}
