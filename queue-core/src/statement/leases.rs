//! Leases due rows, and ends leases.

use std::time::Duration;

use diesel::result::QueryResult;
use diesel::sql_types::Nullable;

use super::erased::ErasedQueue;
use super::finish::{Finish, LockLeased, ends_at_once, text_of};
use super::lease_due::{LeaseDue, LeasedAtOnce};
use super::rows::ClaimedRow;
use super::scope::Scope;
use super::take::{Present, Taken};
use crate::backend::{LockSql, QueueConnection, RoundTrips, load_first};
use crate::entity::Key;
use crate::error::refused;
use crate::row::{Instant, TimestampUtc};

impl<K: Key, C: QueueConnection> ErasedQueue<K, C> {
    /// Reads the rows that were taken with this token.
    pub fn taken(&self, connection: &mut C, token: Instant) -> QueryResult<Vec<ClaimedRow<K>>> {
        (self.load_claimed)(connection, &Taken(self.claim_all(), token))
    }

    /// Leases up to `limit` rows that have been due longest, by one statement that is its own transaction.
    pub fn lease_at_once(
        &self,
        connection: &mut C,
        lease: Duration,
        limit: u32,
        scope: Scope<'_, K>,
    ) -> QueryResult<LeasedAtOnce<K>> {
        let leased = (self.load_leased)(connection, &LeaseDue(self.claim_of(scope, limit), lease))?;
        let (mut rows, mut began, mut undecodable) = (Vec::new(), Vec::new(), Vec::new());
        for ((key, text, status, try_count, rest), began_at) in leased {
            match key.ok() {
                Some((key,)) => {
                    rows.push((key, text, status, try_count, rest));
                    began.push(began_at);
                }
                None => undecodable.extend(began_at),
            }
        }
        let rows = self.claimed_within(connection, scope, rows)?.into_iter().zip(began).collect();
        Ok(LeasedAtOnce { rows, undecodable })
    }

    /// Tells whether the rows of this scope are leased by one statement: only if the due time alone decides which row
    /// is next, and an attempt needs no more of a row than a claim reads.
    pub fn is_leased_at_once(&self, scope: Scope<'_, K>) -> bool {
        C::Backend::LEASES_AT_ONCE
            && !self.sql.options.needs_details()
            && scope.due_time_alone_decides(self.sql.options)
    }

    /// Reads the database's current time.
    pub fn present(&self, connection: &mut C) -> QueryResult<Instant> {
        let present = load_first::<Nullable<TimestampUtc>, Option<Instant>, _>(connection, &Present)?.flatten();
        present.ok_or_else(|| refused("the database returned no time".to_owned()))
    }

    /// Writes the texts that prepare [`LockLeased`] and [`Finish::leased`], if they can write an answer of this entity.
    pub fn finish_lease(&self) -> QueryResult<Option<(String, String)>> {
        let finish = Finish { queue: self.sql, leased: true };
        let texts = || Ok((text_of::<C>(&LockLeased(self.sql))?, text_of::<C>(&finish)?));
        let by_text = ends_at_once::<K, C>(self.sql.options) && !C::Backend::FINISHES_IN_A_BLOCK;
        by_text.then(texts).transpose()
    }
}
