//! A session on MySQL or MariaDB: its settings, its transactions, and the locks by name with which one message runs at a time,
//! or a few of each lane.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use diesel::connection::TransactionManager;
use diesel::mysql::Mysql;
use diesel::result::Error;
use diesel::sql_types::{BigInt, Bool, Nullable, Text};

use super::clients::MysqlSession;
use super::errors::{NO_SAVEPOINT, NOT_PREPARED, NOT_UNDERSTOOD, OTHER_SETTINGS};
use super::settings::{LONGEST_WAIT, MysqlSettings, Variable, whole_seconds};
use crate::backend::connection::{ErrorClass, ErrorClasses, message_of};
use crate::backend::schema::{Target, fingerprint, literal};
use crate::backend::setup::{Exclusion, LeadersDuty, SessionLimits, SessionSettings, SessionSetup};
use crate::backend::statement::{One, execute};
use crate::backend::transactions::{
    AfterFinish, OneRoundTrip, Transactions, Unfinished, begin_in_test, in_own_transaction,
};
use crate::error::refused;

use diesel::prelude::*;

impl<C: MysqlSession> SessionSetup<Mysql> for C {
    fn prepare_session(&mut self, limits: SessionLimits) -> QueryResult<()> {
        let lock_timeout = whole_seconds(limits.lock_timeout);
        let limit = if limits.attempts { String::new() } else { set_statement_limit(limits.statement_timeout) };
        // With autocommit=1 a handler that ignores a deadlock would commit its later statements one by one. Without
        // strict mode the server stores a value that does not fit in a mutilated form.
        for statement in [
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned(),
            "SET SESSION TRANSACTION READ WRITE".to_owned(),
            "SET SESSION time_zone = '+00:00'".to_owned(),
            // The row may have a zero date, which only sessions in strict mode refuse.
            "SET SESSION sql_mode = REPLACE(REPLACE(REPLACE(CONCAT_WS(',', NULLIF(@@SESSION.sql_mode, ''), 'STRICT_ALL_TABLES'), \
             'TRADITIONAL', ''), 'NO_ZERO_IN_DATE', ''), 'NO_ZERO_DATE', '')"
                .to_owned(),
            // The classification reads the errors' messages, because Diesel passes on nothing else.
            "SET SESSION lc_messages = 'en_US'".to_owned(),
            // Under snapshot isolation, which MariaDB has by default from 11.6.2 on, an UPDATE waits for every row that it passes.
            format!("{}{}", set_lock_waits(lock_timeout, lock_timeout), set_snapshot_isolation(0)),
            // A worker waits for work as long as there is none, and reads all rows that it asks for.
            format!("SET SESSION wait_timeout = {LONGEST_WAIT}, SESSION sql_select_limit = {}", u64::MAX),
            format!("SET SESSION autocommit = {}{}{limit}", u8::from(!limits.attempts), end_idle_transaction(limits.timeout)),
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
                "sql_mode" => value.contains("STRICT_ALL_TABLES") && !value.contains("NO_ZERO_DATE"),
                "tx_read_only" | "transaction_read_only" => value == "OFF",
                "innodb_lock_wait_timeout" | "lock_wait_timeout" => value == lock_timeout.to_string(),
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

    fn limit_session(&mut self, statement_timeout: Duration, lock_timeout: Duration) -> QueryResult<()> {
        let lock = whole_seconds(lock_timeout);
        // The words of a time-out are known in this language.
        self.batch_execute("SET SESSION lc_messages = 'en_US'")?;
        self.batch_execute(&format!("{}{}", set_lock_waits(lock, lock), set_statement_limit(statement_timeout)))
    }

    fn session_id(&mut self) -> QueryResult<Option<i64>> {
        diesel::select(diesel::dsl::sql::<BigInt>("CONNECTION_ID()")).get_result(self).map(Some)
    }

    fn database_name(&mut self) -> QueryResult<String> {
        diesel::select(diesel::dsl::sql::<Text>("COALESCE(DATABASE(), '')")).get_result(self)
    }

    fn end_silent_session(&mut self, session: i64, silent_for: Duration) -> QueryResult<()> {
        // A number in whole seconds.
        let is_it = format!(
            "EXISTS (SELECT 1 FROM information_schema.processlist WHERE id = {session} AND time + 1 >= {} \
             AND command = 'Sleep' AND user = LEFT(USER(), CHAR_LENGTH(USER()) - LOCATE('@', REVERSE(USER()))))",
            silent_for.as_secs()
        );
        match diesel::select(diesel::dsl::sql::<Bool>(&is_it)).get_result(self)? {
            true => self.end_session(session),
            false => Ok(()),
        }
    }

    fn end_session(&mut self, session: i64) -> QueryResult<()> {
        self.batch_execute(&format!("KILL CONNECTION {session}"))
    }

    fn grantee(&mut self) -> QueryResult<Option<String>> {
        let account: String = diesel::select(diesel::dsl::sql::<Text>("CURRENT_USER()")).get_result(self)?;
        let (user, host) = account.rsplit_once('@').unwrap_or((&account, "%"));
        Ok(Some(format!("{}@{}", literal(user), literal(host))))
    }

    fn skips_locked_rows(&mut self) -> QueryResult<bool> {
        let version: String = diesel::select(diesel::dsl::sql::<Text>("VERSION()")).get_result(self)?;
        Ok(skips_locked_rows(&version))
    }
}

impl<C: MysqlSession> Transactions<Mysql> for C {
    fn begin(&mut self) -> QueryResult<()> {
        // READ COMMITTED is the session's level, which was set and read back when the session was prepared.
        begin_in_test(self).unwrap_or_else(|| self.begin_with("START TRANSACTION READ WRITE"))
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
        if statement == "COMMIT" || PREPARES_CONTROLS.load(Ordering::Relaxed) {
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
        let before: (i64, i64, i64) = diesel::select((
            diesel::dsl::sql::<BigInt>("@@SESSION.innodb_lock_wait_timeout"),
            diesel::dsl::sql::<BigInt>("@@SESSION.lock_wait_timeout"),
            diesel::dsl::sql::<BigInt>("CAST(0 /*M!110602 + @@SESSION.innodb_snapshot_isolation */ AS SIGNED)"),
        ))
        .get_result(self)?;
        let wait = whole_seconds(wait);
        // As a poller's session does.
        self.batch_execute(&format!("{}{}", set_lock_waits(wait, wait), set_snapshot_isolation(0)))?;
        let is_alone =
            matches!(C::TransactionManager::transaction_manager_status_mut(self).transaction_depth(), Ok(None));
        if is_alone {
            // For the next transaction only. REPEATABLE READ would wait for every row that it reads on the way, and
            // block inserts between them. If the server refuses this, the transaction has the session's level.
            let _ = self.batch_execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED");
        }
        let begin = |connection: &mut C| connection.begin_with("START TRANSACTION");
        let changed = in_own_transaction(self, begin, change);
        let put_back =
            self.batch_execute(&format!("{}{}", set_lock_waits(before.0, before.1), set_snapshot_isolation(before.2)));
        match is_alone {
            // The change is committed, whatever happens to the session.
            true => changed,
            // The error may say that a cluster has undone the caller's transaction, and the server says so only once.
            false => changed.and_then(|changed| put_back.map(|()| changed)),
        }
    }
}

impl<C: MysqlSession> OneRoundTrip<Mysql> for C {
    /// Ends a message on MySQL.
    fn finish(
        &mut self,
        savepoint: &str,
        settle: &str,
        _next: AfterFinish<'_>,
        settings: &MysqlSettings,
    ) -> Result<bool, Unfinished> {
        settle_by_text(self, savepoint, settle, "COMMIT", settings).map(|()| false)
    }

    fn pass_on(&mut self, savepoint: &str, settle: &str, settings: &MysqlSettings) -> Result<(), Unfinished> {
        settle_by_text(self, savepoint, settle, &format!("SAVEPOINT {savepoint}"), settings)
    }

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
        _settings: Option<&MysqlSettings>,
        _token: Option<&str>,
    ) -> QueryResult<()> {
        let tried = execute(self, &"BEGIN NOT ATOMIC IF 1 = 0 THEN COMMIT; END IF; END").map(drop);
        if let Err(error) = &tried {
            C::has_compounds(Some(error));
        }
        tried
    }
}

/// Settles a message on MySQL, which has no blocks outside of routines, by statements in one text. None runs after the first that
/// fails.
fn settle_by_text<C: MysqlSession>(
    connection: &mut C,
    savepoint: &str,
    settle: &str,
    then: &str,
    settings: &MysqlSettings,
) -> Result<(), Unfinished> {
    let Some(are_same) = settings.are_same() else {
        return Err(Unfinished::OtherSettings(refused("the server cannot compare its settings".to_owned())));
    };
    let compares = C::has_to_compare(settings);
    let compare = match compares {
        true => format!("SET @queueable_checked = IF({are_same}, 1, EXP(998)); "),
        false => String::new(),
    };
    // The server evaluates the last argument only if the first is false. In SET, because DO hides errors on MariaDB, and evaluates
    // nothing if `sql_select_limit` is 0.
    let text = format!(
        "{compare}RELEASE SAVEPOINT {savepoint}; {settle}; \
         SET @queueable_checked = IF(ROW_COUNT() = 1, 1, EXP(999)); {then}"
    );
    connection.batch_execute(&text).map_err(|error| match message_of(&error) {
        Some("DOUBLE value is out of range in 'exp(998)'") => Unfinished::OtherSettings(error),
        _ => C::unfinished(error, "DOUBLE value is out of range in 'exp(999)'"),
    })?;
    if compares {
        C::note_compared(settings, true);
    }
    Ok(())
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
    let set = format!("SET SESSION innodb_lock_wait_timeout = {wait}, @queueable_lock_wait = {wait}");
    // As a batch it would be three round trips.
    execute(connection, &set.as_str()).map(drop)
}

fn set_lock_waits(rows: impl std::fmt::Display, tables: impl std::fmt::Display) -> String {
    format!("SET SESSION innodb_lock_wait_timeout = {rows}, SESSION lock_wait_timeout = {tables}")
}

/// Continues a `SET`, on the servers that have the variable.
fn set_snapshot_isolation(value: i64) -> String {
    format!(" /*M!110602 , SESSION innodb_snapshot_isolation = {value} */")
}

/// Continues a `SET`, with the server's own variable: how long a statement may take. MySQL limits those that only read.
fn set_statement_limit(timeout: Duration) -> String {
    let milliseconds = timeout.as_millis().clamp(1, i32::MAX as u128);
    let seconds = milliseconds as f64 / 1000.0;
    format!(
        " /*!50708 , SESSION max_execution_time = {milliseconds} */ /*M!100101 , SESSION max_statement_time = {seconds} */"
    )
}

/// Makes the server end a transaction whose worker is frozen or disconnected, a second after the scout would have ended
/// it. By default the server keeps the locks for eight hours. MySQL has no such setting, and reads this as a comment: there the
/// session itself has a limit while it works, see [`SessionSettings::limit_idleness`](crate::backend::setup::SessionSettings).
fn end_idle_transaction(timeout: Duration) -> String {
    format!(" /*M!100301 , SESSION idle_transaction_timeout = {} */", whole_seconds(timeout) + 1)
}

impl<C: MysqlSession> Exclusion<Mysql> for C {
    fn try_exclude(&mut self, target: &Target) -> QueryResult<bool> {
        // A lock that is taken twice has to be given back twice.
        take(self, target, &exclusion_of(target), 1)
    }

    fn try_lead(&mut self, target: &Target, duty: LeadersDuty, _lead: &mut Option<File>) -> QueryResult<bool> {
        // MySQL takes names of 64 characters.
        let name = match duty {
            LeadersDuty::Gauges => "lead",
            LeadersDuty::Upkeep => "keep",
        };
        take(self, target, &format!("{name}{}", exclusion_of(target)), 1)
    }

    fn exclusion_holder(&mut self, target: &Target) -> QueryResult<Option<String>> {
        let holder = format!("NULLIF(IS_USED_LOCK({EXCLUSION}), CONNECTION_ID())");
        let holder = answer(self, target, &exclusion_of(target), &holder)?;
        Ok(holder.map(|session| format!("the connection {session}")))
    }

    fn end_exclusion(&mut self, target: &Target) -> QueryResult<()> {
        release(self, target, &exclusion_of(target))
    }

    fn take_place(&mut self, target: &Target, lane: &str, places: u32) -> QueryResult<Option<u32>> {
        for place in 0..places {
            // A session holds at most one place of a lane, and gives it back once.
            if take(self, target, &place_of(target, lane, place), 0)? {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    fn leave_place(&mut self, target: &Target, lane: &str, place: u32) -> QueryResult<()> {
        release(self, target, &place_of(target, lane, place))
    }
}

/// The name of a lock, of at most 64 characters. Such names are global to the server, so it contains the database. A session's
/// lock outlives its transactions. MySQL has no `MD5` from 9.6 on.
const EXCLUSION: &str =
    "CONCAT('queueable_', LEFT(SHA2(CONVERT(COALESCE(?, DATABASE()) USING utf8mb4), 256), 32), '_', ?)";

/// Returns the part of the name of an exclusive queue's lock that tells it from others in its database.
fn exclusion_of(target: &Target) -> String {
    format!("{:016x}", fingerprint(&format!("{}\n{}", target.table.name, target.columns.status)))
}

/// Returns the part of the name of a place that tells it from others in its database.
fn place_of(target: &Target, lane: &str, place: u32) -> String {
    let lane = fingerprint(&format!("{}\n{}\n{lane}", target.table.name, target.columns.status));
    format!("{lane:016x}{place:x}")
}

/// Takes a lock without waiting. `again` is 1 if the session may hold it already.
fn take(connection: &mut impl MysqlSession, target: &Target, name: &str, again: u8) -> QueryResult<bool> {
    let taken =
        format!("IF(IS_USED_LOCK({EXCLUSION}) <=> CONNECTION_ID(), {again}, COALESCE(GET_LOCK({EXCLUSION}, 0), 0))");
    Ok(answer(connection, target, name, &taken)? == Some(1))
}

fn release(connection: &mut impl MysqlSession, target: &Target, name: &str) -> QueryResult<()> {
    answer(connection, target, name, &format!("RELEASE_LOCK({EXCLUSION})")).map(drop)
}

/// Evaluates an expression with the name of a lock.
fn answer(connection: &mut impl MysqlSession, target: &Target, name: &str, of: &str) -> QueryResult<Option<i64>> {
    let mut query = diesel::sql_query(format!("SELECT CAST({of} AS SIGNED) AS answer")).into_boxed();
    for _ in of.matches(EXCLUSION) {
        query = query.bind::<Nullable<Text>, _>(target.table.schema.as_deref()).bind::<Text, _>(name);
    }
    query.get_result::<One<Nullable<BigInt>, _>>(connection).map(|answer| answer.0)
}

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
