//! Rows that no claim can take: a key, or the value by which rows are scheduled, cannot be decoded, or no statement finds the row
//! by its key, because the key's type in Rust changes it. Finds these rows, and writes on them. The database's texts of their
//! keys identify them.

use std::collections::HashSet;
use std::sync::Arc;

use diesel::result::{Error, QueryResult};

use super::change::Change;
use super::condition::{StateCondition, push_claimable, push_fence, push_keys};
use super::key_text::{key_of, push_key_text, push_select_key};
use super::lane::push_lane_text;
use super::queue::{ErasedQueue, KeyTextRow};
use super::walk::{Claimable, Scope, Walk};
use super::writer::statement;
use crate::backend::{QueueBackend, QueueConnection, Statement, TextSql, column_names, execute, statement_time};
use crate::entity::{IsKey, Key, QueueSql};
use crate::error::refused;
use crate::row::{Fence, Instant, RowKey, Status, TextForm, bytes_of};

/// How many keys one statement looks up: SQLite accepts expressions of up to 1000 levels, and every `OR` is one.
const LOOKED_UP_AT_ONCE: usize = 400;

/// A claim has read keys of rows that no statement finds by them.
#[derive(Debug, thiserror::Error)]
#[error("no statement finds a row by its primary key")]
struct KeyFindsNothing;

/// A row that no claim can take.
pub struct UnusableRow<K> {
    /// The text that distinguishes its key from every other.
    pub identity: String,
    /// When it was due.
    pub due: Option<Instant>,
    /// The state in which it was found.
    pub fence: Fence,
    /// The key, or why there is none.
    pub key: Result<RowKey<K>, Box<dyn std::error::Error + Send + Sync>>,
    /// Why there is no value by which the row could be scheduled.
    pub lane: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl<K: Key> UnusableRow<K> {
    /// Returns the row. Whether its key finds it is not known yet.
    fn read<DB: QueueBackend>(queue: &QueueSql<DB>, row: KeyTextRow<K>) -> Self {
        let (identity, status, try_count, due, lane, key) = row;
        let due = if let Ok((due,)) = due.0 { due } else { None };
        let key = key.0.map(|(key,)| key_of(queue, key, &identity));
        UnusableRow { identity, due, fence: Fence::new(status, try_count), key, lane: lane.0.err() }
    }

    /// Returns the key that is the only fault of the row, if it finds nothing.
    fn key_alone(&self) -> Option<&RowKey<K>> {
        self.key.as_ref().ok().filter(|_| self.lane.is_none())
    }

    /// Returns the key in a form for people.
    pub(crate) fn key_text<DB: QueueBackend>(&self) -> String {
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
        sql.push(", {.status}, {.try_count}, {.next_attempt_time}, ")?;
        push_lane_text(sql)?;
        sql.push(", {key}")?;
        match leased {
            None if !sql.queue.options.exclusive => {
                let walk = Walk::of(sql.queue.options);
                return due.push_rows(sql, walk, &statement_time::<DB>(), limit);
            }
            // The head of an exclusive queue need not be due.
            None => {
                sql.push(" FROM {table} WHERE {.next_attempt_time} IS NOT NULL AND ")?;
                push_claimable(sql)?;
            }
            Some(began) => {
                // Only such rows are in the queue's index.
                sql.push(" FROM {table} WHERE {.next_attempt_time} IS NOT NULL AND ")?;
                StateCondition::In(&[Status::InProgress]).push(sql)?;
                sql.push(" AND {.last_attempt_time} = ")?;
                DB::bind_time(&mut sql.out, began)?;
            }
        }
        sql.push(" ORDER BY {key}")?;
        sql.push_limit(limit)
    })
}

/// Reads those of these keys that find a row, each with the text of the key that the row has.
pub fn keys_found<DB: QueueBackend>(queue: &'static QueueSql<DB>, keys: Vec<IsKey<DB>>) -> impl Statement<DB> {
    statement(queue, keys, |keys, sql| {
        push_select_key(sql)?;
        sql.push(" FROM {table} WHERE ")?;
        push_keys(sql, keys)
    })
}

