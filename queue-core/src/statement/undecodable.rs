//! Rows whose keys cannot be decoded: finds them, and writes on them. The database's texts of their keys identify them.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::change::Change;
use super::condition::{StateCondition, push_claimable, push_fence};
use super::due::Claimable;
use super::key_text::push_key_text;
use super::limit::Limit;
use super::names::{push_columns, push_table};
use super::rows::KeyTextRow;
use super::walk::Walk;
use crate::backend::{QueueBackend, Statement, column_names};
use crate::entity::QueueSql;
use crate::row::{Fence, Instant, Status, TextForm, bytes_of};

/// Reads the keys of pending rows, each with the database's text of it: of those that a claim finds first, or of those
/// whose lease began at a given time.
pub struct KeyTexts<DB: QueueBackend> {
    due: Claimable<DB>,
    leased: Option<Instant>,
    limit: Limit,
}

impl<DB: QueueBackend> KeyTexts<DB> {
    /// Reads at most `limit` of the rows that a claim finds first.
    pub fn due(queue: &'static QueueSql<DB>, limit: u32) -> Self {
        KeyTexts { due: Claimable::new(queue, None), leased: None, limit: Limit::of(limit) }
    }

    /// Reads at most `limit` of the rows whose lease began at this time.
    pub fn leased(queue: &'static QueueSql<DB>, began: Instant, limit: u32) -> Self {
        KeyTexts { leased: Some(began), ..KeyTexts::due(queue, limit) }
    }
}

/// A row whose key cannot be decoded.
pub struct UndecodableRow {
    /// The text that distinguishes its key from every other.
    identity: String,
    due: Option<Instant>,
    /// The state in which it was found.
    pub fence: Fence,
    /// Why its key cannot be decoded.
    pub why: Box<dyn std::error::Error + Send + Sync>,
}

impl UndecodableRow {
    /// Makes the row with this text of its key, which was due at this time.
    pub fn new(
        identity: String,
        due: Option<Instant>,
        fence: Fence,
        why: Box<dyn std::error::Error + Send + Sync>,
    ) -> Self {
        UndecodableRow { identity, due, fence, why }
    }

    /// Returns the row, if its key cannot be decoded.
    pub(crate) fn of<K>(row: KeyTextRow<K>) -> Option<Self> {
        let (identity, status, try_count, due, key) = row;
        let Err(why) = key.0 else { return None };
        let due = if let Ok((due,)) = due.0 { due } else { None };
        Some(UndecodableRow::new(identity, due, Fence::new(status, try_count), why))
    }

    /// Returns the key in a form for people.
    pub(crate) fn key<DB: QueueBackend>(&self) -> String {
        if DB::TEXT_FORM == TextForm::Text {
            return self.identity.clone();
        }
        let parts: Vec<_> =
            parts_of(&self.identity).map(|hex| text_of(hex).unwrap_or_else(|| format!("0x{hex}"))).collect();
        parts.join(", ")
    }
}

/// Returns the hexadecimal texts of a key's columns.
fn parts_of(identity: &str) -> impl Iterator<Item = &str> {
    identity.split(',')
}

/// Returns the text of each of a key's columns, or its hexadecimal text.
fn columns_of(identity: &str) -> Vec<Result<String, &str>> {
    parts_of(identity).map(|hex| text_of(hex).ok_or(hex)).collect()
}

/// Returns the text that a hexadecimal one stands for, if it is UTF-8.
fn text_of(hex: &str) -> Option<String> {
    String::from_utf8(bytes_of(hex)?).ok()
}

impl<DB: QueueBackend> Statement<DB> for KeyTexts<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.due.queue;
        let names = queue.names;
        out.push_sql("SELECT ");
        push_key_text(queue, &mut out)?;
        push_columns(queue, &mut out, ", {}, {}, {}, ", &[names.status, names.try_count, names.next_attempt_time])?;
        queue.key_columns.walk_ast(out.reborrow())?;
        let walk = Walk::of(queue.options);
        match &self.leased {
            None if !queue.options.exclusive => {
                walk.push_from(queue, &mut out)?;
                self.due.push_due(&mut out, DB::STATEMENT_TIME)?;
                return walk.push_order(queue, &mut out, &self.limit);
            }
            // The head of an exclusive queue need not be due.
            None => {
                push_table(queue, &mut out, " FROM ")?;
                out.push_sql(" WHERE ");
                StateCondition::Pending.push(queue, &mut out)?;
                out.push_sql(" AND ");
                push_claimable(queue, &mut out)?;
            }
            Some(began) => {
                push_table(queue, &mut out, " FROM ")?;
                out.push_sql(" WHERE ");
                StateCondition::In(&[Status::InProgress]).push(queue, &mut out)?;
                push_columns(queue, &mut out, " AND {} = ", &[names.last_attempt_time])?;
                DB::bind_time(&mut out, began)?;
            }
        }
        out.push_sql(" ORDER BY ");
        queue.key_columns.walk_ast(out.reborrow())?;
        self.limit.push(&mut out)
    }
}

/// Changes a row whose key cannot be decoded, fenced.
pub struct SetAside<'a, DB: QueueBackend> {
    identity: &'a str,
    /// The text of each column of the key, or its hexadecimal digits if it is not UTF-8. Databases that can compare
    /// columns of any type with a text find the row by it.
    columns: Vec<Result<String, &'a str>>,
    due: Option<Instant>,
    fence: Fence,
    change: &'a Change,
    queue: &'static QueueSql<DB>,
}

impl<'a, DB: QueueBackend> SetAside<'a, DB> {
    /// Changes this row if it is still as it was found.
    pub fn new(queue: &'static QueueSql<DB>, row: &'a UndecodableRow, change: &'a Change) -> Self {
        SetAside {
            identity: &row.identity,
            columns: columns_of(&row.identity),
            due: row.due,
            fence: row.fence,
            change,
            queue,
        }
    }
}

impl<DB: QueueBackend> Statement<DB> for SetAside<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.queue;
        push_table(queue, &mut out, "UPDATE ")?;
        self.change.push_set(queue, out.reborrow())?;
        out.push_sql(" WHERE ");
        push_key_text(queue, &mut out)?;
        out.push_sql(" = ");
        DB::bind_text(&mut out, self.identity)?;
        push_fence(queue, &self.fence, out.reborrow())?;
        out.push_sql(" AND ");
        match &self.due {
            // Only if each time has one text. The queue's index leads to the row.
            Some(due) if !DB::ONE_WRITER && !DB::FINDS_KEY_BY_TEXT => {
                push_columns(queue, &mut out, "{} = ", &[queue.names.next_attempt_time])?;
                DB::bind_time(&mut out, due)?;
            }
            _ => StateCondition::Pending.push(queue, &mut out)?,
        }
        if DB::FINDS_KEY_BY_TEXT {
            // By its key the row is locked alone. On any other path the statement would wait for sessions that hold
            // other rows.
            for (name, column) in column_names(queue.key_columns, out.backend())?.iter().zip(&self.columns) {
                push_columns(queue, &mut out, " AND {}", &[name])?;
                match column {
                    Ok(text) => {
                        out.push_sql(" = ");
                        DB::bind_text(&mut out, text)?;
                    }
                    Err(hex) => {
                        out.push_sql(" = UNHEX(");
                        DB::bind_text(&mut out, hex)?;
                        out.push_sql(")");
                    }
                }
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
