//! Writes the text of a statement: SQL with the names of the queue's table and columns.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ptr;

use diesel::query_builder::{AstPass, QueryBuilder, QueryFragment};
use diesel::result::QueryResult;

use crate::backend::{Named, QueueBackend, Statement, now, statement_time};
use crate::entity::{IsKey, QueueSql};
use crate::error::refused;
use crate::row::{ColumnNames, Order};
use crate::sync::in_test::moved_clock;

/// Returns a statement about a queue: what it is made of, and the function that writes it. It binds only values of its
/// parts, because Diesel runs it after it was written.
pub(crate) fn statement<DB: QueueBackend, T>(
    queue: &'static QueueSql<DB>,
    parts: T,
    write: for<'b> fn(&'b T, &mut Writer<'_, 'b, DB>) -> QueryResult<()>,
) -> impl Statement<DB> {
    statement_on_no_queue((queue, parts, write), |(queue, parts, write), out| {
        write(parts, &mut Writer::new(queue, out))
    })
}

/// Returns a statement that is not about a queue.
pub(crate) fn statement_on_no_queue<DB: QueueBackend, T>(parts: T, write: Write<DB, T>) -> impl Statement<DB> {
    Written { parts, write }
}

type Write<DB, T> = for<'b> fn(&'b T, AstPass<'_, 'b, DB>) -> QueryResult<()>;

struct Written<DB: QueueBackend, T> {
    parts: T,
    write: Write<DB, T>,
}

impl<DB: QueueBackend, T> Statement<DB> for Written<DB, T> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        keep_out_of_caches(&mut out);
        (self.write)(&self.parts, out)
    }
}

/// The largest number of keys for which a statement is kept prepared. With more keys it is prepared each time: that
/// costs one round trip, beside the work on so many rows.
const MOST_KEYS_KEPT: usize = 128;

/// Writes a statement about a queue.
///
/// In a text, `{table}` stands for the queue's table, `{key}` for the columns of its key, and `{status}` for the name of
/// that column, like each of the five columns. With a dot, as in `{.status}`, the column has its table's name. `{now}`,
/// `{statement_time}`, `{claim_lock}`, `{removal_lock}` and `{row_lock}` are the database's words.
pub(crate) struct Writer<'a, 'b, DB: QueueBackend> {
    pub(crate) queue: &'static QueueSql<DB>,
    pub(crate) out: AstPass<'a, 'b, DB>,
}

impl<'a, 'b, DB: QueueBackend> Writer<'a, 'b, DB> {
    pub(crate) fn new(queue: &'static QueueSql<DB>, mut out: AstPass<'a, 'b, DB>) -> Self {
        keep_out_of_caches(&mut out);
        Writer { queue, out }
    }

    /// Writes a text. Diesel walks through a statement up to three times for each run, so each thread keeps what it has made
    /// of a text.
    pub(crate) fn push(&mut self, text: &'static str) -> QueryResult<()> {
        let queue = self.queue;
        if moved_clock().is_some() {
            return self.push_with(text, &[]);
        }
        MADE.with_borrow_mut(|made| {
            let place = (text.as_ptr().addr(), text.len(), ptr::from_ref(queue).addr());
            if let Some(sql) = made.get(&place) {
                self.out.push_sql(sql);
                return Ok(());
            }
            let mut builder = DB::QueryBuilder::default();
            InText { queue, text }.to_sql(&mut builder, &DB::default())?;
            let sql = builder.finish();
            self.out.push_sql(&sql);
            made.insert(place, sql);
            Ok(())
        })
    }

