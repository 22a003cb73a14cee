//! The backend of SQLite.

use std::path::Path;
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use chrono::format::{Item, StrftimeItems};
use chrono::{DateTime, Datelike, NaiveDateTime, Utc};
use diesel::connection::{AnsiTransactionManager, SimpleConnection};
use diesel::deserialize::{self, FromSql};
use diesel::result::{DatabaseErrorKind, Error};
use diesel::serialize::{self, IsNull, Output, ToSql};
use diesel::sql_types::{BigInt, Text, Timestamp};
use diesel::sqlite::{Sqlite, SqliteConnection};

use super::connection::{QueueBackend, QueueConnection};
use super::dialect::{ChangeSql, IndexSql, LaneSql, LockSql, RoundTrips, TextSql, TimeSql};
use super::error_class::{ErrorClass, ErrorClasses, message_of};
use super::exclusion::Exclusion;
use super::one_round_trip::OneRoundTrip;
use super::own_transaction::in_own_transaction;
use super::session_setup::{SessionLimits, SessionSetup};
use super::target::Target;
use super::transactions::Transactions;
use crate::error::refused;
use crate::row::{DueTime, TextForm, TimestampUtc, ValueKind};

use diesel::prelude::*;

mod archive;

mod schema;

mod settings;

mod trigger;

/// The format in which times are written, parsed once. It has a fixed width, because SQLite compares times as text.
static TIME_FORMAT: LazyLock<Vec<Item<'static>>> =
    LazyLock::new(|| StrftimeItems::new("%Y-%m-%d %H:%M:%S%.3f").collect());

impl TimeSql for Sqlite {
    const NOW: &'static str = "strftime('%Y-%m-%d %H:%M:%f', 'now')";
    const NOW_PLUS_MICROSECONDS: (&'static str, &'static str) =
        ("strftime('%Y-%m-%d %H:%M:%f', 'now', (", " / 1000000.0) || ' seconds')");
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
}

impl TextSql for Sqlite {
    const AS_TEXT: (&'static str, &'static str) = ("CAST(", " AS TEXT)");
    // A column holds values of any type, and each type is quoted in its own way.
    const KEY_TEXT: (&'static str, &'static str) = ("hex(quote(", "))");
    const TEXT_FORM: TextForm = TextForm::HexOfLiteral;
    const AS_INTEGER: (&'static str, &'static str) = ("CAST(", " AS INTEGER)");
}

impl LockSql for Sqlite {
    // BEGIN IMMEDIATE holds the database's only write lock.
    const CLAIM_LOCK: &'static str = "";
    const ROW_LOCK: &'static str = "";
    const ONE_WRITER: bool = true;
}

impl IndexSql for Sqlite {
    const ORDERED_INDEX_HINT: Option<(&'static str, &'static str)> = Some((" INDEXED BY ", ""));
    const WITHOUT_INDEX_IS: (&'static str, &'static str) = ("+", " = ");
}

impl ChangeSql for Sqlite {}

impl RoundTrips for Sqlite {
    const FINISHES_AT_ONCE: bool = false;
    const COMMITS_AND_BEGINS: bool = false;
}

impl QueueBackend for Sqlite {
    const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

    type First = SqliteConnection;
    type Last = SqliteConnection;
}

impl SessionSetup for SqliteConnection {
    fn prepare_session(&mut self, limits: SessionLimits) -> QueryResult<()> {
        // The busy timeout first: switching to WAL takes a lock.
        self.batch_execute(&format!("PRAGMA busy_timeout = {}", limits.lock_timeout.as_millis()))?;
        let busy_timeout: i64 = pragma(self, "(SELECT timeout FROM pragma_busy_timeout)")?;
        if u128::try_from(busy_timeout) != Ok(limits.lock_timeout.as_millis()) {
            return Err(refused(format!("the session's busy_timeout is {busy_timeout} after it was set")));
        }
        let journal = journal_in_wal(self, limits.lock_timeout)?;
        if journal != "wal" {
            return Err(refused(format!(
                "the database's journal_mode is {journal}, expected wal; a queue needs a file that several connections share"
            )));
        }
        Ok(())
    }

    fn session_id(&mut self) -> QueryResult<Option<i64>> {
        Ok(None)
    }

    fn database_name(&mut self) -> QueryResult<String> {
        let file = "(SELECT file FROM pragma_database_list WHERE name = 'main')";
        diesel::select(diesel::dsl::sql::<Text>(file)).get_result(self)
    }

    fn file_identity(&mut self) -> QueryResult<Option<(u64, u64)>> {
        // While a file is being replaced, there may be none for a moment.
        self.database_name().map(|file| identity(Path::new(&file)))
    }

    fn end_session(&mut self, _session: i64) -> QueryResult<()> {
        Ok(())
    }

    fn skips_locked_rows(&mut self) -> QueryResult<bool> {
        Ok(false)
    }
}

impl Transactions for SqliteConnection {
    fn begin(&mut self) -> QueryResult<()> {
        // A deferred transaction that becomes a writer fails at once if another connection wrote meanwhile, whatever
        // the busy timeout.
        AnsiTransactionManager::begin_transaction_sql(self, "BEGIN IMMEDIATE")
    }

    fn begin_impatiently(&mut self, _wait: Duration) -> QueryResult<()> {
        // The only wait is the one for BEGIN, so there are no deadlocks.
        self.begin()
    }

