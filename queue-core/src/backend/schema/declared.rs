//! The columns that an application's `table!` declares, with their SQL types.

use std::any::TypeId;

use diesel::sql_types::is_nullable::IsNullable;
use diesel::sql_types::{
    BigInt, Binary, Bool, Date, Double, Float, Integer, Json, Jsonb, Numeric, SmallInt, SqlType, Text, Time, Timestamp,
    TinyInt,
};

use crate::row::TimestampUtc;

/// The entry of a SQL type's identity in a table of SQL types.
macro_rules! of_sql_types {
    ($id:ident => $($($type:ty)|+ = $holds:expr,)*) => {
        match $id {
            $($(id if id == std::any::TypeId::of::<$type>()
                || id == std::any::TypeId::of::<diesel::sql_types::Nullable<$type>>() => Some($holds),)+)*
            _ => None,
        }
    };
}

pub(crate) use of_sql_types;

/// A column as the application's `table!` declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredColumn {
    /// Its name in the database.
    pub name: String,
    /// Whether its SQL type is `Nullable`.
    pub nullable: bool,
    /// What its values are.
    pub holds: Holds,
}

/// What the values of a column are, by the SQL type that its `table!` declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Holds {
    /// Integers of so many bytes.
    Integers(u8),
    /// Integers of so many bytes from 0 on.
    Unsigned(u8),
    /// Numbers with a floating point.
    Floats,
    /// Exact decimal numbers.
    Decimals,
    /// Texts.
    Texts,
    /// True and false.
    Booleans,
    /// Dates.
    Dates,
    /// Times of a day.
    TimesOfDay,
    /// Dates with times, without an offset.
    Timestamps,
    /// Points in time.
    Instants,
    /// Points in time as texts with their offsets, which do not compare as texts.
    InstantsWithOffset,
    /// UUIDs of the database's own type.
    Uuids,
    /// Bytes.
    Bytes,
    /// JSON.
    Json,
    /// Values of another type of the database, such as an address, a range or a list. They have a text.
    Printed,
    /// Values of a type that the library does not know, such as an enumeration of the application.
    Others,
}

/// The SQL types of the columns that a `table!` declares: a tuple.
pub trait DeclaredTypes {
    /// Tells for each column, in their order, its SQL type, and whether this is `Nullable`.
    fn types() -> Vec<(TypeId, bool)>;
}

impl Holds {
    /// Tells what a SQL type, or `Nullable` of it, holds, in databases of the kind that knows its own types so.
    pub fn of(id: TypeId, own_type: fn(TypeId) -> Option<Holds>) -> Self {
        of_sql_types! { id =>
            TinyInt = Holds::Integers(1),
            SmallInt = Holds::Integers(2),
            Integer = Holds::Integers(4),
            BigInt = Holds::Integers(8),
            Float | Double = Holds::Floats,
            Numeric = Holds::Decimals,
            Text = Holds::Texts,
            Bool = Holds::Booleans,
            Date = Holds::Dates,
            Time = Holds::TimesOfDay,
            Timestamp = Holds::Timestamps,
            TimestampUtc = Holds::Instants,
            Binary = Holds::Bytes,
            Json | Jsonb = Holds::Json,
        }
        .or_else(|| own_type(id))
        .unwrap_or(Holds::Others)
    }
}

fn is_nullable<ST: SqlType<IsNull: 'static>>() -> bool {
    TypeId::of::<ST::IsNull>() == TypeId::of::<IsNullable>()
}

// For tuples of every length up to that of the list, which is as many columns as Diesel's largest tables have.
const _: () = {
    macro_rules! for_tuples {
        () => {};
        ($first:ident $($rest:ident)*) => {
            impl<$first, $($rest),*> DeclaredTypes for ($first, $($rest,)*)
            where
                $first: SqlType<IsNull: 'static>,
                $($rest: SqlType<IsNull: 'static>,)*
            {
                fn types() -> Vec<(TypeId, bool)> {
                    vec![
                        (TypeId::of::<$first>(), is_nullable::<$first>()),
                        $((TypeId::of::<$rest>(), is_nullable::<$rest>()),)*
                    ]
                }
            }

            for_tuples!($($rest)*);
        };
    }

    for_tuples! {
        T1 T2 T3 T4 T5 T6 T7 T8 T9 T10 T11 T12 T13 T14 T15 T16
        T17 T18 T19 T20 T21 T22 T23 T24 T25 T26 T27 T28 T29 T30 T31 T32
        T33 T34 T35 T36 T37 T38 T39 T40 T41 T42 T43 T44 T45 T46 T47 T48
        T49 T50 T51 T52 T53 T54 T55 T56 T57 T58 T59 T60 T61 T62 T63 T64
        T65 T66 T67 T68 T69 T70 T71 T72 T73 T74 T75 T76 T77 T78 T79 T80
        T81 T82 T83 T84 T85 T86 T87 T88 T89 T90 T91 T92 T93 T94 T95 T96
        T97 T98 T99 T100 T101 T102 T103 T104 T105 T106 T107 T108 T109 T110 T111 T112
        T113 T114 T115 T116 T117 T118 T119 T120 T121 T122 T123 T124 T125 T126 T127 T128
    }
};

#[cfg(test)]
mod tests {
    use diesel::sql_types::{BigInt, Nullable, Text};

    use super::*;

    #[test]
    fn the_types_of_a_table_are_told_apart_in_their_order() {
        let nullable = |types: Vec<(TypeId, bool)>| types.into_iter().map(|(_, nullable)| nullable).collect::<Vec<_>>();
        assert_eq!(nullable(<(BigInt,)>::types()), [false]);
        assert_eq!(nullable(<(BigInt, Nullable<Text>, Text)>::types()), [false, true, false]);
    }
}
