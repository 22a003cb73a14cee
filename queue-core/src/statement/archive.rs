//! A table that takes the rows of another, and the statements that move rows between the two.

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::archive_table::Archive;
use super::condition::push_keys;
use super::limit::is_keys;
use super::names::{push_names, push_table};
use crate::backend::{QueueBackend, Statement, TableName};
use crate::entity::{Entity, QueueTable, StoredIn};

/// Copies whole rows from the queue's table to an archive, or back.
pub struct CopyRows<'a, Q: Entity> {
    keys: Vec<Q::IsKey>,
    columns: &'a [String],
    way: Way<'a>,
}

#[derive(Clone, Copy)]
enum Way<'a> {
    To(&'a TableName),
    From(&'a Archive),
}

impl<'a, Q: Entity> CopyRows<'a, Q> {
    /// Copies the rows with these keys to another table.
    pub fn to(archive: &'a TableName, columns: &'a [String], keys: &[Q::Key]) -> Self {
        CopyRows { keys: is_keys::<Q>(keys.iter().collect()), columns, way: Way::To(archive) }
    }

    /// Copies the rows with these keys from an archive.
    pub fn from(archive: &'a Archive, columns: &'a [String], keys: &[Q::Key]) -> Self {
        CopyRows { keys: is_keys::<Q>(keys.iter().collect()), columns, way: Way::From(archive) }
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for CopyRows<'_, Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("INSERT INTO ");
        match self.way {
            Way::To(archive) => archive.push(&mut out)?,
            Way::From(_) => Q::Queue::TABLE.walk_ast(out.reborrow())?,
        }
        self.push_columns(" (", &mut out)?;
        out.push_sql(")");
        out.push_sql(DB::INSERT_OWN_KEYS);
        self.push_columns(" SELECT ", &mut out)?;
        out.push_sql(" FROM ");
        match self.way {
            Way::To(_) => Q::Queue::TABLE.walk_ast(out.reborrow())?,
            Way::From(archive) => archive.push_as_table(&mut out)?,
        }
        out.push_sql(" WHERE ");
        push_keys(&self.keys, &mut out)
    }
}

impl<Q: Entity> CopyRows<'_, Q> {
    fn push_columns<DB: QueueBackend>(&self, before: &str, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
        for (i, column) in self.columns.iter().enumerate() {
            out.push_sql(if i == 0 { before } else { ", " });
            out.push_identifier(column)?;
        }
        Ok(())
    }
}

/// Removes the rows with some keys from the queue's table, or from an archive.
pub struct RemoveKeys<'a, Q: Entity> {
    keys: Vec<Q::IsKey>,
    pub(crate) archive: Option<&'a Archive>,
}

impl<'a, Q: Entity> RemoveKeys<'a, Q> {
    /// Removes the rows with these keys.
    pub fn new(keys: &[Q::Key], archive: Option<&'a Archive>) -> Self {
        RemoveKeys { keys: is_keys::<Q>(keys.iter().collect()), archive }
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for RemoveKeys<'_, Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("DELETE ");
        match self.archive {
            None => {
                push_table::<Q::Queue, DB>(&mut out, "FROM ")?;
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
