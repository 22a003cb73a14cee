//! The conditions of the statements: the fence, the claimable rows, and the filter of an operation.

use std::time::Duration;

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::writer::{Writer, padded};
use crate::backend::{Named, QueueBackend, TableName, statement_time_plus};
use crate::entity::{IsKey, QueueSql};
use crate::error::Error;
use crate::row::{Fence, PRESUMED, STOPPED, Status, microseconds};

/// Writes `status IN (..)` with every known status: a row with another one is never claimed.
pub(crate) fn push_claimable<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    sql.push_status_in(" IN (", &Status::ALL)
}

/// Writes ` AND status = .. AND try_count = ..`, then the row's due time, and under a lease the attempt's beginning.
pub(crate) fn push_fence<'b, DB: QueueBackend>(sql: &mut Writer<'_, 'b, DB>, fence: &'b Fence) -> QueryResult<()> {
    sql.push(" AND {.status} = ")?;
    DB::bind_text(&mut sql.out, fence.status.as_str())?;
    sql.push(" AND {.try_count} = ")?;
    DB::bind_integer(&mut sql.out, &fence.try_count)?;
    if let Some(began) = &fence.began {
        sql.push(" AND {.last_attempt_time} = ")?;
        DB::bind_time(&mut sql.out, began)?;
    }
    if let Some(due) = &fence.due {
        sql.push(" AND ")?;
        push_is_due_at(sql)?;
        DB::bind_time(&mut sql.out, due)?;
    }
    Ok(())
}

/// Writes `next_attempt_time = `, in a form that walks no index.
pub(crate) fn push_is_due_at<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    sql.push_within(DB::WITHOUT_INDEX_IS, "{.next_attempt_time}")
}

/// Writes ` AND change_count = ..`: the content is still the same as at the claim. Writes nothing if the entity does
/// not count changes.
pub(crate) fn push_same_content<'b, DB: QueueBackend>(
    sql: &mut Writer<'_, 'b, DB>,
    fence: &'b Fence,
) -> QueryResult<()> {
    if let (Some(rerun), Some(change_count)) = (sql.queue.options.rerun_on_change, &fence.change_count) {
        sql.push_with(" AND {.} = ", &[rerun.change_count])?;
        DB::bind_big_integer(&mut sql.out, change_count)?;
    }
    Ok(())
}

