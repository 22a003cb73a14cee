//! Which of the due rows a worker claims.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::names::{push_column, push_columns, push_within};
use crate::backend::QueueBackend;
use crate::entity::QueueSql;
use crate::row::{Instant, RowKey, Stages};

/// Where a claim begins, and the receiver of its results.
pub trait ClaimFloor: std::fmt::Debug {
    /// Returns the earliest due time that the claim takes.
    fn floor(&self) -> Option<Instant>;

    /// Tells whether claims begin at a mark, even if this one begins below it.
    fn keeps_to_mark(&self) -> bool;

    /// Notes that the database has answered the claim.
    fn is_answered(&self);

    /// Notes that rows were claimed, with the due times of the earliest and the latest.
    fn has_claimed(&self, first: Option<Instant>, last: Option<Instant>);
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
}

impl<K> Scope<'_, K> {
    /// All rows.
    pub const ALL: Self = Scope { except: &[], only: None, stages: None, claim_floor: None };

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

impl<K> Default for Scope<'_, K> {
    fn default() -> Self {
        Scope::ALL
    }
}

/// Writes ` AND next_attempt_time >= floor`.
pub(crate) fn push_floor<'b, DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, 'b, DB>,
    floor: &'b Instant,
) -> QueryResult<()> {
    push_columns(queue, out, " AND {} >= ", &[queue.names.next_attempt_time])?;
    DB::bind_time(out, floor)
}

/// Writes ` AND stage IN (..)` for an entity that has stages. A row in a stage that it does not know is never claimed.
pub(crate) fn push_stages<'b, DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, 'b, DB>,
    stages: Option<&'b [&'static str]>,
) -> QueryResult<()> {
    let Some(known) = queue.options.stages else { return Ok(()) };
    out.push_sql(" AND ");
    push_stage_in(queue, out, known, " IN (", stages.unwrap_or(known.names))
}

/// Writes `stage IN (..)`.
pub(crate) fn push_stage_in<'b, DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, 'b, DB>,
    Stages { column, .. }: Stages,
    is: &str,
    stages: &'b [&'static str],
) -> QueryResult<()> {
    push_within(out, DB::EXACTLY, |out| push_column(queue, out, column))?;
    out.push_sql(is);
    for (i, stage) in stages.iter().enumerate() {
        out.push_sql(if i == 0 { "" } else { ", " });
        DB::bind_text(out, stage)?;
    }
    out.push_sql(")");
    Ok(())
}
