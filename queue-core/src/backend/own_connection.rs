//! The queue's own connection behind the one on which Diesel runs a migration.

use diesel::backend::Backend;
use diesel::connection::BoxableConnection;
use diesel::r2d2::{ConnectionManager, PooledConnection, R2D2Connection};

use super::control_schema::ControlSchema;
use super::target::Schema;

/// A session whose tables the queue's migrations change.
pub trait Migrated<DB>: Schema<DB> + ControlSchema {}

impl<DB, C: Schema<DB> + ControlSchema> Migrated<DB> for C {}

/// Returns the connection, if it is of this type, pooled or not.
pub(crate) fn own<C, DB>(connection: &mut dyn BoxableConnection<DB>) -> Option<&mut dyn Migrated<DB>>
where
    C: Migrated<DB> + R2D2Connection<Backend = DB> + Send + 'static,
    DB: Backend + 'static,
{
    if connection.is::<C>() {
        return connection.downcast_mut::<C>().map(|own| own as &mut dyn Migrated<DB>);
    }
    let pooled: &mut PooledConnection<ConnectionManager<C>> = connection.downcast_mut()?;
    Some(&mut **pooled)
}
