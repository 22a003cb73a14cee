//! The queue of one entity as a value: what the engine knows of the entity, without its type.
//!
//! Code that is generic over the entity is compiled anew for each of an application's entities. The engine is generic over
//! the key and the connection instead, and reads entities as boxes; the runner that calls the handler opens them.

use std::any::TypeId;

use diesel::Connection;
use diesel::result::QueryResult;

use super::by_key::ClaimKey;
use super::claim::{Claim, ClaimFrom, ClaimId, ClaimSome};
use super::finish_block::FinishBlockId;
use super::rows::{ClaimedRow, KeyTextRow, LeaseDueRow, ReadFrom, Rest, TypedRow};
use super::scope::Scope;
use crate::backend::{Captured, LockSql, QueueConnection, Statement, execute_by_id};
use crate::entity::{Entity, IsKey, Key, KeyedRow, LeaseMode, QueueSql};
use crate::erased_entity::ErasedEntity;
use crate::error::refused;
use crate::row::RowKey;

type Load<C, Row> = fn(&mut C, &dyn Statement<<C as Connection>::Backend>) -> QueryResult<Vec<Row>>;

/// The queue of an entity with keys of type `K` on connections of type `C`.
pub struct ErasedQueue<K, C: QueueConnection> {
    pub(crate) sql: &'static QueueSql<C::Backend>,
    id: fn() -> TypeId,
    is_leased: fn() -> bool,
    pub(super) is_its_row: bool,
    is_key: fn(&K) -> IsKey<C::Backend>,
    claim: fn() -> Claim<C::Backend>,
    pub(super) load_keys: Load<C, (K, String)>,
    pub(super) load_key_texts: Load<C, KeyTextRow<K>>,
    /// Reads the rows of any claim.
    pub(crate) load_claimed: Load<C, ClaimedRow<K>>,
    /// Reads those of [`Claim`], whose text is written once.
    pub(super) load_plain: Load<C, ClaimedRow<K>>,
    /// The same for [`ClaimFrom`].
    pub(super) load_from: Load<C, ClaimedRow<K>>,
    /// The same for [`ClaimKey`].
    pub(super) load_by_key: Load<C, ClaimedRow<K>>,
    pub(super) load_versioned: Load<C, (ClaimedRow<K>, String)>,
    pub(super) load_leased: Load<C, LeaseDueRow<K>>,
    pub(super) finish_block: fn(&mut C, &dyn Statement<C::Backend>) -> QueryResult<usize>,
}

impl<K: Key, C: QueueConnection> ErasedQueue<K, C> {
    pub(super) const fn of<Q>() -> Self
    where
        Q: Entity<Key = K> + ReadFrom<C::Backend> + Send,
    {
        ErasedQueue {
            sql: Q::SQL,
            id: TypeId::of::<Q::Queue>,
            is_leased: || TypeId::of::<Q::Mode>() == TypeId::of::<LeaseMode>(),
            is_its_row: Q::IS_ITS_ROW,
            is_key: |key| Q::row(key).is_key,
            claim: Claim::new::<Q>,
            load_keys: Q::load_keys::<C>,
            load_key_texts: Q::load_key_texts::<C>,
            load_claimed: load::<Q, C>,
            load_plain: load_kept::<Q, Claim<C::Backend>, C>,
            load_from: load_kept::<Q, ClaimFrom, C>,
            // What a database does not need is not compiled for it.
            load_by_key: if C::Backend::PREFETCHES_KEYS {
                load_kept::<Q, ClaimKey<C::Backend>, C>
            } else {
                load::<Q, C>
            },
            load_versioned: if C::Backend::ROW_VERSION.is_some() { load_versioned::<Q, C> } else { load_nothing },
            load_leased: if C::Backend::LEASES_AT_ONCE { load_leased::<Q, C> } else { load_nothing },
            finish_block: execute_by_id::<FinishBlockId<Q>, C>,
        }
    }