    /// Writes a text in which each `{}` stands for the next of these columns, and `{.}` for the same with its table's name.
    /// After the last one the first one follows.
    pub(crate) fn push_with(&mut self, text: &str, columns: &[&str]) -> QueryResult<()> {
        let queue = self.queue;
        let mut columns = columns.iter().copied().cycle();
        let mut rest = text;
        while let Some((before, name, after)) = split_at_name(rest) {
            self.out.push_sql(before);
            match name {
                "table" => queue.table.walk_ast(self.out.reborrow())?,
                "key" => queue.key_columns.walk_ast(self.out.reborrow())?,
                "now" => self.out.push_sql(&now::<DB>()),
                "statement_time" => self.out.push_sql(&statement_time::<DB>()),
                "claim_lock" => self.out.push_sql(DB::CLAIM_LOCK),
                "removal_lock" => self.out.push_sql(DB::REMOVAL_LOCK),
                "row_lock" => self.out.push_sql(DB::ROW_LOCK),
                _ => {
                    let column = name.trim_start_matches('.');
                    if column != name {
                        queue.table.walk_ast(self.out.reborrow())?;
                        self.out.push_sql(".");
                    }
                    let column = if column.is_empty() { columns.next() } else { column_called(queue.names, column) };
                    let column = column.ok_or_else(|| refused(format!("`{text}` has no column for a name")))?;
                    self.out.push_identifier(column)?;
                }
            }
            rest = after;
        }
        self.out.push_sql(rest);
        Ok(())
    }

    /// Writes a part of the statement that Diesel or the application has made.
    pub(crate) fn push_fragment(&mut self, fragment: &'b dyn QueryFragment<DB>) -> QueryResult<()> {
        fragment.walk_ast(self.out.reborrow())
    }

    /// Writes a text, and then the condition that picks the row with a key.
    pub(crate) fn push_is_key(&mut self, before: &'static str, is_key: &'b IsKey<DB>) -> QueryResult<()> {
        self.push(before)?;
        self.push_fragment(&**is_key)
    }

    /// Writes a text within the SQL before and after it.
    pub(crate) fn push_within(&mut self, parts: (&str, &str), text: &'static str) -> QueryResult<()> {
        self.within(parts, |sql| sql.push(text))
    }

    /// Writes an expression within the SQL before and after it.
    pub(crate) fn within(
        &mut self,
        (before, after): (&str, &str),
        push: impl FnOnce(&mut Self) -> QueryResult<()>,
    ) -> QueryResult<()> {
        self.out.push_sql(before);
        push(self)?;
        self.out.push_sql(after);
        Ok(())
    }

    /// Writes some parts of SQL, and an expression between each two.
    pub(crate) fn around(&mut self, parts: &[&str], push: impl Fn(&mut Self) -> QueryResult<()>) -> QueryResult<()> {
        self.out.push_sql(parts[0]);
        parts[1..].iter().try_for_each(|part| self.within(("", part), &push))
    }

