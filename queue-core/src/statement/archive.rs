//! A table that takes the rows of another, and the statements that move rows between the two.

use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::result::QueryResult;

use super::condition::push_keys;
use crate::backend::{QueueBackend, TableName};
use crate::entity::{Entity, QueueTable};
use crate::error::Error;

/// An archive of a queue's rows. Statements on it give it the name of the queue's own table, so that the user's filter, an
/// expression on that table, means its rows.
#[derive(Debug, Clone)]
pub struct Archive {
    table: TableName,
    alias: String,
}

impl Archive {
    /// The archive of this name beside the queue's table.
    ///
    /// # Errors
    ///
    /// When the queue's table is named with a schema: nothing but that table can bear such a name in a statement.
    pub fn of(live: &TableName, name: &str) -> Result<Self, Error> {
        if let Some(schema) = &live.schema {
            return Err(Error::Archive(format!(
                "the archive {name} cannot be searched by a filter on {live}: no other table can be read under a name with a \
                 schema; declare the table without `{schema}.` and have the connection find it (search_path, the default \
                 database)"
            )));
        }
        Ok(Archive { table: live.beside(name), alias: live.name.clone() })
    }

    /// The archive's own name.
    pub fn table(&self) -> &TableName {
        &self.table
    }

    /// Writes `archive AS table`.
    pub(super) fn push_as_table<DB: QueueBackend>(&self, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
        self.table.push(out)?;
        out.push_sql(" AS ");
        out.push_identifier(&self.alias)
    }
}

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
        CopyRows { keys: is_keys::<Q>(keys), columns, way: Way::To(archive) }
    }

    /// Copies the rows with these keys from an archive.
    pub fn from(archive: &'a Archive, columns: &'a [String], keys: &[Q::Key]) -> Self {
        CopyRows { keys: is_keys::<Q>(keys), columns, way: Way::From(archive) }
    }
}

impl<Q, DB> QueryFragment<DB> for CopyRows<'_, Q>
where
    Q: Entity,
    DB: QueueBackend,
    Q::IsKey: QueryFragment<DB>,
    <Q::Queue as QueueTable>::Table: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("INSERT INTO ");
        match self.way {
            Way::To(archive) => archive.push(&mut out)?,
            Way::From(_) => <Q::Queue as QueueTable>::TABLE.walk_ast(out.reborrow())?,
        }
        self.push_columns(" (", &mut out)?;
        out.push_sql(")");
        out.push_sql(DB::INSERT_OWN_KEYS);
        self.push_columns(" SELECT ", &mut out)?;
        out.push_sql(" FROM ");
        match self.way {
            Way::To(_) => <Q::Queue as QueueTable>::TABLE.walk_ast(out.reborrow())?,
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

impl<Q: Entity> QueryId for CopyRows<'_, Q> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

/// Removes the rows with some keys from the queue's table, or from an archive.
pub struct RemoveKeys<'a, Q: Entity> {
    keys: Vec<Q::IsKey>,
    archive: Option<&'a Archive>,
}

impl<'a, Q: Entity> RemoveKeys<'a, Q> {
    /// Removes the rows with these keys.
    pub fn new(keys: &[Q::Key], archive: Option<&'a Archive>) -> Self {
        RemoveKeys { keys: is_keys::<Q>(keys), archive }
    }
}

impl<Q, DB> QueryFragment<DB> for RemoveKeys<'_, Q>
where
    Q: Entity,
    DB: QueueBackend,
    Q::IsKey: QueryFragment<DB>,
    <Q::Queue as QueueTable>::Table: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("DELETE ");
        match self.archive {
            None => {
                out.push_sql("FROM ");
                <Q::Queue as QueueTable>::TABLE.walk_ast(out.reborrow())?;
            }
            Some(archive) => {
                if DB::DELETE_NAMES_ALIAS {
                    out.push_identifier(&archive.alias)?;
                    out.push_sql(" ");
                }
                out.push_sql("FROM ");
                archive.push_as_table(&mut out)?;
            }
        }
        out.push_sql(" WHERE ");
        push_keys(&self.keys, &mut out)
    }
}

impl<Q: Entity> QueryId for RemoveKeys<'_, Q> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

pub(super) fn is_keys<Q: Entity>(keys: &[Q::Key]) -> Vec<Q::IsKey> {
    keys.iter().cloned().map(Q::is_key).collect()
}
