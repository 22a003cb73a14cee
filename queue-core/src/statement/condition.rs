//! The conditions of the statements: the fence, the claimable rows, and the filter of an operation.

use std::time::Duration;

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::archive_table::Archive;
use super::limit::keep_if_few;
use super::names::{push_column, push_columns, push_within};
use crate::backend::QueueBackend;
use crate::entity::{IsKey, QueueSql};
use crate::row::{Fence, PRESUMED, STOPPED, Status, microseconds};

/// Writes `status IN (..)` with every known status: a row with another one is never claimed.
pub(crate) fn push_claimable<DB: QueueBackend>(queue: &QueueSql<DB>, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    push_status_in(queue, out, " IN (", &Status::ALL)
}

/// Writes ` AND status = .. AND try_count = ..`, then the row's due time, and under a lease the attempt's beginning.
pub(crate) fn push_fence<'b, DB: QueueBackend>(
    queue: &QueueSql<DB>,
    fence: &'b Fence,
    mut out: AstPass<'_, 'b, DB>,
) -> QueryResult<()> {
    let names = queue.names;
    push_columns(queue, &mut out, " AND {} = ", &[names.status])?;
    DB::bind_text(&mut out, fence.status.as_str())?;
    push_columns(queue, &mut out, " AND {} = ", &[names.try_count])?;
    DB::bind_integer(&mut out, &fence.try_count)?;
    if let Some(began) = &fence.began {
        push_columns(queue, &mut out, " AND {} = ", &[names.last_attempt_time])?;
        DB::bind_time(&mut out, began)?;
    }
    if let Some(due) = &fence.due {
        out.push_sql(" AND ");
        push_is_due_at(queue, &mut out)?;
        DB::bind_time(&mut out, due)?;
    }
    Ok(())
}

/// Writes `next_attempt_time = `, in a form that walks no index.
pub(crate) fn push_is_due_at<DB: QueueBackend>(queue: &QueueSql<DB>, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    let (before, is) = DB::WITHOUT_INDEX_IS;
    out.push_sql(before);
    push_column(queue, out, queue.names.next_attempt_time)?;
    out.push_sql(is);
    Ok(())
}

/// Writes ` AND change_count = ..`: the content is still the same as at the claim. Writes nothing if the entity does
/// not count changes.
pub(crate) fn push_same_content<'b, DB: QueueBackend>(
    queue: &QueueSql<DB>,
    fence: &'b Fence,
    mut out: AstPass<'_, 'b, DB>,
) -> QueryResult<()> {
    if let (Some(rerun), Some(change_count)) = (queue.options.rerun_on_change, &fence.change_count) {
        push_columns(queue, &mut out, " AND {} = ", &[rerun.change_count])?;
        DB::bind_big_integer(&mut out, change_count)?;
    }
    Ok(())
}

