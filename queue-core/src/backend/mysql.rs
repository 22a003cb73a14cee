//! The backend of MySQL and MariaDB.

mod live_table;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono::{DateTime, Datelike, NaiveDateTime, Utc};
use diesel::connection::TransactionManager;
use diesel::deserialize::{self, FromSql};
use diesel::mysql::{Mysql, MysqlValue};
use diesel::result::{DatabaseErrorKind, Error};
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::{BigInt, Datetime, Text};

use self::errors::{
    NO_SAVEPOINT, NOT_PREPARED, NOT_UNDERSTOOD, OTHER_SETTINGS, classify_message, denies_right, undoes_transaction,
};
use self::mysql_session::MysqlSession;
use self::settings::Variable;
use super::connection::QueueBackend;
use super::dialect::{ChangeSql, IndexSql, LaneSql, LaneWalk, LockSql, RoundTrips, TextSql, TimeSql};
use super::error_class::{ErrorClass, ErrorClasses, message_of};
use super::one_round_trip::{OneRoundTrip, Unfinished};
use super::own_transaction::in_own_transaction;
use super::session_setup::{SessionLimits, SessionSetup};
use super::statement::execute;
use super::transactions::Transactions;
use crate::error::refused;
use crate::row::{DueTime, Instant, TextForm, TimestampUtc, ValueKind};

use diesel::prelude::*;

// The types of the sessions: both name the same one if only one of the features is on.
#[cfg(not(feature = "mysql"))]
use self::mysql_async::AsyncMysqlSession as First;
#[cfg(feature = "async-mysql")]
use self::mysql_async::AsyncMysqlSession as Last;
#[cfg(feature = "mysql")]
use diesel::mysql::MysqlConnection as First;
#[cfg(not(feature = "async-mysql"))]
use diesel::mysql::MysqlConnection as Last;

mod archive;

mod errors;

mod exclusion;

#[cfg(feature = "mysql")]
mod libmysqlclient;

#[cfg(feature = "async-mysql")]
pub(super) mod mysql_async;

mod mysql_session;

mod schema;

mod settings;

mod trigger;

impl TimeSql for Mysql {
    // The time when the statement began. The settling statement begins when the attempt ends.
    const NOW: &'static str = "UTC_TIMESTAMP(6)";
    const NOW_PLUS_MICROSECONDS: (&'static str, &'static str) = ("(UTC_TIMESTAMP(6) + INTERVAL ", " MICROSECOND)");
    // A zero date is due at once: only its own row fails, while a null would stop the probe for every row.
    const MICROSECONDS_UNTIL: (&'static str, &'static str) =
        ("COALESCE(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), ", "), 0)");
    const MICROSECONDS_SINCE_1970: &'static [&'static str] = &["TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ", ")"];
}

