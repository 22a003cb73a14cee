//! Reports: counts the pending rows, by the queue's index, and the rows that have failed for good; reads the texts of
//! failures, how many rows have each, and the rows that have some of them.

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::condition::{Condition, PENDING, StateCondition, push_claimable};
use super::lane::push_lane_text;
use super::walk::{Claimable, Walk};
use super::writer::{Writer, statement};
use crate::backend::{QueueBackend, Statement, statement_time};
use crate::entity::QueueSql;
use crate::row::{Options, ValueKind};

/// How many characters of a text distinguish it from others, as many as
/// [`LOWEST_OF_EQUAL_TEXTS`](crate::backend::TextSql::LOWEST_OF_EQUAL_TEXTS) has.
pub(crate) const CHARACTERS_OF_TEXT: u32 = 1000;

/// What distinguishes the parts of a report.
#[derive(Debug, Clone, Copy)]
pub enum SplitBy<'a> {
    /// The column of this name.
    Column(&'a str),
    /// The value by which the queue's rows take turns, with the name that the column's collation gives it.
    Lane,
}

/// What splits a report, or nothing.
pub(crate) type Split<'a> = Option<SplitBy<'a>>;

impl<DB: QueueBackend> Writer<'_, '_, DB> {
    /// Writes the value of a split as text; null without a split.
    pub(super) fn push_split(&mut self, split: Split<'_>) -> QueryResult<()> {
        self.within(DB::AS_TEXT, |sql| match split {
            None => sql.push("NULL"),
            Some(SplitBy::Column(name)) => sql.push_around(DB::READABLE, "{.}", &[name]),
            Some(SplitBy::Lane) => sql.around(DB::READABLE, push_lane_text),
        })
    }

    /// Writes the expression that distinguishes two values, after `before`; nothing without a split.
    fn push_group(&mut self, before: &'static str, split: Split<'_>) -> QueryResult<()> {
        if split.is_none() {
            return Ok(());
        }
        self.push(before)?;
        self.within(DB::EXACTLY, |sql| sql.push_split(split))
    }
}

/// Counts the rows that are pending, due, and under a lease, and reads how long the oldest has been due. If there are more
/// than `limit` values of the split, it counts those with most rows.
///
/// The condition must pick pending rows only, because the queue's index contains no others.
pub fn count_pending<DB: QueueBackend>(
    condition: Condition<'_, DB>,
    split: Split<'_>,
    limit: u32,
) -> impl Statement<DB> {
    let claimable = Claimable::new(condition.queue, None);
    statement(condition.queue, (condition, split, claimable, limit), |(condition, split, claimable, limit), sql| {
        let Options { conditional, stages, .. } = sql.queue.options;
        let is_whole = condition.states == PENDING && Condition { states: &[], ..*condition }.is_empty();
        if DB::COUNTS_BY_RANGES && !conditional && stages.is_none() {
            match *split {
                None if is_whole => return push_counts(sql, claimable),
                Some(SplitBy::Column(column)) if is_reported_by(sql.queue, column) => {
                    return push_counts_by(sql, condition, column, *limit);
                }
                _ => {}
            }
        }
        sql.within(("SELECT MIN(", ")"), |sql| sql.push_split(*split))?;
        sql.push(", COUNT(*), COUNT(CASE WHEN {.next_attempt_time} <= {statement_time} THEN 1 END)")?;
        sql.within((", COUNT(CASE WHEN ", " THEN 1 END)"), |sql| push_is_due(sql, claimable))?;
        sql.push(
            ", COUNT(CASE WHEN {.next_attempt_time} > {statement_time} AND {.status} = 'IN_PROGRESS' THEN 1 END), ",
        )?;
        sql.push_microseconds("{statement_time}")?;
        // Only of the earliest time, because microseconds of every row take most of the time. The bound leaves out `-infinity`
        // and zero dates.
        sql.push(" - ")?;
        sql.around(DB::MICROSECONDS_SINCE_1970, |sql| {
            sql.within(("MIN(CASE WHEN ", ""), |sql| push_is_due(sql, claimable))?;
            sql.push(" AND {.next_attempt_time} >= '0001-01-01 00:00:00' THEN {.next_attempt_time} END)")
        })?;
        push_count_of_values(*split, sql)?;
        condition.push_rows(sql)?;
        push_by_value(*split, *limit, sql)
    })
}

