//! Prefetches rows: reads the rows that have been due longest, whole and without a lock, each with its version, and
//! locks one of them if it still has that version.

use std::any::TypeId;

use diesel::result::QueryResult;

use super::claim::Claim;
use super::claimed::Claimed;
use super::condition::push_claimable;
use super::finish::{ends_at_once, finish, lock_leased, text_of};
use super::queue::{ClaimedRow, ErasedQueue};
use super::walk::Walk;
use super::writer::statement;
use crate::backend::{Dialect, PreparedTexts, QueueBackend, QueueConnection, Statement, statement_time};
use crate::entity::{Key, QueueSql};
use crate::error::refused;
use crate::handler::PanicSafeDrop;
use crate::row::Instant;

/// Reads the rows that a claim finds, those first that have been due longest, each with its version: at most so many.
pub fn prefetch_rows<DB: QueueBackend>(claim: Claim<DB>, limit: i64) -> impl Statement<DB> {
    statement(claim.due.queue, (claim, limit), |(claim, limit), sql| {
        claim.push_columns(sql)?;
        sql.push_with(", CAST({.} AS text) || ' ' || CAST({.} AS text)", &version_of::<DB>()?)?;
        claim.due.push_rows(sql, Walk::OLDEST, &statement_time::<DB>(), limit)
    })
}

/// Locks one prefetched row: `$1` is the key, `$2` and `$3` are the parts of its version. It returns a row if the row
/// still has this version, is still due, and is free.
pub fn lock_version<DB: QueueBackend>(queue: &'static QueueSql<DB>) -> impl Statement<DB> {
    statement(queue, (), |_, sql| {
        let is_version = "SELECT 1 FROM {table} WHERE {key} = $1 AND {.} = CAST($2 AS tid) AND {.} = CAST($3 AS xid)";
        sql.push_with(is_version, &version_of::<DB>()?)?;
        // The version implies this. But this lock is what makes the row the worker's own, so it checks again.
        sql.push(" AND {.next_attempt_time} <= {statement_time} AND ")?;
        push_claimable(sql)?;
        sql.push("{claim_lock}")
    })
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

impl<K: Key, C: QueueConnection> ErasedQueue<K, C> {
    /// Reads up to `limit` rows that have been due longest, without a lock, each with its version. It leaves out rows
    /// that are due earlier than `floor`.
    pub fn prefetch_rows(
        &self,
        connection: &mut C,
        limit: u32,
        floor: Option<Instant>,
    ) -> QueryResult<Vec<(Claimed<K>, RowVersion)>> {
        let rows = (self.load_versioned)(connection, &prefetch_rows(self.claim_all().not_below(floor), limit.into()))?;
        let versioned =
            |(row, version): (ClaimedRow<K>, String)| Some((Claimed::read(self.sql, row), RowVersion::read(&version)?));
        Ok(rows.into_iter().filter_map(versioned).collect())
    }

    /// Tells whether whole rows are prefetched: only if the due time alone decides which row is next.
    pub fn prefetches_rows(&self) -> bool {
        C::Backend::ROW_VERSION.is_some()
            && self.sql.options.stages.is_none()
            && !self.needs_details()
            && self.is_its_row
            && self.sql.options.due_time_alone_decides()
    }
}

fn version_of<DB: QueueBackend>() -> QueryResult<[&'static str; 2]> {
    DB::ROW_VERSION.ok_or_else(|| refused("this database does not tell the versions of a row".to_owned()))
}

impl<K: Key, C: QueueConnection> PreparedTexts<C> for ErasedQueue<K, C> {
    fn queue(&self) -> TypeId {
        self.id()
    }

    /// Writes [`finish`], if a message can end by it: `None` if its end needs more.
    fn finish(&self) -> QueryResult<Option<String>> {
        ends_at_once::<K, C>(self.sql.options).then(|| text_of::<C>(&finish(self.sql, false))).transpose()
    }

    fn lock(&self) -> QueryResult<Option<String>> {
        let is_read = self.prefetches_rows() && ends_at_once::<K, C>(self.sql.options);
        is_read.then(|| text_of::<C>(&lock_version(self.sql))).transpose()
    }

    fn try_reading(&self, connection: &mut C) -> QueryResult<()> {
        // The rows belong to the user's type, which may panic when it is dropped.
        self.prefetch_rows(connection, 1, None).map(|rows| drop(PanicSafeDrop::new(rows)))
    }

    fn finish_lease(&self) -> QueryResult<Option<(String, String)>> {
        let texts = || Ok((text_of::<C>(&lock_leased(self.sql))?, text_of::<C>(&finish(self.sql, true))?));
        let by_text = ends_at_once::<K, C>(self.sql.options) && !C::Backend::FINISHES_IN_A_BLOCK;
        by_text.then(texts).transpose()
    }
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