    /// Writes each of some items, with a text between each two.
    pub(crate) fn each<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        between: &str,
        push: impl Fn(&mut Self, T) -> QueryResult<()>,
    ) -> QueryResult<()> {
        for (i, item) in items.into_iter().enumerate() {
            self.out.push_sql(if i > 0 { between } else { "" });
            push(self, item)?;
        }
        Ok(())
    }

    /// Writes some parts of SQL, and a text between each two.
    pub(crate) fn push_around(&mut self, parts: &[&str], text: &str, columns: &[&str]) -> QueryResult<()> {
        self.push_with(&parts.join(text), columns)
    }

    /// Writes the microseconds from 1970 until a time; null if the time is odd: if it cannot be read as a time, such as
    /// `infinity`, a zero date, or any text on SQLite. One of them must not make a report fail for all others.
    pub(crate) fn push_microseconds(&mut self, time: &str) -> QueryResult<()> {
        self.push_around(DB::MICROSECONDS_SINCE_1970, time, &[])
    }

    /// Writes the database's text of an odd time; null if there is no time, and if the time is not odd.
    pub(crate) fn push_odd_text(&mut self, time: &'static str) -> QueryResult<()> {
        self.within(("CASE WHEN ", " IS NULL THEN "), |sql| sql.push_microseconds(time))?;
        self.push_within(DB::AS_TEXT, time)?;
        self.push(" END")
    }

    /// Writes `SELECT`, and the time left until this column's time.
    pub(crate) fn push_microseconds_until(&mut self, time: &'static str) -> QueryResult<()> {
        self.push("SELECT ")?;
        if moved_clock().is_none() {
            return self.push_within(DB::MICROSECONDS_UNTIL, time);
        }
        self.push("COALESCE(")?;
        self.push_microseconds(time)?;
        self.push(" - ")?;
        self.push_microseconds(&statement_time::<DB>())?;
        self.push(", 0)")
    }

    /// Writes ` LIMIT rows`. The number is bound, except for one row. One row is the most frequent case, and written out
    /// it lets PostgreSQL plan the statement once and for all.
    pub(crate) fn push_limit(&mut self, rows: &'b i64) -> QueryResult<()> {
        if *rows == 1 {
            return self.push(" LIMIT 1");
        }
        self.push(" LIMIT ")?;
        DB::bind_big_integer(&mut self.out, rows)
    }

    /// Keeps the statement prepared only if it has few keys: the session and its server keep every text that they have
    /// prepared.
    pub(crate) fn keep_if_few(&mut self, keys: usize) {
        if keys > MOST_KEYS_KEPT {
            self.out.unsafe_to_cache_prepared();
        }
    }

    /// Writes a hint that names an index, if the database needs one.
    pub(crate) fn push_hint(&mut self, hint: Option<(&str, &str)>, index: Named<'_>) -> QueryResult<()> {
        let Some(hint) = hint else { return Ok(()) };
        let index = self.queue.name_of(index)?;
        self.within(hint, |sql| sql.out.push_identifier(&index))
    }

    /// Writes `flag = 1 AND ` if an index cannot leave out the rows that are not pending.
    pub(crate) fn push_pending_flag(&mut self) -> QueryResult<()> {
        if DB::PARTIAL_INDEXES {
            return Ok(());
        }
        let flag = self.queue.name_of(Named::PendingFlag)?;
        self.push_with("{.} = 1 AND ", &[&flag])
    }

    /// Writes a column of the domain as the queue's indexes have it.
    pub(crate) fn push_indexed(&mut self, column: &str, is_long: bool) -> QueryResult<()> {
        self.within(DB::indexed(is_long, self.queue.options.long_columns()), |sql| sql.push_with("{.}", &[column]))
    }

    /// Writes the columns of an order, with a comma after each.
    pub(crate) fn push_order_columns(&mut self, order: Option<Order>) -> QueryResult<()> {
        for column in order.map_or(&[][..], |order| order.columns) {
            self.push_indexed(column.name, column.is_long)?;
            self.out.push_sql(if column.descending { DB::DESCENDING } else { DB::NULLS_FIRST });
            self.out.push_sql(", ");
        }
        Ok(())
    }

    /// Returns the name of the column of stages, if there is one.
    pub(crate) fn stage_column(&self) -> &'static str {
        self.queue.options.stages.map_or("", |stages| stages.column)
    }

    /// Writes ` AND stage = value` for the index of stages, and if that has due times, ` AND next_attempt_time <= until`. MySQL uses
    /// no index for the exact comparison, and PostgreSQL might take another one if it believes that most rows are in this stage.
    pub(crate) fn push_stage_range(&mut self, stage: &'b str, until: Option<&str>) -> QueryResult<()> {
        if !DB::LANE_IS_RANGE {
            return if DB::PARTIAL_INDEXES { Ok(()) } else { self.push_compared(" AND {.} = ", stage) };
        }
        self.push_compared(" AND {.} >= ", stage)?;
        let Some(until) = until else { return self.push_compared(" AND {.} <= ", stage) };
        self.push_compared(" AND ({.}, {.next_attempt_time}) <= (", stage)?;
        self.push_with(&format!(", {until})"), &[])
    }

    /// Writes a text about the column of stages, and binds this stage.
    fn push_compared(&mut self, text: &str, stage: &'b str) -> QueryResult<()> {
        self.push_with(text, &[self.stage_column()])?;
        DB::bind_text(&mut self.out, stage)
    }

    /// Writes ` AND stage IN (..)` for an entity that has stages: these, or all that it knows. A row in another stage is never claimed.
    pub(crate) fn push_stages(&mut self, stages: Option<&'b [&str]>) -> QueryResult<()> {
        let Some(known) = self.queue.options.stages else { return Ok(()) };
        self.push(" AND ")?;
        self.push_stage_in(" IN (", stages.unwrap_or(known.names))
    }

    /// Writes `stage IN (..)`.
    pub(crate) fn push_stage_in(&mut self, is: &'static str, stages: &'b [&str]) -> QueryResult<()> {
        self.within(DB::EXACTLY, |sql| sql.push_with("{.}", &[sql.stage_column()]))?;
        self.push(is)?;
        self.each(stages, ", ", |sql, stage| DB::bind_text(&mut sql.out, stage))?;
        self.push(")")
    }

    /// Writes `, updated = now` if the entity stores when a row was written.
    pub(crate) fn push_updated(&mut self) -> QueryResult<()> {
        self.queue.options.timestamps.updated.map_or(Ok(()), |updated| self.push_with(", {} = {now}", &[updated]))
    }
}

