//! The names of an archive, as statements write them.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use crate::backend::{QueueBackend, TableName};
use crate::error::Error;

/// An archive of a queue's rows. Statements on it give it the name of the queue's own table, so that the user's filter, an
/// expression on that table, means its rows.
#[derive(Debug, Clone)]
pub struct Archive {
    table: TableName,
    pub(crate) alias: String,
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
    pub(crate) fn push_as_table<DB: QueueBackend>(&self, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
        self.table.push(out)?;
        out.push_sql(" AS ");
        out.push_identifier(&self.alias)
    }
}