/// Changes a row whose key cannot be used, if it is still as it was found.
pub fn set_aside<DB: QueueBackend, K>(
    queue: &'static QueueSql<DB>,
    row: &UnusableRow<K>,
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
    /// Reads the rows whose keys cannot be used, without a lock: among the first `limit` that a claim would find, or
    /// among those whose lease began at `leased`. If `only` is given, it looks at the row with this key alone. Also returns
    /// whether those were all.
    pub fn unusable(
        &self,
        connection: &mut C,
        leased: Option<Instant>,
        limit: u32,
        only: Option<&RowKey<K>>,
    ) -> QueryResult<(Vec<UnusableRow<K>>, bool)> {
        let texts = key_texts(Claimable::new(self.sql, None), leased, limit.into());
        let rows = (self.load_key_texts)(connection, &texts)?;
        let are_all = rows.len() < limit as usize;
        let mut rows: Vec<_> = rows.into_iter().map(|row| UnusableRow::read(self.sql, row)).collect();
        if let Some(only) = only {
            rows.retain(|row| row.key.as_ref().is_ok_and(|key| key == only));
        }
        let keys: Vec<_> = rows.iter().filter_map(UnusableRow::key_alone).collect();
        let lost = self.lost_keys(connection, &keys)?;
        rows.retain(|row| row.key_alone().is_none_or(|key| lost.contains(key.identity())));
        Ok((rows, are_all))
    }

    /// Tells whether any of the first `limit` due rows can be decoded.
    pub(crate) fn any_decodable(&self, connection: &mut C, limit: u32) -> QueryResult<bool> {
        // First the keys alone, because one that cannot be decoded is an error of the whole statement.
        let texts = key_texts(Claimable::new(self.sql, None), None, limit.into());
        let keys = (self.load_key_texts)(connection, &texts)?;
        let decoded = keys.iter().filter(|row| row.5.read().is_some()).count();
        if decoded == 0 || decoded < keys.len() {
            return Ok(decoded > 0);
        }
        let claim = self.claim_of(Scope::ALL, limit).locked(false);
        let rows = (self.load_claimed)(connection, &claim)?;
        Ok(rows.iter().any(|row| row.4.read().is_some()))
    }

    /// Tells whether a key might not find the row from which it was read. An integer is the same in Rust as in the
    /// database, unless its column may hold something else.
    pub(crate) fn can_lose_keys(&self) -> bool {
        C::Backend::TEXT_FORM.tells_types() || (self.sql.integer_bits)().is_none()
    }

    /// Returns the texts of those of these keys that do not find the rows from which they were read.
    fn lost_keys(&self, connection: &mut C, keys: &[&RowKey<K>]) -> QueryResult<HashSet<Arc<str>>> {
        let mut lost = HashSet::new();
        if !self.can_lose_keys() {
            return Ok(lost);
        }
        for keys in keys.chunks(LOOKED_UP_AT_ONCE) {
            let values = self.rows(keys.iter().copied());
            let found = self.read_keys(connection, &keys_found(self.sql, values))?;
            lost.extend(keys.iter().map(|key| key.identity().clone()));
            found.iter().for_each(|key| {
                lost.remove(key.identity());
            });
        }
        Ok(lost)
    }

    /// Returns an error if one of these keys, by which a claim has locked no row, finds none. Rows that others hold are
    /// found.
    pub(crate) fn expect_found<'k>(
        &self,
        connection: &mut C,
        keys: impl IntoIterator<Item = &'k RowKey<K>>,
    ) -> QueryResult<()> {
        let keys: Vec<_> = keys.into_iter().collect();
        match self.lost_keys(connection, &keys)?.is_empty() {
            true => Ok(()),
            false => Err(Error::DeserializationError(Box::new(KeyFindsNothing))),
        }
    }

    /// Changes a row whose key cannot be used, if it is still as it was found, and all that are alike because their keys are null.
    /// Returns 1 if it has changed any, else 0. Run it in a transaction.
    ///
    /// # Errors
    ///
    /// Also if it would change several rows: then the key's text does not distinguish one key from another. And if the key
    /// finds the row after all.
    pub fn set_aside(&self, connection: &mut C, row: &UnusableRow<K>, change: &Change) -> QueryResult<usize> {
        let rows = execute(connection, &set_aside(self.sql, row, change))?;
        if rows > 1 {
            let is_null = |part| text_of(part).as_deref() == Some("NULL");
            // On SQLite a text is in quotes there, and several rows may have a key that is null. None of them can be used.
            if C::Backend::TEXT_FORM.tells_types() && row.identity.split(',').any(is_null) {
                return Ok(1);
            }
            return Err(refused(format!("{rows} rows have the key {}", row.key_text::<C::Backend>())));
        }
        if let Some(key) = row.key_alone()
            && self.lost_keys(connection, &[key])?.is_empty()
        {
            return Err(refused(format!("the key {key} finds its row after all")));
        }
        Ok(rows)
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
