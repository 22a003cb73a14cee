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
    /// Its values. Most types are integers.
    const VALUES: LaneValues = LaneValues { kind: ValueKind::Integer, nullable: false };
}

#[diagnostic::do_not_recommend]
impl LaneType for sql_types::SmallInt {}

#[diagnostic::do_not_recommend]
impl LaneType for sql_types::Integer {}

#[diagnostic::do_not_recommend]
impl LaneType for sql_types::BigInt {}

#[diagnostic::do_not_recommend]
impl LaneType for sql_types::Text {
    const VALUES: LaneValues = LaneValues { kind: ValueKind::Text, nullable: false };
}

#[diagnostic::do_not_recommend]
impl LaneType for sql_types::Binary {
    const VALUES: LaneValues = LaneValues { kind: ValueKind::Binary, nullable: false };
}

#[cfg(feature = "_mysql")]
mod mysql {
    use diesel::sql_types;

    use super::LaneType;

    #[diagnostic::do_not_recommend]
    impl LaneType for sql_types::TinyInt {}

    #[diagnostic::do_not_recommend]
    impl LaneType for sql_types::Unsigned<sql_types::TinyInt> {}

    #[diagnostic::do_not_recommend]
    impl LaneType for sql_types::Unsigned<sql_types::SmallInt> {}

    #[diagnostic::do_not_recommend]
    impl LaneType for sql_types::Unsigned<sql_types::Integer> {}

    #[diagnostic::do_not_recommend]
    impl LaneType for sql_types::Unsigned<sql_types::BigInt> {}
}

#[cfg(feature = "_postgres")]
mod postgres {
    use diesel::sql_types;

    use super::{LaneType, LaneValues, ValueKind};

    #[diagnostic::do_not_recommend]
    impl LaneType for sql_types::Uuid {
        const VALUES: LaneValues = LaneValues { kind: ValueKind::Uuid, nullable: false };
    }
}

#[diagnostic::do_not_recommend]
impl<T: LaneType + diesel::sql_types::SqlType<IsNull = diesel::sql_types::is_nullable::NotNull>> LaneType
    for sql_types::Nullable<T>
{
    const VALUES: LaneValues = LaneValues { nullable: true, ..T::VALUES };
}