/// A condition on a row's queue state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateCondition {
    /// Its status is one of these.
    In(&'static [Status]),
    /// Its status is one of these, all of them of rows that failed or were skipped. An entity with an index for reports finds
    /// the rows along it.
    Reported(&'static [Status]),
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
    /// Its last recorded attempt is at most this long ago.
    AttemptedWithin(Duration),
    /// The entity keeps its row no longer: the upkeep removes it.
    Expired,
    /// No attempt of it was ever recorded.
    NeverAttempted,
    /// It has the text of a failure.
    WithErrorText,
    /// It has no such text.
    WithoutErrorText,
    /// It has the text of a failure: neither the text that [`QueueRows::stop`](crate::QueueRows::stop) writes on rows without
    /// one, nor the one on a row that is being handled under strict accounts.
    WithFailure,
}

/// The rows that are left to do.
pub(crate) const PENDING: [StateCondition; 2] = [StateCondition::Pending, StateCondition::In(&Status::ALL)];

/// The rows that have failed for good.
pub(crate) const FAILED: [StateCondition; 2] =
    [StateCondition::NotPending, StateCondition::Reported(&[Status::Failed])];

impl StateCondition {
    pub(crate) fn push<DB: QueueBackend>(self, sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
        match self {
            StateCondition::In(statuses) => sql.push_status_in(" IN (", statuses),
            StateCondition::Reported(statuses) => push_reported(sql, statuses),
            StateCondition::NotIn(statuses) => sql.push_status_in(" NOT IN (", statuses),
            StateCondition::Pending => sql.push("{.next_attempt_time} IS NOT NULL"),
            StateCondition::NotPending => sql.push("{.next_attempt_time} IS NULL"),
            StateCondition::NotLeased => {
                sql.push("(")?;
                sql.push_status_in(" NOT IN (", &[Status::InProgress])?;
                sql.push(" OR {.next_attempt_time} <= {statement_time})")
            }
            StateCondition::Due => sql.push("{.next_attempt_time} <= {statement_time}"),
            StateCondition::Scheduled => sql.push("{.next_attempt_time} > {statement_time}"),
            StateCondition::AttemptedBefore(ago) => sql.push_attempted("{.last_attempt_time} <= ", ago),
            StateCondition::AttemptedWithin(ago) => sql.push_attempted("{.last_attempt_time} >= ", ago),
            StateCondition::Expired => {
                // An odd time tells no age.
                sql.within(("(", " IS NOT NULL AND "), |sql| sql.push_microseconds("{.last_attempt_time}"))?;
                let kinds: Vec<_> = sql.queue.options.leaving().map(|(of, kept, _)| finished(of, kept)).collect();
                push_any_kind(sql, &kinds)?;
                sql.push(")")
            }
            StateCondition::NeverAttempted => sql.push("{.last_attempt_time} IS NULL"),
            StateCondition::WithErrorText => sql.push("{.last_attempt_error_message} IS NOT NULL"),
            StateCondition::WithoutErrorText => sql.push("{.last_attempt_error_message} IS NULL"),
            StateCondition::WithFailure => {
                // Null is unequal to nothing, so this leaves out rows without a text. LIKE would ignore case on some
                // databases.
                sql.push_within(DB::EXACTLY, "{.last_attempt_error_message}")?;
                sql.push_with(&format!(" <> '{STOPPED}' AND SUBSTR("), &[])?;
                sql.push_within(DB::EXACTLY, "{.last_attempt_error_message}")?;
                sql.push_with(&format!(", 1, {}) <> '{PRESUMED}'", PRESUMED.len()), &[])
            }
        }
    }
}

/// Returns the states of rows with these statuses whose last attempt was so long ago, and whose work has ended.
pub(crate) fn finished(of: &'static [Status], ago: Duration) -> Vec<StateCondition> {
    let mut states = vec![StateCondition::In(of), StateCondition::NotPending, StateCondition::AttemptedBefore(ago)];
    // A successful row has no text, unless its schedule was stopped.
    states.extend(of.contains(&Status::Success).then_some(StateCondition::WithoutErrorText));
    states
}

/// Writes `((state AND ..) OR ..)`.
fn push_any_kind<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>, kinds: &[Vec<StateCondition>]) -> QueryResult<()> {
    let push_kind = |sql: &mut Writer<'_, '_, DB>, kind: &[StateCondition]| {
        sql.within(("(", ")"), |sql| sql.each(kind, " AND ", |sql, state| state.push(sql)))
    };
    sql.within(("(", ")"), |sql| sql.each(kinds, " OR ", |sql, kind| push_kind(sql, kind)))
}

/// Writes the condition on the status, also in the words of the index for reports, if there is one. MySQL and SQLite compare these
/// words and do not conclude. Where the index has a column of its own, that stands for the status, and the row need not be read.
fn push_reported<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>, statuses: &[Status]) -> QueryResult<()> {
    if !sql.queue.options.report_index || DB::PARTIAL_INDEXES {
        sql.push_status_in(" IN (", statuses)?;
        let of_index =
            " AND ({.last_attempt_error_message} IS NOT NULL OR {.status} = 'FAILED' OR {.status} = 'SKIPPED')";
        return if sql.queue.options.report_index { sql.push(of_index) } else { Ok(()) };
    }
    let status = sql.queue.name_of(Named::Reported(sql.queue.names.status))?;
    sql.within(DB::EXACTLY, |sql| sql.push_with("{.}", &[&status]))?;
    sql.push_statuses(" IN (", statuses)?;
    sql.push_with(" AND {.}", &[&status])?;
    sql.push_statuses(" IN (", statuses)
}

impl<DB: QueueBackend> Writer<'_, '_, DB> {
    fn push_attempted(&mut self, compared: &'static str, ago: Duration) -> QueryResult<()> {
        self.out.unsafe_to_cache_prepared();
        self.push(compared)?;
        self.out.push_sql(&statement_time_plus::<DB>(-microseconds(ago)));
        Ok(())
    }

    fn push_status_in(&mut self, is: &'static str, statuses: &[Status]) -> QueryResult<()> {
        self.push_within(DB::EXACTLY, "{.status}")?;
        self.push_statuses(is, statuses)
    }

