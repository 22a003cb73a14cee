//! Locks due rows and reads them.

use diesel::result::QueryResult;

use super::by_key::{ClaimKey, ClaimKeys, DueKeys};
use super::claim::Claimed;
use super::due::Claimable;
use super::erased::ErasedQueue;
use super::finish::{ends_at_once, text_of};
use super::key_text::occasion_of;
use super::prefetch_rows::{LockVersion, PrefetchRows, RowVersion};
use super::rows::ClaimedRow;
use super::scope::Scope;
use crate::backend::{LockSql, QueueConnection, Statement, TextSql};
use crate::entity::Key;
use crate::row::{Instant, RowKey};

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
        self.read_keys(connection, &DueKeys(Claimable::new(self.sql, None).not_below(floor), limit.into()))
    }

    pub(super) fn read_keys(
        &self,
        connection: &mut C,
        keys: &dyn Statement<C::Backend>,
    ) -> QueryResult<Vec<RowKey<K>>> {
        let keys = (self.load_keys)(connection, keys)?;
        let read = |(key, text): (K, String)| {
            let text = C::Backend::TEXT_FORM.read_key(&text, self.sql.key_parts);
            RowKey::new(key, text)
        };
        Ok(keys.into_iter().map(read).collect())
    }

    /// Returns the key of a row that a claim has read.
    pub(crate) fn claimed_key(&self, (key, text, ..): ClaimedRow<K>) -> RowKey<K> {
        let (text, _) = occasion_of(self.sql, &key, &text);
        RowKey::new(key, text)
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
            [key] => (self.load_by_key)(connection, &ClaimKey(self.claim_all(), self.row(key)))?,
            keys => {
                let limit = Some(limit.into()).filter(|_| keys.len() > limit as usize);
                let claim = ClaimKeys { claim: self.claim_all(), keys: self.rows(RowKey::values(keys)), limit };
                (self.load_claimed)(connection, &claim)?
            }
        };
        self.claimed_within(connection, scope, rows)
    }

    /// Tells whether the rows of this scope are claimed by keys that were read before. This is so if the due time alone
    /// decides which row is next, and a claim along the index would keep others from settling their rows.
    pub fn is_claimed_by_key(&self, scope: Scope<'_, K>) -> bool {
        C::Backend::PREFETCHES_KEYS && scope.due_time_alone_decides(self.sql.options)
    }

    /// Reads up to `limit` rows that have been due longest, without a lock, each with its version. It leaves out rows
    /// that are due earlier than `floor`.
    pub fn prefetch_rows(
        &self,
        connection: &mut C,
        limit: u32,
        floor: Option<Instant>,
    ) -> QueryResult<Vec<(Claimed<K>, RowVersion)>> {
        let rows = (self.load_versioned)(connection, &PrefetchRows(self.claim_all().not_below(floor), limit.into()))?;
        let versioned =
            |(row, version): (ClaimedRow<K>, String)| Some((Claimed::read(self.sql, row), RowVersion::read(&version)?));
        Ok(rows.into_iter().filter_map(versioned).collect())
    }

    /// Writes the text that prepares [`LockVersion`], if rows are prefetched.
    pub fn lock_version(&self) -> QueryResult<Option<String>> {
        let is_read = self.prefetches_rows(Scope::ALL) && ends_at_once::<K, C>(self.sql.options);
        is_read.then(|| text_of::<C>(&LockVersion(self.sql))).transpose()
    }

    /// Tells whether whole rows of this scope are prefetched: only if the due time alone decides which row is next.
    pub fn prefetches_rows(&self, scope: Scope<'_, K>) -> bool {
        C::Backend::ROW_VERSION.is_some()
            && self.sql.options.stages.is_none()
            && !self.sql.options.needs_details()
            && self.is_its_row
            && scope.due_time_alone_decides(self.sql.options)
    }

    /// Takes the lock of an exclusive entity. `false`: another session holds it. Run it in a transaction; the lock ends
    /// with the transaction or with [`end_exclusion`](Self::end_exclusion).
    pub fn exclude(&self, connection: &mut C) -> QueryResult<bool> {
        Ok(!self.sql.options.exclusive || connection.try_exclude(&self.target()?)?)
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
