//! A table that takes the rows of another, and the statements that move rows between the two.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::archive_table::Archive;
use super::condition::push_keys;
use super::limit::padded;
use super::names::{push_names, push_table};
use crate::backend::{QueueBackend, Statement, TableName};
use crate::entity::{IsKey, QueueSql};

/// Copies whole rows from the queue's table to an archive, or back.
pub struct CopyRows<'a, DB: QueueBackend> {
    queue: &'static QueueSql<DB>,
    keys: Vec<IsKey<DB>>,
    columns: &'a [String],
    way: Way<'a>,
}

#[derive(Clone, Copy)]
enum Way<'a> {
    To(&'a TableName),
    From(&'a Archive),
}

impl<'a, DB: QueueBackend> CopyRows<'a, DB> {
    /// Copies the rows with these keys to another table.
    pub fn to(
        queue: &'static QueueSql<DB>,
        archive: &'a TableName,
        columns: &'a [String],
        keys: Vec<IsKey<DB>>,
    ) -> Self {
        CopyRows { queue, keys: padded(keys), columns, way: Way::To(archive) }
    }

    /// Copies the rows with these keys from an archive.
    pub fn from(
        queue: &'static QueueSql<DB>,
        archive: &'a Archive,
        columns: &'a [String],
        keys: Vec<IsKey<DB>>,
    ) -> Self {
        CopyRows { queue, keys: padded(keys), columns, way: Way::From(archive) }
    }
}

impl<DB: QueueBackend> Statement<DB> for CopyRows<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.queue;
        out.push_sql("INSERT INTO ");
        match self.way {
            Way::To(archive) => archive.push(&mut out)?,
            Way::From(_) => queue.table.walk_ast(out.reborrow())?,
        }
        self.push_columns(" (", &mut out)?;
        out.push_sql(")");
        out.push_sql(DB::INSERT_OWN_KEYS);
        self.push_columns(" SELECT ", &mut out)?;
        out.push_sql(" FROM ");
        match self.way {
            Way::To(_) => queue.table.walk_ast(out.reborrow())?,
            Way::From(archive) => archive.push_as_table(&mut out)?,
        }
        out.push_sql(" WHERE ");
        push_keys(&self.keys, &mut out)
    }
}

impl<DB: QueueBackend> CopyRows<'_, DB> {
    fn push_columns(&self, before: &str, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
        for (i, column) in self.columns.iter().enumerate() {
            out.push_sql(if i == 0 { before } else { ", " });
            out.push_identifier(column)?;
        }
        Ok(())
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
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.queue;
        out.push_sql("DELETE ");
        match self.archive {
            None => {
                push_table(queue, &mut out, "FROM ")?;
            }
            Some(archive) => {
                if DB::DELETE_NAMES_ALIAS {
                    push_names(&mut out, "{} ", &[&archive.alias])?;
                }
                out.push_sql("FROM ");
                archive.push_as_table(&mut out)?;
            }
        }
        out.push_sql(" WHERE ");
        push_keys(&self.keys, &mut out)
    }
}
