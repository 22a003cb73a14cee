//! The conditions of the statements: the fence, the claimable rows, and the filter of an operation.

use std::marker::PhantomData;
use std::time::Duration;

use diesel::backend::Backend;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::archive_table::Archive;
use super::limit::keep_if_few;
use super::names::{push_column, push_columns, push_within};
use crate::backend::QueueBackend;
use crate::entity::TableIn;
use crate::row::{Fence, PRESUMED, STOPPED, Status, microseconds};

/// Writes `status IN (..)` with every known status: a row with another one is never claimed.
pub(crate) fn push_claimable<T: TableIn<DB>, DB: QueueBackend>(out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    push_status_in::<T, DB>(out, " IN (", &Status::ALL)
}

/// Writes ` AND status = .. AND try_count = ..`, then the row's due time, and under a lease the attempt's beginning.
pub(crate) fn push_fence<'b, T, DB>(fence: &'b Fence, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
where
    T: TableIn<DB>,
    DB: QueueBackend,
{
    let names = T::COLUMNS;
    push_columns::<T, DB>(&mut out, " AND {} = ", &[names.status])?;
    DB::bind_text(&mut out, fence.status.as_str())?;
    push_columns::<T, DB>(&mut out, " AND {} = ", &[names.try_count])?;
    DB::bind_integer(&mut out, &fence.try_count)?;
    if let Some(began) = &fence.began {
        push_columns::<T, DB>(&mut out, " AND {} = ", &[names.last_attempt_time])?;
        DB::bind_time(&mut out, began)?;
    }
    if let Some(due) = &fence.due {
        out.push_sql(" AND ");
        push_is_due_at::<T, DB>(&mut out)?;
        DB::bind_time(&mut out, due)?;
    }
    Ok(())
}

/// Writes `next_attempt_time = `, in a form that walks no index.
pub(crate) fn push_is_due_at<T: TableIn<DB>, DB: QueueBackend>(out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    let (before, is) = DB::WITHOUT_INDEX_IS;
    out.push_sql(before);
    push_column::<T, DB>(out, T::COLUMNS.next_attempt_time)?;
    out.push_sql(is);
    Ok(())
}

