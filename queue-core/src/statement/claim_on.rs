//! Locks due rows and reads them.

use diesel::result::QueryResult;

use super::by_key::{ClaimKey, ClaimKeys, DueKeys};
use super::claim::{Claim, ClaimId, Claimed};
use super::claim_from::ClaimFrom;
use super::details::claimed_within;
use super::finish::{ends_at_once, text_of};
use super::key_text::row_key;
use super::prefetch_rows::{LockVersion, PrefetchRows, RowVersion};
use super::probe_on::ProbeOn;
use super::rows::{ClaimedRow, ReadFrom, VersionedRow};
use super::scope::Scope;
use super::turn::due_time_alone_decides;
use crate::backend::{LockSql, QueueConnection, Statement};
use crate::entity::QueueTable;
use crate::row::{Instant, RowKey};

/// Locks due rows and reads them. See [`QueueOn`](super::queue_on::QueueOn).
pub trait ClaimOn<C: QueueConnection>: ProbeOn<C> {
    /// Locks and reads the free row that has been due longest, by one plain statement. It uses only the stages and the
    /// floor of the scope; `claim_one` decides whether that is enough. Run it in a transaction.
    fn claim(connection: &mut C, scope: Scope<'_, Self::Key>) -> QueryResult<Option<Claimed<Self>>>;

    /// Reads the keys of up to `limit` rows that have been due longest, without a lock, for
    /// [`claim_keys`](Self::claim_keys). It leaves out rows that are due earlier than `floor`.
    fn due_keys(connection: &mut C, limit: u32, floor: Option<Instant>) -> QueryResult<Vec<RowKey<Self::Key>>>;

    /// Locks and reads up to `limit` of the rows with these keys, those that are due and free.
    fn claim_keys(
        connection: &mut C,
        keys: &[RowKey<Self::Key>],
        limit: u32,
        scope: Scope<'_, Self::Key>,
    ) -> QueryResult<Vec<Claimed<Self>>>;

    /// Tells whether the rows of this scope are claimed by keys that were read before. This is so if the due time alone
    /// decides which row is next, and a claim along the index would keep others from settling their rows.
    fn is_claimed_by_key(scope: Scope<'_, Self::Key>) -> bool;

    /// Reads up to `limit` rows that have been due longest, without a lock, each with its version. It leaves out rows
    /// that are due earlier than `floor`.
    fn prefetch_rows(
        connection: &mut C,
        limit: u32,
        floor: Option<Instant>,
    ) -> QueryResult<Vec<(Claimed<Self>, RowVersion)>>;

    /// Writes the text that prepares [`LockVersion`], if rows are prefetched.
    fn lock_version() -> QueryResult<Option<String>>;

    /// Tells whether whole rows of this scope are prefetched: only if the due time alone decides which row is next.
    fn prefetches_rows(scope: Scope<'_, Self::Key>) -> bool;

    /// Takes the lock of an exclusive entity. `false`: another session holds it. Run it in a transaction; the lock ends
    /// with the transaction or with [`end_exclusion`](Self::end_exclusion).
    fn exclude(connection: &mut C) -> QueryResult<bool>;

    /// Returns the session that holds the lock of an exclusive queue, if it is another one.
    fn exclusion_holder(connection: &mut C) -> QueryResult<Option<String>>;

    /// Gives the lock back after the end of the transaction.
    fn end_exclusion(connection: &mut C) -> QueryResult<()>;
}

#[diagnostic::do_not_recommend]
impl<Q: ReadFrom<C::Backend>, C: QueueConnection> ClaimOn<C> for Q {
    fn claim(connection: &mut C, scope: Scope<'_, Q::Key>) -> QueryResult<Option<Claimed<Q>>> {
        let plain = Claim::new::<Q>().in_stages(scope.stages);
        let rows = match scope.floor() {
            None => load_kept::<Q, Claim<C::Backend>, C>(connection, &plain)?,
            Some(floor) => load_kept::<Q, ClaimFrom<C::Backend>, C>(connection, &plain.from(floor))?,
        };
        Ok(claimed_within(connection, scope, rows)?.pop())
    }

    fn due_keys(connection: &mut C, limit: u32, floor: Option<Instant>) -> QueryResult<Vec<RowKey<Q::Key>>> {
        let keys = Q::load_keys(connection, &DueKeys::new(Q::SQL, limit).not_below(floor))?;
        Ok(keys.into_iter().map(|(key, text)| row_key(Q::SQL, key, &text)).collect())
    }

    fn claim_keys(
        connection: &mut C,
        keys: &[RowKey<Q::Key>],
        limit: u32,
        scope: Scope<'_, Q::Key>,
    ) -> QueryResult<Vec<Claimed<Q>>> {
        let rows = match keys {
            [key] => {
                let claim = ClaimKey::new(Claim::new::<Q>(), Q::row(key));
                load_kept::<Q, ClaimKey<C::Backend>, C>(connection, &claim)?
            }
            keys => {
                let claim = ClaimKeys::new(Claim::new::<Q>(), Q::rows(RowKey::values(keys)));
                let claim = if keys.len() > limit as usize { claim.at_most(limit) } else { claim };
                Q::load_claimed(connection, &claim)?
            }
        };
        claimed_within(connection, scope, rows)
    }

    fn is_claimed_by_key(scope: Scope<'_, Q::Key>) -> bool {
        C::Backend::PREFETCHES_KEYS && due_time_alone_decides(&Q::Queue::OPTIONS, scope)
    }

    fn prefetch_rows(
        connection: &mut C,
        limit: u32,
        floor: Option<Instant>,
    ) -> QueryResult<Vec<(Claimed<Q>, RowVersion)>> {
        let rows = Q::load_versioned(connection, &PrefetchRows::new(Claim::new::<Q>(), limit, floor))?;
        let versioned =
            |(row, version): VersionedRow<Q>| Some((Claimed::read::<C::Backend>(row), RowVersion::read(&version)?));
        Ok(rows.into_iter().filter_map(versioned).collect())
    }

    fn lock_version() -> QueryResult<Option<String>> {
        let is_read = <Q as ClaimOn<C>>::prefetches_rows(Scope::ALL) && ends_at_once::<Q::Key, C>(&Q::Queue::OPTIONS);
        is_read.then(|| text_of::<C>(&LockVersion::new(Q::SQL))).transpose()
    }

    fn prefetches_rows(scope: Scope<'_, Q::Key>) -> bool {
        C::Backend::ROW_VERSION.is_some()
            && Q::Queue::OPTIONS.stages.is_none()
            && !Q::Queue::OPTIONS.needs_details()
            && Q::IS_ITS_ROW
            && due_time_alone_decides(&Q::Queue::OPTIONS, scope)
    }

    fn exclude(connection: &mut C) -> QueryResult<bool> {
        Ok(!Q::Queue::OPTIONS.exclusive || connection.try_exclude(&<Q as ProbeOn<C>>::target()?)?)
    }

    fn exclusion_holder(connection: &mut C) -> QueryResult<Option<String>> {
        if Q::Queue::OPTIONS.exclusive { connection.exclusion_holder(&<Q as ProbeOn<C>>::target()?) } else { Ok(None) }
    }

    fn end_exclusion(connection: &mut C) -> QueryResult<()> {
        if Q::Queue::OPTIONS.exclusive { connection.end_exclusion(&<Q as ProbeOn<C>>::target()?) } else { Ok(()) }
    }
}

/// Reads claimed rows by the claim `Of`, whose text is written once.
fn load_kept<Q, Of, C>(connection: &mut C, claim: &dyn Statement<C::Backend>) -> QueryResult<Vec<ClaimedRow<Q>>>
where
    Q: ReadFrom<C::Backend>,
    Of: 'static,
    C: QueueConnection,
{
    Q::load_claimed_by_id::<ClaimId<Q, C::Backend, Of>, C>(connection, claim)
}
