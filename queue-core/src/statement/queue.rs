//! The queue of one entity as a value: what the engine knows of the entity, without its type.
//!
//! Code that is generic over the entity is compiled anew for each of an application's entities. The engine is generic over
//! the key and the connection instead, and reads entities as boxes; the runner that calls the handler opens them.
//! [`QueueOn`] makes the value.

use std::any::TypeId;
use std::marker::PhantomData;
use std::rc::Rc;

use diesel::dsl::SqlTypeOf;
use diesel::expression::Expression;
use diesel::query_builder::{QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Integer, Nullable, Text};
use diesel::{Connection, Selectable};

use super::key_text::IsStored;
use crate::backend::{
    ByText, Captured, CapturedKey, DatabaseText, Dialect, Loads, QueueBackend, QueueConnection, Statement,
    execute_by_id, load,
};
use crate::entity::{Entity, IsKey, Key, KeyedRow, LeaseMode, QueueSql, QueueStateColumns, QueueTable, SelectedIn};
use crate::error::refused;
use crate::row::{DueTime, Instant, RowKey, Status, TimestampUtc};
use crate::sync::ErasedEntity;

type Execute<C> = fn(&mut C, &dyn Statement<<C as Connection>::Backend>) -> QueryResult<usize>;

type Load<C, Row> = fn(&mut C, &dyn Statement<<C as Connection>::Backend>) -> QueryResult<Vec<Row>>;

/// The queue of an entity with keys of type `K` on connections of type `C`.
pub struct ErasedQueue<K, C: QueueConnection> {
    pub(crate) sql: &'static QueueSql<C::Backend>,
    id: fn() -> TypeId,
    is_leased: fn() -> bool,
    pub(super) is_its_row: bool,
    pub(super) is_key: fn(&K) -> IsKey<C::Backend>,
    pub(super) is_after: fn(&K) -> IsKey<C::Backend>,
    pub(super) selection: fn() -> Box<dyn QueryFragment<C::Backend>>,
    pub(crate) load_keys: Load<C, (K, DatabaseText)>,
    pub(super) load_key_texts: Load<C, KeyTextRow<K>>,
    pub(super) load_expired: Load<C, ExpiredRow<K>>,
    /// Reads the rows of any claim.
    pub load_claimed: Load<C, ClaimedRow<K>>,
    /// Reads those of the plain claim, whose text is written once.
    pub(super) load_plain: Load<C, ClaimedRow<K>>,
    /// The same for the plain claim that is not below the low-water mark.
    pub(super) load_from: Load<C, ClaimedRow<K>>,
    /// The same for the claim of one row by its key.
    pub(super) load_by_key: Load<C, ClaimedRow<K>>,
    pub(super) load_versioned: Load<C, (ClaimedRow<K>, String)>,
    pub(super) load_leased: Load<C, LeaseDueRow<K>>,
    /// Runs the block that ends a message, without and with a comparison of the settings.
    pub(super) finish_block: [Execute<C>; 2],
    /// Settles a plain success, whose text is written once.
    pub(super) settle_success: Execute<C>,
}

impl<K: Key, C: QueueConnection> ErasedQueue<K, C> {
    /// Returns what tells the queue from every other.
    pub(crate) fn id(&self) -> TypeId {
        (self.id)()
    }

    /// Tells whether its rows are handled under leases.
    pub(crate) fn is_leased(&self) -> bool {
        (self.is_leased)()
    }

    /// Returns the row with this key, for a statement.
    pub(crate) fn row(&self, key: &RowKey<K>) -> KeyedRow<C::Backend> {
        KeyedRow { queue: self.sql, is_key: self.is_row(key) }
    }

    /// Returns the conditions that pick the rows with some keys.
    pub(crate) fn rows<'k>(&self, keys: impl IntoIterator<Item = &'k RowKey<K>>) -> Vec<IsKey<C::Backend>> {
        keys.into_iter().map(|key| self.is_row(key)).collect()
    }

    fn is_row(&self, key: &RowKey<K>) -> IsKey<C::Backend> {
        let is_key = (self.is_key)(key);
        match key.stored() {
            Some(stored) => Rc::new(IsStored { queue: self.sql, is_key, stored: stored.clone() }),
            None => is_key,
        }
    }
}

