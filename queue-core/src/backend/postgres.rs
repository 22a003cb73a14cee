//! PostgreSQL's answers.

mod archive;
mod schema;
mod trigger;

use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::connection::{AnsiTransactionManager, SimpleConnection};
use diesel::deserialize::{self, FromSql, QueryableByName};
use diesel::pg::{Pg, PgConnection, PgValue};
use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error};
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::{Bool, Integer, Text, Timestamptz};

use super::own_transaction::in_own_transaction;
use super::{ErrorClass, QueueBackend, QueueConnection, SessionLimits, Target, fingerprint, refused};
use crate::instant::{Instant, TimestampUtc};

impl QueueBackend for Pg {
    type Connection = PgConnection;

    // `now()` is the transaction's start: a backoff counted from it may be over before the attempt has ended.
    const NOW: &'static str = "clock_timestamp()";
    const STATEMENT_TIME: &'static str = "statement_timestamp()";
    const NOW_PLUS_MICROSECONDS: (&'static str, &'static str) =
        ("(clock_timestamp() + ", " * interval '1 microsecond')");
    const STATEMENT_TIME_PLUS_MICROSECONDS: (&'static str, &'static str) =
        ("(statement_timestamp() + ", " * interval '1 microsecond')");
    // GREATEST, because nothing can be subtracted from `-infinity`.
    const MICROSECONDS_UNTIL: (&'static str, &'static str) =
        ("CAST(EXTRACT(EPOCH FROM GREATEST(", ", statement_timestamp()) - statement_timestamp()) * 1000000 AS bigint)");
    const MICROSECONDS_SINCE_1970: (&'static str, &'static str) =
        ("CAST(NULLIF(NULLIF(EXTRACT(EPOCH FROM ", "), 'infinity'), '-infinity') * 1000000 AS bigint)");
    const AS_TEXT: (&'static str, &'static str) = ("CAST(", " AS text)");
    const AS_INTEGER: (&'static str, &'static str) = ("CAST(", " AS bigint)");
    // FOR UPDATE would block the insert of a child row, and would pass over a row that has one in flight.
    const CLAIM_LOCK: &'static str = " FOR NO KEY UPDATE SKIP LOCKED";
    const ROW_LOCK: &'static str = " FOR NO KEY UPDATE";
    const INDEX_HINT: Option<(&'static str, &'static str)> = None;
    const LOCKS_WHAT_IT_PASSES: bool = false;
    const IGNORE_INDEX: Option<(&'static str, &'static str)> = None;
    const ORDERED_INDEX_HINT: Option<(&'static str, &'static str)> = None;
    const NULLS_FIRST: &'static str = " NULLS FIRST";
    const PARTIAL_INDEXES: bool = true;
    const EXACTLY: (&'static str, &'static str) = ("", "");
    const IDENTITY: (&'static str, &'static str) = ("", "");
    const CONCATENATION: (&'static str, &'static str, &'static str) = ("(", " || ", ")");
    const UPDATE_HAS_LIMIT: bool = false;
    const INSERT_OWN_KEYS: &'static str = " OVERRIDING SYSTEM VALUE";
    const DELETE_NAMES_ALIAS: bool = false;
    const SAVEPOINT_FREES_LOCKS: bool = true;
    const ONE_WRITER: bool = false;
    const MOST_SAVEPOINTS: u32 = 60;
    const STATEMENTS_TRAVEL_TOGETHER: bool = true;
    const DEFAULT_BUDGET: Duration = Duration::from_secs(30);
}

impl QueueConnection for PgConnection {
    fn prepare_session(&mut self, limits: SessionLimits) -> QueryResult<()> {
        let settings = [
            ("lock_timeout", timeout(limits.lock_wait)),
            ("idle_in_transaction_session_timeout", timeout(limits.budget)),
            ("statement_timeout", timeout(limits.budget)),
            ("TimeZone", "UTC".to_owned()),
        ];
        // Errors are told apart by their English words. Only a superuser may ask for them; the check at start finds out.
        let _ = self.batch_execute("SET lc_messages = 'C'");
        for (name, wanted) in &settings {
            let found: String = diesel::select(set_config(*name, wanted.as_str(), false)).get_result(self)?;
            // Times are written in milliseconds and read back in the unit that fits: compare in milliseconds.
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
        // With the schema, because the same table may be there once for each tenant.
        diesel::select(diesel::dsl::sql::<Text>("concat_ws('.', current_database(), current_schema())"))
            .get_result(self)
    }

    fn end_session(&mut self, session: i64) -> QueryResult<()> {
        let pid = i32::try_from(session).map_err(|_| refused(format!("{session} is no process id")))?;
        diesel::select(pg_terminate_backend(pid)).get_result::<bool>(self).map(drop)
    }

    fn begin(&mut self) -> QueryResult<()> {
        AnsiTransactionManager::begin_transaction_sql(self, BEGIN)
    }

    fn begin_impatiently(&mut self, wait: Duration) -> QueryResult<()> {
        // LOCAL: the setting ends with the transaction, however that ends.
        let wait = timeout(wait);
        AnsiTransactionManager::begin_transaction_sql(self, &format!("{BEGIN}; SET LOCAL lock_timeout = {wait}"))
    }

    fn restore_patience(&mut self, _wait: Duration) -> QueryResult<()> {
        Ok(())
    }

    fn classify(error: &Error) -> ErrorClass {
        match error {
            Error::DatabaseError(DatabaseErrorKind::ClosedConnection, _) | Error::BrokenTransactionManager => {
                ErrorClass::ConnectionLost
            }
            // The primary has become a standby: a new session finds the new one, where the URL names both.
            Error::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, _) => ErrorClass::ConnectionLost,
            Error::DatabaseError(DatabaseErrorKind::SerializationFailure, _) => ErrorClass::Conflict,
            Error::DatabaseError(_, information) => {
                // Diesel hands over the message only, not the SQLSTATE (40P01, 55P03, 57P01..57P03, 0A000).
                let message = information.message();
                let has = |text: &str| message.contains(text);
                if has("terminating connection")
                    || has("server closed the connection")
                    || has("connection to server")
                    || has("during recovery")
                {
                    ErrorClass::ConnectionLost
                } else if has("deadlock detected")
                    || has("due to lock timeout")
                    || has("cached plan must not change result type")
                    || has("the database system is")
                {
                    ErrorClass::Conflict
                } else {
                    ErrorClass::Other
                }
            }
            Error::RollbackErrorOnCommit { commit_error, .. } => Self::classify(commit_error),
            _ => ErrorClass::Other,
        }
    }