/// Writes the same for a whole queue each of whose due rows can be claimed. It reads a row once, in the range of those that are due
/// or in that of the others, and evaluates little for it.
fn push_counts<'b, DB: QueueBackend>(sql: &mut Writer<'_, 'b, DB>, due: &'b Claimable<DB>) -> QueryResult<()> {
    sql.push("SELECT ")?;
    sql.push_split(None)?;
    sql.push(", queueable_come + queueable_later, queueable_come, queueable_come, queueable_leased, ")?;
    sql.push_microseconds("{statement_time}")?;
    sql.push(" - ")?;
    sql.push_microseconds("queueable_oldest")?;
    sql.push(", 1 FROM (SELECT COUNT(*) AS queueable_come, (SELECT {.next_attempt_time}")?;
    Walk::OLDEST.push_from(sql)?;
    sql.push("{.next_attempt_time} >= '0001-01-01 00:00:00' AND ")?;
    due.push_due(sql, &statement_time::<DB>())?;
    Walk::OLDEST.push_order(sql, &1)?;
    sql.push(") AS queueable_oldest")?;
    Walk::OLDEST.push_from(sql)?;
    due.push_due(sql, &statement_time::<DB>())?;
    sql.push(") AS queueable_due, (SELECT COUNT(*) AS queueable_later")?;
    sql.push(", COUNT(CASE WHEN {.status} = 'IN_PROGRESS' THEN 1 END) AS queueable_leased")?;
    Walk::OLDEST.push_from(sql)?;
    sql.push("{.next_attempt_time} > {statement_time} AND ")?;
    push_claimable(sql)?;
    sql.push(") AS queueable_scheduled")
}

/// The counts of a value in a range of due times, and the range. The first one names them, and has no odd times.
const RANGES: [(&str, &str); 3] = [
    (
        "COUNT(*) AS queueable_rows, 1 AS queueable_come, 0 AS queueable_leased, MIN({.next_attempt_time}) AS queueable_oldest",
        " AND {.next_attempt_time} >= '0001-01-01 00:00:00' AND {.next_attempt_time} <= {statement_time} GROUP BY ",
    ),
    ("COUNT(*), 1, 0, NULL", " AND {.next_attempt_time} < '0001-01-01 00:00:00' GROUP BY "),
    (
        "COUNT(*), 0, COUNT(CASE WHEN {.status} = 'IN_PROGRESS' THEN 1 END), NULL",
        " AND {.next_attempt_time} > {statement_time} GROUP BY ",
    ),
];

/// Tells whether it is the column by which reports are split most often, and equal values of it have equal texts.
fn is_reported_by<DB: QueueBackend>(queue: &'static QueueSql<DB>, column: &str) -> bool {
    let by = queue.options.report_by.filter(|(_, of)| of.kind != ValueKind::Text);
    by.is_some_and(|(reported, _)| reported == column)
}

/// Writes the same for each value of that column, which the index of due times has. It groups values as they are: to make a text of
/// each takes longer than to read it.
fn push_counts_by<'b, DB: QueueBackend>(
    sql: &mut Writer<'_, 'b, DB>,
    condition: &'b Condition<'_, DB>,
    column: &str,
    limit: u32,
) -> QueryResult<()> {
    let within = |(before, after): (&str, &str), text: &str| [before, text, after].concat();
    let [rows, come, leased] = ["queueable_rows", "queueable_rows * queueable_come", "queueable_leased"]
        .map(|summed| within(DB::AS_INTEGER, &within(("SUM(", ")"), summed)));
    let value = within(DB::AS_TEXT, "queueable_value");
    sql.push_with(&format!("SELECT MIN({value}), {rows}, {come}, {come}, {leased}, "), &[])?;
    sql.push_microseconds("{statement_time}")?;
    sql.push(" - ")?;
    sql.push_microseconds("MIN(queueable_oldest)")?;
    sql.push(", COUNT(*) OVER () FROM (")?;
    sql.each(RANGES, " UNION ALL ", |sql, (counts, range)| {
        sql.within(("SELECT ", " AS queueable_value, "), |sql| sql.push_with("{.}", &[column]))?;
        sql.push(counts)?;
        condition.push_rows(sql)?;
        sql.push(range)?;
        sql.push_with("{.}", &[column])
    })?;
    let exact = within(DB::EXACTLY, &value);
    sql.push_with(&format!(") AS queueable_counts GROUP BY {exact} ORDER BY {rows} DESC, {exact} LIMIT {limit}"), &[])
}

/// Writes the condition that the row's time has come, its own condition holds, and its stage is one of the entity's.
fn push_is_due<'b, DB: QueueBackend>(sql: &mut Writer<'_, 'b, DB>, claimable: &'b Claimable<DB>) -> QueryResult<()> {
    StateCondition::Due.push(sql)?;
    claimable.push_condition(sql)?;
    sql.push_stages(claimable.stages.as_deref())
}

