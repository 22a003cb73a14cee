//! The rows of an entity as statements return them, and the entities that can be read in this way.

use diesel::Selectable;
use diesel::deserialize::FromSqlRow;
use diesel::dsl::SqlTypeOf;
use diesel::expression::{Expression, QueryMetadata};
use diesel::query_builder::QueryId;
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Integer, Nullable, Text};

use crate::backend::{
    ByText, Captured, CapturedKey, DatabaseText, Loads, QueueBackend, QueueConnection, Statement, load,
};
use crate::entity::{Entity, QueueStateColumns, SelectedIn};
use crate::erased_entity::ErasedEntity;
use crate::row::{DueTime, Instant, QueueState, Status, TimestampUtc};

/// A key as it is loaded, if it can be decoded.
pub type KeyRow<K> = (CapturedKey<K>,);

/// The part of a claimed row that may fail to decode: its times, the text of its last failure and its entity.
pub(super) type Rest<E> = Captured<(Option<DueTime>, Option<Instant>, Option<String>, E)>;

/// A claimed row as the engine has it: the key, its text and the fence always, the rest if it can be decoded.
pub type ClaimedRow<K> = (K, String, Status, i32, Rest<ErasedEntity>);

/// A claimed row as it is loaded.
pub type TypedRow<Q> = (<Q as Entity>::Key, String, Status, i32, Rest<Q>);

/// A prefetched row as it is loaded, and the text of its version.
pub type VersionedRow<Q> = (TypedRow<Q>, String);

/// A row as it was claimed, and when its attempt under the lease began, as stored on the row now. `None`: the row was
/// not written.
pub type LeaseDueRow<K> = (LeasedRow<K, ErasedEntity>, Option<Instant>);

/// The same as it is loaded.
pub type TypedLeaseDueRow<Q> = (LeasedRow<<Q as Entity>::Key, Q>, Option<Instant>);

/// A row as it was claimed. The row is already leased when its key turns out to be undecodable.
type LeasedRow<K, E> = (CapturedKey<K>, String, Status, i32, Rest<E>);

/// A row to show. Unlike a claimed one, it may have any status.
pub type SampleRow<Q> = (
    CapturedKey<<Q as Entity>::Key>,
    String,
    String,
    i32,
    Captured<(Option<Instant>, Option<Instant>, Option<String>, Q)>,
);

/// A row whose key may not be decodable: the text of its key, its status and tries, when it is due, and the key.
pub type KeyTextRow<K> = (String, Status, i32, Captured<(Option<Instant>,)>, CapturedKey<K>);

/// A text as it is loaded: the text and the value of the split; the number of rows, of rows with `ERROR`, and of rows
/// with `FAILED`; when the first and the last of them failed, in microseconds since 1970; how many of them failed at
/// odd times, and the text of one of those times; the number of rows of all texts; `1`; and a key, if it can be
/// decoded.
pub type ErrorTextRow<K> = (
    String,
    Option<String>,
    i64,
    i64,
    i64,
    Option<i64>,
    Option<i64>,
    i64,
    Option<DatabaseText>,
    i64,
    i64,
    CapturedKey<K>,
);

/// The SQL type of a key.
pub(super) type KeyType<Q> = SqlTypeOf<<Q as Entity>::KeyColumns>;

/// The SQL type of a [`KeyRow`].
pub(super) type KeyRowType<Q> = ((KeyType<Q>,),);

/// The SQL type of a [`TypedRow`].
pub type ClaimedRowType<Q, DB> = (KeyType<Q>, Text, Text, Integer, RestType<Q, DB>);

/// The SQL type of a leased row and of a [`SampleRow`].
pub(super) type SampleRowType<Q, DB> = ((KeyType<Q>,), Text, Text, Integer, RestType<Q, DB>);

/// The SQL type of an entity with its queue state.
pub(super) type LoadedRowType<Q, DB> =
    (SqlTypeOf<<Q as Selectable<DB>>::SelectExpression>, SqlTypeOf<QueueStateColumns<<Q as Entity>::Queue>>);

/// The SQL type of a [`KeyTextRow`].
pub(super) type KeyTextRowType<Q> = (Text, Text, Integer, (Nullable<TimestampUtc>,), (KeyType<Q>,));