impl TextSql for Mysql {
    const AS_TEXT: (&'static str, &'static str) = ("CAST(", " AS CHAR)");
    const KEY_TEXT: (&'static str, &'static str) = ("HEX(CAST(", " AS BINARY))");
    const TEXT_FORM: TextForm = TextForm::Hex;
    const FINDS_KEY_BY_TEXT: bool = true;
    const AS_INTEGER: (&'static str, &'static str) = ("CAST(", " AS SIGNED)");
    const EXACTLY: (&'static str, &'static str) = ("CAST(", " AS BINARY)");
    const IDENTITY: (&'static str, &'static str) = ("SHA2(CONVERT(", " USING utf8mb4), 256)");
    const CONCATENATION: (&'static str, &'static str, &'static str) = ("CONCAT(", ", ", ")");
}

impl LockSql for Mysql {
    const CLAIM_LOCK: &'static str = " FOR UPDATE SKIP LOCKED";
    const ROW_LOCK: &'static str = " FOR UPDATE";
    const LOCKS_WHAT_IT_PASSES: bool = true;
    const PREFETCHES_KEYS: bool = true;
    const SAVEPOINT_FREES_LOCKS: bool = false;
}

impl IndexSql for Mysql {
    const INDEX_HINT: Option<(&'static str, &'static str)> = Some((" FORCE INDEX (", ")"));
    const IGNORE_INDEX: Option<(&'static str, &'static str)> = Some((" IGNORE INDEX (", ")"));
    const PARTIAL_INDEXES: bool = false;
    const WITHOUT_INDEX_IS: (&'static str, &'static str) = ("COALESCE(", ") = ");
}

impl ChangeSql for Mysql {
    const UPDATE_HAS_LIMIT: bool = true;
    const DELETE_NAMES_ALIAS: bool = true;
    const ON_SAME_KEY: &'static str = " ON DUPLICATE KEY UPDATE ";
    const INSERTED: (&'static str, &'static str) = ("VALUES(", ")");
}

impl RoundTrips for Mysql {
    const STATEMENTS_TRAVEL_TOGETHER: bool = false;
    const FINISHES_IN_A_BLOCK: bool = true;
    const OTHER_SETTINGS: Option<(&'static str, &'static str)> = Some((settings::FINGERPRINT, OTHER_SETTINGS));
}

impl QueueBackend for Mysql {
    type First = First;
    type Last = Last;
}

impl<C: MysqlSession> SessionSetup<Mysql> for C {
    fn prepare_session(&mut self, limits: SessionLimits) -> QueryResult<()> {
        // With autocommit=1 a handler that ignores a deadlock would commit its later statements one by one. Without
        // strict mode the server stores a value that does not fit in a mutilated form.
        for statement in [
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned(),
            "SET SESSION TRANSACTION READ WRITE".to_owned(),
            "SET SESSION time_zone = '+00:00'".to_owned(),
            "SET SESSION sql_mode = CONCAT_WS(',', NULLIF(@@SESSION.sql_mode, ''), 'STRICT_ALL_TABLES')".to_owned(),
            // The classification reads the errors' messages, because Diesel passes on nothing else.
            "SET SESSION lc_messages = 'en_US'".to_owned(),
            set_lock_waits(whole_seconds(limits.lock_timeout), whole_seconds(limits.lock_timeout)),
            // A worker waits for work as long as there is none, and reads all rows that it asks for.
            format!("SET SESSION wait_timeout = {LONGEST_WAIT}, SESSION sql_select_limit = {}", u64::MAX),
            format!("SET SESSION autocommit = {}{}", u8::from(!limits.attempts), end_idle_transaction(limits.timeout)),
        ] {
            self.batch_execute(&statement)?;
        }
        let variables: Vec<Variable> = diesel::sql_query(
            "SHOW SESSION VARIABLES WHERE Variable_name IN ('autocommit', 'time_zone', 'sql_mode', 'tx_isolation', \
             'transaction_isolation', 'tx_read_only', 'transaction_read_only', 'innodb_lock_wait_timeout', \
             'lock_wait_timeout', 'wait_timeout', 'sql_select_limit')",
        )
        .load(self)?;
        if limits.attempts {
            // With autocommit=0 the query opened a transaction.
            self.batch_execute("ROLLBACK")?;
        }
        for Variable { name, value } in variables {
            let as_wanted = match name.as_str() {
                "autocommit" => value == if limits.attempts { "OFF" } else { "ON" },
                "time_zone" => value == "+00:00",
                "sql_mode" => value.contains("STRICT_ALL_TABLES"),
                "tx_read_only" | "transaction_read_only" => value == "OFF",
                "innodb_lock_wait_timeout" | "lock_wait_timeout" => {
                    value == whole_seconds(limits.lock_timeout).to_string()
                }
                "wait_timeout" => value == LONGEST_WAIT.to_string(),
                "sql_select_limit" => value == u64::MAX.to_string(),
                _ => value == "READ-COMMITTED",
            };
            if !as_wanted {
                return Err(refused(format!("the session's {name} is {value} after it was set")));
            }
        }
        Ok(())
    }

    fn session_id(&mut self) -> QueryResult<Option<i64>> {
        diesel::select(diesel::dsl::sql::<BigInt>("CONNECTION_ID()")).get_result(self).map(Some)
    }

    fn database_name(&mut self) -> QueryResult<String> {
        diesel::select(diesel::dsl::sql::<Text>("COALESCE(DATABASE(), '')")).get_result(self)
    }

    fn end_session(&mut self, session: i64) -> QueryResult<()> {
        self.batch_execute(&format!("KILL CONNECTION {session}"))
    }

    fn grantee(&mut self) -> QueryResult<Option<String>> {
        let account: String = diesel::select(diesel::dsl::sql::<Text>("CURRENT_USER()")).get_result(self)?;
        let (user, host) = account.rsplit_once('@').unwrap_or((&account, "%"));
        let quoted = |name: &str| format!("'{}'", name.replace('\'', "''"));
        Ok(Some(format!("{}@{}", quoted(user), quoted(host))))
    }

    fn skips_locked_rows(&mut self) -> QueryResult<bool> {
        let version: String = diesel::select(diesel::dsl::sql::<Text>("VERSION()")).get_result(self)?;
        Ok(skips_locked_rows(&version))
    }
}

impl<C: MysqlSession> Transactions<Mysql> for C {
    fn begin(&mut self) -> QueryResult<()> {
        // READ COMMITTED is the session's level, which was set and read back when the session was prepared.
        self.begin_with("START TRANSACTION READ WRITE")
    }