    fn push_statuses(&mut self, is: &'static str, statuses: &[Status]) -> QueryResult<()> {
        self.push(is)?;
        self.each(statuses, ", ", |sql, status| sql.push_within(("'", "'"), status.as_str()))?;
        self.push(")")
    }
}

/// ` FROM table WHERE (filter) AND state AND ..`: the table or archive, the user's filter, and the conditions on the
/// queue's state.
pub struct Condition<'a, DB: QueueBackend> {
    pub(crate) queue: &'static QueueSql<DB>,
    pub(crate) filter: Option<&'a dyn QueryFragment<DB>>,
    pub(crate) states: &'a [StateCondition],
    pub(crate) kinds: &'a [Vec<StateCondition>],
    pub(crate) among: Option<&'a [IsKey<DB>]>,
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
        Condition { queue, filter, states, kinds: &[], among: None, archive: None }
    }

    /// Picks the rows with these keys.
    pub fn of_keys(queue: &'static QueueSql<DB>, keys: &'a [IsKey<DB>]) -> Self {
        Condition::new(queue, None, &[]).among(keys)
    }

    /// Picks only rows of one of these kinds, for which all conditions of one of the lists hold. Without lists it picks
    /// all rows.
    pub fn of_kinds(self, kinds: &'a [Vec<StateCondition>]) -> Self {
        Condition { kinds, ..self }
    }

    /// Picks only rows with one of these keys.
    pub fn among(self, keys: &'a [IsKey<DB>]) -> Self {
        Condition { among: Some(keys), ..self }
    }

    /// Picks the rows from the archive instead.
    pub fn within(self, archive: Option<&'a Archive>) -> Self {
        Condition { archive, ..self }
    }

    /// Tells whether it picks all rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.filter.is_none() && self.states.is_empty() && self.kinds.is_empty() && self.among.is_none()
    }

    /// Writes ` FROM table WHERE ..`, for an archive under the table's name.
    pub(crate) fn push_rows<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>) -> QueryResult<()> {
        sql.push(" FROM ")?;
        if let Some(archive) = self.archive {
            archive.push_as_table(&mut sql.out)?;
            return self.push(sql);
        }
        sql.push("{table}")?;
        // MySQL would often rather read the whole table.
        let is_pending = self.states.ends_with(&PENDING);
        let hint = DB::INDEX_HINT.filter(|_| is_pending || self.finds_reported_columns());
        // MariaDB computes the generated columns of each row if it runs such a prepared statement once more.
        hint.inspect(|_| sql.out.unsafe_to_cache_prepared());
        sql.push_hint(hint, if is_pending { Named::Index } else { Named::Reports })?;
        self.push(sql)
    }

    /// Writes the condition.
    pub(crate) fn push<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>) -> QueryResult<()> {
        let mut separator = " WHERE ";
        if let Some(filter) = self.filter {
            sql.push(std::mem::replace(&mut separator, " AND "))?;
            sql.within(("(", ")"), |sql| sql.push_fragment(filter))?;
        }
        for state in self.states {
            sql.push(std::mem::replace(&mut separator, " AND "))?;
            // An archive has no index for reports, nor the columns of one.
            let state = match state {
                StateCondition::Reported(statuses) if self.archive.is_some() => &StateCondition::In(statuses),
                state => state,
            };
            let is_counted = *state == StateCondition::NotPending && self.queue.options.report_by.is_some();
            match self.reported(self.queue.names.next_attempt_time)?.filter(|_| is_counted) {
                Some(next) => sql.push_with("{.} IS NULL", &[&next])?,
                None => state.push(sql)?,
            }
        }
        self.push_reported_time(sql)?;
        // A kind without conditions contains every row.
        if !self.kinds.is_empty() && self.kinds.iter().all(|kind| !kind.is_empty()) {
            sql.push(std::mem::replace(&mut separator, " AND "))?;
            push_any_kind(sql, self.kinds)?;
        }
        if let Some(keys) = self.among {
            sql.push(separator)?;
            push_keys(sql, keys)?;
        }
        Ok(())
    }
}

