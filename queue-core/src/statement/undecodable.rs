//! Rows whose keys cannot be decoded: finds them, and writes on them. The database's texts of their keys identify them.

use diesel::result::QueryResult;

use super::change::Change;
use super::condition::{StateCondition, push_claimable, push_fence};
use super::key_text::push_key_text;
use super::queue::{ErasedQueue, KeyTextRow};
use super::walk::{Claimable, Walk};
use super::writer::statement;
use crate::backend::{QueueBackend, QueueConnection, Statement, column_names, execute};
use crate::entity::{Key, QueueSql};
use crate::error::refused;
use crate::row::{Fence, Instant, Status, TextForm, bytes_of};

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

/// Reads the keys of pending rows, each with the database's text of it: of those that a claim finds first, or of those
/// whose lease began at the time `leased`. At most so many.
pub fn key_texts<DB: QueueBackend>(due: Claimable<DB>, leased: Option<Instant>, limit: i64) -> impl Statement<DB> {
    statement(due.queue, (due, leased, limit), |(due, leased, limit), sql| {
        sql.push("SELECT ")?;
        push_key_text(sql)?;
        sql.push(", {.status}, {.try_count}, {.next_attempt_time}, {key}")?;
        match leased {
            None if !sql.queue.options.exclusive => {
                let walk = Walk::of(sql.queue.options);
                return due.push_rows(sql, walk, DB::STATEMENT_TIME, limit);
            }
            // The head of an exclusive queue need not be due.
            None => {
                sql.push(" FROM {table} WHERE {.next_attempt_time} IS NOT NULL AND ")?;
                push_claimable(sql)?;
            }
            Some(began) => {
                sql.push(" FROM {table} WHERE ")?;
                StateCondition::In(&[Status::InProgress]).push(sql)?;
                sql.push(" AND {.last_attempt_time} = ")?;
                DB::bind_time(&mut sql.out, began)?;
            }
        }
        sql.push(" ORDER BY {key}")?;
        sql.push_limit(limit)
    })
}

/// Changes a row whose key cannot be decoded, if it is still as it was found.
pub fn set_aside<DB: QueueBackend>(
    queue: &'static QueueSql<DB>,
    row: &UndecodableRow,
    change: &Change,
) -> impl Statement<DB> {
    // The text of each column of the key, or its hexadecimal digits if it is not UTF-8. Databases that can compare columns
    // of any type with a text find the row by it.
    let columns: Vec<_> = row.identity.split(',').map(|hex| text_of(hex).ok_or(hex)).collect();
    statement(queue, (row, columns, change), |(row, columns, change), sql| {
        sql.push("UPDATE {table}")?;
        change.push_set(sql)?;
        sql.push(" WHERE ")?;
        push_key_text(sql)?;
        sql.push(" = ")?;
        DB::bind_text(&mut sql.out, &row.identity)?;
        push_fence(sql, &row.fence)?;
        match &row.due {
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
        for (name, column) in column_names(sql.queue.key_columns, sql.out.backend())?.iter().zip(columns) {
            sql.push_with(" AND {.} = ", &[name])?;
            match column {
                Ok(text) => DB::bind_text(&mut sql.out, text)?,
                Err(hex) => sql.within(("UNHEX(", ")"), |sql| DB::bind_text(&mut sql.out, hex))?,
            }
        }
        Ok(())
    })
}

impl<K: Key, C: QueueConnection> ErasedQueue<K, C> {
    /// Reads the rows whose keys cannot be decoded, without a lock: among the first `limit` that a claim would find, or
    /// among those whose lease began at `leased`. Also returns whether those were all.
    pub fn undecodable(
        &self,
        connection: &mut C,
        leased: Option<Instant>,
        limit: u32,
    ) -> QueryResult<(Vec<UndecodableRow>, bool)> {
        let texts = key_texts(Claimable::new(self.sql, None), leased, limit.into());
        let rows = (self.load_key_texts)(connection, &texts)?;
        let are_all = rows.len() < limit as usize;
        Ok((rows.into_iter().filter_map(UndecodableRow::of).collect(), are_all))
    }

    /// Changes a row whose key cannot be decoded, if it is still as it was found, and returns the number of rows
    /// changed.
    ///
    /// # Errors
    ///
    /// Also if it would change several rows: then the key's text does not distinguish one key from another.
    pub fn set_aside(&self, connection: &mut C, row: &UndecodableRow, change: &Change) -> QueryResult<usize> {
        match execute(connection, &set_aside(self.sql, row, change))? {
            rows @ (0 | 1) => Ok(rows),
            rows => Err(refused(format!("{rows} rows have the key {}", row.key::<C::Backend>()))),
        }
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