thread_local! {
    /// The SQL that was made of a text for a queue.
    static MADE: RefCell<MadeSql> = RefCell::default();
}

/// By the places of the text and of the queue in memory: both stay as long as the program runs.
type MadeSql = HashMap<(usize, usize, usize), String, BuildHasherDefault<Mixer>>;

/// Hashes places in memory: the standard library's way takes longer than to make the shorter texts anew.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }

    fn write_usize(&mut self, number: usize) {
        self.0 = (self.0.rotate_left(26) ^ number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A text about a queue.
struct InText<DB: QueueBackend> {
    queue: &'static QueueSql<DB>,
    text: &'static str,
}

impl<DB: QueueBackend> QueryFragment<DB> for InText<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        Writer::new(self.queue, out).push_with(self.text, &[])
    }
}

/// Repeats the last item, so that the number of items is a power of two. Otherwise each number of keys would make another
/// statement.
pub(crate) fn padded<T: Clone>(mut items: Vec<T>) -> Vec<T> {
    if let Some(last) = items.last().cloned().filter(|_| items.len() <= MOST_KEYS_KEPT) {
        items.resize(items.len().next_power_of_two(), last);
    }
    items
}

/// Has the statement prepared each time if a test has moved the clock, whose time stands in the text.
fn keep_out_of_caches<DB: QueueBackend>(out: &mut AstPass<'_, '_, DB>) {
    if moved_clock().is_some() {
        out.unsafe_to_cache_prepared();
    }
}

/// Splits a text into what stands before its first name, the name, and what follows it.
pub(super) fn split_at_name(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = split_at_byte(text, b'{')?;
    let (name, after) = split_at_byte(rest, b'}').unwrap_or((rest, ""));
    Some((before, name, after))
}

/// Splits a text at the first of these bytes. `split_once` takes three times as long for a short text, and each statement
/// is walked several times. A block of bytes is compared at once.
fn split_at_byte(text: &str, byte: u8) -> Option<(&str, &str)> {
    let has_it = |block: &&[u8]| block.iter().fold(false, |found, other| found | (*other == byte));
    let before = text.as_bytes().chunks_exact(16).take_while(|block| !has_it(block)).count() * 16;
    let place = before + text.as_bytes()[before..].iter().position(|other| *other == byte)?;
    Some((&text[..place], &text[place + 1..]))
}

fn column_called(names: ColumnNames, name: &str) -> Option<&'static str> {
    match name {
        "status" => Some(names.status),
        "next_attempt_time" => Some(names.next_attempt_time),
        "try_count" => Some(names.try_count),
        "last_attempt_time" => Some(names.last_attempt_time),
        "last_attempt_error_message" => Some(names.last_attempt_error_message),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_as_long_as_a_power_of_two() {
        assert!(padded(Vec::<u8>::new()).is_empty());
        assert_eq!(padded(vec![1]), [1]);
        assert_eq!(padded(vec![1, 2, 3]), [1, 2, 3, 3]);
        assert_eq!(padded(vec![7; 65]).len(), 128);
        assert_eq!(padded(vec![7; 129]).len(), 129);
    }
}
