//! Reads columns that are known by their names alone, as texts: for programs that show any entity's rows.

use diesel::result::QueryResult;

use super::condition::Condition;
use super::operation::PageFrom;
use super::writer::{Writer, statement};
use crate::backend::{Holds, QueueBackend, Statement};

/// A column whose values are read as texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextColumn {
    /// Its name in the database.
    pub name: String,
    /// What its values are.
    pub holds: Holds,
}

/// A number over the rows of a selection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Figure {
    /// The sum of a column's values.
    Sum(String),
    /// How many values of a column there are.
    Distinct(String),
}

impl Figure {
    /// Returns the column.
    pub(crate) fn column(&self) -> &str {
        match self {
            Figure::Sum(column) | Figure::Distinct(column) => column,
        }
    }
}

/// How many arguments a function gets at most. PostgreSQL's functions take 100.
const ARGUMENTS: usize = 50;

/// Reads a page of a selection: of each row its key, and a JSON text: the text of the time by which the page is ordered, or null, a list
/// with the texts of the key's columns, and lists with the texts of the columns. Those are cut after `longest` characters.
pub(crate) fn read_texts<'a, DB: QueueBackend>(
    condition: Condition<'a, DB>,
    from: &'a PageFrom<DB>,
    (keys, columns): (&'a [TextColumn], &'a [TextColumn]),
    longest: u32,
    limit: usize,
) -> impl Statement<DB> + 'a {
    let parts = (condition, from, keys, columns, longest, limit);
    statement(condition.queue, parts, |(condition, from, keys, columns, longest, limit), sql| {
        let time = from.time(condition, sql)?;
        sql.push("SELECT {key}, ")?;
        sql.within(DB::JSON_TEXT, |sql| {
            sql.within(DB::JSON_LIST, |sql| {
                match time.as_deref().filter(|_| from.timed) {
                    Some(time) => sql.within(DB::TEXT_OF_TIME, |sql| sql.push_with("{.}", &[time]))?,
                    None => sql.push("NULL")?,
                }
                sql.out.push_sql(", ");
                sql.within(DB::JSON_LIST, |sql| sql.each(*keys, ", ", push_text))?;
                for columns in columns.chunks(ARGUMENTS) {
                    sql.out.push_sql(", ");
                    sql.within(DB::JSON_LIST, |sql| {
                        sql.each(columns, ", ", |sql, column| {
                            sql.push("SUBSTR(")?;
                            push_text(sql, column)?;
                            sql.push_with(&format!(", 1, {longest})"), &[])
                        })
                    })?;
                }
                Ok(())
            })
        })?;
        condition.push_rows(sql)?;
        from.push(time.as_deref(), condition.is_empty(), sql)?;
        sql.push_with(&format!(" LIMIT {limit}"), &[])
    })
}

/// Counts a selection, and reads a JSON text: lists with the texts of figures. `most`: it reads no more rows than these.
///
/// The rows come from a query of their own, because only there a limit bounds the rows that are counted. They have no order, for
/// which the database might have to read and sort all of them.
pub(crate) fn read_figures<'a, DB: QueueBackend>(
    condition: Condition<'a, DB>,
    figures: &'a [Figure],
    most: Option<i64>,
) -> impl Statement<DB> + 'a {
    let figures: Vec<_> = figures.iter().enumerate().collect();
    statement(condition.queue, (condition, figures, most), |(condition, figures, most), sql| {
        sql.push("SELECT ")?;
        sql.within(DB::JSON_TEXT, |sql| {
            sql.within(DB::JSON_LIST, |sql| {
                sql.each(figures.chunks(ARGUMENTS), ", ", |sql, figures| {
                    sql.within(DB::JSON_LIST, |sql| sql.each(figures, ", ", push_figure))
                })
            })
        })?;
        sql.push(", COUNT(*) FROM (SELECT ")?;
        // Two figures may be of one column, whose name would be ambiguous.
        sql.each(figures, ", ", |sql, (place, figure)| {
            sql.push_with(&format!("{{.}} AS queueable_{place}"), &[figure.column()])
        })?;
        sql.push(if figures.is_empty() { "1 AS queueable_0" } else { "" })?;
        condition.push_rows(sql)?;
        if let Some(most) = most {
            sql.push_with(&format!(" LIMIT {most}"), &[])?;
        }
        sql.push(") AS queueable_rows")
    })
}

fn push_figure<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>, (place, figure): &(usize, &Figure)) -> QueryResult<()> {
    sql.within(DB::AS_TEXT, |sql| match figure {
        Figure::Sum(_) => sql.push_with(&format!("SUM(queueable_{place})"), &[]),
        Figure::Distinct(_) => sql.push_with(&format!("COUNT(DISTINCT queueable_{place})"), &[]),
    })
}

fn push_text<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>, column: &TextColumn) -> QueryResult<()> {
    if column.holds != Holds::Bytes {
        return sql.within(DB::AS_TEXT, |sql| sql.push_around(DB::READABLE, "{.}", &[&column.name]));
    }
    // SQLite makes an empty text of null bytes.
    sql.push_with("CASE WHEN {.} IS NOT NULL THEN ", &[&column.name])?;
    sql.within(DB::BYTES_TEXT, |sql| sql.push_with("{.}", &[&column.name]))?;
    sql.push(" END")
}