/// A condition on a row's queue state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateCondition {
    /// Its status is one of these.
    In(&'static [Status]),
    /// Its status is not one of these.
    NotIn(&'static [Status]),
    /// It has a next attempt time.
    Pending,
    /// It has no next attempt time.
    NotPending,
    /// No worker holds a lease on it: its status is not `IN_PROGRESS`, or the lease has ended.
    NotLeased,
    /// Its next attempt time has come.
    Due,
    /// Its next attempt time lies in the future.
    Scheduled,
    /// Its last recorded attempt is at least this long ago. A row without an attempt does not count.
    AttemptedBefore(Duration),
    /// No attempt of it was ever recorded.
    NeverAttempted,
    /// It has the text of a failure.
    WithErrorText,
    /// It has no such text.
    WithoutErrorText,
    /// It has the text of a failure: neither the text that [`Queue::stop`](crate::Queue::stop) writes on rows without
    /// one, nor the one on a row that is being handled under strict accounts.
    WithFailure,
}

impl StateCondition {
    pub(crate) fn push<DB: QueueBackend>(self, queue: &QueueSql<DB>, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
        let names = queue.names;
        let (next, last, text) = (names.next_attempt_time, names.last_attempt_time, names.last_attempt_error_message);
        match self {
            StateCondition::In(statuses) => push_status_in(queue, out, " IN (", statuses),
            StateCondition::NotIn(statuses) => push_status_in(queue, out, " NOT IN (", statuses),
            StateCondition::Pending => push_test(queue, out, next, &[" IS NOT NULL"]),
            StateCondition::NotPending => push_test(queue, out, next, &[" IS NULL"]),
            StateCondition::NotLeased => {
                out.push_sql("(");
                push_status_in(queue, out, " NOT IN (", &[Status::InProgress])?;
                out.push_sql(" OR ");
                push_test(queue, out, next, &[" <= ", DB::STATEMENT_TIME])?;
                out.push_sql(")");
                Ok(())
            }
            StateCondition::Due => push_test(queue, out, next, &[" <= ", DB::STATEMENT_TIME]),
            StateCondition::Scheduled => push_test(queue, out, next, &[" > ", DB::STATEMENT_TIME]),
            StateCondition::AttemptedBefore(ago) => {
                out.unsafe_to_cache_prepared();
                let (before, after) = DB::STATEMENT_TIME_PLUS_MICROSECONDS;
                let ago = (-microseconds(ago)).to_string();
                push_test(queue, out, last, &[" <= ", before, &ago, after])
            }
            StateCondition::NeverAttempted => push_test(queue, out, last, &[" IS NULL"]),
            StateCondition::WithErrorText => push_test(queue, out, text, &[" IS NOT NULL"]),
            StateCondition::WithFailure => {
                // Null is unequal to nothing, so this leaves out rows without a text. LIKE would ignore case on some
                // databases.
                push_exactly(queue, out, text)?;
                out.push_sql(" <> '");
                out.push_sql(STOPPED);
                out.push_sql("' AND SUBSTR(");
                push_exactly(queue, out, text)?;
                out.push_sql(&format!(", 1, {}) <> '{PRESUMED}'", PRESUMED.len()));
                Ok(())
            }
            StateCondition::WithoutErrorText => push_test(queue, out, text, &[" IS NULL"]),
        }
    }
}

fn push_status_in<DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, '_, DB>,
    is: &str,
    statuses: &[Status],
) -> QueryResult<()> {
    push_exactly(queue, out, queue.names.status)?;
    out.push_sql(is);
    for (i, status) in statuses.iter().enumerate() {
        out.push_sql(if i == 0 { "'" } else { ", '" });
        out.push_sql(status.as_str());
        out.push_sql("'");
    }
    out.push_sql(")");
    Ok(())
}

/// Writes a text column whose comparison is exact.
fn push_exactly<DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, '_, DB>,
    column: &str,
) -> QueryResult<()> {
    push_within(out, DB::EXACTLY, |out| push_column(queue, out, column))
}

fn push_test<DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, '_, DB>,
    column: &str,
    test: &[&str],
) -> QueryResult<()> {
    push_column(queue, out, column)?;
    test.iter().for_each(|part| out.push_sql(part));
    Ok(())
}

/// ` FROM table WHERE (filter) AND state AND ..`: the table or archive, the user's filter, and the conditions on the
/// queue's state.
pub struct Condition<'a, DB: QueueBackend> {
    pub(crate) queue: &'static QueueSql<DB>,
    filter: Option<&'a dyn QueryFragment<DB>>,
    pub(crate) states: &'a [StateCondition],
    kinds: &'a [Vec<StateCondition>],
    pub(crate) archive: Option<&'a Archive>,
}

// By hand, because a derive would require a database that can be copied.
impl<DB: QueueBackend> Clone for Condition<'_, DB> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<DB: QueueBackend> Copy for Condition<'_, DB> {}

impl<'a, DB: QueueBackend> Condition<'a, DB> {
    /// Picks the rows for which the filter and all state conditions hold.
    pub fn new(
        queue: &'static QueueSql<DB>,
        filter: Option<&'a dyn QueryFragment<DB>>,
        states: &'a [StateCondition],
    ) -> Self {
        Condition { queue, filter, states, kinds: &[], archive: None }
    }

    /// Picks only rows of one of these kinds, for which all conditions of one of the lists hold. Without lists it picks
    /// all rows.
    pub fn of_kinds(self, kinds: &'a [Vec<StateCondition>]) -> Self {
        Condition { kinds, ..self }
    }

