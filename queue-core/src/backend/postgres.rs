//! The backend of PostgreSQL.

mod live_table;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono::{DateTime, Datelike, Utc};
use diesel::deserialize::{self, FromSql};
use diesel::pg::{Pg, PgValue};
use diesel::result::{DatabaseErrorKind, Error};
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::{Text, Timestamptz};

use self::errors::{classify_message, is_lost_by_client, is_message};
use self::exclusion::PLACES;
use self::pg_session::PgSession;
use super::connection::QueueBackend;
use super::dialect::{ChangeSql, IndexSql, LaneSql, LockSql, RoundTrips, TextSql, TimeSql};
use super::error_class::{ErrorClass, ErrorClasses};
use super::own_transaction::in_own_transaction;
use super::session_setup::{SessionLimits, SessionSetup};
use super::transactions::{COMMIT_REFUSED, Transactions};
use crate::error::refused;
use crate::row::{DueTime, Instant, TextForm, TimestampUtc, ValueKind};

use diesel::prelude::*;

// The types of the sessions: both name the same one if only one of the features is on.
#[cfg(not(feature = "postgres"))]
use self::tokio_postgres::AsyncPgSession as First;
#[cfg(feature = "async-postgres")]
use self::tokio_postgres::AsyncPgSession as Last;
#[cfg(feature = "postgres")]
use diesel::pg::PgConnection as First;
#[cfg(not(feature = "async-postgres"))]
use diesel::pg::PgConnection as Last;

mod archive;

mod errors;

mod exclusion;

mod finish;

#[cfg(feature = "postgres")]
mod libpq;

mod notify;

mod pg_session;

mod rights;

mod schema;

mod settings;

#[cfg(feature = "async-postgres")]
pub(super) mod tokio_postgres;

mod trigger;

impl TimeSql for Pg {
    // `now()` is the transaction's start: a backoff counted from it may be over before the attempt has ended.
    const NOW: &'static str = "pg_catalog.clock_timestamp()";
    const STATEMENT_TIME: &'static str = "pg_catalog.statement_timestamp()";
    const NOW_PLUS_MICROSECONDS: (&'static str, &'static str) =
        ("(pg_catalog.clock_timestamp() + (", " OPERATOR(pg_catalog.*) interval '1 microsecond'))");
    const STATEMENT_TIME_PLUS_MICROSECONDS: (&'static str, &'static str) =
        ("(pg_catalog.statement_timestamp() + (", " OPERATOR(pg_catalog.*) interval '1 microsecond'))");
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
}

impl TextSql for Pg {
    const AS_TEXT: (&'static str, &'static str) = ("CAST(", " AS text)");
    const KEY_TEXT: (&'static str, &'static str) = ("CAST(", " AS pg_catalog.text)");
    const KEY_PART_TEXT: (&'static str, &'static str) =
        ("pg_catalog.replace(pg_catalog.replace(CAST(", " AS pg_catalog.text), '%', '%25'), ',', '%2C')");
    const TEXT_FORM: TextForm = TextForm::Text;
    const AS_INTEGER: (&'static str, &'static str) = ("CAST(", " AS bigint)");
}

impl LaneSql for Pg {
    const LANE_IS_RANGE: bool = true;
    const PLACE_IN_CLAIM: Option<[&'static str; 5]> = Some(PLACES);

    fn value_text(kind: ValueKind) -> &'static [&'static str] {
        match kind {
            ValueKind::Binary => &["pg_catalog.encode(", ", 'hex')"],
            ValueKind::Integer | ValueKind::Text | ValueKind::Uuid => &["CAST(", " AS text)"],
        }
    }

    fn bound_value(kind: ValueKind) -> (&'static str, &'static str) {
        match kind {
            ValueKind::Uuid => ("CAST(", " AS uuid)"),
            ValueKind::Integer | ValueKind::Text | ValueKind::Binary => ("", ""),
        }
    }
}

