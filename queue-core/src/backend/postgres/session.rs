//! A session on PostgreSQL: its settings, its transactions, and the advisory locks by which one message runs at a time, or a
//! few of each lane.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use diesel::pg::Pg;
use diesel::sql_types::{BigInt, Bool, Double, Integer, Nullable, Text};

use super::clients::PgSession;
use super::errors::is_message;
use super::live_table::current_role;
use super::settings::UNLOCKED;
use super::trigger::quoted;
use crate::backend::schema::{Target, fingerprint};
use crate::backend::setup::{Exclusion, LeadersDuty, Place, SessionLimits, SessionSetup};
use crate::backend::statement::One;
use crate::backend::transactions::{COMMIT_REFUSED, Transactions, begin_in_test, in_own_transaction};
use crate::error::refused;

use diesel::prelude::*;

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
        speak_english(self);
        // A name from the URL, the environment or the role is the operator's.
        self.batch_execute(
            "SELECT pg_catalog.set_config('application_name', 'queueable', false) \
             WHERE pg_catalog.current_setting('application_name') = ''",
        )?;
        // A database without an encoding has texts of any bytes. The server would refuse to send a row with some that are no
        // UTF-8, and with it all rows of a statement; the client knows which value it cannot read.
        self.batch_execute(
            "SELECT pg_catalog.set_config('client_encoding', 'SQL_ASCII', false) \
             WHERE pg_catalog.current_setting('server_encoding') = 'SQL_ASCII'",
        )?;
        // PostgreSQL has this setting from 14 on. A worker waits for work as long as there is none.
        diesel::sql_query(
            "SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings \
             WHERE name = 'idle_session_timeout'",
        )
        .execute(self)?;
        set_all(self, &settings)
    }

    fn limit_session(&mut self, statement_timeout: Duration, lock_timeout: Duration) -> QueryResult<()> {
        speak_english(self);
        set_all(
            self,
            &[
                ("lock_timeout", timeout(lock_timeout)),
                ("statement_timeout", timeout(statement_timeout)),
                // Between two statements such a session does nothing that takes longer.
                ("idle_in_transaction_session_timeout", timeout(statement_timeout)),
            ],
        )
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

    // A session that waits for the rest of a message is not idle, so none of the server's time-outs ends it.
    fn end_silent_session(&mut self, session: i64, silent_for: Duration) -> QueryResult<()> {
        diesel::sql_query(
            "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity \
             WHERE pid = $1 AND usename = session_user \
             AND backend_start < pg_catalog.clock_timestamp() - $2 * interval '1 second' \
             AND (state <> 'active' OR wait_event IN ('ClientRead', 'ClientWrite'))",
        )
        .bind::<Integer, _>(i32::try_from(session).unwrap_or(0))
        .bind::<Double, _>(silent_for.as_secs_f64())
        .execute(self)
        .map(drop)
    }

    fn end_session(&mut self, session: i64) -> QueryResult<()> {
        let pid = i32::try_from(session).map_err(|_| refused(format!("{session} is not a process id")))?;
        diesel::select(pg_terminate_backend(pid)).get_result::<bool>(self).map(drop)
    }

    fn grantee(&mut self) -> QueryResult<Option<String>> {
        current_role(self).map(Some)
    }

    fn skips_locked_rows(&mut self) -> QueryResult<bool> {
        Ok(true)
    }

    fn listen(&mut self, channel: &str) -> QueryResult<()> {
        self.batch_execute(&format!("LISTEN {}", quoted(channel)))
    }

    fn notified(&mut self) -> QueryResult<Vec<String>> {
        self.notified_channels().map(|channels| channels.into_iter().collect())
    }
}

