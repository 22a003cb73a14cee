//! Locks due rows and reads them. The optional columns of a claimed row are read by a statement of their own, so that the
//! plain claim stays the same.

use diesel::result::{Error as DieselError, QueryResult};

use super::claim::{claim_key, claim_keys, due_keys};
use super::key_text::{key_of, occasion_of};
use super::queue::{ClaimedRow, ErasedQueue};
use super::walk::{Claimable, Scope};
use super::writer::statement;
use crate::backend::{Captured, QueueBackend, QueueConnection, Statement, execute, load};
use crate::entity::{Key, KeyedRow, QueueSql};
use crate::event::makes_links;
use crate::row::{Details, DetailsRow, DetailsType, Fence, Instant, Options, QueueState, RowKey};
use crate::sync::ErasedEntity;

/// A claimed row.
pub struct Claimed<K> {
    /// The primary key.
    pub key: RowKey<K>,
    /// The state in which it was claimed.
    pub fence: Fence,
    /// The entity and its queue state, or why they cannot be decoded.
    pub message: Result<(ErasedEntity, QueueState), Box<dyn std::error::Error + Send + Sync>>,
    /// The optional columns, if the entity asks for them.
    pub details: Details,
}

impl<K: Key> Claimed<K> {
    /// Reads a row as this database returned it.
    pub(crate) fn read<DB: QueueBackend>(queue: &QueueSql<DB>, row: ClaimedRow<K>) -> Self {
        let (key, text, status, try_count, Captured(rest)) = row;
        let (key, details) = occasion_of(queue, key, &text);
        let due = rest.as_ref().ok().and_then(|(due, ..)| *due).filter(|due| due.is_exact);
        let fence = Fence { due: due.map(|due| due.time), ..Fence::new(status, try_count) };
        let message = rest.map(|(next_attempt_time, last_attempt_time, last_attempt_error_message, entity)| {
            let state = QueueState {
                status,
                next_attempt_time: next_attempt_time.map(Into::into),
                try_count,
                last_attempt_time: last_attempt_time.map(Into::into),
                last_attempt_error_message,
            };
            (entity, state)
        });
        // SQLite stores values of any type. A row whose occasion cannot be read has no idempotency key of its own.
        let message = match details.occasion {
            None if queue.options.occasion.is_some() => Err("its occasion is no whole number".into()),
            _ => message,
        };
        Claimed { key, fence, message, details }
    }
}

/// Reads the optional columns of the row with one key; null for those that the entity does not ask for.
pub fn read_details<DB: QueueBackend>(row: KeyedRow<DB>) -> impl Statement<DB> {
    statement(row.queue, row, |row, sql| {
        let Options { stages, periodic, rerun_on_change, traceparent, .. } = *sql.queue.options;
        let columns = [
            stages.map(|stages| ("{}", stages.column)),
            periodic.map(|periodic| ("{}", periodic.period)),
            periodic.map(|periodic| ("{}", periodic.cron)),
            periodic.map(|periodic| ("{}", periodic.time_zone)),
            // A row that has not yet run on its schedule begins it with the time at which it was due.
            periodic.map(|periodic| ("COALESCE({}, {next_attempt_time})", periodic.scheduled_time)),
            rerun_on_change.map(|rerun| ("{}", rerun.change_count)),
            traceparent.map(|name| ("{}", name)),
        ];
        sql.push("SELECT {now}")?;
        for column in columns {
            sql.push(", ")?;
            match column {
                Some((text, column)) => sql.push_with(text, &[column])?,
                None => sql.push("NULL")?,
            }
        }
        sql.push_is_key(" FROM {table} WHERE ", &row.is_key)
    })
}

impl<K: Key, C: QueueConnection> ErasedQueue<K, C> {
    /// Locks and reads the free row that has been due longest, by one plain statement. It uses only the stages and the
    /// floor of the scope; `claim_one` decides whether that is enough. Run it in a transaction.
    pub fn claim(&self, connection: &mut C, scope: Scope<'_, K>) -> QueryResult<Option<Claimed<K>>> {
        let plain = self.claim_all().in_stages(scope.stages);
        let rows = match scope.floor() {
            None => (self.load_plain)(connection, &plain)?,
            floor => (self.load_from)(connection, &plain.not_below(floor))?,
        };
        Ok(self.claimed_within(connection, scope, rows)?.pop())
    }

    /// Reads the keys of up to `limit` rows that have been due longest, without a lock, for
    /// [`claim_keys`](Self::claim_keys). It leaves out rows that are due earlier than `floor`.
    pub fn due_keys(&self, connection: &mut C, limit: u32, floor: Option<Instant>) -> QueryResult<Vec<RowKey<K>>> {
        self.read_keys(connection, &due_keys(Claimable::new(self.sql, None).not_below(floor), limit.into()))
    }

