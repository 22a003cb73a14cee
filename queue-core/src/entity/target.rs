//! Where an entity's queue lives, in the words of the catalogue and of the DDL.

use diesel::backend::Backend;
use diesel::query_builder::QueryFragment;
use diesel::result::QueryResult;

use super::entity::Entity;
use super::table::QueueTable;
use crate::backend::{TableName, Target, column_names};

/// Says where the columns and the index of the entity's queue live.
pub(crate) fn target_of<Q, DB>(backend: &DB) -> QueryResult<Target>
where
    Q: Entity,
    DB: Backend,
    DB::QueryBuilder: Default,
    Q::KeyColumns: QueryFragment<DB>,
    <Q::Queue as QueueTable>::Table: QueryFragment<DB>,
{
    Ok(Target {
        entity: Q::ENTITY,
        table: TableName::of(<Q::Queue as QueueTable>::TABLE, backend)?,
        columns: <Q::Queue as QueueTable>::COLUMNS,
        options: <Q::Queue as QueueTable>::OPTIONS,
        key: column_names(Q::KEY_COLUMNS, backend)?,
    })
}