    /// Picks the rows from the archive instead.
    pub fn within(self, archive: Option<&'a Archive>) -> Self {
        Condition { archive, ..self }
    }

    /// Writes ` FROM table`, for an archive under the table's name.
    pub(crate) fn push_from(&self, mut out: AstPass<'_, '_, DB>) -> QueryResult<()> {
        out.push_sql(" FROM ");
        match self.archive {
            None => self.queue.table.walk_ast(out),
            Some(archive) => archive.push_as_table(&mut out),
        }
    }

    pub(crate) fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.push_where(out.reborrow()).map(drop)
    }

    /// Writes the condition, and returns the word that a further condition begins with.
    pub(crate) fn push_where<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<&'static str> {
        let mut separator = " WHERE ";
        if let Some(filter) = self.filter {
            out.push_sql(std::mem::replace(&mut separator, " AND "));
            out.push_sql("(");
            filter.walk_ast(out.reborrow())?;
            out.push_sql(")");
        }
        for state in self.states {
            out.push_sql(std::mem::replace(&mut separator, " AND "));
            state.push(self.queue, &mut out)?;
        }
        // A kind without conditions contains every row.
        if !self.kinds.is_empty() && self.kinds.iter().all(|kind| !kind.is_empty()) {
            let mut before_kind = std::mem::replace(&mut separator, " AND ");
            for (i, kind) in self.kinds.iter().enumerate() {
                out.push_sql(before_kind);
                out.push_sql(if i == 0 { "((" } else { "(" });
                before_kind = " OR ";
                for (i, state) in kind.iter().enumerate() {
                    out.push_sql(if i == 0 { "" } else { " AND " });
                    state.push(self.queue, &mut out)?;
                }
                out.push_sql(")");
            }
            out.push_sql(")");
        }
        Ok(separator)
    }
}

/// Writes `((key) OR (key) ..)`, in nested groups: SQLite allows a thousand levels of an expression, and counts each OR
/// of a flat list as one.
pub(crate) fn push_keys<'b, DB: QueueBackend>(keys: &'b [IsKey<DB>], out: &mut AstPass<'_, 'b, DB>) -> QueryResult<()> {
    const GROUP: usize = 50;
    keep_if_few(out, keys.len());
    for (i, group) in keys.chunks(GROUP).enumerate() {
        out.push_sql(if i == 0 { "((" } else { " OR (" });
        for (i, is_key) in group.iter().enumerate() {
            out.push_sql(if i == 0 { "(" } else { " OR (" });
            is_key.walk_ast(out.reborrow())?;
            out.push_sql(")");
        }
        out.push_sql(")");
    }
    out.push_sql(if keys.is_empty() { "1 = 0" } else { ")" });
    Ok(())
}

/// Writes ` AND NOT (key)` for each of the keys.
pub(crate) fn push_exceptions<'b, DB: QueueBackend>(
    keys: &'b [IsKey<DB>],
    out: &mut AstPass<'_, 'b, DB>,
) -> QueryResult<()> {
    keys.iter().try_for_each(|is_key| {
        out.push_sql(" AND NOT (");
        is_key.walk_ast(out.reborrow())?;
        out.push_sql(")");
        Ok(())
    })
}

/// A filter, if there is one; without one it is always true.
#[derive(Debug, Clone, Copy)]
pub struct IfAny<'a, F>(pub Option<&'a F>);

impl<F: QueryFragment<DB>, DB: QueueBackend> QueryFragment<DB> for IfAny<'_, F> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        match self.0 {
            Some(filter) => filter.walk_ast(out),
            None => {
                out.push_sql("1 = 1");
                Ok(())
            }
        }
    }
}

/// Two filters that both must hold.
#[derive(Debug, Clone, Copy)]
pub struct And<A, B>(pub A, pub B);

impl<A: QueryFragment<DB>, B: QueryFragment<DB>, DB: QueueBackend> QueryFragment<DB> for And<A, B> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.0.walk_ast(out.reborrow())?;
        out.push_sql(") AND (");
        self.1.walk_ast(out)
    }
}
