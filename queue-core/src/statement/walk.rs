//! Which rows are due, which of them a worker claims, in which order a claim finds them, and the index along which it
//! walks to them.

use std::borrow::Cow;
use std::time::Duration;

use diesel::query_builder::QueryFragment;
use diesel::result::QueryResult;

use super::condition::{push_claimable, push_exceptions};
use super::writer::{Writer, padded};
use crate::backend::{Named, QueueBackend, statement_time, statement_time_plus};
use crate::entity::{ClaimCondition, IsKey, QueueSql};
use crate::row::{Instant, Options, Order, RowKey, microseconds};

/// Where a claim begins, and the receiver of its results.
pub trait ClaimFloor: std::fmt::Debug {
    /// Returns the earliest due time that the claim takes.
    fn floor(&self) -> Option<Instant>;

    /// Returns that time if it lies behind refused rows.
    fn behind_refused(&self) -> Option<Instant>;

    /// Tells whether claims begin at a mark, even if this one begins below it.
    fn keeps_to_mark(&self) -> bool;

    /// Notes that the database has answered the claim.
    fn note_answer(&self);

    /// Notes that rows were claimed, with the due times of the earliest and the latest.
    fn note_claim(&self, first: Option<Instant>, last: Option<Instant>);
}

/// Which of the due rows a worker claims: none with these keys, or only those with these, only those in these stages,
/// and none below the low-water mark.
#[derive(Debug)]
pub struct Scope<'a, K> {
    /// The keys of rows that the claim leaves alone.
    pub except: &'a [RowKey<K>],
    /// The keys of the only rows to claim, if they are known.
    pub only: Option<&'a [RowKey<K>]>,
    /// The texts of the stages, if not all of the entity's.
    pub stages: Option<&'a [&'static str]>,
    /// Where the claim begins, and the receiver of its results.
    pub claim_floor: Option<&'a dyn ClaimFloor>,
    /// Whether a claim finds the due rows along the index of due times and sorts them, if the entity has an order. Along the index
    /// of the order it would pass over all rows that are not due yet.
    pub sorts: bool,
    /// Whether so many rows are due in other stages that it claims in one stage after the other, in their order here.
    pub stages_apart: bool,
}

impl<K> Scope<'_, K> {
    /// All rows.
    pub const ALL: Self =
        Scope { except: &[], only: None, stages: None, claim_floor: None, sorts: false, stages_apart: false };

    /// Returns the earliest due time that is claimed.
    pub(crate) fn floor(&self) -> Option<Instant> {
        self.claim_floor.and_then(|claim_floor| claim_floor.floor())
    }

    /// Tells whether claims begin at the mark, even if this one begins below it.
    pub(crate) fn keeps_to_mark(&self) -> bool {
        self.claim_floor.is_some_and(|claim_floor| claim_floor.keeps_to_mark())
    }
}

impl<K> Clone for Scope<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Scope<'_, K> {}

/// The rows of a queue that may be claimed: those in some stages, if the entity has stages, for which the condition of
/// `claim_if` holds, that are not below the low-water mark, and that are not excepted.
pub struct Claimable<DB: QueueBackend> {
    pub(crate) queue: &'static QueueSql<DB>,
    claim_if: Option<ClaimCondition<DB>>,
    pub(crate) stages: Option<Vec<&'static str>>,
    floor: Option<Instant>,
    excepted: Vec<IsKey<DB>>,
}

impl<DB: QueueBackend> Claimable<DB> {
    /// Returns the rows in these stages, or in all of the entity's.
    pub fn new(queue: &'static QueueSql<DB>, stages: Option<&[&'static str]>) -> Self {
        let (claim_if, stages) = ((queue.claim_condition)(), stages.map(<[_]>::to_vec));
        Claimable { queue, claim_if, stages, floor: None, excepted: Vec::new() }
    }

    /// Leaves out rows that are due earlier than this.
    pub fn not_below(self, floor: Option<Instant>) -> Self {
        Claimable { floor, ..self }
    }

    /// Leaves out the rows with these keys.
    pub fn except(self, keys: Vec<IsKey<DB>>) -> Self {
        Claimable { excepted: padded(keys), ..self }
    }

    /// Writes ` FROM table WHERE .. ORDER BY .. LIMIT ..`: the rows that are due until then, along a walk.
    pub(crate) fn push_rows<'b>(
        &'b self,
        sql: &mut Writer<'_, 'b, DB>,
        walk: Walk,
        until: &str,
        limit: &'b i64,
    ) -> QueryResult<()> {
        let walk = self.walk(walk);
        walk.push_from(sql)?;
        self.push_due(sql, until)?;
        walk.push_order(sql, limit)
    }

    /// Returns how the rows are found: those of one stage along the index of stages, so that the statement passes over no rows
    /// of others. In an exclusive queue that index has no due times.
    pub(crate) fn walk(&self, walk: Walk) -> Walk {
        let is_within_one = matches!(self.stages.as_deref(), Some([_])) && !self.queue.options.exclusive;
        if is_within_one { walk.in_stage() } else { walk }
    }

    /// Writes `next_attempt_time <= until AND status IN (..)`, the stages, the condition, the floor and the exceptions.
    pub(crate) fn push_due<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>, until: &str) -> QueryResult<()> {
        sql.keep_if_few(self.excepted.len());
        self.push_due_from_any(sql, until)?;
        if let Some(floor) = &self.floor {
            sql.push(" AND {.next_attempt_time} >= ")?;
            DB::bind_time(&mut sql.out, floor)?;
        }
        push_exceptions(sql, &self.excepted)
    }

    /// Writes the same without the floor and the exceptions.
    pub(crate) fn push_due_from_any<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>, until: &str) -> QueryResult<()> {
        sql.push("{.next_attempt_time} <= ")?;
        sql.out.push_sql(until);
        sql.push(" AND ")?;
        push_claimable(sql)?;
        sql.push_stages(self.stages.as_deref())?;
        if let Some([stage]) = self.stages.as_deref() {
            sql.push_stage_range(stage, Some(until))?;
        }
        self.push_condition(sql)
    }

    /// Writes ` AND (claim_if)`, if there is one.
    pub(crate) fn push_condition<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>) -> QueryResult<()> {
        let Some(claim_if) = &self.claim_if else { return Ok(()) };
        sql.within((" AND (", ")"), |sql| claim_if.walk_ast(sql.out.reborrow()))
    }
}

