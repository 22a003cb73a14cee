//! Prefetches rows: reads the rows that have been due longest, whole and without a lock, each with its version, and
//! locks one of them if it still has that version.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::claim::Claim;
use super::condition::push_claimable;
use super::walk::Walk;
use super::writer::Writer;
use crate::backend::{QueueBackend, Statement};
use crate::entity::QueueSql;
use crate::error::refused;

/// Reads the rows that a claim finds, those first that have been due longest, each with its version: at most so many.
pub struct PrefetchRows<DB: QueueBackend>(pub Claim<DB>, pub i64);

/// Locks one prefetched row: `$1` is the key, `$2` and `$3` are the parts of its version. It returns a row if the row
/// still has this version, is still due, and is free.
pub struct LockVersion<DB: QueueBackend>(pub &'static QueueSql<DB>);

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
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let PrefetchRows(claim, limit) = self;
        let mut sql = Writer::new(claim.due.queue, out);
        claim.push_columns(&mut sql)?;
        sql.push_with(", CAST({.} AS text) || ' ' || CAST({.} AS text)", &version_of::<DB>()?)?;
        claim.due.push_rows(&mut sql, Walk::OLDEST, DB::STATEMENT_TIME, limit)
    }
}

impl<DB: QueueBackend> Statement<DB> for LockVersion<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.0, out);
        let is_version = "SELECT 1 FROM {table} WHERE {key} = $1 AND {.} = CAST($2 AS tid) AND {.} = CAST($3 AS xid)";
        sql.push_with(is_version, &version_of::<DB>()?)?;
        // The version implies this. But this lock is what makes the row the worker's own, so it checks again.
        sql.push(" AND {.next_attempt_time} <= {statement_time} AND ")?;
        push_claimable(&mut sql)?;
        sql.push("{claim_lock}")
    }
}

fn version_of<DB: QueueBackend>() -> QueryResult<[&'static str; 2]> {
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