/// The SQL type of an [`ErrorTextRow`].
pub(super) type ErrorTextRowType<Q> = (
    Text,
    Nullable<Text>,
    BigInt,
    BigInt,
    BigInt,
    Nullable<BigInt>,
    Nullable<BigInt>,
    BigInt,
    Nullable<Text>,
    BigInt,
    BigInt,
    (KeyType<Q>,),
);

/// The SQL type of the part that may fail to decode.
type RestType<Q, DB> = (
    Nullable<TimestampUtc>,
    Nullable<TimestampUtc>,
    Nullable<Text>,
    SqlTypeOf<<Q as Selectable<DB>>::SelectExpression>,
);

/// An entity that can be read from databases of one kind. It is implemented for every entity whose fields and key
/// Diesel can read there.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be read as a queue from `{DB}`",
    note = "the entity derives `Queryable`, `Selectable` and `Queueable`, and every field's type can be read from this database"
)]
pub trait ReadFrom<DB: QueueBackend>: SelectedIn<DB> + 'static {
    /// Reads keys, each with its text.
    fn load_keys<C>(connection: &mut C, keys: &dyn Statement<DB>) -> QueryResult<Vec<(Self::Key, String)>>
    where
        C: QueueConnection<Backend = DB>;

    /// Reads keys that may not be decodable.
    fn load_key_texts<C>(connection: &mut C, keys: &dyn Statement<DB>) -> QueryResult<Vec<KeyTextRow<Self::Key>>>
    where
        C: QueueConnection<Backend = DB>;

    /// Reads claimed rows.
    fn load_claimed<C>(connection: &mut C, claim: &dyn Statement<DB>) -> QueryResult<Vec<TypedRow<Self>>>
    where
        C: QueueConnection<Backend = DB>,
    {
        Self::load_claimed_by_id::<ByText, C>(connection, claim)
    }

    /// The same by a statement that a session finds by the type `Id`.
    fn load_claimed_by_id<Id, C>(connection: &mut C, claim: &dyn Statement<DB>) -> QueryResult<Vec<TypedRow<Self>>>
    where
        Id: QueryId,
        C: QueueConnection<Backend = DB>;

    /// Reads rows with their versions.
    fn load_versioned<C>(connection: &mut C, rows: &dyn Statement<DB>) -> QueryResult<Vec<VersionedRow<Self>>>
    where
        C: QueueConnection<Backend = DB>;

    /// Reads rows that the statement has leased.
    fn load_leased<C>(connection: &mut C, claim: &dyn Statement<DB>) -> QueryResult<Vec<TypedLeaseDueRow<Self>>>
    where
        C: QueueConnection<Backend = DB>;
}

#[diagnostic::do_not_recommend]
impl<Q, DB> ReadFrom<DB> for Q
where
    Q: SelectedIn<DB, SelectExpression: Expression> + 'static,
    DB: QueueBackend
        + QueryMetadata<(KeyType<Q>, Text)>
        + QueryMetadata<KeyTextRowType<Q>>
        + QueryMetadata<ClaimedRowType<Q, DB>>
        + QueryMetadata<(ClaimedRowType<Q, DB>, Text)>
        + QueryMetadata<(SampleRowType<Q, DB>, Nullable<TimestampUtc>)>,
    (Q::Key, String): FromSqlRow<(KeyType<Q>, Text), DB>,
    KeyTextRow<Q::Key>: FromSqlRow<KeyTextRowType<Q>, DB>,
    TypedRow<Q>: FromSqlRow<ClaimedRowType<Q, DB>, DB>,
    VersionedRow<Q>: FromSqlRow<(ClaimedRowType<Q, DB>, Text), DB>,
    TypedLeaseDueRow<Q>: FromSqlRow<(SampleRowType<Q, DB>, Nullable<TimestampUtc>), DB>,
{
    fn load_keys<C>(connection: &mut C, keys: &dyn Statement<DB>) -> QueryResult<Vec<(Q::Key, String)>>
    where
        C: QueueConnection<Backend = DB>,
    {
        load::<(KeyType<Q>, Text), _, _>(connection, keys)
    }

    fn load_key_texts<C>(connection: &mut C, keys: &dyn Statement<DB>) -> QueryResult<Vec<KeyTextRow<Q::Key>>>
    where
        C: QueueConnection<Backend = DB>,
    {
        load::<KeyTextRowType<Q>, _, _>(connection, keys)
    }

    fn load_claimed_by_id<Id, C>(connection: &mut C, claim: &dyn Statement<DB>) -> QueryResult<Vec<TypedRow<Q>>>
    where
        Id: QueryId,
        C: QueueConnection<Backend = DB>,
    {
        Loads::<ClaimedRowType<Q, DB>, _>::load::<Id>(connection, claim)
    }

    fn load_versioned<C>(connection: &mut C, rows: &dyn Statement<DB>) -> QueryResult<Vec<VersionedRow<Q>>>
    where
        C: QueueConnection<Backend = DB>,
    {
        load::<(ClaimedRowType<Q, DB>, Text), _, _>(connection, rows)
    }

    fn load_leased<C>(connection: &mut C, claim: &dyn Statement<DB>) -> QueryResult<Vec<TypedLeaseDueRow<Q>>>
    where
        C: QueueConnection<Backend = DB>,
    {
        load::<(SampleRowType<Q, DB>, Nullable<TimestampUtc>), _, _>(connection, claim)
    }
}