    fn skips_locked_rows(&mut self) -> QueryResult<bool> {
        Ok(true)
    }

    fn try_exclude(&mut self, target: &Target) -> QueryResult<bool> {
        #[derive(QueryableByName)]
        struct Answer {
            #[diesel(sql_type = Bool)]
            excluded: bool,
        }
        // The table by its number, because the same name may stand in one schema for each tenant. The lock is released
        // after the transaction's changes can be seen.
        let locked: Answer = diesel::sql_query(
            "SELECT pg_try_advisory_xact_lock($1, CAST(CAST(CAST($2 AS regclass) AS oid) AS integer)) AS excluded",
        )
        .bind::<Integer, _>(fingerprint(&format!("queueable\n{}", target.columns.status)) as i32)
        .bind::<Text, _>(target.table.to_string())
        .get_result(self)?;
        Ok(locked.excluded)
    }

    fn end_exclusion(&mut self, _target: &Target) -> QueryResult<()> {
        Ok(())
    }

    fn with_lock_wait<T>(
        &mut self,
        wait: Duration,
        change: impl FnOnce(&mut Self, bool) -> QueryResult<T>,
    ) -> QueryResult<T> {
        in_own_transaction(self, "BEGIN", |connection, alone| {
            // Inside the application's own transaction the setting would outlive this call: put the old one back.
            let before: String = diesel::select(current_setting("lock_timeout")).get_result(connection)?;
            let wait = timeout(wait);
            diesel::select(set_config("lock_timeout", wait.as_str(), true)).execute(connection)?;
            let changed = change(connection, alone)?;
            diesel::select(set_config("lock_timeout", before.as_str(), true)).execute(connection)?;
            Ok(changed)
        })
    }
}

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";

/// A time as PostgreSQL takes it: 0 would mean for ever, and more than this is refused.
fn timeout(time: Duration) -> String {
    time.as_millis().clamp(1, i32::MAX as u128).to_string()
}

#[diesel::declare_sql_function]
extern "SQL" {
    fn set_config(name: Text, value: Text, is_local: diesel::sql_types::Bool) -> Text;
    fn current_setting(name: Text) -> Text;
    fn pg_backend_pid() -> diesel::sql_types::Integer;
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
        // `infinity` has no value here: diesel answers with an error.
        <DateTime<Utc> as FromSql<Timestamptz, Pg>>::from_sql(bytes).map(Instant::from)
    }
}

impl ToSql<TimestampUtc, Pg> for Instant {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        <DateTime<Utc> as ToSql<Timestamptz, Pg>>::to_sql(self, out)
    }
}

crate::statement::captured_on!(Pg);