/// Counts the rows that a condition picks, by the values of a split. If there are more than `limit` values, it counts those
/// with most rows.
pub fn count_by_value<DB: QueueBackend>(
    condition: Condition<'_, DB>,
    split: Split<'_>,
    limit: u32,
) -> impl Statement<DB> {
    statement(condition.queue, (condition, split, limit), |(condition, split, limit), sql| {
        sql.within(("SELECT MIN(", "), COUNT(*)"), |sql| sql.push_split(*split))?;
        push_count_of_values(*split, sql)?;
        condition.push_rows(sql)?;
        push_by_value(*split, *limit, sql)
    })
}

/// Sums a column over the rows that a condition picks, by the values of a split: at most `limit`, those with most rows. `due`: the
/// condition picks pending rows, and only those of them are summed that may be claimed.
pub fn sum_by_value<'a, DB: QueueBackend>(
    condition: Condition<'a, DB>,
    split: Split<'a>,
    (summed, due): (&'a str, Option<Claimable<DB>>),
    limit: u32,
) -> impl Statement<DB> {
    let parts = (condition, split, summed, due, limit);
    statement(condition.queue, parts, |(condition, split, summed, due, limit), sql| {
        sql.within(("SELECT MIN(", "), "), |sql| sql.push_split(*split))?;
        sql.within(DB::AS_TEXT, |sql| match due {
            None => sql.within(("SUM(", ")"), |sql| sql.push_with("{.}", &[*summed])),
            Some(due) => {
                sql.within(("SUM(CASE WHEN ", " THEN "), |sql| push_is_due(sql, due))?;
                sql.within(("", " END)"), |sql| sql.push_with("{.}", &[*summed]))
            }
        })?;
        condition.push_rows(sql)?;
        push_by_value(*split, *limit, sql)
    })
}

/// Writes the number of values. Only a split count needs a window function.
fn push_count_of_values<DB: QueueBackend>(split: Split<'_>, sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    sql.push(if split.is_some() { ", COUNT(*) OVER ()" } else { ", COUNT(*)" })
}

fn push_by_value<'b, DB: QueueBackend>(split: Split<'_>, limit: u32, sql: &mut Writer<'_, 'b, DB>) -> QueryResult<()> {
    if split.is_none() {
        return Ok(());
    }
    sql.push_group(" GROUP BY ", split)?;
    sql.push_group(" ORDER BY COUNT(*) DESC, ", split)?;
    sql.push_with(&format!(" LIMIT {limit}"), &[])
}

/// Reads the texts of failures, those on most rows first, each with numbers: at most `limit`, which are distinguished by their
/// first 1,000 characters.
pub fn error_texts<DB: QueueBackend>(condition: Condition<'_, DB>, split: Split<'_>, limit: u32) -> impl Statement<DB> {
    statement(condition.queue, (condition, split, limit), |(condition, split, limit), sql| {
        sql.within(("SELECT ", ", "), push_text_of_group)?;
        push_identity(sql)?;
        sql.within((", MIN(", "), COUNT(*)"), |sql| sql.push_split(*split))?;
        sql.push(", COUNT(CASE WHEN {.status} = 'ERROR' AND {.next_attempt_time} IS NOT NULL THEN 1 END)")?;
        sql.push(", COUNT(CASE WHEN {.status} = 'FAILED' THEN 1 END)")?;
        for function in [", MIN(", ", MAX("] {
            sql.within((function, ")"), |sql| sql.push_microseconds("{.last_attempt_time}"))?;
        }
        for function in [", COUNT(", ", MIN("] {
            sql.within((function, ")"), |sql| sql.push_odd_text("{.last_attempt_time}"))?;
        }
        sql.push(", ")?;
        sql.push_within(DB::AS_INTEGER, "SUM(COUNT(*)) OVER ()")?;
        condition.push_rows(sql)?;
        sql.push(" GROUP BY ")?;
        push_partition(sql, *split)?;
        sql.push(" ORDER BY COUNT(*) DESC, ")?;
        push_partition(sql, *split)?;
        sql.push_with(&format!(" LIMIT {limit}"), &[])
    })
}

/// Reads the texts and the keys of any rows: at most `limit`.
pub fn error_sample<DB: QueueBackend>(condition: Condition<'_, DB>, limit: u32) -> impl Statement<DB> {
    statement(condition.queue, (condition, limit), |(condition, limit), sql| {
        sql.within(("SELECT ", ", "), push_identity)?;
        sql.push_split(None)?;
        let one = [DB::AS_INTEGER.0, "1", DB::AS_INTEGER.1].concat();
        sql.push_with(&format!(", {one}, {one}, {{key}}"), &[])?;
        condition.push_rows(sql)?;
        sql.push_with(&format!(" LIMIT {limit}"), &[])
    })
}

