//! The order in which a claim finds the due rows, and the index along which it walks to them.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::limit::Limit;
use super::names::{push_column, push_columns, push_table};
use crate::backend::{
    QueueBackend, TableName, index_of, lane_index_of, ordered_index_of, pending_flag_of, strict_index_of,
};
use crate::entity::QueueSql;
use crate::row::{Options, Order, OrderColumn};

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
    pub(crate) fn of(options: &Options) -> Self {
        options.order.filter(|_| !options.exclusive).map_or(Walk::Oldest, Walk::InOrder)
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
    pub(crate) fn push_from<DB: QueueBackend>(
        self,
        queue: &QueueSql<DB>,
        out: &mut AstPass<'_, '_, DB>,
    ) -> QueryResult<()> {
        push_table(queue, out, " FROM ")?;
        self.push_hint(queue, out)?;
        out.push_sql(" WHERE ");
        self.push_flag(queue, out)
    }

    /// Names the index, if the database needs that.
    pub(crate) fn push_hint<DB: QueueBackend>(
        self,
        queue: &QueueSql<DB>,
        out: &mut AstPass<'_, '_, DB>,
    ) -> QueryResult<()> {
        match self {
            Walk::Oldest => push_index_hint(queue, out, DB::INDEX_HINT),
            Walk::InOrder(_) => push_ordered_index_hint(queue, out, DB::ORDERED_INDEX_HINT),
            Walk::InLane(_) => push_lane_index_hint(queue, out),
            Walk::ByKey(_) => Ok(()),
        }
    }

    /// Writes `flag = 1 AND ` if the ordered index begins with the pending flag.
    pub(crate) fn push_flag<DB: QueueBackend>(
        self,
        queue: &QueueSql<DB>,
        out: &mut AstPass<'_, '_, DB>,
    ) -> QueryResult<()> {
        match self {
            Walk::InOrder(_) | Walk::InLane(_) => push_pending_flag(queue, out),
            Walk::Oldest | Walk::ByKey(_) => Ok(()),
        }
    }

    /// Writes ` ORDER BY .. LIMIT limit`.
    pub(crate) fn push_order<'b, DB: QueueBackend>(
        self,
        queue: &QueueSql<DB>,
        out: &mut AstPass<'_, 'b, DB>,
        limit: &'b Limit,
    ) -> QueryResult<()> {
        let before = match self {
            Walk::InOrder(order) | Walk::InLane(Some(order)) | Walk::ByKey(Some(order)) => order.columns,
            Walk::Oldest | Walk::InLane(None) | Walk::ByKey(None) => &[],
        };
        if let (Walk::InLane(_), Some(lanes), true) = (self, queue.options.lanes, DB::LANE_IS_RANGE) {
            out.push_sql(" ORDER BY ");
            push_columns(queue, out, "{}, ", &[lanes.column])?;
            return push_oldest_after(queue, out, before, limit);
        }
        push_oldest(queue, out, before, limit)
    }
}

/// Writes a hint that names the ordered index, if the database needs one.
pub(crate) fn push_ordered_index_hint<DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, '_, DB>,
    hint: Option<(&'static str, &'static str)>,
) -> QueryResult<()> {
    push_hint(queue, out, hint, |table| ordered_index_of(table, queue.names, queue.options))
}

/// Writes a hint that names the index of lanes, if the database needs one.
pub(crate) fn push_lane_index_hint<DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, '_, DB>,
) -> QueryResult<()> {
    push_hint(queue, out, DB::ORDERED_INDEX_HINT, |table| lane_index_of(table, queue.names, queue.options))
}

/// Writes a hint that names the index of the rows that hold lanes back, if the database needs one.
pub(crate) fn push_strict_index_hint<DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, '_, DB>,
) -> QueryResult<()> {
    push_hint(queue, out, DB::ORDERED_INDEX_HINT, |table| strict_index_of(table, queue.names, queue.options))
}

/// Writes a hint that names the queue's index, if the database needs one.
pub(crate) fn push_index_hint<DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, '_, DB>,
    hint: Option<(&'static str, &'static str)>,
) -> QueryResult<()> {
    push_hint(queue, out, hint, |table| index_of(table, queue.names))
}

fn push_hint<DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, '_, DB>,
    hint: Option<(&'static str, &'static str)>,
    index: impl FnOnce(&TableName) -> String,
) -> QueryResult<()> {
    let Some((before, after)) = hint else { return Ok(()) };
    out.push_sql(before);
    out.push_identifier(&index(&TableName::of(queue.table, out.backend())?))?;
    out.push_sql(after);
    Ok(())
}

/// Writes `flag = 1 AND ` if an index cannot leave out the rows that are not pending.
pub(crate) fn push_pending_flag<DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, '_, DB>,
) -> QueryResult<()> {
    if !DB::PARTIAL_INDEXES {
        let flag = pending_flag_of(&TableName::of(queue.table, out.backend())?, queue.names);
        push_columns(queue, out, "{} = 1 AND ", &[&flag])?;
    }
    Ok(())
}

/// Writes the columns of an order, with a comma after each.
pub(crate) fn push_order_columns<DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, '_, DB>,
    columns: &[OrderColumn],
) -> QueryResult<()> {
    for column in columns {
        push_column(queue, out, column.name)?;
        out.push_sql(if column.descending { DB::DESCENDING } else { DB::NULLS_FIRST });
        out.push_sql(", ");
    }
    Ok(())
}

/// Writes ` ORDER BY next_attempt_time LIMIT limit`, with these columns before the time.
pub(crate) fn push_oldest<'b, DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, 'b, DB>,
    first: &[OrderColumn],
    limit: &'b Limit,
) -> QueryResult<()> {
    out.push_sql(" ORDER BY ");
    push_oldest_after(queue, out, first, limit)
}

/// Writes the same without its first words.
fn push_oldest_after<'b, DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, 'b, DB>,
    first: &[OrderColumn],
    limit: &'b Limit,
) -> QueryResult<()> {
    push_order_columns(queue, out, first)?;
    push_column(queue, out, queue.names.next_attempt_time)?;
    limit.push(out)
}
