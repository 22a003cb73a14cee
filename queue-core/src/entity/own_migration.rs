//! What the migrations of the queue's own have in common: a name, and the connections on which they run.

use std::fmt;

use diesel::connection::BoxableConnection;
use diesel::migration::{MigrationName, MigrationVersion, Result};

use crate::backend::{Migrated, QueueBackend};

/// The name of a migration, which is also its version.
pub(crate) struct Name(pub(crate) String);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl MigrationName for Name {
    fn version(&self) -> MigrationVersion<'_> {
        MigrationVersion::from(&self.0)
    }
}

/// Returns the queue's connection behind the one on which a migration is run. `what` names what it adds.
pub(crate) fn own_connection<DB: QueueBackend + 'static>(
    connection: &mut dyn BoxableConnection<DB>,
    what: impl Fn() -> String,
) -> Result<&mut dyn Migrated<DB>> {
    DB::own_connection(connection).ok_or_else(|| {
        format!("{} can only be added on a connection that a queue can use, pooled or not", what()).into()
    })
}