impl LockSql for Pg {
    // FOR UPDATE would block the insert of a child row, and would pass over a row that has one in flight.
    const CLAIM_LOCK: &'static str = " FOR NO KEY UPDATE SKIP LOCKED";
    const ROW_LOCK: &'static str = " FOR NO KEY UPDATE";
    const LEASES_AT_ONCE: bool = true;
    const ROW_VERSION: Option<[&'static str; 2]> = Some(["ctid", "xmin"]);
}

impl IndexSql for Pg {
    const DESCENDING: &'static str = " DESC NULLS LAST";
    const NULLS_FIRST: &'static str = " NULLS FIRST";
    const WITHOUT_INDEX_IS: (&'static str, &'static str) = ("", " IS NOT DISTINCT FROM ");
}

impl ChangeSql for Pg {
    const INSERT_OWN_KEYS: &'static str = " OVERRIDING SYSTEM VALUE";
}

impl RoundTrips for Pg {
    const MOST_SAVEPOINTS: u32 = 60;
    const REFUSES_COMMITS: bool = true;
    const NOTIFIES: bool = true;
}

impl QueueBackend for Pg {
    type First = First;
    type Last = Last;
}

impl<C: PgSession> SessionSetup<Pg> for C {
    fn prepare_session(&mut self, limits: SessionLimits) -> QueryResult<()> {
        let settings = [
            ("lock_timeout", timeout(limits.lock_timeout)),
            ("idle_in_transaction_session_timeout", timeout(limits.timeout)),
            ("statement_timeout", timeout(limits.statement_timeout)),
            ("TimeZone", "UTC".to_owned()),
            // For a statement that is a transaction by itself, as the claim under a lease is. A BEGIN states the same.
            ("default_transaction_isolation", "read committed".to_owned()),
            ("default_transaction_read_only", "off".to_owned()),
        ];
        // The classification reads the errors' English words. Only a superuser may set this; the check at start finds
        // other languages.
        let _ = self.batch_execute("SET lc_messages = 'C'");
        // A name from the URL, the environment or the role is the operator's.
        self.batch_execute(
            "SELECT pg_catalog.set_config('application_name', 'queueable', false) \
             WHERE pg_catalog.current_setting('application_name') = ''",
        )?;
        // PostgreSQL has this setting from 14 on. A worker waits for work as long as there is none.
        diesel::sql_query(
            "SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings \
             WHERE name = 'idle_session_timeout'",
        )
        .execute(self)?;
        for (name, wanted) in &settings {
            let found: String = diesel::select(set_config(*name, wanted.as_str(), false)).get_result(self)?;
            // Times are written in milliseconds and read back in the largest unit that fits, so they are compared in
            // milliseconds.
            let found_plainly = milliseconds(&found).map_or(found.clone(), |ms| ms.to_string());
            if found_plainly != *wanted {
                return Err(refused(format!("the session's {name} is {found}, expected {wanted}")));
            }
        }
        Ok(())
    }

    fn session_id(&mut self) -> QueryResult<Option<i64>> {
        diesel::select(pg_backend_pid()).get_result::<i32>(self).map(|id| Some(id.into()))
    }

    fn database_name(&mut self) -> QueryResult<String> {
        // With the schema, because each tenant may have a table of the same name.
        diesel::select(diesel::dsl::sql::<Text>(
            "pg_catalog.concat_ws('.', pg_catalog.current_database(), pg_catalog.current_schema())",
        ))
        .get_result(self)
    }

    fn end_session(&mut self, session: i64) -> QueryResult<()> {
        let pid = i32::try_from(session).map_err(|_| refused(format!("{session} is not a process id")))?;
        diesel::select(pg_terminate_backend(pid)).get_result::<bool>(self).map(drop)
    }

    fn grantee(&mut self) -> QueryResult<Option<String>> {
        rights::current_role(self).map(Some)
    }

    fn skips_locked_rows(&mut self) -> QueryResult<bool> {
        Ok(true)
    }

    fn listen(&mut self, channel: &str) -> QueryResult<()> {
        self.batch_execute(&format!("LISTEN {}", notify::quoted(channel)))
    }

    fn notified(&mut self) -> QueryResult<Vec<String>> {
        self.notified_channels()
    }
}

impl<C: PgSession> Transactions<Pg> for C {
    fn begin(&mut self) -> QueryResult<()> {
        self.begin_with(BEGIN)
    }

    fn begin_impatiently(&mut self, wait: Duration) -> QueryResult<()> {
        match self.begin_with(&begin_group(wait)) {
            Err(error) if is_message(&error, MAY_NOT_END) && ENDS_ITS_SESSION.swap(false, Ordering::Relaxed) => {
                self.batch_execute("ROLLBACK")?;
                self.begin_with(&begin_group(wait))
            }
            begun => begun,
        }
    }

    fn commit_group(&mut self, wait: Option<Duration>) -> QueryResult<bool> {
        let next = wait.map_or(String::new(), |wait| format!("; {}", begin_group(wait)));
        self.batch_execute(&format!("CLOSE queueable_group; COMMIT{next}"))?;
        if wait.is_none() {
            self.has_committed();
        }
        Ok(wait.is_some())
    }

    fn check_savepoint(&mut self) -> QueryResult<()> {
        match C::SEES_END_OF_TRANSACTION {
            true => Ok(()),
            false => self.batch_execute("RELEASE SAVEPOINT queueable_handler; SAVEPOINT queueable_handler"),
        }
    }

    fn commit_and_begin(&mut self) -> QueryResult<()> {
        // The next transaction has the isolation level of this one.
        self.batch_execute("COMMIT AND CHAIN")
    }

