//! Finds the row that holds a strictly serial lane back: it has failed and waits for its retry, or its lease has ended.

use std::marker::PhantomData;

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::condition::StateCondition;
use super::key_text::push_key_text;
use super::lane::push_lane;
use super::limit::Limit;
use super::names::{push_columns, push_table};
use super::probe_due::push_microseconds_until;
use super::walk::{push_oldest, push_strict_index_hint};
use crate::backend::{QueueBackend, Statement};
use crate::entity::{Entity, QueueTable, StoredIn};
use crate::row::{Lane, Status};

/// The statuses of rows that have been attempted and are not settled for good.
const UNFINISHED: [Status; 2] = [Status::Error, Status::InProgress];

/// Reads when the row of a lane that holds the others back is due, in microseconds from now: 0 or less if it is due
/// already.
pub struct AheadDue<Q> {
    lane: Lane,
    entity: PhantomData<fn() -> Q>,
}

impl<Q: Entity> AheadDue<Q> {
    /// Looks into this lane.
    pub fn new(lane: Lane) -> Self {
        AheadDue { lane, entity: PhantomData }
    }
}

/// Reads the key of that row, and the key's text.
pub struct AheadKey<Q> {
    lane: Lane,
    entity: PhantomData<fn() -> Q>,
}

impl<Q: Entity> AheadKey<Q> {
    /// Looks into this lane.
    pub fn new(lane: Lane) -> Self {
        AheadKey { lane, entity: PhantomData }
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for AheadDue<Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_microseconds_until(&mut out, |out| out.push_identifier(Q::Queue::COLUMNS.next_attempt_time))?;
        push_ahead::<Q, DB>(&mut out, &self.lane)
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for AheadKey<Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        Q::KEY_COLUMNS.walk_ast(out.reborrow())?;
        out.push_sql(", ");
        push_key_text::<Q, DB>(&mut out)?;
        push_ahead::<Q, DB>(&mut out, &self.lane)
    }
}

/// Writes ` FROM table WHERE status IN (..) AND column = value ORDER BY next_attempt_time LIMIT 1`.
pub(crate) fn push_ahead<'b, Q, DB>(out: &mut AstPass<'_, 'b, DB>, lane: &'b Lane) -> QueryResult<()>
where
    Q: StoredIn<DB>,
    DB: QueueBackend,
{
    push_table::<Q::Queue, DB>(out, " FROM ")?;
    push_strict_index_hint::<Q::Queue, DB>(out)?;
    out.push_sql(" WHERE ");
    push_columns::<Q::Queue, DB>(out, "{} IS NOT NULL", &[Q::Queue::COLUMNS.next_attempt_time])?;
    // For the index: the exact comparison beside it may use none.
    push_columns::<Q::Queue, DB>(out, " AND {} IN (", &[Q::Queue::COLUMNS.status])?;
    for (i, status) in UNFINISHED.iter().enumerate() {
        [if i > 0 { ", '" } else { "'" }, status.as_str(), "'"].iter().for_each(|part| out.push_sql(part));
    }
    out.push_sql(") AND ");
    StateCondition::In(&UNFINISHED).push::<Q::Queue, DB>(out)?;
    push_lane::<Q::Queue, DB>(out, lane)?;
    push_oldest::<Q::Queue, DB>(out, &[], const { &Limit::ONE })
}
