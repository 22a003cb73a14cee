//! A condition as an expression of Diesel. Its SQL consists of words of this file and of its neighbours for each database, and of
//! the names of the table's columns; every value is bound.

use std::fmt;
use std::sync::Arc;

use diesel::backend::Backend;
use diesel::expression::{Expression, ValidGrouping, is_aggregate};
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::sql_types::{Bool, Nullable};
use diesel::{AppearsOnTable, Table};
use queue_core::internals::backend::{Holds, QueueBackend};

use super::condition::{Condition, Named};
use super::value::Value;

/// How one database takes the values of a condition.
pub(crate) trait FilterSql: QueueBackend {
    /// Whether LIKE has to be told that a backslash escapes. PostgreSQL's does so by default, whatever the session's settings, and
    /// they decide how it reads a backslash between quotes.
    const LIKE_HAS_NO_ESCAPE: bool = true;

    /// The SQL before and after a time with its offset that makes it comparable with the queue's times.
    const WITHOUT_OFFSET: (&'static str, &'static str) = ("", "");

    /// What columns hold whose values do not compare in the order in which the database sorts them. A parameter is the text of a value,
    /// and sorted are the values themselves.
    const UNORDERED: &'static [Holds] = &[Holds::Printed];

    /// Binds a value so that it compares with a column of its type, along an index if there is one.
    fn bind_value<'b>(out: &mut AstPass<'_, 'b, Self>, value: &'b Value) -> QueryResult<()>;

    /// Binds a text that takes the type of the text that it is compared with.
    fn bind_like_column<'b>(out: &mut AstPass<'_, 'b, Self>, text: &'b str) -> QueryResult<()> {
        Self::bind_text(out, text)
    }
}

/// The rows of a table for which a condition holds.
pub(crate) struct Filter<T: 'static> {
    table: &'static T,
    condition: Arc<Condition>,
}

impl Condition {
    /// Makes the condition an expression on the table whose columns it names.
    pub(crate) fn on<T: Table>(&self, table: &'static T) -> Filter<T> {
        Filter { table, condition: Arc::new(self.clone()) }
    }
}

impl<T> Clone for Filter<T> {
    fn clone(&self) -> Self {
        Filter { table: self.table, condition: Arc::clone(&self.condition) }
    }
}

impl<T> fmt::Debug for Filter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Filter({})", self.condition)
    }
}

impl<T> Expression for Filter<T> {
    type SqlType = Nullable<Bool>;
}

impl<T: Table> AppearsOnTable<T> for Filter<T> {}

impl<T, GB> ValidGrouping<GB> for Filter<T> {
    type IsAggregate = is_aggregate::No;
}

/// The SQL depends on the condition.
impl<T> QueryId for Filter<T> {
    type QueryId = ();

    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<T: QueryFragment<DB>, DB: FilterSql> QueryFragment<DB> for Filter<T> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        // Each condition is another statement, run once: a cache would keep all of them, and plans without the values.
        out.unsafe_to_cache_prepared();
        let mut sql = Writer { table: self.table, out };
        match &*self.condition {
            several @ (Condition::Any(_) | Condition::All(_)) => sql.condition(several),
            one => sql.within(("(", ")"), |sql| sql.condition(one)),
        }
    }
}

/// Writes a condition on one table.
struct Writer<'a, 'b, T, DB: Backend> {
    table: &'b T,
    out: AstPass<'a, 'b, DB>,
}

impl<'b, T: QueryFragment<DB>, DB: FilterSql> Writer<'_, 'b, T, DB> {
    fn condition(&mut self, condition: &'b Condition) -> QueryResult<()> {
        match condition {
            Condition::Any(conditions) => self.joined(conditions, " OR "),
            Condition::All(conditions) => self.joined(conditions, " AND "),
            Condition::Not(condition) => self.within(("NOT (", ")"), |sql| sql.condition(condition)),
            Condition::IsTrue(column) => self.column(column),
            Condition::IsNull { column, is } => {
                self.column(column)?;
                self.either(*is, " IS NULL", " IS NOT NULL")
            }
            Condition::Compares { column, operator, value } => {
                self.compared(column)?;
                self.within((" ", " "), |sql| sql.push(operator.as_sql()))?;
                self.value(value)
            }
            Condition::In { column, is, values } => {
                self.compared(column)?;
                self.either(*is, " IN (", " NOT IN (")?;
                self.each(values, ", ", Self::value)?;
                self.push(")")
            }
            Condition::Between { column, is, low, high } => {
                self.compared(column)?;
                self.either(*is, " BETWEEN ", " NOT BETWEEN ")?;
                self.value(low)?;
                self.push(" AND ")?;
                self.value(high)
            }
            Condition::Like { column, is, pattern } => self.like(column, *is, pattern),
        }
    }

    fn like(&mut self, column: &'b Named, is: bool, pattern: &'b str) -> QueryResult<()> {
        let is_text = column.holds == Holds::Texts;
        if is_text {
            self.column(column)?;
        } else {
            self.within(DB::AS_TEXT, |sql| sql.column(column))?;
        }
        self.either(is, " LIKE ", " NOT LIKE ")?;
        if is_text {
            DB::bind_like_column(&mut self.out, pattern)?;
        } else {
            DB::bind_text(&mut self.out, pattern)?;
        }
        if DB::LIKE_HAS_NO_ESCAPE {
            self.push(" ESCAPE ")?;
            // MySQL's settings decide how it reads a backslash between quotes.
            DB::bind_text(&mut self.out, "\\")?;
        }
        Ok(())
    }

    fn joined(&mut self, conditions: &'b [Condition], word: &'static str) -> QueryResult<()> {
        self.within(("(", ")"), |sql| sql.each(conditions, word, Self::condition))
    }

    /// Writes a column as it is compared with a bound value.
    fn compared(&mut self, column: &'b Named) -> QueryResult<()> {
        let form = match column.holds {
            Holds::Printed => DB::AS_TEXT,
            Holds::InstantsWithOffset => DB::WITHOUT_OFFSET,
            _ => ("", ""),
        };
        self.within(form, |sql| sql.column(column))
    }

    /// Writes a column as Diesel writes those of `table!`.
    fn column(&mut self, column: &'b Named) -> QueryResult<()> {
        if !self.out.should_skip_from() {
            self.table.walk_ast(self.out.reborrow())?;
            self.push(".")?;
        }
        self.out.push_identifier(&column.name)
    }

    fn value(&mut self, value: &'b Value) -> QueryResult<()> {
        DB::bind_value(&mut self.out, value)
    }

    fn each<I>(
        &mut self,
        items: &'b [I],
        between: &'static str,
        write: impl Fn(&mut Self, &'b I) -> QueryResult<()>,
    ) -> QueryResult<()> {
        items.iter().enumerate().try_for_each(|(i, item)| {
            if i > 0 {
                self.push(between)?;
            }
            write(self, item)
        })
    }

    fn within(
        &mut self,
        (before, after): (&'static str, &'static str),
        write: impl FnOnce(&mut Self) -> QueryResult<()>,
    ) -> QueryResult<()> {
        self.push(before)?;
        write(self)?;
        self.push(after)
    }

    fn either(&mut self, is: bool, yes: &'static str, no: &'static str) -> QueryResult<()> {
        self.push(if is { yes } else { no })
    }

    /// Takes words of this crate only: no other text lives as long as the program.
    fn push(&mut self, sql: &'static str) -> QueryResult<()> {
        self.out.push_sql(sql);
        Ok(())
    }
}
