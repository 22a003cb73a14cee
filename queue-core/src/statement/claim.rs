//! Claims the row that has been due longest: `SELECT .. FOR NO KEY UPDATE SKIP LOCKED`. Also several rows, those of a lane,
//! and rows whose keys were read before; then the claim checks the condition again under the lock.

use std::time::Duration;

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::ahead::push_ahead;
use super::condition::{push_exceptions, push_keys};
use super::key_text::{push_occasion_text, push_select_key};
use super::lane::{push_claimed_lane, push_place};
use super::queue::ErasedQueue;
use super::walk::{Claimable, Scope, Walk, until};
use super::writer::{Writer, padded, statement};
use crate::backend::{Named, Place, QueueBackend, QueueConnection, Statement, statement_time};
use crate::entity::{IsKey, Key, KeyedRow, QueueSql, SelectedIn};
use crate::row::{Instant, Lane, RowKey};

/// How many rows PostgreSQL sorts at most, those that have been due longest. More are due only if many have become due since
/// somebody has looked.
const MOST_SORTED: u32 = 8192;

/// Claims one row of a queue.
pub struct Claim<DB: QueueBackend> {
    selection: Box<dyn QueryFragment<DB>>,
    pub(crate) due: Claimable<DB>,
}

impl<DB: QueueBackend> Claim<DB> {
    /// Makes the claim.
    pub fn new<Q: SelectedIn<DB>>() -> Self {
        Claim { selection: Q::selection(), due: Claimable::new(Q::SQL, None) }
    }

    /// Claims up to `limit` rows, except those with these keys.
    pub fn some(self, limit: u32, excepted: Vec<IsKey<DB>>) -> ClaimSome<DB> {
        ClaimSome {
            walk: Walk::of(self.due.queue.options),
            claim: self,
            limit: limit.into(),
            excepted: padded(excepted),
            locks: true,
            few: false,
            age: None,
            only: Vec::new(),
            lane: None,
        }
    }

    /// Claims only rows in these stages.
    pub fn in_stages(self, stages: Option<&[&'static str]>) -> Self {
        Claim { due: Claimable::new(self.due.queue, stages), ..self }
    }

    /// Claims only rows that are due at this time or later.
    pub fn not_below(self, floor: Option<Instant>) -> Self {
        Claim { due: self.due.not_below(floor), ..self }
    }
}

/// Claims several rows, except some that are known by their keys. It is a statement of its own, because the
/// plain claim is prepared once and for all.
pub struct ClaimSome<DB: QueueBackend> {
    claim: Claim<DB>,
    limit: i64,
    excepted: Vec<IsKey<DB>>,
    locks: bool,
    few: bool,
    walk: Walk,
    age: Option<Duration>,
    only: Vec<IsKey<DB>>,
    lane: Option<FromLane>,
}

/// The lane from which a claim takes rows.
#[derive(Debug, Clone)]
pub struct FromLane {
    /// The lane.
    pub lane: Lane,
    /// A place that the claim takes for the transaction, before it looks for a row. A row that another session has
    /// changed meanwhile is checked again when it is locked.
    pub place: Option<Place>,
    /// Which of its rows.
    pub pick: Pick,
}

/// Which rows of a lane a claim takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// Any that are due, in their order.
    Any,
    /// The first one that is due, or none if another session holds it.
    First,
    /// The same, and none if the claim excepts the first one, or if a row holds the lane back.
    FirstOfAll,
    /// The one that holds the lane back, if it is due.
    Ahead,
}

impl<DB: QueueBackend> ClaimSome<DB> {
    /// Returns the queue.
    pub(crate) fn queue(&self) -> &'static QueueSql<DB> {
        self.claim.due.queue
    }

    /// Locks the rows, or only reads them.
    pub fn locked(self, locks: bool) -> Self {
        ClaimSome { locks, ..self }
    }

    /// Sorts the rows that are due if there are few.
    pub fn of_few(self, few: bool) -> Self {
        ClaimSome { few, walk: self.walk.of_few(few), ..self }
    }

    /// Claims only rows that are due at this time or later, for entities that claim by due time.
    pub fn not_below(self, floor: Option<Instant>) -> Self {
        ClaimSome { claim: self.claim.not_below(floor.filter(|_| self.walk.is_by_due_time())), ..self }
    }

    /// Claims rows that have been due for longer than this, those first that have been due longest, whatever the
    /// entity's order.
    pub fn aged(self, age: Duration) -> Self {
        ClaimSome { walk: Walk::OLDEST, age: Some(age), ..self }
    }

    /// Claims only rows of this lane.
    pub fn in_lane(self, lane: FromLane) -> Self {
        ClaimSome { walk: self.walk.in_lane(), lane: Some(lane), ..self }
    }

    /// Claims only rows with these keys.
    pub fn only(self, keys: Vec<IsKey<DB>>) -> Self {
        ClaimSome { walk: self.walk.by_key(), only: padded(keys), ..self }
    }

    /// Returns how the rows are found.
    pub(super) fn walk(&self) -> Walk {
        self.claim.due.walk(self.walk)
    }
}

