//! The queue's own connection behind the one on which Diesel runs a migration.

use diesel::backend::Backend;
use diesel::connection::BoxableConnection;
use diesel::r2d2::{ConnectionManager, PooledConnection, R2D2Connection};

use super::target::Schema;

/// Returns the connection, if it is of this type, pooled or not.
pub(crate) fn own<C, DB>(connection: &mut dyn BoxableConnection<DB>) -> Option<&mut dyn Schema>
where
    C: Schema + R2D2Connection<Backend = DB> + Send + 'static,
    DB: Backend + 'static,
{
    if connection.is::<C>() {
        return connection.downcast_mut::<C>().map(|own| own as &mut dyn Schema);
    }
    let pooled: &mut PooledConnection<ConnectionManager<C>> = connection.downcast_mut()?;
    Some(&mut **pooled)
}