/// An entity whose queue works on a connection of type `C`.
///
/// It is implemented for every entity on every [`QueueConnection`] whose backend can store the entity's columns; there
/// is nothing to implement by hand. Name it in the bounds of generic code.
///
/// ```
/// use diesel::r2d2::{ConnectionManager, Pool};
/// use queueable::bounds::{QueueConnection, QueueOn, TransactionMode};
/// use queueable::{Entity, Error, Handler, PollerHandle, Queueable};
///
/// fn start<Q, C>(pool: Pool<ConnectionManager<C>>, handler: impl Handler<Q, C> + 'static) -> Result<PollerHandle, Error>
/// where
///     Q: Entity<Mode = TransactionMode> + QueueOn<C> + Send + 'static,
///     C: QueueConnection,
/// {
///     Q::poller(pool, handler).start()
/// }
/// ```
///
/// A function that serves entities of every mode takes a [`HandlerFor`](crate::HandlerFor). To migrate and to operate,
/// it also names [`StoredIn`](crate::StoredIn) and the trait of the operation, here [`ReadsRows`](crate::ReadsRows):
///
/// ```
/// use diesel::Connection;
/// use diesel::r2d2::{ConnectionManager, Pool};
/// use diesel_migrations::MigrationHarness;
/// use queueable::bounds::{AllFilters, HandlerFor, QueueConnection, QueueOn, ReadsRows, StoredIn};
/// use queueable::{Migrations, PollerHandle, Queueable};
///
/// fn serve<Q, C>(
///     pool: Pool<ConnectionManager<C>>,
///     handler: impl HandlerFor<Q, C> + 'static,
/// ) -> Result<PollerHandle, Box<dyn std::error::Error + Send + Sync>>
/// where
///     Q: QueueOn<C> + StoredIn<C::Backend> + 'static,
///     C: QueueConnection + ReadsRows<Q, AllFilters> + MigrationHarness<<C as Connection>::Backend>,
/// {
///     let mut connection = pool.get()?;
///     connection.run_pending_migrations(Migrations::new().entity::<Q>())?;
///     println!("{} rows of {} are due", Q::queue().due().count(&mut *connection)?, Q::ENTITY);
///     Ok(Q::poller(pool, handler).start()?)
/// }
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # #[derive(diesel::Queryable, diesel::Selectable, Queueable)] struct Payment { id: i64 }
/// # fn instance(pool: Pool<ConnectionManager<diesel::SqliteConnection>>, handler: impl HandlerFor<Payment, diesel::SqliteConnection> + 'static) {
/// #     let _ = serve::<Payment, _>(pool, handler);
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be used as a queue on `{C}`",
    note = "the entity derives `Queryable`, `Selectable` and `Queueable`, and every field's type can be read on this database; \
            `#[diesel(check_for_backend(diesel::pg::Pg))]` on the struct shows which field cannot, or another backend there"
)]
pub trait QueueOn<C: QueueConnection>: SelectedIn<C::Backend> + Send + 'static {
    /// The queue as a value.
    #[doc(hidden)]
    const QUEUE: &'static ErasedQueue<Self::Key, C>;
}

#[diagnostic::do_not_recommend]
impl<Q, C> QueueOn<C> for Q
where
    Q: SelectedIn<C::Backend, SelectExpression: Expression> + Send + 'static,
    C: QueueConnection
        + Loads<(KeyType<Q>, Text), (<Q as Entity>::Key, DatabaseText)>
        + Loads<KeyTextRowType<Q>, KeyTextRow<<Q as Entity>::Key>>
        + Loads<((KeyType<Q>,), Text), ExpiredRow<<Q as Entity>::Key>>
        + Loads<ClaimedRowType<Q, C>, TypedRow<Q>>
        + Loads<(ClaimedRowType<Q, C>, Text), (TypedRow<Q>, String)>
        + Loads<(SampleRowType<Q, C>, Nullable<TimestampUtc>), TypedLeaseDueRow<Q>>,
{
    const QUEUE: &'static ErasedQueue<Q::Key, C> = &ErasedQueue {
        sql: Q::SQL,
        id: TypeId::of::<Q::Queue>,
        is_leased: || TypeId::of::<Q::Mode>() == TypeId::of::<LeaseMode>(),
        is_its_row: Q::IS_ITS_ROW,
        is_key: |key| Q::row(key).is_key,
        is_after: Q::after,
        selection: Q::selection,
        load_keys: load::<(KeyType<Q>, Text), _, _>,
        load_key_texts: load::<KeyTextRowType<Q>, _, _>,
        load_expired: load::<((KeyType<Q>,), Text), _, _>,
        load_claimed: load_claimed::<Q, ByText, C>,
        load_plain: load_claimed::<Q, ClaimId<Q, C::Backend, PlainClaim>, C>,
        load_from: load_claimed::<Q, ClaimId<Q, C::Backend, ClaimFromMark>, C>,
        // What a database does not need is not compiled for it.
        load_by_key: if C::Backend::PREFETCHES_KEYS {
            load_claimed::<Q, ClaimId<Q, C::Backend, ClaimOfKey>, C>
        } else {
            load_claimed::<Q, ByText, C>
        },
        load_versioned: if C::Backend::ROW_VERSION.is_some() {
            |connection, rows| {
                let rows = load::<(ClaimedRowType<Q, C>, Text), (TypedRow<Q>, String), C>(connection, rows)?;
                Ok(rows.into_iter().map(|(row, version)| (erased(row), version)).collect())
            }
        } else {
            load_nothing
        },
        load_leased: if C::Backend::LEASES_AT_ONCE {
            |connection, claim| {
                let rows =
                    load::<(SampleRowType<Q, C>, Nullable<TimestampUtc>), TypedLeaseDueRow<Q>, C>(connection, claim)?;
                Ok(rows.into_iter().map(|(row, began)| (erased(row), began)).collect())
            }
        } else {
            load_nothing
        },
        settle_success: execute_by_id::<SettleSuccessId<Q>, C>,
        finish_block: [execute_by_id::<FinishBlockId<Q, false>, C>, execute_by_id::<FinishBlockId<Q, true>, C>],
    };
}