impl<DB: QueueBackend> Statement<DB> for Claim<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.due.queue, out);
        self.push_columns(&mut sql)?;
        self.due.push_rows(&mut sql, Walk::of(self.due.queue.options), &statement_time::<DB>(), &1)?;
        sql.push("{claim_lock}")
    }
}

impl<DB: QueueBackend> Claim<DB> {
    /// Writes `SELECT key, its text, state, entity`.
    pub(crate) fn push_columns<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>) -> QueryResult<()> {
        sql.push("SELECT {key}, ")?;
        push_occasion_text(sql)?;
        self.push_row(sql)
    }

    /// Writes `, state, entity`.
    pub(super) fn push_row<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>) -> QueryResult<()> {
        sql.push(
            ", {.status}, {.try_count}, {.next_attempt_time}, {.last_attempt_time}, {.last_attempt_error_message}, ",
        )?;
        sql.push_fragment(&*self.selection)
    }
}

impl<DB: QueueBackend> Statement<DB> for ClaimSome<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.queue(), out);
        sql.keep_if_few(self.only.len() + self.excepted.len());
        let picks_one = |lane: &&FromLane| match lane.pick {
            Pick::Any => false,
            Pick::First => self.only.is_empty(),
            Pick::FirstOfAll | Pick::Ahead => true,
        };
        let one_of = self.lane.as_ref().filter(picks_one);
        let walk = if one_of.is_some() { self.walk.by_key() } else { self.walk() };
        self.claim.push_columns(&mut sql)?;
        walk.push_from(&mut sql)?;
        self.push_due(&mut sql, walk)?;
        if let Some(lane) = one_of {
            // A claim that takes its place itself may begin before the last holder has committed, and find the row that this one
            // has worked. If that is due again when it is locked, it has another time, and others may come before it.
            sql.push(match lane.place {
                Some(_) => " AND ({key}, {.next_attempt_time}) = (SELECT {key}, {.next_attempt_time}",
                None => " AND ({key}) = (SELECT {key}",
            })?;
            self.push_one_of(&mut sql, lane)?;
            sql.push(")")?;
        }
        if let Some(lane) = &self.lane {
            push_claimed_lane(&mut sql, walk, &lane.lane)?;
            push_place(&mut sql.out, lane.place.as_ref())?;
            if lane.pick == Pick::FirstOfAll {
                // The claim has asked before whether a row holds the others back; meanwhile, somebody may have recorded
                // a failure whose transaction was lost, and with it the lane's place.
                sql.within((" AND NOT EXISTS (SELECT 1", ")"), |sql| push_ahead(sql, &lane.lane))?;
            }
        }
        if !self.only.is_empty() {
            sql.push(" AND ")?;
            push_keys(&mut sql, &self.only)?;
        }
        push_exceptions(&mut sql, &self.excepted)?;
        if one_of.is_none() {
            walk.push_order(&mut sql, &self.limit)?;
        }
        sql.push(if self.locks { "{claim_lock}" } else { "" })
    }
}

