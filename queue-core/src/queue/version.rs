//! Enqueueing by version: a version that arrives out of order changes nothing.

use diesel::Column;
use diesel::expression::{AsExpression, Expression};
use diesel::query_builder::QueryFragment;
use diesel::result::QueryResult;
use diesel::sql_types::SqlType;

use crate::backend::{QueueConnection, execute};
use crate::entity::{Entity, HasVersion, QueueTable, StoredIn};
use crate::statement::EnqueueIfNewer;

/// The SQL type of a queue's version column.
type VersionType<T> = <<T as HasVersion>::Column as Expression>::SqlType;

/// An entity whose rows can be enqueued on one kind of connection by a version of type `V`. It is implemented wherever
/// the entity names a version column and Diesel can store `V` in it.
#[diagnostic::on_unimplemented(
    message = "a row of `{Self}` cannot be enqueued by a version of type `{V}` on `{C}`",
    note = "add `#[queue(version = my_column)]` to the entity, and give a value that can be stored in that column"
)]
pub trait EnqueueByVersion<C, V>: Entity {
    #[doc(hidden)]
    fn enqueue_version(connection: &mut C, key: &Self::Key, version: V) -> QueryResult<usize>;
}

impl<Q, C, V> EnqueueByVersion<C, V> for Q
where
    Q: StoredIn<C::Backend>,
    Q::Queue: HasVersion,
    VersionType<Q::Queue>: SqlType,
    <Q::Queue as HasVersion>::Column: Column<Table = <Q::Queue as QueueTable>::Table>,
    V: AsExpression<VersionType<Q::Queue>, Expression: QueryFragment<C::Backend>>,
    C: QueueConnection,
{
    fn enqueue_version(connection: &mut C, key: &Q::Key, version: V) -> QueryResult<usize> {
        execute(connection, &EnqueueIfNewer(Q::row(key), version.as_expression()))
    }
}