impl<C: PgSession> Transactions<Pg> for C {
    fn begin(&mut self) -> QueryResult<()> {
        begin_in_test(self).unwrap_or_else(|| self.begin_with(BEGIN))
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

pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";

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

/// Makes the server write its messages in English, whose words the classification of errors reads. Only a superuser may set this;
/// the check at start finds other languages.
fn speak_english(connection: &mut impl PgSession) {
    let _ = connection.batch_execute("SET lc_messages = 'C'");
}

/// Sets settings of the session, and checks that they have these values.
fn set_all(connection: &mut impl PgSession, settings: &[(&str, String)]) -> QueryResult<()> {
    for (name, wanted) in settings {
        let found: String = diesel::select(set_config(*name, wanted.as_str(), false)).get_result(connection)?;
        // Times are written in milliseconds and read back in the largest unit that fits, so they are compared in
        // milliseconds.
        let found_plainly = milliseconds(&found).map_or(found.clone(), |ms| ms.to_string());
        if found_plainly != *wanted {
            return Err(refused(format!("the session's {name} is {found}, expected {wanted}")));
        }
    }
    Ok(())
}

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

impl<C: PgSession> Exclusion<Pg> for C {
    fn try_exclude(&mut self, target: &Target) -> QueryResult<bool> {
        // The table by its OID, because each tenant's schema may have one of the same name. The server releases the
        // lock after the transaction's changes are visible.
        let locked: One<Bool, bool> = diesel::sql_query(
            "SELECT pg_catalog.pg_try_advisory_xact_lock($1, CAST(CAST(CAST($2 AS regclass) AS oid) AS integer)) AS excluded",
        )
        .bind::<Integer, _>(exclusion_of(target) as i32)
        .bind::<Text, _>(target.table.to_string())
        .get_result(self)?;
        Ok(locked.0)
    }

    fn try_lead(&mut self, target: &Target, duty: LeadersDuty, _lead: &mut Option<File>) -> QueryResult<bool> {
        let class = match duty {
            LeadersDuty::Gauges => !exclusion_of(target),
            LeadersDuty::Upkeep => fingerprint(&format!("queueable upkeep\n{}", target.columns.status)),
        };
        let led: One<Bool, bool> = diesel::sql_query(
            "SELECT pg_catalog.pg_try_advisory_lock($1, CAST(CAST(CAST($2 AS regclass) AS oid) AS integer)) AS led",
        )
        .bind::<Integer, _>(class as i32)
        .bind::<Text, _>(target.table.to_string())
        .get_result(self)?;
        Ok(led.0)
    }

    fn exclusion_holder(&mut self, target: &Target) -> QueryResult<Option<String>> {
        let holders: Vec<One<Text, String>> = diesel::sql_query(
            "SELECT pg_catalog.concat('the session with the pid ', l.pid, ' (', COALESCE(a.application_name, ''), ')') AS session \
             FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid \
             WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.pid <> pg_catalog.pg_backend_pid() \
             AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()) \
             AND l.classid = CAST($1 AS oid) AND l.objid = CAST(CAST($2 AS regclass) AS oid)",
        )
        .bind::<Text, _>((exclusion_of(target) as u32).to_string())
        .bind::<Text, _>(target.table.to_string())
        .load(self)?;
        Ok(holders.into_iter().next().map(|holder| holder.0))
    }

    fn take_place(&mut self, target: &Target, lane: &str, places: u32) -> QueryResult<Option<u32>> {
        let [start, queue, table, lane_part, end] = PLACES;
        let query = format!("SELECT {start}$1{queue}$2{table}$3{lane_part}$4{end} AS place");
        let place = Place::of(target, lane, places);
        let query = diesel::sql_query(query).bind::<BigInt, _>(place.places).bind::<Text, _>(place.queue);
        let taken: One<Nullable<Integer>, Option<i32>> =
            query.bind::<Text, _>(place.table).bind::<Text, _>(place.lane).get_result(self)?;
        Ok(taken.0.map(i32::unsigned_abs))
    }

    fn keep_lock(&mut self, target: &Target, lane: Option<&str>) -> QueryResult<()> {
        // The session has the lock for its transaction, so it gets it at once.
        let Some(lane) = lane else {
            let query =
                "SELECT pg_catalog.pg_try_advisory_lock($1, CAST(CAST(CAST($2 AS regclass) AS oid) AS integer))";
            let query = diesel::sql_query(query).bind::<Integer, _>(exclusion_of(target) as i32);
            return query.bind::<Text, _>(target.table.to_string()).execute(self).map(drop);
        };
        let [_, queue, table, lane_part, _] = PLACES;
        let (_, key) = queue.split_once("pg_try_advisory_xact_lock").expect("it takes the lock");
        let query = format!("SELECT pg_catalog.pg_try_advisory_lock{key}$1{table}$2{lane_part}$3), 0))");
        let place = Place::of(target, lane, 1);
        let query = diesel::sql_query(query).bind::<Text, _>(place.queue).bind::<Text, _>(place.table);
        query.bind::<Text, _>(place.lane).execute(self).map(drop)
    }

    fn end_kept_locks(&mut self) -> QueryResult<()> {
        diesel::sql_query(format!("SELECT {UNLOCKED}")).execute(self).map(drop)
    }
}

/// The SQL around the number of places, the queue, its table and the lane: it takes one of the places for the transaction.
/// A hash of 64 bits: two lanes of one hash share their places, which limits them more and never less. With a limit of one
/// row, the server tries one place after the other and stops at the first that is free.
pub(super) const PLACES: [&str; 5] = [
    "(SELECT place FROM pg_catalog.generate_series(0, CAST(",
    " AS integer) - 1) AS places(place) WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended(pg_catalog.concat(",
    ", ' ', CAST(CAST(",
    " AS regclass) AS oid), ' ', ",
    "), place)) LIMIT 1)",
];

/// Returns the number that tells the lock of a queue from others on its table.
fn exclusion_of(target: &Target) -> u64 {
    fingerprint(&format!("queueable\n{}", target.columns.status))
}