impl<DB: QueueBackend> Condition<'_, DB> {
    /// Returns the name of the column that has the values of this one in the index for reports, if the rows are found along it and
    /// it has columns of its own.
    pub(crate) fn reported(&self, column: &str) -> QueryResult<Option<String>> {
        self.finds_reported_columns().then(|| self.queue.name_of(Named::Reported(column))).transpose()
    }

    /// Tells whether the rows are found along that index, and it has columns of its own.
    fn finds_reported_columns(&self) -> bool {
        let is_reported = self.states.iter().any(|state| matches!(state, StateCondition::Reported(_)));
        is_reported && self.queue.options.report_index && !DB::PARTIAL_INDEXES && self.archive.is_none()
    }

    /// Writes the times of the rows for that index. It always follows another condition.
    fn push_reported_time(&self, sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
        let Some(time) = self.reported(self.queue.names.last_attempt_time)? else { return Ok(()) };
        for state in self.states {
            if let StateCondition::AttemptedWithin(ago) = state {
                sql.push_with(" AND {.} >= ", &[&time])?;
                sql.out.push_sql(&statement_time_plus::<DB>(-microseconds(*ago)));
            }
        }
        Ok(())
    }
}

/// An archive of a queue's rows. Statements on it give it the name of the queue's own table as an alias, so that the
/// user's filter, an expression on that table, applies to the archive's rows.
#[derive(Debug, Clone)]
pub struct Archive {
    table: TableName,
    pub(crate) alias: String,
}

impl Archive {
    /// Returns the archive of this name beside the queue's table.
    ///
    /// # Errors
    ///
    /// If the queue's table is named with a schema: an alias in a statement cannot contain one.
    pub fn of(live: &TableName, name: &str) -> Result<Self, Error> {
        if let Some(schema) = &live.schema {
            return Err(Error::Archive(format!(
                "the archive {name} cannot be searched by a filter on {live}: no other table can be read under a name with a \
                 schema; declare the table without `{schema}.` and have the connection find it (search_path, the default \
                 database)"
            )));
        }
        Ok(Archive { table: live.beside(name), alias: live.name.clone() })
    }

    /// Returns the archive's own name.
    pub fn table(&self) -> &TableName {
        &self.table
    }

    /// Writes `archive AS table`.
    pub(crate) fn push_as_table<DB: QueueBackend>(&self, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
        self.table.push(out)?;
        out.push_sql(" AS ");
        out.push_identifier(&self.alias)
    }
}

/// Writes `((key) OR (key) ..)`, in nested groups: SQLite allows a thousand levels of an expression, and counts each OR
/// of a flat list as one.
pub(crate) fn push_keys<'b, DB: QueueBackend>(sql: &mut Writer<'_, 'b, DB>, keys: &'b [IsKey<DB>]) -> QueryResult<()> {
    const GROUP: usize = 50;
    sql.keep_if_few(keys.len());
    if keys.is_empty() {
        return sql.push("1 = 0");
    }
    let keys = padded(keys.iter().collect());
    sql.within(("(", ")"), |sql| {
        sql.each(keys.chunks(GROUP), " OR ", |sql, keys| {
            sql.within(("(", ")"), |sql| push_any_key(sql, keys.iter().copied()))
        })
    })
}

/// Writes `(key) OR (key) ..`.
pub(crate) fn push_any_key<'b, DB: QueueBackend>(
    sql: &mut Writer<'_, 'b, DB>,
    keys: impl IntoIterator<Item = &'b IsKey<DB>>,
) -> QueryResult<()> {
    sql.each(keys, " OR ", |sql, is_key| sql.within(("(", ")"), |sql| sql.push_is_key("", is_key)))
}

/// Writes ` AND NOT (key)` for each of the keys.
pub(crate) fn push_exceptions<'b, DB: QueueBackend>(
    sql: &mut Writer<'_, 'b, DB>,
    keys: &'b [IsKey<DB>],
) -> QueryResult<()> {
    sql.each(keys, "", |sql, is_key| sql.within((" AND NOT (", ")"), |sql| sql.push_is_key("", is_key)))
}

/// A filter, if there is one; without one it is always true.
#[derive(Debug, Clone, Copy)]
pub struct IfAny<'a, F: ?Sized>(pub Option<&'a F>);

impl<F: QueryFragment<DB> + ?Sized, DB: QueueBackend> QueryFragment<DB> for IfAny<'_, F> {
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