/// Finds the prepared statement of the claim `Of`, of the entity `Q`: its text is the same each time.
struct ClaimId<Q, DB, Of>(PhantomData<fn() -> Q>, PhantomData<fn() -> (DB, Of)>);

struct PlainClaim;
struct ClaimFromMark;
struct ClaimOfKey;

impl<Q: SelectedIn<DB> + 'static, DB: QueueBackend, Of: 'static> QueryId for ClaimId<Q, DB, Of> {
    type QueryId = Self;

    // The user writes the condition, which may be another one each time. A poller may serve other stages. The condition
    // on a key is of one shape for all keys.
    const HAS_STATIC_QUERY_ID: bool =
        Q::SELECTION_IS_STATIC && !Q::Queue::OPTIONS.conditional && Q::Queue::OPTIONS.stages.is_none();
}

/// Finds the prepared block of the entity `Q`. A message whose fence has a lease, or no due time, does not end so: the text
/// is always the same.
struct FinishBlockId<Q, const COMPARES: bool>(PhantomData<fn() -> Q>);

impl<Q: 'static, const COMPARES: bool> QueryId for FinishBlockId<Q, COMPARES> {
    type QueryId = Self;
    const HAS_STATIC_QUERY_ID: bool = true;
}

/// Finds the prepared statement that settles a plain success of the entity `Q`.
struct SettleSuccessId<Q>(PhantomData<fn() -> Q>);

impl<Q: 'static> QueryId for SettleSuccessId<Q> {
    type QueryId = Self;
    const HAS_STATIC_QUERY_ID: bool = true;
}

/// Reads claimed rows. A session finds the statement by the type `Id`.
fn load_claimed<Q, Id, C>(connection: &mut C, claim: &dyn Statement<C::Backend>) -> QueryResult<Vec<ClaimedRow<Q::Key>>>
where
    Q: SelectedIn<C::Backend, SelectExpression: Expression> + Send + 'static,
    Id: QueryId,
    C: QueueConnection + Loads<ClaimedRowType<Q, C>, TypedRow<Q>>,
{
    let rows = Loads::<ClaimedRowType<Q, C>, TypedRow<Q>>::load::<Id>(connection, claim)?;
    Ok(rows.into_iter().map(erased).collect())
}

fn load_nothing<C: QueueConnection, Row>(_: &mut C, _: &dyn Statement<C::Backend>) -> QueryResult<Vec<Row>> {
    Err(refused("this database has no such statement".to_owned()))
}

fn erased<K, Q: Send + 'static>((key, text, status, try_count, rest): Row<K, Q>) -> Row<K, ErasedEntity> {
    let rest = rest.0.map(|(due, last, error, entity)| (due, last, error, Box::new(entity) as _));
    (key, text, status, try_count, Captured(rest))
}

/// A key as it is loaded, if it can be decoded.
pub type KeyRow<K> = (CapturedKey<K>,);

