//! Where an entity's queue lives, in the terms of the catalogue and of the DDL.

use diesel::result::QueryResult;

use super::stored::StoredIn;
use super::table::QueueTable;
use crate::backend::{QueueBackend, TableName, Target, column_names};

/// Says where the columns and the index of the entity's queue live.
pub(crate) fn target_of<Q, DB>() -> QueryResult<Target>
where
    Q: StoredIn<DB>,
    DB: QueueBackend,
{
    let backend = &DB::default();
    Ok(Target {
        entity: Q::ENTITY,
        table: TableName::of(<Q::Queue as QueueTable>::TABLE, backend)?,
        columns: <Q::Queue as QueueTable>::COLUMNS,
        options: <Q::Queue as QueueTable>::OPTIONS,
        key: column_names(Q::KEY_COLUMNS, backend)?,
        adopts: false,
        blocks_writers: false,
    })
}