    fn with_lock_wait<T>(
        &mut self,
        wait: Duration,
        change: impl FnOnce(&mut Self, bool) -> QueryResult<T>,
    ) -> QueryResult<T> {
        // The level is stated because the database's default may be REPEATABLE READ. There a row that an attempt has
        // settled meanwhile is an error.
        let begin = |connection: &mut C| connection.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED");
        in_own_transaction(self, begin, |connection, alone| {
            // Inside the application's own transaction the setting would outlive this call, so the old value is
            // restored.
            let before: String = diesel::select(current_setting("lock_timeout")).get_result(connection)?;
            let wait = timeout(wait);
            diesel::select(set_config("lock_timeout", wait.as_str(), true)).execute(connection)?;
            let changed = change(connection, alone)?;
            diesel::select(set_config("lock_timeout", before.as_str(), true)).execute(connection)?;
            Ok(changed)
        })
    }
}

impl<C: PgSession> ErrorClasses<Pg> for C {
    fn refuses_writes(error: &Error) -> bool {
        match error {
            Error::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, _) => true,
            Error::DatabaseError(_, information) => information.message().ends_with(" during recovery"),
            _ => false,
        }
    }

    fn classify(error: &Error) -> ErrorClass {
        match error {
            Error::DatabaseError(DatabaseErrorKind::ClosedConnection, _) | Error::BrokenTransactionManager => {
                ErrorClass::ConnectionLost
            }
            // The primary has become a standby. A new session finds the new primary, if the URL names both.
            Error::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, _) => ErrorClass::ConnectionLost,
            Error::DatabaseError(DatabaseErrorKind::SerializationFailure, _) => ErrorClass::Conflict,
            // A message of the client's own, into which no server quotes anything.
            Error::DatabaseError(DatabaseErrorKind::UnableToSendCommand, information)
                if is_lost_by_client(information.message()) =>
            {
                ErrorClass::ConnectionLost
            }
            // Diesel passes on the message and not the SQLSTATE (40P01, 53100, 55P03, 57P01..57P03, 0A000).
            Error::DatabaseError(DatabaseErrorKind::Unknown | DatabaseErrorKind::UnableToSendCommand, information) => {
                classify_message(information.message(), information.details(), information.hint())
            }
            Error::RollbackErrorOnCommit { commit_error, .. } => Self::classify(commit_error),
            _ => ErrorClass::Other,
        }
    }

    fn leaves_commit_in_doubt(error: &Error) -> bool {
        // An operator may have cancelled the beginning of the next transaction, which is in one text with the COMMIT. A
        // timeout is always the commit's own.
        Self::classify(error) == ErrorClass::ConnectionLost
            || is_message(error, "canceling statement due to user request")
    }

    fn lacks_group_cursor(error: &Error) -> bool {
        is_message(error, "cursor \"queueable_group\" does not exist")
    }
}

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";

/// Writes the text that begins a group.
///
/// At a COMMIT the server reads a cursor WITH HOLD to its end before anything of the transaction is durable, and this
/// cursor cannot be read. So only a worker that closes the cursor first can commit the group. Reading the cursor also
/// ends the session, after the refusal has been sent. Otherwise a handler that ignores the refusal would commit its
/// later statements one by one, while another worker may process the rows.
///
/// The cursor costs no row, and no snapshot beyond that of the claim. It needs only a right that everybody has by
/// default: to end one's own sessions. Where that was revoked, the server refuses the COMMIT all the same.
fn begin_group(wait: Duration) -> String {
    let end = match ENDS_ITS_SESSION.load(Ordering::Relaxed) {
        true => "pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid())",
        false => "pg_catalog.clock_timestamp()",
    };
    // LOCAL: the setting ends with the transaction, however that ends.
    format!(
        "{BEGIN}; SET LOCAL lock_timeout = {}; DECLARE queueable_group NO SCROLL CURSOR WITH HOLD FOR \
         SELECT CAST('{COMMIT_REFUSED}: ' OPERATOR(pg_catalog.||) CAST({end} AS text) AS integer)",
        timeout(wait)
    )
}

/// Whether this process's role may end its own sessions, as far as is known.
static ENDS_ITS_SESSION: AtomicBool = AtomicBool::new(true);

/// The server's message if the role may not.
const MAY_NOT_END: &str = "permission denied for function pg_terminate_backend";

/// Writes a time as PostgreSQL takes it: 0 would mean for ever, and the server refuses values above the limit.
fn timeout(time: Duration) -> String {
    time.as_millis().clamp(1, i32::MAX as u128).to_string()
}

#[diesel::declare_sql_function]
extern "SQL" {
    #[sql_name = "pg_catalog.set_config"]
    fn set_config(name: Text, value: Text, is_local: diesel::sql_types::Bool) -> Text;
    #[sql_name = "pg_catalog.current_setting"]
    fn current_setting(name: Text) -> Text;
    #[sql_name = "pg_catalog.pg_backend_pid"]
    fn pg_backend_pid() -> diesel::sql_types::Integer;
    #[sql_name = "pg_catalog.pg_terminate_backend"]
    fn pg_terminate_backend(pid: diesel::sql_types::Integer) -> diesel::sql_types::Bool;
}

/// Reads a time setting as PostgreSQL prints it (`5s`, `1min`, `250ms`).
fn milliseconds(setting: &str) -> Option<u64> {
    let digits = setting.find(|c: char| !c.is_ascii_digit()).unwrap_or(setting.len());
    let (number, unit) = setting.split_at(digits);
    let factor = match unit {
        "" | "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
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

super::captured::captured_on!(Pg);