/// The part of a claimed row that may fail to decode: its times, the text of its last failure and its entity.
pub(super) type Rest<E> = Captured<(Option<DueTime>, Option<Instant>, Option<String>, E)>;

/// A claimed row as it is loaded: the key, its text and the fence always, the rest if it can be decoded.
pub type Row<K, E> = (K, String, Status, i32, Rest<E>);

/// The same with its entity.
pub type TypedRow<Q> = Row<<Q as Entity>::Key, Q>;

/// A claimed row as the engine has it.
pub type ClaimedRow<K> = Row<K, ErasedEntity>;

/// A row as it was claimed, and when its attempt under the lease began, as stored on the row now. `None`: the row was
/// not written. The row is already leased when its key turns out to be undecodable.
pub type LeaseDueRow<K> = (Row<CapturedKey<K>, ErasedEntity>, Option<Instant>);

/// The same with its entity.
pub type TypedLeaseDueRow<Q> = (Row<CapturedKey<<Q as Entity>::Key>, Q>, Option<Instant>);

/// A row to show. Unlike a claimed one, it may have any status.
pub type SampleRow<Q> = (
    CapturedKey<<Q as Entity>::Key>,
    String,
    String,
    i32,
    Captured<(Option<Instant>, Option<Instant>, Option<String>, Q)>,
);

/// A row that the upkeep looks at: its key, and its status, which is empty if the row stays.
pub(super) type ExpiredRow<K> = (CapturedKey<K>, String);

/// A row whose key or lane may not be decodable: the text of its key, its status and tries, when it is due, its lane's value as
/// text, and the key.
pub type KeyTextRow<K> =
    (String, Status, i32, Captured<(Option<Instant>,)>, Captured<(Option<String>,)>, CapturedKey<K>);

/// A text as it is loaded: the text, what distinguishes it from others, and the value of the split; the number of rows, of
/// rows with `ERROR`, and of rows with `FAILED`; when the first and the last of them failed, in microseconds since 1970; how
/// many of them failed at odd times, and the text of one of those times; and the number of rows of all texts.
pub type ErrorTextRow = (
    (DatabaseText, DatabaseText, Option<DatabaseText>),
    (i64, i64, i64),
    (Option<i64>, Option<i64>),
    (i64, Option<DatabaseText>),
    i64,
);

/// A row of a text as it is loaded: what distinguishes the text, the value of the split, the number of rows of the text, the
/// place of this row among those, `1` for the first, and its key, if it can be decoded.
pub type ErrorExampleRow<K> = (DatabaseText, Option<DatabaseText>, i64, i64, CapturedKey<K>);

/// The SQL type of a key.
pub(super) type KeyType<Q> = SqlTypeOf<<Q as Entity>::KeyColumns>;

/// The SQL type of a [`KeyRow`].
pub(crate) type KeyRowType<Q> = ((KeyType<Q>,),);

/// The SQL type of a claimed row.
pub type ClaimedRowType<Q, C> = (KeyType<Q>, Text, Text, Integer, RestType<Q, C>);

/// The SQL type of a leased row and of a [`SampleRow`].
pub(crate) type SampleRowType<Q, C> = ((KeyType<Q>,), Text, Text, Integer, RestType<Q, C>);

/// The SQL type of an entity with its queue state.
pub(crate) type LoadedRowType<Q, C> = (
    SqlTypeOf<<Q as Selectable<<C as Connection>::Backend>>::SelectExpression>,
    SqlTypeOf<QueueStateColumns<<Q as Entity>::Queue>>,
);

/// The SQL type of a [`KeyTextRow`].
pub(super) type KeyTextRowType<Q> = (Text, Text, Integer, (Nullable<TimestampUtc>,), (Nullable<Text>,), (KeyType<Q>,));

/// The SQL type of an [`ErrorTextRow`].
pub type ErrorTextRowType = (
    (Text, Text, Nullable<Text>),
    (BigInt, BigInt, BigInt),
    (Nullable<BigInt>, Nullable<BigInt>),
    (BigInt, Nullable<Text>),
    BigInt,
);

/// The SQL type of an [`ErrorExampleRow`].
pub(crate) type ErrorExampleRowType<Q> = (Text, Nullable<Text>, BigInt, BigInt, (KeyType<Q>,));

/// The SQL type of the part that may fail to decode.
type RestType<Q, C> = (
    Nullable<TimestampUtc>,
    Nullable<TimestampUtc>,
    Nullable<Text>,
    SqlTypeOf<<Q as Selectable<<C as Connection>::Backend>>::SelectExpression>,
);