/// Returns the time up to which rows are due: now, or so long ago.
pub(crate) fn until<DB: QueueBackend>(age: Option<Duration>) -> Cow<'static, str> {
    age.map_or_else(statement_time::<DB>, |age| statement_time_plus::<DB>(-microseconds(age)).into())
}

/// The order in which due rows are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Walk {
    along: Along,
    /// The entity's order. Among rows with equal values, and without an order, those come first that have been due
    /// longest.
    order: Option<Order>,
    /// Whether all rows are of one lane.
    is_in_lane: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Along {
    /// The index of due times, or that of the order.
    Queue,
    /// The index of due times, whatever the order. The rows are sorted.
    Due,
    /// The index of stages, within the one stage that the condition names. If the rows have an order, they are sorted.
    Stage,
    /// The index of lanes, within a lane that the condition names.
    Lane,
    /// No index: the condition names the rows' keys.
    Keys,
}

impl Walk {
    /// Those first that have been due longest.
    pub(crate) const OLDEST: Walk = Walk { along: Along::Queue, order: None, is_in_lane: false };

    /// The same within a lane.
    pub(crate) const IN_LANE: Walk = Walk { along: Along::Lane, order: None, is_in_lane: true };

    /// Returns how the rows of a queue are claimed. The rows of an exclusive queue are claimed by their keys. For it
    /// only the check at start uses this walk, and its ordered index is a different one.
    pub(crate) fn of(options: &Options) -> Self {
        Walk { order: options.order.filter(|_| !options.exclusive), ..Walk::OLDEST }
    }

    /// Returns the same order for few due rows, which are sorted.
    pub(crate) fn of_few(self, few: bool) -> Self {
        if few && self.order.is_some() { Walk { along: Along::Due, ..self } } else { self }
    }

    /// Returns the same order within one stage.
    fn in_stage(self) -> Self {
        match (self.along, self.order) {
            (Along::Queue, None) | (Along::Due, _) => Walk { along: Along::Stage, ..self },
            _ => self,
        }
    }

    /// Tells whether the rows that are due are sorted.
    pub(crate) fn sorts(self) -> bool {
        self.order.is_some() && matches!(self.along, Along::Due | Along::Stage)
    }

    /// Returns the same order among rows that are known by their keys.
    pub(crate) fn by_key(self) -> Self {
        Walk { along: Along::Keys, ..self }
    }

    /// Returns the same order within one lane.
    pub(crate) fn in_lane(self) -> Self {
        let along = if self.along == Along::Keys || self.sorts() { self.along } else { Along::Lane };
        Walk { along, is_in_lane: true, ..self }
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
            (Along::Queue, None) => sql.push_hint(DB::INDEX_HINT, Named::Index),
            (Along::Queue, Some(_)) => sql.push_hint(DB::ORDERED_INDEX_HINT, Named::Order),
            (Along::Due, _) => sql.push_hint(DB::ORDERED_INDEX_HINT, Named::Index),
            (Along::Stage, _) => sql.push_hint(DB::ORDERED_INDEX_HINT, Named::Stages(sql.stage_column())),
            (Along::Lane, _) => sql.push_hint(DB::ORDERED_INDEX_HINT, Named::Lanes),
            (Along::Keys, _) => Ok(()),
        }
    }

    /// Writes `flag = 1 AND ` if the index may begin with the pending flag.
    pub(crate) fn push_flag<DB: QueueBackend>(self, sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
        match (self.along, self.order) {
            (Along::Queue, Some(_)) | (Along::Lane, _) => sql.push_pending_flag(),
            (Along::Queue, None) | (Along::Due | Along::Stage | Along::Keys, _) => Ok(()),
        }
    }

    /// Writes ` ORDER BY .. LIMIT limit`.
    pub(crate) fn push_order<'b, DB: QueueBackend>(
        self,
        sql: &mut Writer<'_, 'b, DB>,
        limit: &'b i64,
    ) -> QueryResult<()> {
        self.push_order_by(sql)?;
        sql.push_limit(limit)
    }

    /// Writes ` ORDER BY ..`.
    pub(crate) fn push_order_by<DB: QueueBackend>(self, sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
        sql.push(" ORDER BY ")?;
        let Options { lanes, stages, .. } = *sql.queue.options;
        let first = match self.along {
            Along::Lane => lanes.map(|lanes| (lanes.column, lanes.of.kind.is_long())),
            Along::Stage if !self.sorts() => stages.map(|stages| (stages.column, false)),
            _ => None,
        };
        if let Some((column, is_long)) = first.filter(|_| DB::LANE_IS_RANGE) {
            sql.push_indexed(column, is_long)?;
            sql.push(", ")?;
        }
        sql.push_order_columns(self.order)?;
        sql.push("{.next_attempt_time}")?;
        if self.is_in_lane && sql.queue.orders_ties_by_key(self.sorts()) { sql.push(", {key}") } else { Ok(()) }
    }
}
