//! PostgreSQL's SQL, and how it stores times.

use std::any::TypeId;

use chrono::{DateTime, Datelike, Utc};
use diesel::deserialize::{self, FromSql};
use diesel::pg::{Pg, PgValue};
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::{
    Array, BigInt, Cidr, Citext, Date, Inet, Integer, Interval, MacAddr, MacAddr8, Money, Nullable, Numeric, Oid,
    PgLsn, Range, Text, Timestamp, Timestamptz, Uuid,
};

use super::session::PLACES;
use crate::backend::connection::QueueBackend;
use crate::backend::dialect::{Dialect, TextSql, TimeSql};
use crate::backend::schema::{Holds, of_sql_types};
use crate::row::{DueTime, Instant, TextForm, TimestampUtc, ValueKind};

// The types of the sessions: both name the same one if only one of the features is on.
#[cfg(not(feature = "postgres"))]
use super::clients::AsyncPgSession as First;
#[cfg(feature = "async-postgres")]
use super::clients::AsyncPgSession as Last;
#[cfg(feature = "postgres")]
use diesel::pg::PgConnection as First;
#[cfg(not(feature = "async-postgres"))]
use diesel::pg::PgConnection as Last;

impl TimeSql for Pg {
    // `now()` is the transaction's start: a backoff counted from it may be over before the attempt has ended.
    const NOW: &'static str = "pg_catalog.clock_timestamp()";
    const STATEMENT_TIME: &'static str = "pg_catalog.statement_timestamp()";
    const NOW_PLUS_MICROSECONDS: (&'static str, &'static str) =
        ("(pg_catalog.clock_timestamp() + (", " OPERATOR(pg_catalog.*) interval '1 microsecond'))");
    const STATEMENT_TIME_PLUS_MICROSECONDS: (&'static str, &'static str) =
        ("(pg_catalog.statement_timestamp() + (", " OPERATOR(pg_catalog.*) interval '1 microsecond'))");
    const TIME_LITERAL: (&'static str, &'static str) = ("(timestamptz '", "+00')");
    // GREATEST, because nothing can be subtracted from `-infinity`.
    const MICROSECONDS_UNTIL: (&'static str, &'static str) = (
        "CAST(EXTRACT(EPOCH FROM GREATEST(",
        ", pg_catalog.statement_timestamp()) - pg_catalog.statement_timestamp()) OPERATOR(pg_catalog.*) 1000000 AS bigint)",
    );
    // Up to the year 261,800. 64 bits of microseconds and chrono's calendar end after it, and both before `timestamptz`
    // does.
    const MICROSECONDS_SINCE_1970: &'static [&'static str] = &[
        "CAST(NULLIF(NULLIF(LEAST(GREATEST(EXTRACT(EPOCH FROM ",
        "), -8200000000000), 8200000000000), 8200000000000), -8200000000000) OPERATOR(pg_catalog.*) 1000000 AS bigint)",
    ];
    // JSON has the times of ISO 8601, whatever `DateStyle` says.
    const TEXT_OF_TIME: (&'static str, &'static str) = ("(pg_catalog.to_json(", ") OPERATOR(pg_catalog.#>>) '{}')");
    const TIME_OF_TEXT: (&'static str, &'static str) = ("CAST(", " AS timestamptz)");
}

impl TextSql for Pg {
    const AS_TEXT: (&'static str, &'static str) = ("CAST(", " AS text)");
    const BYTES_TEXT: (&'static str, &'static str) = ("pg_catalog.encode(", ", 'hex')");
    const JSON_LIST: (&'static str, &'static str) = ("pg_catalog.json_build_array(", ")");
    const JSON_TEXT: (&'static str, &'static str) = ("CAST(", " AS pg_catalog.text)");
    const KEY_TEXT: (&'static str, &'static str) = ("CAST(", " AS pg_catalog.text)");
    const KEY_PART_TEXT: (&'static str, &'static str) =
        ("pg_catalog.replace(pg_catalog.replace(CAST(", " AS pg_catalog.text), '%', '%25'), ',', '%2C')");
    const TEXT_FORM: TextForm = TextForm::Text;
    const AS_INTEGER: (&'static str, &'static str) = ("CAST(", " AS bigint)");
}

