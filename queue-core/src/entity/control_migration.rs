//! The migration of the control table.

use std::marker::PhantomData;

use diesel::connection::BoxableConnection;
use diesel::migration::{Migration, MigrationMetadata, MigrationName, Result};

use super::own_migration::{Name, own_connection};
use crate::backend::{CONTROL_COLUMNS, CONTROL_TABLE, Migrated, QueueBackend, fingerprint};

/// Adds the control table.
pub(crate) struct AddControl<DB> {
    name: Name,
    backend: PhantomData<fn() -> DB>,
}

impl<DB> AddControl<DB> {
    /// Makes the migration. Its version has a hash of the table's columns, so that further columns make a further
    /// migration.
    pub(crate) fn new() -> Self {
        let name = format!("{CONTROL_TABLE}_{:016x}", fingerprint(&CONTROL_COLUMNS.join("\n")));
        AddControl { name: Name(name), backend: PhantomData }
    }
}

impl<DB: QueueBackend + 'static> AddControl<DB> {
    fn connection(connection: &mut dyn BoxableConnection<DB>) -> Result<&mut dyn Migrated<DB>> {
        own_connection(connection, || "the control table".to_owned())
    }
}

impl<DB: QueueBackend + 'static> Migration<DB> for AddControl<DB> {
    fn run(&self, connection: &mut dyn BoxableConnection<DB>) -> Result<()> {
        Ok(Self::connection(connection)?.add_control()?)
    }

    fn revert(&self, connection: &mut dyn BoxableConnection<DB>) -> Result<()> {
        Ok(Self::connection(connection)?.remove_control()?)
    }

    fn metadata(&self) -> &dyn MigrationMetadata {
        self
    }

    fn name(&self) -> &dyn MigrationName {
        &self.name
    }
}

impl<DB> MigrationMetadata for AddControl<DB> {
    fn run_in_transaction(&self) -> bool {
        // MySQL commits at DDL, and the statement is one in any case.
        false
    }
}