/// Reads the keys of up to three rows of each of these texts: at most `limit` rows, the first of each text before the others,
/// those of texts on most rows first.
///
/// Window functions give a few rows of each text for any type of key; MySQL has them from version 8. The numbers come from a
/// statement of their own: MariaDB reads a whole text once more for each row and each function.
pub fn error_examples<DB: QueueBackend>(
    condition: Condition<'_, DB>,
    split: Split<'_>,
    limit: u32,
) -> impl Statement<DB> {
    statement(condition.queue, (condition, split, limit), |(condition, split, limit), sql| {
        sql.push("SELECT * FROM (SELECT ")?;
        push_identity(sql)?;
        sql.push(" AS queueable_text, ")?;
        sql.push_split(*split)?;
        sql.push(" AS queueable_value, COUNT(*) OVER (PARTITION BY ")?;
        push_partition(sql, *split)?;
        sql.push(") AS queueable_rows, ROW_NUMBER() OVER (PARTITION BY ")?;
        push_partition(sql, *split)?;
        sql.push(" ORDER BY {key}) AS queueable_place, {key}")?;
        condition.push_rows(sql)?;
        // The first row of each text, and then the others, as far as there is room.
        sql.push(") AS queueable_texts WHERE queueable_place <= 3 ORDER BY queueable_place, queueable_rows DESC, ")?;
        sql.push_with(&format!("queueable_text LIMIT {limit}"), &[])
    })
}

fn push_partition<'b, DB: QueueBackend>(sql: &mut Writer<'_, 'b, DB>, split: Split<'_>) -> QueryResult<()> {
    push_identity(sql)?;
    sql.push_group(", ", split)
}

/// Reads only the texts of failures, by their first 1,000 characters, in a fixed order, after a given one: at most `limit`.
/// The condition must not be empty.
pub fn texts_after<DB: QueueBackend>(
    condition: Condition<'_, DB>,
    after: Option<&str>,
    limit: u32,
) -> impl Statement<DB> {
    statement(condition.queue, (condition, after, limit), |(condition, after, limit), sql| {
        sql.within(("SELECT ", ""), push_text_of_group)?;
        condition.push_rows(sql)?;
        if let Some(after) = after {
            sql.push(" AND ")?;
            push_identity(sql)?;
            sql.push(" > ")?;
            sql.within(DB::IDENTITY, |sql| DB::bind_text(&mut sql.out, after))?;
        }
        sql.push(" GROUP BY ")?;
        push_identity(sql)?;
        sql.push(" ORDER BY ")?;
        push_identity(sql)?;
        sql.push_with(&format!(" LIMIT {limit}"), &[])
    })
}

/// The condition that a row's text is one of these, by their first 1,000 characters. There must be at least one.
pub struct WithTexts<'a, DB: QueueBackend>(pub &'static QueueSql<DB>, pub &'a [String]);

impl<DB: QueueBackend> QueryFragment<DB> for WithTexts<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.0, out);
        // Each number of texts is a statement of its own, which is not worth caching.
        sql.out.unsafe_to_cache_prepared();
        sql.within(DB::EXACTLY, push_text)?;
        sql.push(" IN (")?;
        sql.each(self.1, ", ", |sql, text| sql.within(DB::EXACTLY, |sql| DB::bind_text(&mut sql.out, text)))?;
        sql.push(")")
    }
}

/// The condition that a row's text begins with this one, of no more than 1,000 characters.
pub(crate) struct WithBeginning<'a, DB: QueueBackend>(pub(crate) &'static QueueSql<DB>, pub(crate) &'a str);

impl<DB: QueueBackend> QueryFragment<DB> for WithBeginning<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.0, out);
        // Each length is a statement of its own, which is not worth caching.
        sql.out.unsafe_to_cache_prepared();
        let characters = self.1.chars().count();
        // LIKE would ignore case on some databases.
        sql.within(DB::EXACTLY, |sql| push_beginning(sql, characters))?;
        sql.push(" = ")?;
        sql.within(DB::EXACTLY, |sql| DB::bind_text(&mut sql.out, self.1))
    }
}

/// Writes the first characters of a group's text: the lowest, because the texts of a group are equal, and some
/// databases demand an aggregate.
fn push_text_of_group<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    sql.push_around(DB::LOWEST_OF_EQUAL_TEXTS, &DB::READABLE.join("{.last_attempt_error_message}"), &[])
}

/// Writes the first characters of a failure's text.
fn push_text<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    push_beginning(sql, CHARACTERS_OF_TEXT as usize)
}

fn push_beginning<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>, characters: usize) -> QueryResult<()> {
    sql.push("SUBSTR(")?;
    sql.push_around(DB::READABLE, "{.last_attempt_error_message}", &[])?;
    sql.push_with(&format!(", 1, {characters})"), &[])
}

/// Writes them in a form that distinguishes and sorts them.
fn push_identity<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    sql.within(DB::IDENTITY, push_text)
}