    /// Returns what tells the queue from every other.
    pub(crate) fn id(&self) -> TypeId {
        (self.id)()
    }

    /// Tells whether its rows are handled under leases.
    pub(crate) fn is_leased(&self) -> bool {
        (self.is_leased)()
    }

    /// Returns the claim of any row that may be claimed.
    pub(crate) fn claim_all(&self) -> Claim<C::Backend> {
        (self.claim)()
    }

    /// Returns the claim of up to `limit` rows of this scope.
    pub(crate) fn claim_of(&self, scope: Scope<'_, K>, limit: u32) -> ClaimSome<C::Backend> {
        let excepted = self.rows(RowKey::values(scope.except));
        self.claim_all().in_stages(scope.stages).some(limit, excepted).not_below(scope.floor())
    }

    /// Returns the row with this key, for a statement.
    pub(crate) fn row(&self, key: &K) -> KeyedRow<C::Backend> {
        KeyedRow { queue: self.sql, is_key: (self.is_key)(key) }
    }

    /// Returns the conditions that pick the rows with some keys.
    pub(crate) fn rows<'k>(&self, keys: impl IntoIterator<Item = &'k K>) -> Vec<IsKey<C::Backend>> {
        keys.into_iter().map(self.is_key).collect()
    }
}

fn load<Q, C>(connection: &mut C, claim: &dyn Statement<C::Backend>) -> QueryResult<Vec<ClaimedRow<Q::Key>>>
where
    Q: ReadFrom<C::Backend> + Send,
    C: QueueConnection,
{
    Q::load_claimed(connection, claim).map(erased::<Q>)
}

fn load_versioned<Q, C>(
    connection: &mut C,
    rows: &dyn Statement<C::Backend>,
) -> QueryResult<Vec<(ClaimedRow<Q::Key>, String)>>
where
    Q: ReadFrom<C::Backend> + Send,
    C: QueueConnection,
{
    let rows = Q::load_versioned(connection, rows)?;
    Ok(rows.into_iter().map(|(row, version)| (erased_row::<Q>(row), version)).collect())
}

fn load_leased<Q, C>(connection: &mut C, claim: &dyn Statement<C::Backend>) -> QueryResult<Vec<LeaseDueRow<Q::Key>>>
where
    Q: ReadFrom<C::Backend> + Send,
    C: QueueConnection,
{
    let rows = Q::load_leased(connection, claim)?;
    let erased =
        |((key, text, status, try_count, rest), began)| ((key, text, status, try_count, erased_rest(rest)), began);
    Ok(rows.into_iter().map(erased).collect())
}

fn load_nothing<C: QueueConnection, Row>(_: &mut C, _: &dyn Statement<C::Backend>) -> QueryResult<Vec<Row>> {
    Err(refused("this database has no such statement".to_owned()))
}

/// Reads claimed rows by the claim `Of`, whose text is written once.
fn load_kept<Q, Of, C>(connection: &mut C, claim: &dyn Statement<C::Backend>) -> QueryResult<Vec<ClaimedRow<Q::Key>>>
where
    Q: ReadFrom<C::Backend> + Send,
    Of: 'static,
    C: QueueConnection,
{
    Q::load_claimed_by_id::<ClaimId<Q, C::Backend, Of>, C>(connection, claim).map(erased::<Q>)
}

fn erased<Q: Entity + Send + 'static>(rows: Vec<TypedRow<Q>>) -> Vec<ClaimedRow<Q::Key>> {
    rows.into_iter().map(erased_row::<Q>).collect()
}

fn erased_row<Q: Entity + Send + 'static>((key, text, status, try_count, rest): TypedRow<Q>) -> ClaimedRow<Q::Key> {
    (key, text, status, try_count, erased_rest(rest))
}

fn erased_rest<Q: Send + 'static>(rest: Rest<Q>) -> Rest<ErasedEntity> {
    Captured(rest.0.map(|(due, last, text, entity)| (due, last, text, Box::new(entity) as _)))
}
