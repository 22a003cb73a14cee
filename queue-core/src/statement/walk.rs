//! The order in which a claim finds the due rows, and the index along which it walks to them.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::limit::Limit;
use super::names::{push_column, push_columns, push_table};
use crate::backend::{QueueBackend, TableName, index_of, ordered_index_of, pending_flag_of};
use crate::entity::{QueueTable, TableIn};
use crate::row::{Order, OrderColumn};

/// The order in which due rows are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Walk {
    /// Those first that have been due longest, along the index of due times.
    Oldest,
    /// By the entity's order, and by due time among rows with equal values, along the index for that.
    InOrder(Order),
    /// No walk: the condition names the rows' keys. Their order is the entity's, if it has one.
    ByKey(Option<Order>),
}

impl Walk {
    /// Returns how the rows of a queue are claimed. The rows of an exclusive queue are claimed by their keys. For it
    /// only the check at start uses this walk, and its ordered index is a different one.
    pub(crate) fn of<T: QueueTable>() -> Self {
        T::OPTIONS.order.filter(|_| !T::OPTIONS.exclusive).map_or(Walk::Oldest, Walk::InOrder)
    }

    /// Returns the same order among rows that are known by their keys.
    pub(crate) fn by_key(self) -> Self {
        match self {
            Walk::Oldest => Walk::ByKey(None),
            Walk::InOrder(order) => Walk::ByKey(Some(order)),
            Walk::ByKey(order) => Walk::ByKey(order),
        }
    }

    /// Writes ` FROM table WHERE `, and the part of the condition that only the index needs.
    pub(crate) fn push_from<T: TableIn<DB>, DB: QueueBackend>(self, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
        push_table::<T, DB>(out, " FROM ")?;
        self.push_hint::<T, DB>(out)?;
        out.push_sql(" WHERE ");
        self.push_flag::<T, DB>(out)
    }

    /// Names the index, if the database needs that.
    pub(crate) fn push_hint<T: TableIn<DB>, DB: QueueBackend>(self, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
        match self {
            Walk::Oldest => push_index_hint::<T, DB>(out, DB::INDEX_HINT),
            Walk::InOrder(_) => push_ordered_index_hint::<T, DB>(out, DB::ORDERED_INDEX_HINT),
            Walk::ByKey(_) => Ok(()),
        }
    }

    /// Writes `flag = 1 AND ` if the ordered index begins with the pending flag.
    pub(crate) fn push_flag<T: TableIn<DB>, DB: QueueBackend>(self, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
        match self {
            Walk::InOrder(_) => push_pending_flag::<T, DB>(out),
            Walk::Oldest | Walk::ByKey(_) => Ok(()),
        }
    }

    /// Writes ` ORDER BY .. LIMIT limit`.
    pub(crate) fn push_order<'b, T, DB>(self, out: &mut AstPass<'_, 'b, DB>, limit: &'b Limit) -> QueryResult<()>
    where
        T: TableIn<DB>,
        DB: QueueBackend,
    {
        let before = match self {
            Walk::InOrder(order) | Walk::ByKey(Some(order)) => order.columns,
            Walk::Oldest | Walk::ByKey(None) => &[],
        };
        push_oldest::<T, DB>(out, before, limit)
    }
}

/// Writes a hint that names the ordered index, if the database needs one.
pub(crate) fn push_ordered_index_hint<T, DB>(
    out: &mut AstPass<'_, '_, DB>,
    hint: Option<(&'static str, &'static str)>,
) -> QueryResult<()>
where
    T: TableIn<DB>,
    DB: QueueBackend,
{
    if let Some((before, after)) = hint {
        out.push_sql(before);
        let table = TableName::of(T::TABLE, out.backend())?;
        out.push_identifier(&ordered_index_of(&table, T::COLUMNS, &T::OPTIONS))?;
        out.push_sql(after);
    }
    Ok(())
}

/// Writes `flag = 1 AND ` if an index cannot leave out the rows that are not pending.
pub(crate) fn push_pending_flag<T: TableIn<DB>, DB: QueueBackend>(out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    if !DB::PARTIAL_INDEXES {
        let flag = pending_flag_of(&TableName::of(T::TABLE, out.backend())?, T::COLUMNS);
        push_columns::<T, DB>(out, "{} = 1 AND ", &[&flag])?;
    }
    Ok(())
}

/// Writes the columns of an order, with a comma after each.
pub(crate) fn push_order_columns<T, DB>(out: &mut AstPass<'_, '_, DB>, columns: &[OrderColumn]) -> QueryResult<()>
where
    T: TableIn<DB>,
    DB: QueueBackend,
{
    for column in columns {
        push_column::<T, DB>(out, column.name)?;
        out.push_sql(if column.descending { DB::DESCENDING } else { DB::NULLS_FIRST });
        out.push_sql(", ");
    }
    Ok(())
}

/// Writes ` ORDER BY next_attempt_time LIMIT limit`, with these columns before the time.
pub(crate) fn push_oldest<'b, T, DB>(
    out: &mut AstPass<'_, 'b, DB>,
    first: &[OrderColumn],
    limit: &'b Limit,
) -> QueryResult<()>
where
    T: TableIn<DB>,
    DB: QueueBackend,
{
    out.push_sql(" ORDER BY ");
    push_order_columns::<T, DB>(out, first)?;
    push_column::<T, DB>(out, T::COLUMNS.next_attempt_time)?;
    limit.push(out)
}

/// Writes a hint that names the queue's index, if the database needs one.
pub(crate) fn push_index_hint<T, DB>(
    out: &mut AstPass<'_, '_, DB>,
    hint: Option<(&'static str, &'static str)>,
) -> QueryResult<()>
where
    T: TableIn<DB>,
    DB: QueueBackend,
{
    if let Some((before, after)) = hint {
        out.push_sql(before);
        out.push_identifier(&index_of(&TableName::of(T::TABLE, out.backend())?, T::COLUMNS))?;
        out.push_sql(after);
    }
    Ok(())
}
