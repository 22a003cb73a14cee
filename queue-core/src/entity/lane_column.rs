//! The columns by which rows can be scheduled.

use diesel::sql_types;

use crate::row::{LaneValues, ValueKind};

/// The SQL type of a column by which rows are scheduled, with `serial_by`, `at_most(.., by = ..)` or `fair_by`: an
/// integer, a text, bytes or a UUID, also `Nullable`.
#[diagnostic::on_unimplemented(
    message = "rows cannot be scheduled by a column of type `{Self}`",
    label = "no column to schedule by",
    note = "`serial_by`, `at_most` and `fair_by` take columns of the types `SmallInt`, `Integer`, `BigInt`, `Unsigned`, `Text`, `Binary` \
            and, on PostgreSQL, `Uuid`, also `Nullable`",
    note = "other types have equal values with different texts: a generated column of one of these types can stand for it"
)]
#[doc(hidden)]
pub trait LaneType {
    const VALUES: LaneValues;
}

macro_rules! kinds {
    ($($kind:ident: $($of:ty),*;)*) => {
        $($(#[diagnostic::do_not_recommend] impl LaneType for $of {
            const VALUES: LaneValues = LaneValues { kind: ValueKind::$kind, nullable: false };
        })*)*
    };
}

kinds! {
    Integer: sql_types::SmallInt, sql_types::Integer, sql_types::BigInt;
    Text: sql_types::Text;
    Binary: sql_types::Binary;
}

#[cfg(feature = "postgres")]
kinds! { Uuid: sql_types::Uuid; }

#[cfg(feature = "mysql")]
kinds! {
    Integer: sql_types::TinyInt, sql_types::Unsigned<sql_types::TinyInt>, sql_types::Unsigned<sql_types::SmallInt>,
        sql_types::Unsigned<sql_types::Integer>, sql_types::Unsigned<sql_types::BigInt>;
}

#[diagnostic::do_not_recommend]
impl<T: LaneType + diesel::sql_types::SqlType<IsNull = diesel::sql_types::is_nullable::NotNull>> LaneType
    for sql_types::Nullable<T>
{
    const VALUES: LaneValues = LaneValues { nullable: true, ..T::VALUES };
}
