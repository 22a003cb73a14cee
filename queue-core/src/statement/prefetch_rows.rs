//! Prefetches rows: reads the rows that have been due longest, whole and without a lock, each with its version, and
//! locks one of them if it still has that version.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::claim::{Claim, push_claim_lock};
use super::condition::{StateCondition, push_claimable};
use super::limit::Limit;
use super::names::{push_columns, push_table};
use super::scope::push_floor;
use super::walk::push_oldest;
use crate::backend::{QueueBackend, Statement};
use crate::entity::QueueSql;
use crate::error::refused;
use crate::row::Instant;

/// Reads the rows that have been due longest, each with its version.
pub struct PrefetchRows<DB: QueueBackend> {
    claim: Claim<DB>,
    limit: Limit,
    floor: Option<Instant>,
}

impl<DB: QueueBackend> PrefetchRows<DB> {
    /// Reads at most `limit` rows, but none that is due earlier than `floor`.
    pub fn new(claim: Claim<DB>, limit: u32, floor: Option<Instant>) -> Self {
        PrefetchRows { claim, limit: Limit::of(limit), floor }
    }
}

/// Locks one prefetched row: `$1` is the key, `$2` and `$3` are the parts of its version. It returns a row if the row
/// still has this version, is still due, and is free.
pub struct LockVersion<DB: QueueBackend> {
    queue: &'static QueueSql<DB>,
}

impl<DB: QueueBackend> LockVersion<DB> {
    /// Makes the statement.
    pub fn new(queue: &'static QueueSql<DB>) -> Self {
        LockVersion { queue }
    }
}

/// What distinguishes one version of a row from every other: its place in the table, and the transaction that wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowVersion {
    place: String,
    writer: String,
}

impl RowVersion {
    /// Reads the text of a version. `None`: it is not a version.
    pub fn read(text: &str) -> Option<Self> {
        let (place, writer) = text.split_once(' ')?;
        let are_digits = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
        let (page, line) = place.strip_prefix('(')?.strip_suffix(')')?.split_once(',')?;
        [page, line, writer]
            .into_iter()
            .all(are_digits)
            .then(|| RowVersion { place: place.to_owned(), writer: writer.to_owned() })
    }

    /// Returns the version as two SQL literals.
    pub(crate) fn literals(&self) -> String {
        format!("'{}', '{}'", self.place, self.writer)
    }
}

impl<DB: QueueBackend> Statement<DB> for PrefetchRows<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.claim.due.queue;
        let (place, writer) = version_of::<DB>()?;
        self.claim.push_columns(out.reborrow())?;
        push_columns(queue, &mut out, ", CAST({} AS text) || ' ' || CAST({} AS text)", &[place, writer])?;
        self.claim.due.push_from(&mut out, DB::STATEMENT_TIME)?;
        if let Some(floor) = &self.floor {
            push_floor(queue, &mut out, floor)?;
        }
        push_oldest(queue, &mut out, &[], &self.limit)
    }
}

impl<DB: QueueBackend> Statement<DB> for LockVersion<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.queue;
        let (place, writer) = version_of::<DB>()?;
        push_table(queue, &mut out, "SELECT 1 FROM ")?;
        out.push_sql(" WHERE ");
        queue.key_columns.walk_ast(out.reborrow())?;
        let is_version = " = $1 AND {} = CAST($2 AS tid) AND {} = CAST($3 AS xid) AND ";
        push_columns(queue, &mut out, is_version, &[place, writer])?;
        // The version implies this. But this lock is what makes the row the worker's own, so it checks again.
        StateCondition::Due.push(queue, &mut out)?;
        out.push_sql(" AND ");
        push_claimable(queue, &mut out)?;
        push_claim_lock(&mut out);
        Ok(())
    }
}

fn version_of<DB: QueueBackend>() -> QueryResult<(&'static str, &'static str)> {
    DB::ROW_VERSION.ok_or_else(|| refused("this database does not tell the versions of a row".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_and_nothing_else_is() {
        assert_eq!(
            RowVersion::read("(12,7) 744").map(|version| version.literals()).as_deref(),
            Some("'(12,7)', '744'")
        );
        for text in ["", "(12,7)", "(12,7) ", "12,7 744", "(12) 744", "(12,7) 744'; DROP", "(a,7) 744"] {
            assert_eq!(RowVersion::read(text), None, "{text}");
        }
    }
}