/// Writes ` AND change_count = ..`: the content is still the same as at the claim. Writes nothing if the entity does
/// not count changes.
pub(crate) fn push_same_content<'b, T, DB>(fence: &'b Fence, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
where
    T: TableIn<DB>,
    DB: QueueBackend,
{
    if let (Some(rerun), Some(change_count)) = (T::OPTIONS.rerun_on_change, &fence.change_count) {
        push_columns::<T, DB>(&mut out, " AND {} = ", &[rerun.change_count])?;
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
    pub(crate) fn push<T: TableIn<DB>, DB: QueueBackend>(self, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
        let names = T::COLUMNS;
        let (next, last, text) = (names.next_attempt_time, names.last_attempt_time, names.last_attempt_error_message);
        match self {
            StateCondition::In(statuses) => push_status_in::<T, DB>(out, " IN (", statuses),
            StateCondition::NotIn(statuses) => push_status_in::<T, DB>(out, " NOT IN (", statuses),
            StateCondition::Pending => push_test::<T, DB>(out, next, &[" IS NOT NULL"]),
            StateCondition::NotPending => push_test::<T, DB>(out, next, &[" IS NULL"]),
            StateCondition::NotLeased => {
                out.push_sql("(");
                push_status_in::<T, DB>(out, " NOT IN (", &[Status::InProgress])?;
                out.push_sql(" OR ");
                push_test::<T, DB>(out, next, &[" <= ", DB::STATEMENT_TIME])?;
                out.push_sql(")");
                Ok(())
            }
            StateCondition::Due => push_test::<T, DB>(out, next, &[" <= ", DB::STATEMENT_TIME]),
            StateCondition::Scheduled => push_test::<T, DB>(out, next, &[" > ", DB::STATEMENT_TIME]),
            StateCondition::AttemptedBefore(ago) => {
                out.unsafe_to_cache_prepared();
                let (before, after) = DB::STATEMENT_TIME_PLUS_MICROSECONDS;
                let ago = (-microseconds(ago)).to_string();
                push_test::<T, DB>(out, last, &[" <= ", before, &ago, after])
            }
            StateCondition::NeverAttempted => push_test::<T, DB>(out, last, &[" IS NULL"]),
            StateCondition::WithErrorText => push_test::<T, DB>(out, text, &[" IS NOT NULL"]),
            StateCondition::WithFailure => {
                // Null is unequal to nothing, so this leaves out rows without a text. LIKE would ignore case on some
                // databases.
                push_exactly::<T, DB>(out, text)?;
                out.push_sql(" <> '");
                out.push_sql(STOPPED);
                out.push_sql("' AND SUBSTR(");
                push_exactly::<T, DB>(out, text)?;
                out.push_sql(&format!(", 1, {}) <> '{PRESUMED}'", PRESUMED.len()));
                Ok(())
            }
            StateCondition::WithoutErrorText => push_test::<T, DB>(out, text, &[" IS NULL"]),
        }
    }
}

fn push_status_in<T, DB>(out: &mut AstPass<'_, '_, DB>, is: &str, statuses: &[Status]) -> QueryResult<()>
where
    T: TableIn<DB>,
    DB: QueueBackend,
{
    push_exactly::<T, DB>(out, T::COLUMNS.status)?;
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
fn push_exactly<T: TableIn<DB>, DB: QueueBackend>(out: &mut AstPass<'_, '_, DB>, column: &str) -> QueryResult<()> {
    push_within(out, DB::EXACTLY, |out| push_column::<T, DB>(out, column))
}

fn push_test<T, DB>(out: &mut AstPass<'_, '_, DB>, column: &str, test: &[&str]) -> QueryResult<()>
where
    T: TableIn<DB>,
    DB: QueueBackend,
{
    push_column::<T, DB>(out, column)?;
    test.iter().for_each(|part| out.push_sql(part));
    Ok(())
}

/// ` FROM table WHERE (filter) AND state AND ..`: the table or archive, the user's filter, and the conditions on the
/// queue's state.
#[derive(Debug)]
pub struct Condition<'a, T, F> {
    filter: Option<&'a F>,
    pub(crate) states: &'a [StateCondition],
    kinds: &'a [Vec<StateCondition>],
    pub(crate) archive: Option<&'a Archive>,
    table: PhantomData<fn() -> T>,
}

// By hand, because a derive would require a filter that can be copied.
impl<T, F> Clone for Condition<'_, T, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, F> Copy for Condition<'_, T, F> {}

impl<'a, T, F> Condition<'a, T, F> {
    /// Picks the rows for which the filter and all state conditions hold.
    pub fn new(filter: Option<&'a F>, states: &'a [StateCondition]) -> Self {
        Condition { filter, states, kinds: &[], archive: None, table: PhantomData }
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
    pub(crate) fn push_from<'b, DB>(&self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        T: TableIn<DB>,
        DB: QueueBackend,
    {
        out.push_sql(" FROM ");
        match self.archive {
            None => T::TABLE.walk_ast(out),
            Some(archive) => archive.push_as_table(&mut out),
        }
    }

    pub(crate) fn walk_ast<'b, DB>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        T: TableIn<DB>,
        DB: QueueBackend,
        F: QueryFragment<DB>,
    {
        self.push_where(out.reborrow()).map(drop)
    }

    /// Writes the condition, and returns the word that a further condition begins with.
    pub(crate) fn push_where<'b, DB>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<&'static str>
    where
        T: TableIn<DB>,
        DB: QueueBackend,
        F: QueryFragment<DB>,
    {
        let mut separator = " WHERE ";
        if let Some(filter) = self.filter {
            out.push_sql(std::mem::replace(&mut separator, " AND "));
            out.push_sql("(");
            filter.walk_ast(out.reborrow())?;
            out.push_sql(")");
        }
        for state in self.states {
            out.push_sql(std::mem::replace(&mut separator, " AND "));
            state.push::<T, DB>(&mut out)?;
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
                    state.push::<T, DB>(&mut out)?;
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
pub(crate) fn push_keys<'b, K, DB>(keys: &'b [K], out: &mut AstPass<'_, 'b, DB>) -> QueryResult<()>
where
    K: QueryFragment<DB>,
    DB: QueueBackend,
{
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
pub(crate) fn push_exceptions<'b, K, DB>(keys: &'b [K], out: &mut AstPass<'_, 'b, DB>) -> QueryResult<()>
where
    K: QueryFragment<DB>,
    DB: QueueBackend,
{
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

impl<F: QueryFragment<DB>, DB: Backend> QueryFragment<DB> for IfAny<'_, F> {
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

impl<A: QueryFragment<DB>, B: QueryFragment<DB>, DB: Backend> QueryFragment<DB> for And<A, B> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.0.walk_ast(out.reborrow())?;
        out.push_sql(") AND (");
        self.1.walk_ast(out)
    }
}