    fn begin_impatiently(&mut self, wait: Duration) -> QueryResult<()> {
        set_row_lock_wait(self, wait)?;
        self.begin()
    }

    fn commit_group(&mut self, wait: Option<Duration>) -> QueryResult<bool> {
        match wait {
            // The session keeps the short lock wait of the group.
            Some(_) => self.commit_and_begin().map(|()| true),
            None => C::TransactionManager::commit_transaction(self).map(|()| false),
        }
    }

    fn restore_patience(&mut self, wait: Duration) -> QueryResult<()> {
        set_row_lock_wait(self, wait)
    }

    fn control(&mut self, statement: &'static str) -> QueryResult<()> {
        // As text each would be three round trips, because the client first has to announce that there may be several.
        if PREPARES_CONTROLS.load(Ordering::Relaxed) {
            match execute(self, &statement) {
                // MySQL does not prepare savepoints, MariaDB does.
                Err(error) if message_of(&error) == Some(NOT_PREPARED) => {
                    PREPARES_CONTROLS.store(false, Ordering::Relaxed);
                }
                done => return done.map(drop),
            }
        }
        self.batch_execute(statement)
    }

    fn has_compounds(refused: Option<&Error>) -> bool {
        let Some(refused) = refused else { return HAS_COMPOUNDS.load(Ordering::Relaxed) };
        let is_unknown =
            message_of(refused).is_some_and(|text| text == NOT_PREPARED || text.starts_with(NOT_UNDERSTOOD));
        HAS_COMPOUNDS.fetch_and(!is_unknown, Ordering::Relaxed);
        !is_unknown
    }

    fn commit_and_begin(&mut self) -> QueryResult<()> {
        // Without autocommit the next statement begins a transaction.
        self.control("COMMIT")
    }

    fn with_lock_wait<T>(
        &mut self,
        wait: Duration,
        change: impl FnOnce(&mut Self, bool) -> QueryResult<T>,
    ) -> QueryResult<T> {
        // One for rows, and one for the table as a whole, whose default is a day or more.
        let before: (i64, i64) = diesel::select((
            diesel::dsl::sql::<BigInt>("@@SESSION.innodb_lock_wait_timeout"),
            diesel::dsl::sql::<BigInt>("@@SESSION.lock_wait_timeout"),
        ))
        .get_result(self)?;
        let wait = whole_seconds(wait);
        self.batch_execute(&set_lock_waits(wait, wait))?;
        let is_alone =
            matches!(C::TransactionManager::transaction_manager_status_mut(self).transaction_depth(), Ok(None));
        if is_alone {
            // For the next transaction only. REPEATABLE READ would wait for every row that it reads on the way, and
            // block inserts between them. If the server refuses this, the transaction has the session's level.
            let _ = self.batch_execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED");
        }
        let begin = |connection: &mut C| connection.begin_with("START TRANSACTION");
        let changed = in_own_transaction(self, begin, change);
        let put_back = self.batch_execute(&set_lock_waits(before.0, before.1));
        match is_alone {
            // The change is committed, whatever happens to the session.
            true => changed,
            // The error may say that a cluster has undone the caller's transaction, and the server says so only once.
            false => changed.and_then(|changed| put_back.map(|()| changed)),
        }
    }
}

impl<C: MysqlSession> OneRoundTrip<Mysql> for C {
    fn unfinished(error: Error, not_one_row: &str) -> Unfinished {
        if Self::classify(&error) == ErrorClass::ConnectionLost {
            return Unfinished::NotCommitted(error);
        }
        match message_of(&error) {
            Some(text) if text == not_one_row => Unfinished::RowChanged(error),
            Some(NO_SAVEPOINT) => Unfinished::Savepoint(error),
            Some(OTHER_SETTINGS) => Unfinished::OtherSettings(error),
            // No constraint waits for the COMMIT, and a conflict that a cluster finds there is a conflict wherever it
            // is found.
            _ => Unfinished::NotWritten(error),
        }
    }

    fn prepare_finish(
        &mut self,
        _name: &str,
        _statement: &str,
        _settings: Option<&settings::MysqlSettings>,
    ) -> QueryResult<()> {
        // MySQL has no such blocks outside of procedures. Messages end by several statements there.
        execute(self, &"BEGIN NOT ATOMIC IF 1 = 0 THEN COMMIT; END IF; END").map(drop)
    }
}

impl<C: MysqlSession> ErrorClasses<Mysql> for C {
    fn rolls_back(error: &Error) -> bool {
        match error {
            Error::DatabaseError(DatabaseErrorKind::SerializationFailure, _) => true,
            Error::DatabaseError(DatabaseErrorKind::Unknown, information) => undoes_transaction(information.message()),
            _ => false,
        }
    }

