//! Leases due rows, and ends leases.

use std::time::Duration;

use diesel::result::QueryResult;
use diesel::sql_types::Nullable;

use super::claim::Claim;
use super::details::claimed_within;
use super::finish::{Finish, LockLeased, ends_at_once, text_of};
use super::lease_due::LeasedAtOnce;
use super::rows::{ClaimedRow, ReadFrom};
use super::scope::Scope;
use super::take::{Present, Taken};
use super::turn::due_time_alone_decides;
use crate::backend::{LockSql, QueueConnection, RoundTrips, load_first};
use crate::entity::QueueTable;
use crate::error::refused;
use crate::row::{Instant, RowKey, TimestampUtc};

/// Leases due rows, and ends leases. See [`QueueOn`](super::queue_on::QueueOn).
pub trait LeaseOn<C: QueueConnection>: ReadFrom<C::Backend> {
    /// Reads the rows that were taken with this token.
    fn taken(connection: &mut C, token: Instant) -> QueryResult<Vec<ClaimedRow<Self>>>;

    /// Leases up to `limit` rows that have been due longest, by one statement that is its own transaction.
    fn lease_at_once(
        connection: &mut C,
        lease: Duration,
        limit: u32,
        scope: Scope<'_, Self::Key>,
    ) -> QueryResult<LeasedAtOnce<Self>>;

    /// Tells whether the rows of this scope are leased by one statement: only if the due time alone decides which row
    /// is next, and an attempt needs no more of a row than a claim reads.
    fn is_leased_at_once(scope: Scope<'_, Self::Key>) -> bool;

    /// Reads the database's current time.
    fn present(connection: &mut C) -> QueryResult<Instant>;

    /// Writes the texts that prepare [`LockLeased`] and [`Finish::leased`], if they can write an answer of this entity.
    fn finish_lease() -> QueryResult<Option<(String, String)>>;
}

#[diagnostic::do_not_recommend]
impl<Q: ReadFrom<C::Backend>, C: QueueConnection> LeaseOn<C> for Q {
    fn taken(connection: &mut C, token: Instant) -> QueryResult<Vec<ClaimedRow<Q>>> {
        Q::load_claimed(connection, &Taken::new(Claim::new::<Q>(), token))
    }

    fn lease_at_once(
        connection: &mut C,
        lease: Duration,
        limit: u32,
        scope: Scope<'_, Q::Key>,
    ) -> QueryResult<LeasedAtOnce<Q>> {
        let due = Claim::new::<Q>().some(limit, Q::rows(RowKey::values(scope.except))).not_below(scope.floor());
        let leased = Q::load_leased(connection, &due.leased(lease))?;
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
        let rows = claimed_within(connection, scope, rows)?.into_iter().zip(began).collect();
        Ok(LeasedAtOnce { rows, undecodable })
    }

    fn is_leased_at_once(scope: Scope<'_, Q::Key>) -> bool {
        C::Backend::LEASES_AT_ONCE
            && !Q::Queue::OPTIONS.needs_details()
            && due_time_alone_decides(&Q::Queue::OPTIONS, scope)
    }

    fn present(connection: &mut C) -> QueryResult<Instant> {
        let present = load_first::<Nullable<TimestampUtc>, Option<Instant>, _>(connection, &Present)?.flatten();
        present.ok_or_else(|| refused("the database returned no time".to_owned()))
    }

    fn finish_lease() -> QueryResult<Option<(String, String)>> {
        let texts = || Ok((text_of::<C>(&LockLeased::new(Q::SQL))?, text_of::<C>(&Finish::new(Q::SQL).leased())?));
        let by_text = ends_at_once::<Q::Key, C>(&Q::Queue::OPTIONS) && !C::Backend::FINISHES_IN_A_BLOCK;
        by_text.then(texts).transpose()
    }
}
