//! The order in which a claim finds the due rows, and the index along which it walks to them.

use diesel::result::QueryResult;

use super::writer::Writer;
use crate::backend::{QueueBackend, TableName, index_of, lane_index_of, ordered_index_of, pending_flag_of};
use crate::row::{ColumnNames, Options, Order};

/// The order in which due rows are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Walk {
    along: Along,
    /// The entity's order. Among rows with equal values, and without an order, those come first that have been due
    /// longest.
    order: Option<Order>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Along {
    /// The index of due times, or that of the order.
    Queue,
    /// The index of lanes, within a lane that the condition names.
    Lane,
    /// No index: the condition names the rows' keys.
    Keys,
}

impl Walk {
    /// Those first that have been due longest.
    pub(crate) const OLDEST: Walk = Walk { along: Along::Queue, order: None };

    /// The same within a lane.
    pub(crate) const IN_LANE: Walk = Walk { along: Along::Lane, order: None };

    /// Returns how the rows of a queue are claimed. The rows of an exclusive queue are claimed by their keys. For it
    /// only the check at start uses this walk, and its ordered index is a different one.
    pub(crate) fn of(options: &Options) -> Self {
        Walk { order: options.order.filter(|_| !options.exclusive), ..Walk::OLDEST }
    }

    /// Returns the same order among rows that are known by their keys.
    pub(crate) fn by_key(self) -> Self {
        Walk { along: Along::Keys, ..self }
    }

    /// Returns the same order within one lane.
    pub(crate) fn in_lane(self) -> Self {
        if self.along == Along::Keys { self } else { Walk { along: Along::Lane, ..self } }
    }

    /// Tells whether the due time alone decides the order.
    pub(crate) fn is_by_due_time(self) -> bool {
        self.order.is_none() && self.along != Along::Keys
    }

    /// Writes ` FROM table WHERE `, and the part of the condition that only the index needs.
    pub(crate) fn push_from<DB: QueueBackend>(self, sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
        sql.push(" FROM {table}")?;
        self.push_hint(sql)?;
        sql.push(" WHERE ")?;
        self.push_flag(sql)
    }

    /// Names the index, if the database needs that.
    pub(crate) fn push_hint<DB: QueueBackend>(self, sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
        match (self.along, self.order) {
            (Along::Queue, None) => push_index_hint(sql, DB::INDEX_HINT),
            (Along::Queue, Some(_)) => push_hint(sql, DB::ORDERED_INDEX_HINT, ordered_index_of),
            (Along::Lane, _) => push_hint(sql, DB::ORDERED_INDEX_HINT, lane_index_of),
            (Along::Keys, _) => Ok(()),
        }
    }

    /// Writes `flag = 1 AND ` if the index may begin with the pending flag.
    pub(crate) fn push_flag<DB: QueueBackend>(self, sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
        match (self.along, self.order) {
            (Along::Queue, Some(_)) | (Along::Lane, _) => push_pending_flag(sql),
            (Along::Queue, None) | (Along::Keys, _) => Ok(()),
        }
    }

    /// Writes ` ORDER BY .. LIMIT limit`.
    pub(crate) fn push_order<'b, DB: QueueBackend>(
        self,
        sql: &mut Writer<'_, 'b, DB>,
        limit: &'b i64,
    ) -> QueryResult<()> {
        sql.push(" ORDER BY ")?;
        if let (Along::Lane, Some(lanes), true) = (self.along, sql.queue.options.lanes, DB::LANE_IS_RANGE) {
            sql.push_with("{.}, ", &[lanes.column])?;
        }
        push_order_columns(sql, self.order)?;
        sql.push("{.next_attempt_time}")?;
        sql.push_limit(limit)
    }
}

/// Writes a hint that names the queue's index, if the database needs one.
pub(crate) fn push_index_hint<DB: QueueBackend>(
    sql: &mut Writer<'_, '_, DB>,
    hint: Option<(&str, &str)>,
) -> QueryResult<()> {
    push_hint(sql, hint, |table, names, _| index_of(table, names))
}

/// Writes a hint that names an index, if the database needs one.
pub(crate) fn push_hint<DB: QueueBackend>(
    sql: &mut Writer<'_, '_, DB>,
    hint: Option<(&str, &str)>,
    index: fn(&TableName, ColumnNames, &Options) -> String,
) -> QueryResult<()> {
    let (Some(hint), queue) = (hint, sql.queue) else { return Ok(()) };
    let index = index(&TableName::of(queue.table, sql.out.backend())?, queue.names, queue.options);
    sql.within(hint, |sql| sql.out.push_identifier(&index))
}

/// Writes `flag = 1 AND ` if an index cannot leave out the rows that are not pending.
pub(crate) fn push_pending_flag<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    if DB::PARTIAL_INDEXES {
        return Ok(());
    }
    let flag = pending_flag_of(&TableName::of(sql.queue.table, sql.out.backend())?, sql.queue.names);
    sql.push_with("{.} = 1 AND ", &[&flag])
}

/// Writes the columns of an order, with a comma after each.
pub(crate) fn push_order_columns<DB: QueueBackend>(
    sql: &mut Writer<'_, '_, DB>,
    order: Option<Order>,
) -> QueryResult<()> {
    for column in order.map_or(&[][..], |order| order.columns) {
        sql.push_with("{.}", &[column.name])?;
        sql.out.push_sql(if column.descending { DB::DESCENDING } else { DB::NULLS_FIRST });
        sql.out.push_sql(", ");
    }
    Ok(())
}