/// An entity whose rows operations and reports can show. It is implemented for every entity whose fields and key Diesel
/// can read from databases of this kind.
pub trait ShownFrom<DB: QueueBackend>: SelectedIn<DB> {
    /// Reads keys that may not be decodable.
    fn load_some_keys<C>(connection: &mut C, keys: &dyn Statement<DB>) -> QueryResult<Vec<KeyRow<Self::Key>>>
    where
        C: QueueConnection<Backend = DB>;

    /// Reads rows as they are.
    fn load_samples<C>(connection: &mut C, rows: &dyn Statement<DB>) -> QueryResult<Vec<SampleRow<Self>>>
    where
        C: QueueConnection<Backend = DB>;

    /// Reads entities with their queue states.
    fn load_rows<C>(connection: &mut C, rows: &dyn Statement<DB>) -> QueryResult<Vec<(Self, QueueState)>>
    where
        C: QueueConnection<Backend = DB>;

    /// Reads the texts of failures.
    fn load_error_texts<C>(connection: &mut C, texts: &dyn Statement<DB>) -> QueryResult<Vec<ErrorTextRow<Self::Key>>>
    where
        C: QueueConnection<Backend = DB>;
}

#[diagnostic::do_not_recommend]
impl<Q, DB> ShownFrom<DB> for Q
where
    Q: SelectedIn<DB, SelectExpression: Expression>,
    DB: QueueBackend
        + QueryMetadata<KeyRowType<Q>>
        + QueryMetadata<SampleRowType<Q, DB>>
        + QueryMetadata<LoadedRowType<Q, DB>>
        + QueryMetadata<ErrorTextRowType<Q>>,
    KeyRow<Q::Key>: FromSqlRow<KeyRowType<Q>, DB>,
    SampleRow<Q>: FromSqlRow<SampleRowType<Q, DB>, DB>,
    (Q, QueueState): FromSqlRow<LoadedRowType<Q, DB>, DB>,
    ErrorTextRow<Q::Key>: FromSqlRow<ErrorTextRowType<Q>, DB>,
{
    fn load_some_keys<C>(connection: &mut C, keys: &dyn Statement<DB>) -> QueryResult<Vec<KeyRow<Q::Key>>>
    where
        C: QueueConnection<Backend = DB>,
    {
        load::<KeyRowType<Q>, _, _>(connection, keys)
    }

    fn load_samples<C>(connection: &mut C, rows: &dyn Statement<DB>) -> QueryResult<Vec<SampleRow<Q>>>
    where
        C: QueueConnection<Backend = DB>,
    {
        load::<SampleRowType<Q, DB>, _, _>(connection, rows)
    }

    fn load_rows<C>(connection: &mut C, rows: &dyn Statement<DB>) -> QueryResult<Vec<(Q, QueueState)>>
    where
        C: QueueConnection<Backend = DB>,
    {
        load::<LoadedRowType<Q, DB>, _, _>(connection, rows)
    }

    fn load_error_texts<C>(connection: &mut C, texts: &dyn Statement<DB>) -> QueryResult<Vec<ErrorTextRow<Q::Key>>>
    where
        C: QueueConnection<Backend = DB>,
    {
        load::<ErrorTextRowType<Q>, _, _>(connection, texts)
    }
}