impl Dialect for Pg {
    const TEXT_HAS_IDENTITY: bool = true;
    const LANE_IS_RANGE: bool = true;
    const TIES_NEED_KEY: bool = true;
    const PLACE_IN_CLAIM: Option<[&'static str; 5]> = Some(PLACES);

    fn value_text(kind: ValueKind) -> &'static [&'static str] {
        match kind {
            ValueKind::Binary => &["pg_catalog.encode(", ", 'hex')"],
            // The hash is that of all texts which the collation calls equal.
            ValueKind::Text => &["pg_catalog.hashtextextended(CAST(", " AS text), 0) || ':' || CAST(", " AS text)"],
            ValueKind::Integer | ValueKind::Uuid => &["CAST(", " AS text)"],
        }
    }

    fn bound_value(kind: ValueKind) -> (&'static str, &'static str) {
        match kind {
            ValueKind::Uuid => ("CAST(", " AS uuid)"),
            ValueKind::Integer | ValueKind::Text | ValueKind::Binary => ("", ""),
        }
    }

    // FOR UPDATE would block the insert of a child row, and would pass over a row that has one in flight.
    const CLAIM_LOCK: &'static str = " FOR NO KEY UPDATE SKIP LOCKED";
    // It passes over a row to which another session is about to refer, as the removal would wait for that.
    const REMOVAL_LOCK: &'static str = " FOR UPDATE SKIP LOCKED";
    const ROW_LOCK: &'static str = " FOR NO KEY UPDATE";
    const LEASES_AT_ONCE: bool = true;
    const ROW_VERSION: Option<[&'static str; 2]> = Some(["ctid", "xmin"]);

    const DESCENDING: &'static str = " DESC NULLS LAST";
    const NULLS_FIRST: &'static str = " NULLS FIRST";
    const WITHOUT_INDEX_IS: (&'static str, &'static str) = ("", " IS NOT DISTINCT FROM ");

    // An entry has room for 2,704 bytes, and a character has up to four.
    // <https://www.postgresql.org/docs/current/btree.html#BTREE-INTRODUCTION>
    fn long_value(of: usize) -> (&'static str, &'static str) {
        let end = match of {
            0..=3 => ", 1, 200)",
            4..=6 => ", 1, 100)",
            7..=12 => ", 1, 50)",
            _ => ", 1, 15)",
        };
        ("pg_catalog.substr(", end)
    }

    const INSERT_OWN_KEYS: &'static str = " OVERRIDING SYSTEM VALUE";

    const MOST_SAVEPOINTS: u32 = 60;
    const REFUSES_COMMITS: bool = true;
    const NOTIFIES: bool = true;
}

impl QueueBackend for Pg {
    type First = First;
    type Last = Last;

    fn own_type(id: TypeId) -> Option<Holds> {
        of_sql_types! { id =>
            Timestamptz = Holds::Instants,
            Uuid = Holds::Uuids,
            Citext = Holds::Texts,
            Cidr | Inet | Interval | MacAddr | MacAddr8 | Money | Oid | PgLsn = Holds::Printed,
            Range<Integer> | Range<BigInt> | Range<Numeric> | Range<Date> | Range<Timestamp> | Range<Timestamptz>
                = Holds::Printed,
            Array<Text> | Array<Integer> | Array<BigInt> | Array<Uuid> = Holds::Printed,
            Array<Nullable<Text>> | Array<Nullable<Integer>> | Array<Nullable<BigInt>> | Array<Nullable<Uuid>>
                = Holds::Printed,
        }
    }
}

impl FromSql<TimestampUtc, Pg> for Instant {
    fn from_sql(bytes: PgValue<'_>) -> deserialize::Result<Self> {
        // `infinity` has no value here, and diesel returns an error.
        <DateTime<Utc> as FromSql<Timestamptz, Pg>>::from_sql(bytes).map(Instant::from)
    }
}

impl FromSql<TimestampUtc, Pg> for DueTime {
    fn from_sql(bytes: PgValue<'_>) -> deserialize::Result<Self> {
        let time = <Instant as FromSql<TimestampUtc, Pg>>::from_sql(bytes)?;
        // Other years read differently as a literal.
        Ok(DueTime { is_exact: (1..=9999).contains(&time.year()), ..DueTime::exact(time) })
    }
}

impl ToSql<TimestampUtc, Pg> for DateTime<Utc> {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        <DateTime<Utc> as ToSql<Timestamptz, Pg>>::to_sql(self, out)
    }
}

crate::backend::statement::captured_on!(Pg);
