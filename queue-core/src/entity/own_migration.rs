//! A migration of the queue's own: of one queue, or of the control table.

use std::fmt;

use diesel::connection::BoxableConnection;
use diesel::migration::{Migration, MigrationMetadata, MigrationName, MigrationVersion, Result};

use crate::backend::{QueueBackend, Schema, Target};

/// Adds a queue or the control table.
pub(crate) struct OwnMigration {
    /// Its version, which is also its name.
    pub(crate) version: String,
    /// The queue. `None`: the control table.
    pub(crate) queue: Option<Target>,
}

impl OwnMigration {
    /// Returns the queue's connection behind the one on which the migration is run.
    fn connection<'a, DB: QueueBackend + 'static>(
        &self,
        connection: &'a mut dyn BoxableConnection<DB>,
    ) -> Result<&'a mut dyn Schema> {
        DB::own_connection(connection).ok_or_else(|| {
            let what = match &self.queue {
                Some(target) => format!("the queue of {}", target.table),
                None => "the control table".to_owned(),
            };
            format!("{what} can only be added on a connection that a queue can use, pooled or not").into()
        })
    }
}

impl<DB: QueueBackend + 'static> Migration<DB> for OwnMigration {
    fn run(&self, connection: &mut dyn BoxableConnection<DB>) -> Result<()> {
        let connection = self.connection(connection)?;
        Ok(match &self.queue {
            Some(target) => connection.add_queue(target),
            None => connection.add_control(),
        }?)
    }

    fn revert(&self, connection: &mut dyn BoxableConnection<DB>) -> Result<()> {
        let connection = self.connection(connection)?;
        Ok(match &self.queue {
            Some(target) => connection.remove_queue(target),
            None => connection.remove_control(),
        }?)
    }

    fn metadata(&self) -> &dyn MigrationMetadata {
        self
    }

    fn name(&self) -> &dyn MigrationName {
        self
    }
}

impl MigrationMetadata for OwnMigration {
    fn run_in_transaction(&self) -> bool {
        // PostgreSQL builds an index without blocking writers only outside a transaction, and MySQL commits at DDL.
        false
    }
}

impl MigrationName for OwnMigration {
    fn version(&self) -> MigrationVersion<'_> {
        MigrationVersion::from(&self.version)
    }
}

impl fmt::Display for OwnMigration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.version)
    }
}
