//! The names of an archive, as statements write them.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use crate::backend::{QueueBackend, TableName};
use crate::error::Error;

/// An archive of a queue's rows. Statements on it give it the name of the queue's own table as an alias, so that the
/// user's filter, an expression on that table, applies to the archive's rows.
#[derive(Debug, Clone)]
pub struct Archive {
    table: TableName,
    pub(crate) alias: String,
}

impl Archive {
    /// Returns the archive of this name beside the queue's table.
    ///
    /// # Errors
    ///
    /// If the queue's table is named with a schema: an alias in a statement cannot contain one.
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

    /// Returns the archive's own name.
    pub fn table(&self) -> &TableName {
        &self.table
    }

    /// Writes `archive AS table`.
    pub(crate) fn push_as_table<DB: QueueBackend>(&self, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
        self.table.push(out)?;
        out.push_sql(" AS ");
        out.push_identifier(&self.alias)
    }
}
