//! Rows whose keys cannot be decoded: finds them, and writes on them. The database's texts of their keys identify them.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::change::Change;
use super::condition::{StateCondition, push_claimable, push_fence};
use super::due::Claimable;
use super::key_text::push_key_text;
use super::rows::KeyTextRow;
use super::walk::Walk;
use super::writer::Writer;
use crate::backend::{QueueBackend, Statement, column_names};
use crate::entity::QueueSql;
use crate::row::{Fence, Instant, Status, TextForm, bytes_of};

/// Reads the keys of pending rows, each with the database's text of it: of those that a claim finds first, or of those
/// whose lease began at a given time.
pub struct KeyTexts<DB: QueueBackend> {
    /// The rows that a claim finds.
    pub due: Claimable<DB>,
    /// When the lease began, instead.
    pub leased: Option<Instant>,
    /// The largest number of rows.
    pub limit: i64,
}

/// A row whose key cannot be decoded.
pub struct UndecodableRow {
    /// The text that distinguishes its key from every other.
    pub identity: String,
    /// When it was due.
    pub due: Option<Instant>,
    /// The state in which it was found.
    pub fence: Fence,
    /// Why its key cannot be decoded.
    pub why: Box<dyn std::error::Error + Send + Sync>,
}

impl UndecodableRow {
    /// Returns the row, if its key cannot be decoded.
    pub(crate) fn of<K>(row: KeyTextRow<K>) -> Option<Self> {
        let (identity, status, try_count, due, key) = row;
        let Err(why) = key.0 else { return None };
        let due = if let Ok((due,)) = due.0 { due } else { None };
        Some(UndecodableRow { identity, due, fence: Fence::new(status, try_count), why })
    }

    /// Returns the key in a form for people.
    pub(crate) fn key<DB: QueueBackend>(&self) -> String {
        if DB::TEXT_FORM == TextForm::Text {
            return self.identity.clone();
        }
        let parts = self.identity.split(',').map(|hex| text_of(hex).unwrap_or_else(|| format!("0x{hex}")));
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// Returns the text that a hexadecimal one stands for, if it is UTF-8.
fn text_of(hex: &str) -> Option<String> {
    String::from_utf8(bytes_of(hex)?).ok()
}

impl<DB: QueueBackend> Statement<DB> for KeyTexts<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.due.queue, out);
        sql.push("SELECT ")?;
        push_key_text(&mut sql)?;
        sql.push(", {.status}, {.try_count}, {.next_attempt_time}, {key}")?;
        match &self.leased {
            None if !sql.queue.options.exclusive => {
                let walk = Walk::of(sql.queue.options);
                return self.due.push_rows(&mut sql, walk, DB::STATEMENT_TIME, &self.limit);
            }
            // The head of an exclusive queue need not be due.
            None => {
                sql.push(" FROM {table} WHERE {.next_attempt_time} IS NOT NULL AND ")?;
                push_claimable(&mut sql)?;
            }
            Some(began) => {
                sql.push(" FROM {table} WHERE ")?;
                StateCondition::In(&[Status::InProgress]).push(&mut sql)?;
                sql.push(" AND {.last_attempt_time} = ")?;
                DB::bind_time(&mut sql.out, began)?;
            }
        }
        sql.push(" ORDER BY {key}")?;
        sql.push_limit(&self.limit)
    }
}

/// Changes a row whose key cannot be decoded, if it is still as it was found.
pub struct SetAside<'a, DB: QueueBackend> {
    queue: &'static QueueSql<DB>,
    row: &'a UndecodableRow,
    /// The text of each column of the key, or its hexadecimal digits if it is not UTF-8. Databases that can compare
    /// columns of any type with a text find the row by it.
    columns: Vec<Result<String, &'a str>>,
    change: &'a Change,
}

impl<'a, DB: QueueBackend> SetAside<'a, DB> {
    /// Changes this row.
    pub fn new(queue: &'static QueueSql<DB>, row: &'a UndecodableRow, change: &'a Change) -> Self {
        let columns = row.identity.split(',').map(|hex| text_of(hex).ok_or(hex)).collect();
        SetAside { queue, row, columns, change }
    }
}

impl<DB: QueueBackend> Statement<DB> for SetAside<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.queue, out);
        sql.push("UPDATE {table}")?;
        self.change.push_set(&mut sql)?;
        sql.push(" WHERE ")?;
        push_key_text(&mut sql)?;
        sql.push(" = ")?;
        DB::bind_text(&mut sql.out, &self.row.identity)?;
        push_fence(&mut sql, &self.row.fence)?;
        match &self.row.due {
            // Only if each time has one text. The queue's index leads to the row.
            Some(due) if !DB::ONE_WRITER && !DB::FINDS_KEY_BY_TEXT => {
                sql.push(" AND {.next_attempt_time} = ")?;
                DB::bind_time(&mut sql.out, due)?;
            }
            _ => sql.push(" AND {.next_attempt_time} IS NOT NULL")?,
        }
        if !DB::FINDS_KEY_BY_TEXT {
            return Ok(());
        }
        // By its key the row is locked alone. On any other path the statement would wait for sessions that hold other
        // rows.
        for (name, column) in column_names(self.queue.key_columns, sql.out.backend())?.iter().zip(&self.columns) {
            sql.push_with(" AND {.} = ", &[name])?;
            match column {
                Ok(text) => DB::bind_text(&mut sql.out, text)?,
                Err(hex) => sql.within(("UNHEX(", ")"), |sql| DB::bind_text(&mut sql.out, hex))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_text_is_told_where_it_is_text() {
        assert_eq!(text_of("3133").as_deref(), Some("13"));
        assert_eq!(text_of("C3A4").as_deref(), Some("ä"));
        assert_eq!(text_of("").as_deref(), Some(""));
        assert_eq!(text_of("FF"), None);
        assert_eq!(text_of("zz"), None);
    }
}
