//! The rows of an entity as statements return them.

use diesel::dsl::SqlTypeOf;
use diesel::sql_types::{BigInt, Integer, Nullable, Text};
use diesel::{Connection, Selectable};

use crate::backend::{Captured, CapturedKey, DatabaseText};
use crate::entity::{Entity, QueueStateColumns};
use crate::erased_entity::ErasedEntity;
use crate::row::{DueTime, Instant, Status, TimestampUtc};

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

/// A row whose key may not be decodable: the text of its key, its status and tries, when it is due, and the key.
pub type KeyTextRow<K> = (String, Status, i32, Captured<(Option<Instant>,)>, CapturedKey<K>);

/// A text as it is loaded: the text and the value of the split; the number of rows, of rows with `ERROR`, and of rows
/// with `FAILED`; when the first and the last of them failed, in microseconds since 1970; how many of them failed at
/// odd times, and the text of one of those times; the number of rows of all texts; `1`; and a key, if it can be
/// decoded.
pub type ErrorTextRow<K> = (
    (String, Option<String>),
    (i64, i64, i64),
    (Option<i64>, Option<i64>),
    (i64, Option<DatabaseText>),
    (i64, i64),
    CapturedKey<K>,
);

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
pub(super) type KeyTextRowType<Q> = (Text, Text, Integer, (Nullable<TimestampUtc>,), (KeyType<Q>,));

/// The SQL type of an [`ErrorTextRow`].
pub(crate) type ErrorTextRowType<Q> = (
    (Text, Nullable<Text>),
    (BigInt, BigInt, BigInt),
    (Nullable<BigInt>, Nullable<BigInt>),
    (BigInt, Nullable<Text>),
    (BigInt, BigInt),
    (KeyType<Q>,),
);

/// The SQL type of the part that may fail to decode.
type RestType<Q, C> = (
    Nullable<TimestampUtc>,
    Nullable<TimestampUtc>,
    Nullable<Text>,
    SqlTypeOf<<Q as Selectable<<C as Connection>::Backend>>::SelectExpression>,
);
