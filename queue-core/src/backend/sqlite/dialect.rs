//! SQLite's SQL, and how it stores times.

use std::any::TypeId;
use std::sync::LazyLock;
use std::time::Duration;

use chrono::format::{Item, StrftimeItems};
use chrono::{DateTime, Datelike, NaiveDateTime, Timelike, Utc};
use diesel::deserialize::{self, FromSql};
use diesel::serialize::{self, IsNull, Output, ToSql};
use diesel::sql_types::{Timestamp, TimestamptzSqlite};
use diesel::sqlite::{Sqlite, SqliteConnection};

use crate::backend::connection::QueueBackend;
use crate::backend::dialect::{Dialect, TextSql, TimeSql};
use crate::backend::schema::{Holds, of_sql_types};
use crate::row::{DueTime, TextForm, TimestampUtc, ValueKind};

/// The format in which times are written, parsed once. It has a fixed width, because SQLite compares times as text.
static TIME_FORMAT: LazyLock<Vec<Item<'static>>> =
    LazyLock::new(|| StrftimeItems::new("%Y-%m-%d %H:%M:%S%.3f").collect());

impl TimeSql for Sqlite {
    const NOW: &'static str = "strftime('%Y-%m-%d %H:%M:%f', 'now')";
    const NOW_PLUS_MICROSECONDS: (&'static str, &'static str) =
        ("strftime('%Y-%m-%d %H:%M:%f', 'now', (", " / 1000000.0) || ' seconds')");
    const TIME_LITERAL: (&'static str, &'static str) = ("strftime('%Y-%m-%d %H:%M:%f', '", "')");
    // A text that is not a time is due at once: only its own row fails, while a null would stop the probe for every
    // row.
    const MICROSECONDS_UNTIL: (&'static str, &'static str) =
        ("COALESCE(CAST((julianday(", ") - julianday('now')) * 86400000000.0 AS INTEGER), 0)");
    // A Julian day is too coarse for microseconds, and just fine enough for the milliseconds in which times are
    // written. SQLite also accepts numbers as times, and the word `now`.
    const MICROSECONDS_SINCE_1970: &'static [&'static str] = &[
        "(CAST(ROUND((julianday(CASE WHEN typeof(",
        ") = 'text' AND ",
        " GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9][ T][0-9][0-9]:[0-9][0-9]*' THEN ",
        " END) - 2440587.5) * 86400000.0) AS INTEGER) * 1000)",
    ];
    const TEXT_OF_TIME: (&'static str, &'static str) = ("CAST(", " AS TEXT)");
    const TIME_OF_TEXT: (&'static str, &'static str) = ("", "");
}

impl TextSql for Sqlite {
    const AS_TEXT: (&'static str, &'static str) = ("CAST(", " AS TEXT)");
    const READABLE: &'static [&'static str] = &["CASE TYPEOF(", ") WHEN 'blob' THEN HEX(", ") ELSE ", " END"];
    // A column holds values of any type, and each type is quoted in its own way.
    const KEY_TEXT: (&'static str, &'static str) = ("hex(quote(", "))");
    const TEXT_FORM: TextForm = TextForm::HexOfLiteral;
    const AS_INTEGER: (&'static str, &'static str) = ("CAST(", " AS INTEGER)");
}

impl Dialect for Sqlite {
    const IS_IN_LANE: (&'static str, &'static str) = ("likelihood(", ", 0.0001)");

    fn value_text(kind: ValueKind) -> &'static [&'static str] {
        // A column holds values of any type, and no text or number equals a blob. Such a value becomes bytes that are no text.
        match kind {
            ValueKind::Binary => &["CASE typeof(", ") WHEN 'blob' THEN HEX(", ") WHEN 'null' THEN NULL ELSE x'FF' END"],
            ValueKind::Integer | ValueKind::Text | ValueKind::Uuid => {
                &["CASE typeof(", ") WHEN 'blob' THEN x'FF' ELSE CAST(", " AS TEXT) END"]
            }
        }
    }

    // BEGIN IMMEDIATE holds the database's only write lock.
    const CLAIM_LOCK: &'static str = "";
    const ROW_LOCK: &'static str = "";
    const ONE_WRITER: bool = true;

    const ORDERED_INDEX_HINT: Option<(&'static str, &'static str)> = Some((" INDEXED BY ", ""));
    const WITHOUT_INDEX_IS: (&'static str, &'static str) = ("+", " = ");

    const FINISHES_AT_ONCE: bool = false;
    const COMMITS_AND_BEGINS: bool = false;
}

impl QueueBackend for Sqlite {
    const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

    type First = SqliteConnection;
    type Last = SqliteConnection;

    fn own_type(id: TypeId) -> Option<Holds> {
        of_sql_types! { id => TimestamptzSqlite = Holds::InstantsWithOffset, }
    }
}

impl FromSql<TimestampUtc, Sqlite> for crate::row::Instant {
    fn from_sql(value: <Sqlite as diesel::backend::Backend>::RawValue<'_>) -> deserialize::Result<Self> {
        <NaiveDateTime as FromSql<Timestamp, Sqlite>>::from_sql(value).map(|time| time.and_utc().into())
    }
}

impl FromSql<TimestampUtc, Sqlite> for DueTime {
    fn from_sql(mut value: <Sqlite as diesel::backend::Backend>::RawValue<'_>) -> deserialize::Result<Self> {
        let text = value.read_text().to_owned();
        let time = <crate::row::Instant as FromSql<TimestampUtc, Sqlite>>::from_sql(value)?;
        Ok(DueTime { is_exact: text_of(*time) == text, ..DueTime::exact(time) })
    }
}

impl ToSql<TimestampUtc, Sqlite> for DateTime<Utc> {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Sqlite>) -> serialize::Result {
        if !(0..=9999).contains(&self.year()) {
            return Err(
                format!("the time {self} is outside the years 0 to 9999 that SQLite's time functions know").into()
            );
        }
        out.set_value(text_of(*self));
        Ok(IsNull::No)
    }
}

/// Writes a time. Each message writes its due time and compares one, and this costs a third of a format of `chrono`, which is left
/// for the years and seconds that are longer than others.
fn text_of(time: DateTime<Utc>) -> String {
    let (year, milliseconds) = (time.year(), time.timestamp_subsec_millis());
    if !(0..=9999).contains(&year) || milliseconds > 999 {
        return time.format_with_items(TIME_FORMAT.iter()).to_string();
    }
    let (month, day) = (time.month(), time.day());
    let (hour, minute, second) = (time.hour(), time.minute(), time.second());
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{milliseconds:03}")
}

crate::backend::statement::captured_on!(Sqlite);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_its_format_says() {
        for time in [
            "2026-01-02T03:04:05.006Z",
            "0000-12-31T23:59:59.999999Z",
            "9999-01-01T00:00:00Z",
            "2016-12-31T23:59:60.5Z",
        ] {
            let time: DateTime<Utc> = time.parse().expect("a time");
            assert_eq!(text_of(time), time.format_with_items(TIME_FORMAT.iter()).to_string());
        }
    }
}