impl<DB: QueueBackend> ClaimSome<DB> {
    /// Writes which rows are due, their order and their number.
    pub(super) fn push_first_due<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>, walk: Walk) -> QueryResult<()> {
        sql.keep_if_few(self.excepted.len());
        self.claim.due.push_due(sql, &until::<DB>(self.age))?;
        push_exceptions(sql, &self.excepted)?;
        walk.push_order(sql, &self.limit)
    }

    /// Writes which rows are due. If few are, PostgreSQL is told so: before it has counted the rows of a table that has just
    /// grown, it takes every third one for due, and would read the whole table to sort them.
    fn push_due<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>, walk: Walk) -> QueryResult<()> {
        let until = until::<DB>(self.age);
        self.claim.due.push_due(sql, &until)?;
        let (true, Some([version, _])) = (walk.sorts(), DB::ROW_VERSION) else { return Ok(()) };
        sql.push_with(" AND {.} = ANY (ARRAY(SELECT {.}", &[version])?;
        let oldest = self.claim.due.walk(Walk::OLDEST);
        oldest.push_from(sql)?;
        self.claim.due.push_due(sql, &until)?;
        oldest.push_order_by(sql)?;
        sql.push_with(&format!(" LIMIT {MOST_SORTED}))"), &[])
    }

    /// Writes ` FROM table WHERE .. LIMIT 1`, which finds the one row of a lane that may be claimed.
    fn push_one_of<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>, from: &'b FromLane) -> QueryResult<()> {
        if from.pick == Pick::Ahead {
            return push_ahead(sql, &from.lane);
        }
        let walk = self.claim.due.walk(Walk::of(self.queue().options).of_few(self.few)).in_lane();
        walk.push_from(sql)?;
        match from.pick {
            // Whatever the claim passes over: if that is the first one, it takes none.
            Pick::FirstOfAll => self.claim.due.push_due_from_any(sql, &until::<DB>(self.age))?,
            _ => self.push_due(sql, walk)?,
        }
        push_claimed_lane(sql, walk, &from.lane)?;
        if from.pick == Pick::First {
            push_exceptions(sql, &self.excepted)?;
        }
        walk.push_order(sql, &1)
    }
}

/// Reads the keys of the rows that have been due longest, each with its text: at most so many.
pub fn due_keys<DB: QueueBackend>(due: Claimable<DB>, limit: i64) -> impl Statement<DB> {
    statement(due.queue, (due, limit), |(due, limit), sql| {
        push_select_key(sql)?;
        due.push_rows(sql, Walk::OLDEST, &statement_time::<DB>(), limit)
    })
}

/// Claims one row by its key, if it is still due. The statement is prepared once and for all.
pub fn claim_key<DB: QueueBackend>(claim: Claim<DB>, row: KeyedRow<DB>) -> impl Statement<DB> {
    statement(row.queue, (claim, row), |(claim, row), sql| {
        claim.push_columns(sql)?;
        sql.push_is_key(" FROM {table} WHERE ", &row.is_key)?;
        sql.push(" AND ")?;
        claim.due.push_due(sql, &statement_time::<DB>())?;
        sql.push("{claim_lock}")
    })
}

/// Claims several rows by their keys, those of them that are still due, in no order. `limit`: the largest number of rows that
/// are claimed, if not all. The others stay unlocked.
pub fn claim_keys<DB: QueueBackend>(claim: Claim<DB>, keys: Vec<IsKey<DB>>, limit: Option<i64>) -> impl Statement<DB> {
    statement(claim.due.queue, (claim, keys, limit), |(claim, keys, limit), sql| {
        claim.push_columns(sql)?;
        sql.push(" FROM {table}")?;
        // MySQL would rather walk the index, and lock every row on the way. It would do the same for an order.
        sql.push_hint(DB::IGNORE_INDEX, Named::Index)?;
        sql.push(" WHERE ")?;
        push_keys(sql, keys)?;
        sql.push(" AND ")?;
        claim.due.push_due(sql, &statement_time::<DB>())?;
        if let Some(limit) = limit {
            sql.push_limit(limit)?;
        }
        sql.push("{claim_lock}")
    })
}

impl<K: Key, C: QueueConnection> ErasedQueue<K, C> {
    /// Returns the claim of any row that may be claimed.
    pub(crate) fn claim_all(&self) -> Claim<C::Backend> {
        Claim { selection: (self.selection)(), due: Claimable::new(self.sql, None) }
    }

    /// Reads the keys of the first rows of this scope without a lock, at most `limit`.
    pub(crate) fn next_keys(&self, connection: &mut C, scope: Scope<'_, K>, limit: u32) -> QueryResult<Vec<RowKey<K>>> {
        let rows = (self.load_claimed)(connection, &self.claim_of(scope, limit).locked(false))?;
        Ok(rows.into_iter().map(|row| self.claimed_key(row)).collect())
    }

    /// Returns the claim of up to `limit` rows of this scope.
    pub(crate) fn claim_of(&self, scope: Scope<'_, K>, limit: u32) -> ClaimSome<C::Backend> {
        let excepted = self.rows(scope.except);
        self.claim_all().in_stages(scope.stages).some(limit, excepted).of_few(scope.sorts).not_below(scope.floor())
    }
}