    pub(super) fn read_keys(
        &self,
        connection: &mut C,
        keys: &dyn Statement<C::Backend>,
    ) -> QueryResult<Vec<RowKey<K>>> {
        let keys = (self.load_keys)(connection, keys)?;
        Ok(keys.into_iter().map(|(key, text)| key_of(self.sql, key, &text.0)).collect())
    }

    /// Returns the key of a row that a claim has read.
    pub(crate) fn claimed_key(&self, (key, text, ..): ClaimedRow<K>) -> RowKey<K> {
        occasion_of(self.sql, key, &text).0
    }

    /// Locks and reads up to `limit` of the rows with these keys, those that are due and free.
    pub fn claim_keys(
        &self,
        connection: &mut C,
        keys: &[RowKey<K>],
        limit: u32,
        scope: Scope<'_, K>,
    ) -> QueryResult<Vec<Claimed<K>>> {
        let rows = match keys {
            [key] => (self.load_by_key)(connection, &claim_key(self.claim_all(), self.row(key)))?,
            keys => {
                let limit = Some(limit.into()).filter(|_| keys.len() > limit as usize);
                (self.load_claimed)(connection, &claim_keys(self.claim_all(), self.rows(keys), limit))?
            }
        };
        self.claimed_within(connection, scope, rows)
    }

    /// Runs the claim without reading its result. It fails if the entity's columns or the right to lock are missing.
    pub fn try_claim(&self, connection: &mut C) -> QueryResult<()> {
        // In a lane no row may overtake one that this try holds for a moment.
        match self.sql.options.is_scheduled() {
            true => execute(connection, &self.claim_all().some(0, Vec::new())).map(drop),
            false => execute(connection, &self.claim_all()).map(drop),
        }
    }

    /// Reports to the scope how far the claim has come, and reads the other columns that the rows' attempts need.
    pub(crate) fn claimed_within(
        &self,
        connection: &mut C,
        scope: Scope<'_, K>,
        rows: Vec<ClaimedRow<K>>,
    ) -> QueryResult<Vec<Claimed<K>>> {
        if let Some(claim_floor) = scope.claim_floor {
            // In no order: a claim by keys returns the rows in any order.
            let due = || rows.iter().filter_map(|row| Some(row.4.read()?.0?.time));
            claim_floor.note_answer();
            claim_floor.note_claim(due().min(), due().max());
        }
        self.with_details(connection, rows)
    }

    /// Reads the columns that attempts need beyond the five, if the entity asks for more.
    pub(crate) fn with_details(&self, connection: &mut C, rows: Vec<ClaimedRow<K>>) -> QueryResult<Vec<Claimed<K>>> {
        let mut claimed: Vec<_> = rows.into_iter().map(|row| Claimed::read(self.sql, row)).collect();
        if self.needs_details() {
            for row in &mut claimed {
                match load::<DetailsType, DetailsRow, _>(connection, &read_details(self.row(&row.key))) {
                    Ok(details) => {
                        let read = details.into_iter().next().map(Details::from).unwrap_or_default();
                        row.details = read.with_occasion_of(std::mem::take(&mut row.details));
                        row.fence.change_count = row.details.change_count;
                    }
                    // As for the entity itself: a row that cannot be read fails, and does not hold up others.
                    Err(DieselError::DeserializationError(why)) => {
                        if row.message.is_ok() {
                            row.message = Err(why);
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(claimed)
    }

    /// Tells whether an attempt needs more of its row than a claim reads.
    pub(super) fn needs_details(&self) -> bool {
        let options = self.sql.options;
        options.decides_by_details() || (options.traceparent.is_some() && makes_links())
    }

    /// Takes the lock of an exclusive entity. `false`: another session holds it. Run it in a transaction; the lock ends
    /// with the transaction or with [`end_exclusion`](Self::end_exclusion).
    pub fn exclude(&self, connection: &mut C) -> QueryResult<bool> {
        Ok(!self.sql.options.exclusive || connection.try_exclude(&self.target()?)?)
    }

    /// Keeps the lock of an exclusive queue until its session takes it again.
    pub fn keep_exclusion(&self, connection: &mut C) -> QueryResult<()> {
        if self.sql.options.exclusive { connection.keep_lock(&self.target()?, None) } else { Ok(()) }
    }

    /// Returns the session that holds the lock of an exclusive queue, if it is another one.
    pub fn exclusion_holder(&self, connection: &mut C) -> QueryResult<Option<String>> {
        if self.sql.options.exclusive { connection.exclusion_holder(&self.target()?) } else { Ok(None) }
    }

    /// Gives the lock back after the end of the transaction.
    pub fn end_exclusion(&self, connection: &mut C) -> QueryResult<()> {
        if self.sql.options.exclusive { connection.end_exclusion(&self.target()?) } else { Ok(()) }
    }
}
