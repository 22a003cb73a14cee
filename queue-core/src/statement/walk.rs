//! The order in which a claim finds the due rows, and the index along which it walks to them.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::limit::Limit;
use super::names::{push_column, push_columns, push_table};
use crate::backend::{
    QueueBackend, TableName, index_of, lane_index_of, ordered_index_of, pending_flag_of, strict_index_of,
};
use crate::entity::{QueueTable, TableIn};
use crate::row::{Order, OrderColumn};

/// The order in which due rows are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Walk {
    /// Those first that have been due longest, along the index of due times.
    Oldest,
    /// By the entity's order, and by due time among rows with equal values, along the index for that.
    InOrder(Order),
    /// Within a lane, which the condition names, by the entity's order if it has one and by due time, along the index of
    /// lanes.
    InLane(Option<Order>),
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
            Walk::InLane(order) | Walk::ByKey(order) => Walk::ByKey(order),
        }
    }

    /// Returns the same order within one lane.
    pub(crate) fn in_lane(self) -> Self {
        match self {
            Walk::InOrder(order) => Walk::InLane(Some(order)),
            Walk::Oldest => Walk::InLane(None),
            by_key_or_lane => by_key_or_lane,
        }
    }

    /// Tells whether the due time alone decides the order.
    pub(crate) fn is_by_due_time(self) -> bool {
        matches!(self, Walk::Oldest | Walk::InLane(None))
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
            Walk::InLane(_) => push_lane_index_hint::<T, DB>(out),
            Walk::ByKey(_) => Ok(()),
        }
    }

    /// Writes `flag = 1 AND ` if the ordered index begins with the pending flag.
    pub(crate) fn push_flag<T: TableIn<DB>, DB: QueueBackend>(self, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
        match self {
            Walk::InOrder(_) | Walk::InLane(_) => push_pending_flag::<T, DB>(out),
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
            Walk::InOrder(order) | Walk::InLane(Some(order)) | Walk::ByKey(Some(order)) => order.columns,
            Walk::Oldest | Walk::InLane(None) | Walk::ByKey(None) => &[],
        };
        if let (Walk::InLane(_), Some(lanes), true) = (self, T::OPTIONS.lanes, DB::LANE_IS_RANGE) {
            out.push_sql(" ORDER BY ");
            push_columns::<T, DB>(out, "{}, ", &[lanes.column])?;
            return push_oldest_after::<T, DB>(out, before, limit);
        }
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

/// Writes a hint that names the index of lanes, if the database needs one.
pub(crate) fn push_lane_index_hint<T, DB>(out: &mut AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: TableIn<DB>,
    DB: QueueBackend,
{
    if let Some((before, after)) = DB::ORDERED_INDEX_HINT {
        out.push_sql(before);
        let table = TableName::of(T::TABLE, out.backend())?;
        out.push_identifier(&lane_index_of(&table, T::COLUMNS, &T::OPTIONS))?;
        out.push_sql(after);
    }
    Ok(())
}

/// Writes a hint that names the index of the rows that hold lanes back, if the database needs one.
pub(crate) fn push_strict_index_hint<T: TableIn<DB>, DB: QueueBackend>(
    out: &mut AstPass<'_, '_, DB>,
) -> QueryResult<()> {
    if let Some((before, after)) = DB::ORDERED_INDEX_HINT {
        out.push_sql(before);
        let table = TableName::of(T::TABLE, out.backend())?;
        out.push_identifier(&strict_index_of(&table, T::COLUMNS, &T::OPTIONS))?;
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
    push_oldest_after::<T, DB>(out, first, limit)
}

/// Writes the same without its first words.
fn push_oldest_after<'b, T, DB>(
    out: &mut AstPass<'_, 'b, DB>,
    first: &[OrderColumn],
    limit: &'b Limit,
) -> QueryResult<()>
where
    T: TableIn<DB>,
    DB: QueueBackend,
{
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
