//! Where an entity's queue lives, in the terms of the catalogue and of the DDL.

use diesel::result::QueryResult;

use super::queue_sql::QueueSql;
use crate::backend::{QueueBackend, TableName, Target, column_names};

impl<DB: QueueBackend> QueueSql<DB> {
    /// Says where the columns and the index of the queue live.
    pub(crate) fn target(&self) -> QueryResult<Target> {
        let backend = &DB::default();
        Ok(Target {
            entity: self.entity,
            table: TableName::of(self.table, backend)?,
            columns: self.names,
            options: *self.options,
            key: column_names(self.key_columns, backend)?,
            adopts: false,
            blocks_writers: false,
        })
    }
}
