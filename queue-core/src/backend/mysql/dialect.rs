//! The SQL of MySQL and MariaDB, and how they store times.

use std::any::TypeId;

use chrono::{DateTime, Datelike, NaiveDateTime, Utc};
use diesel::deserialize::{self, FromSql};
use diesel::mysql::{Mysql, MysqlValue};
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::{BigInt, Datetime, Integer, SmallInt, TinyInt, Unsigned};

use super::errors::OTHER_SETTINGS;
use super::settings::FINGERPRINT;
use crate::backend::connection::QueueBackend;
use crate::backend::dialect::{Dialect, LaneWalk, TextSql, TimeSql};
use crate::backend::schema::{Holds, of_sql_types};
use crate::row::{DueTime, Instant, TextForm, TimestampUtc, ValueKind};

// The types of the sessions: both name the same one if only one of the features is on.
#[cfg(not(feature = "mysql"))]
use super::clients::AsyncMysqlSession as First;
#[cfg(feature = "async-mysql")]
use super::clients::AsyncMysqlSession as Last;
#[cfg(feature = "mysql")]
use diesel::mysql::MysqlConnection as First;
#[cfg(not(feature = "async-mysql"))]
use diesel::mysql::MysqlConnection as Last;

impl TimeSql for Mysql {
    // The time when the statement began. The settling statement begins when the attempt ends.
    const NOW: &'static str = "UTC_TIMESTAMP(6)";
    const NOW_PLUS_MICROSECONDS: (&'static str, &'static str) = ("(UTC_TIMESTAMP(6) + INTERVAL ", " MICROSECOND)");
    const TIME_LITERAL: (&'static str, &'static str) = ("TIMESTAMP'", "'");
    // A zero date is due at once: only its own row fails, while a null would stop the probe for every row.
    const MICROSECONDS_UNTIL: (&'static str, &'static str) =
        ("COALESCE(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), ", "), 0)");
    const MICROSECONDS_SINCE_1970: &'static [&'static str] = &["TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ", ")"];
    const TEXT_OF_TIME: (&'static str, &'static str) = ("CAST(", " AS CHAR)");
    const TIME_OF_TEXT: (&'static str, &'static str) = ("CAST(", " AS DATETIME(6))");
}

impl TextSql for Mysql {
    const AS_TEXT: (&'static str, &'static str) = ("CAST(", " AS CHAR)");
    const JSON_TEXT: (&'static str, &'static str) = ("CAST(", " AS CHAR)");
    const KEY_TEXT: (&'static str, &'static str) = ("HEX(CAST(", " AS BINARY))");
    const TEXT_FORM: TextForm = TextForm::Hex;
    const FINDS_KEY_BY_TEXT: bool = true;
    const AS_INTEGER: (&'static str, &'static str) = ("CAST(", " AS SIGNED)");
    const EXACTLY: (&'static str, &'static str) = ("CAST(", " AS BINARY)");
    // As bytes, because rows are grouped and sorted by it, and a collation takes longer than to compute it.
    const IDENTITY: (&'static str, &'static str) = ("CAST(SHA2(CONVERT(", " USING utf8mb4), 256) AS BINARY)");
    // MariaDB groups on disk if a column has more than 512 characters.
    const LOWEST_OF_EQUAL_TEXTS: &'static [&'static str] =
        &["CONCAT(MIN(SUBSTR(", ", 1, 500)), MIN(SUBSTR(", ", 501, 500)))"];
    const CONCATENATION: (&'static str, &'static str, &'static str) = ("CONCAT(", ", ", ")");
}

impl Dialect for Mysql {
    const TEXT_HAS_IDENTITY: bool = true;
    const PLACES_END_WITH_TRANSACTION: bool = false;
    const LANE_WALK: LaneWalk = LaneWalk::Grouped;

    fn value_text(kind: ValueKind) -> &'static [&'static str] {
        match kind {
            // The weights have the blanks at the end, and most collations compare texts without them.
            ValueKind::Text => &[
                "CONCAT(HEX(WEIGHT_STRING(IF(",
                " = CONCAT(",
                ", ' '), TRIM(TRAILING ' ' FROM ",
                "), ",
                "))), ':', ",
                ")",
            ],
            ValueKind::Binary => &["HEX(", ")"],
            ValueKind::Integer | ValueKind::Uuid => &["CAST(", " AS CHAR)"],
        }
    }

    const MOST_CHARACTERS: &'static str = "MAX(CHAR_LENGTH(";
    const CLAIM_LOCK: &'static str = " FOR UPDATE SKIP LOCKED";
    const ROW_LOCK: &'static str = " FOR UPDATE";
    const LOCKS_WHAT_IT_PASSES: bool = true;
    const PREFETCHES_KEYS: bool = true;
    const SAVEPOINT_FREES_LOCKS: bool = false;

    const INDEX_HINT: Option<(&'static str, &'static str)> = Some((" FORCE INDEX (", ")"));
    const IGNORE_INDEX: Option<(&'static str, &'static str)> = Some((" IGNORE INDEX (", ")"));
    const PARTIAL_INDEXES: bool = false;
    const COUNTS_BY_RANGES: bool = true;
    const WITHOUT_INDEX_IS: (&'static str, &'static str) = ("COALESCE(", ") = ");

    const UPDATE_HAS_LIMIT: bool = true;
    const DELETE_NAMES_ALIAS: bool = true;
    const ON_SAME_KEY: &'static str = " ON DUPLICATE KEY UPDATE ";
    const INSERTED: (&'static str, &'static str) = ("VALUES(", ")");

    const STATEMENTS_TRAVEL_TOGETHER: bool = false;
    const FINISHES_IN_A_BLOCK: bool = true;
    const OTHER_SETTINGS: Option<(&'static str, &'static str)> = Some((FINGERPRINT, OTHER_SETTINGS));
}

impl QueueBackend for Mysql {
    type First = First;
    type Last = Last;

    fn own_type(id: TypeId) -> Option<Holds> {
        of_sql_types! { id =>
            Unsigned<TinyInt> = Holds::Unsigned(1),
            Unsigned<SmallInt> = Holds::Unsigned(2),
            Unsigned<Integer> = Holds::Unsigned(4),
            Unsigned<BigInt> = Holds::Unsigned(8),
            Datetime = Holds::Timestamps,
        }
    }
}

impl FromSql<TimestampUtc, Mysql> for Instant {
    fn from_sql(value: MysqlValue<'_>) -> deserialize::Result<Self> {
        <NaiveDateTime as FromSql<Datetime, Mysql>>::from_sql(value).map(|time| time.and_utc().into())
    }
}

impl FromSql<TimestampUtc, Mysql> for DueTime {
    fn from_sql(value: MysqlValue<'_>) -> deserialize::Result<Self> {
        <Instant as FromSql<TimestampUtc, Mysql>>::from_sql(value).map(DueTime::exact)
    }
}

impl ToSql<TimestampUtc, Mysql> for DateTime<Utc> {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Mysql>) -> serialize::Result {
        // The server would store the zero date instead, which reads as no time at all. It also keeps years before 1000, although it
        // does not promise that, and other clients have written them.
        if !(0..=9999).contains(&self.year()) {
            return Err(format!("the time {self} is outside the years 0 to 9999 that DATETIME has").into());
        }
        <NaiveDateTime as ToSql<Datetime, Mysql>>::to_sql(&self.naive_utc(), &mut out.reborrow())
    }
}

crate::backend::statement::captured_on!(Mysql);