    fn refuses_writes(error: &Error) -> bool {
        message_of(error).is_some_and(|message| {
            message.ends_with("read-only option so it cannot execute this statement")
                || message == "Cannot execute statement in a READ ONLY transaction"
        })
    }

    fn denies_right(error: &Error) -> bool {
        message_of(error).is_some_and(denies_right)
    }

    fn classify(error: &Error) -> ErrorClass {
        match error {
            Error::DatabaseError(DatabaseErrorKind::ClosedConnection, _) | Error::BrokenTransactionManager => {
                ErrorClass::ConnectionLost
            }
            Error::DatabaseError(DatabaseErrorKind::SerializationFailure, _) => ErrorClass::Conflict,
            Error::DatabaseError(DatabaseErrorKind::Unknown, information) => classify_message(information.message()),
            Error::RollbackErrorOnCommit { commit_error, .. } => Self::classify(commit_error),
            _ => ErrorClass::Other,
        }
    }
}

impl LaneSql for Mysql {
    const TEXT_HAS_IDENTITY: bool = true;
    const PLACES_END_WITH_TRANSACTION: bool = false;
    const LANE_WALK: LaneWalk = LaneWalk::Grouped;

    fn value_text(kind: ValueKind) -> &'static [&'static str] {
        match kind {
            ValueKind::Text => &["CONCAT(HEX(WEIGHT_STRING(", ")), ':', ", ")"],
            ValueKind::Binary => &["HEX(", ")"],
            ValueKind::Integer | ValueKind::Uuid => &["CAST(", " AS CHAR)"],
        }
    }
}

/// Whether the server prepares statements that control a transaction.
static PREPARES_CONTROLS: AtomicBool = AtomicBool::new(true);

/// Whether the server runs compound statements: MariaDB does.
static HAS_COMPOUNDS: AtomicBool = AtomicBool::new(true);

/// MariaDB has SKIP LOCKED from 10.6, MySQL from 8.0.1. A server whose version cannot be read is assumed to have it.
fn skips_locked_rows(version: &str) -> bool {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap_or(0));
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else { return true };
    let patch = numbers.next().unwrap_or(0);
    if version.to_ascii_lowercase().contains("mariadb") {
        (major, minor) >= (10, 6)
    } else {
        (major, minor, patch) >= (8, 0, 1)
    }
}

/// Sets only the wait for rows: groups wait for each other's rows, not for tables.
fn set_row_lock_wait(connection: &mut impl MysqlSession, wait: Duration) -> QueryResult<()> {
    let wait = whole_seconds(wait);
    connection.batch_execute(&format!("SET SESSION innodb_lock_wait_timeout = {wait}, @queueable_lock_wait = {wait}"))
}

fn set_lock_waits(rows: impl std::fmt::Display, tables: impl std::fmt::Display) -> String {
    format!("SET SESSION innodb_lock_wait_timeout = {rows}, SESSION lock_wait_timeout = {tables}")
}

/// Makes the server end a transaction whose worker is frozen or disconnected, a second after the scout would have ended
/// it. By default the server keeps the locks for eight hours. MySQL has no such setting, and reads this as a comment.
fn end_idle_transaction(timeout: Duration) -> String {
    format!(" /*M!100301 , SESSION idle_transaction_timeout = {} */", whole_seconds(timeout) + 1)
}

/// The most seconds that a setting takes: a year.
const LONGEST_WAIT: u64 = 31_536_000;

/// MySQL counts lock waits in whole seconds, at least one.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_millis().div_ceil(1000).clamp(1, LONGEST_WAIT.into()) as u64
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
        // The server would store the zero date instead, which reads as no time at all.
        if !(1000..=9999).contains(&self.year()) {
            return Err(format!("the time {self} is outside the years 1000 to 9999 that DATETIME has").into());
        }
        <NaiveDateTime as ToSql<Datetime, Mysql>>::to_sql(&self.naive_utc(), &mut out.reborrow())
    }
}

super::captured::captured_on!(Mysql);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_with_skip_locked_are_known() {
        assert!(skips_locked_rows("10.11.6-MariaDB-0+deb12u1"));
        assert!(skips_locked_rows("11.4.2-MariaDB"));
        assert!(!skips_locked_rows("10.5.23-MariaDB"));
        assert!(skips_locked_rows("8.0.36"));
        assert!(!skips_locked_rows("8.0.0-dmr"));
        assert!(!skips_locked_rows("5.7.44-log"));
    }
}