    fn commit_and_begin(&mut self) -> QueryResult<()> {
        // The next transaction would take the only write lock, whether there is work for it or not.
        Err(refused("SQLite commits and begins one by one".to_owned()))
    }

    fn with_lock_wait<T>(
        &mut self,
        wait: Duration,
        change: impl FnOnce(&mut Self, bool) -> QueryResult<T>,
    ) -> QueryResult<T> {
        let before: i64 = pragma(self, "(SELECT timeout FROM pragma_busy_timeout)")?;
        self.batch_execute(&format!("PRAGMA busy_timeout = {}", wait.as_millis().clamp(1, i32::MAX as u128)))?;
        let begin =
            |connection: &mut Self| AnsiTransactionManager::begin_transaction_sql(connection, "BEGIN IMMEDIATE");
        let changed = in_own_transaction(self, begin, change);
        self.batch_execute(&format!("PRAGMA busy_timeout = {before}"))?;
        changed
    }
}

impl OneRoundTrip for SqliteConnection {}

impl ErrorClasses for SqliteConnection {
    fn refuses_writes(error: &Error) -> bool {
        message_of(error) == Some("attempt to write a readonly database")
    }

    fn classify(error: &Error) -> ErrorClass {
        match error {
            Error::DatabaseError(DatabaseErrorKind::ClosedConnection, _) | Error::BrokenTransactionManager => {
                ErrorClass::ConnectionLost
            }
            Error::DatabaseError(DatabaseErrorKind::Unknown, information) => classify_message(information.message()),
            Error::RollbackErrorOnCommit { commit_error, .. } => Self::classify(commit_error),
            _ => ErrorClass::Other,
        }
    }
}

impl LaneSql for Sqlite {
    const IS_IN_LANE: (&'static str, &'static str) = ("likelihood(", ", 0.0001)");

    fn value_text(kind: ValueKind) -> &'static [&'static str] {
        match kind {
            ValueKind::Binary => &["HEX(", ")"],
            ValueKind::Integer | ValueKind::Text | ValueKind::Uuid => &["CAST(", " AS TEXT)"],
        }
    }
}

impl Exclusion for SqliteConnection {
    fn try_exclude(&mut self, _target: &Target) -> QueryResult<bool> {
        // BEGIN IMMEDIATE holds the database's only write lock.
        Ok(true)
    }

    fn take_place(&mut self, _target: &Target, _lane: &str, _places: u32) -> QueryResult<Option<u32>> {
        // BEGIN IMMEDIATE holds the database's only write lock.
        Ok(Some(0))
    }
}

impl QueueConnection for SqliteConnection {}

/// Diesel passes on only the message, not the code.
fn classify_message(message: &str) -> ErrorClass {
    match message {
        "database is locked" | "database table is locked" | "database schema has changed" => ErrorClass::Conflict,
        "database or disk is full" => ErrorClass::NoRoom,
        // This comes from connections of one process that share a cache, and includes the table's name.
        message if message.starts_with("database table is locked: ") => ErrorClass::Conflict,
        message if message.starts_with("database schema is locked: ") => ErrorClass::Conflict,
        _ => ErrorClass::Other,
    }
}

#[cfg(unix)]
fn identity(file: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;

    std::fs::metadata(file).ok().map(|found| (found.dev(), found.ino()))
}

/// Without Unix an open file cannot be replaced.
#[cfg(not(unix))]
fn identity(_file: &Path) -> Option<(u64, u64)> {
    None
}

/// Switches the database to WAL, which stays with the file, and returns the journal mode that it has now.
///
/// The switch needs exclusive access to the file for a moment, and does not always respect the busy timeout.
fn journal_in_wal(connection: &mut SqliteConnection, patience: Duration) -> QueryResult<String> {
    let started = Instant::now();
    loop {
        let journal = diesel::select(diesel::dsl::sql::<Text>("(SELECT journal_mode FROM pragma_journal_mode)"))
            .get_result::<String>(connection)?;
        if journal == "wal" || journal == "memory" {
            return Ok(journal);
        }
        match connection.batch_execute("PRAGMA journal_mode = WAL") {
            Err(error) if SqliteConnection::classify(&error) != ErrorClass::Conflict => return Err(error),
            Err(error) if started.elapsed() > patience => return Err(error),
            _ if started.elapsed() > patience => return Ok(journal),
            _ => thread::sleep(Duration::from_millis(fastrand::u64(1..20))),
        }
    }
}

fn pragma(connection: &mut SqliteConnection, sql: &str) -> QueryResult<i64> {
    diesel::select(diesel::dsl::sql::<BigInt>(sql)).get_result(connection)
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
        Ok(DueTime { is_exact: time.format_with_items(TIME_FORMAT.iter()).to_string() == text, ..DueTime::exact(time) })
    }
}

impl ToSql<TimestampUtc, Sqlite> for DateTime<Utc> {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Sqlite>) -> serialize::Result {
        if !(0..=9999).contains(&self.year()) {
            return Err(
                format!("the time {self} is outside the years 0 to 9999 that SQLite's time functions know").into()
            );
        }
        out.set_value(self.format_with_items(TIME_FORMAT.iter()).to_string());
        Ok(IsNull::No)
    }
}

super::captured::captured_on!(Sqlite);
