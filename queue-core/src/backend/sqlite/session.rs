//! A session on SQLite: how it is prepared, and its transactions.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::{AnsiTransactionManager, SimpleConnection};
use diesel::result::{DatabaseErrorInformation, DatabaseErrorKind, Error};
use diesel::sql_types::{BigInt, Text};
use diesel::sqlite::SqliteConnection;

use crate::backend::connection::{ErrorClass, ErrorClasses, QueueConnection, message_of};
use crate::backend::schema::{Target, fingerprint};
use crate::backend::setup::{Exclusion, LeadersDuty, SessionLimits, SessionSetup};
use crate::backend::statement::execute;
use crate::backend::transactions::{OneRoundTrip, Transactions, begin_in_test, in_own_transaction};
use crate::error::refused;

use diesel::prelude::*;

impl SessionSetup for SqliteConnection {
    fn prepare_session(&mut self, limits: SessionLimits) -> QueryResult<()> {
        // The busy timeout first: switching to WAL takes a lock.
        set_busy_timeout(self, limits.lock_timeout)?;
        let journal = journal_in_wal(self, limits.lock_timeout)?;
        if journal != "wal" {
            return Err(refused(format!(
                "the database's journal_mode is {journal}, expected wal; a queue needs a file that several connections share"
            )));
        }
        Ok(())
    }

    // SQLite can end a statement only from another thread or from a callback, and Diesel gives safe code neither of them.
    fn limit_session(&mut self, _statement_timeout: Duration, lock_timeout: Duration) -> QueryResult<()> {
        set_busy_timeout(self, lock_timeout)
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

    fn end_silent_session(&mut self, _session: i64, _silent_for: Duration) -> QueryResult<()> {
        Ok(())
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
        begin_in_test(self).unwrap_or_else(|| AnsiTransactionManager::begin_transaction_sql(self, "BEGIN IMMEDIATE"))
    }

    fn begin_impatiently(&mut self, _wait: Duration) -> QueryResult<()> {
        // The only wait is the one for BEGIN, so there are no deadlocks.
        self.begin()
    }

    fn commit_and_begin(&mut self) -> QueryResult<()> {
        // The next transaction would take the only write lock, whether there is work for it or not.
        Err(refused("SQLite commits and begins one by one".to_owned()))
    }

    fn control(&mut self, statement: &'static str) -> QueryResult<()> {
        // Kept prepared. Diesel notices only after a batch that SQLite has ended the transaction on an error.
        execute(self, &statement).map(drop).or_else(|_| self.batch_execute(statement))
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
        // The change is committed, whatever happens to the session.
        let _ = self.batch_execute(&format!("PRAGMA busy_timeout = {before}"));
        changed
    }
}

impl OneRoundTrip for SqliteConnection {}

impl ErrorClasses for SqliteConnection {
    fn refuses_writes(error: &Error) -> bool {
        message_of(error) == Some("attempt to write a readonly database")
    }

    fn classify_answer(kind: &DatabaseErrorKind, answer: &dyn DatabaseErrorInformation) -> ErrorClass {
        match kind {
            DatabaseErrorKind::Unknown => classify_message(answer.message()),
            _ => ErrorClass::Other,
        }
    }
}

impl Exclusion for SqliteConnection {
    fn try_lead(&mut self, target: &Target, duty: LeadersDuty, lead: &mut Option<File>) -> QueryResult<bool> {
        let database = self.database_name()?;
        if lead.is_some() || database.is_empty() {
            // A database without a file is this session's own.
            return Ok(true);
        }
        // Never the database's own file: closing it would release the locks that SQLite holds in this process.
        let name = match duty {
            LeadersDuty::Gauges => "gauges",
            LeadersDuty::Upkeep => "upkeep",
        };
        let queue = fingerprint(&format!("{}\n{}", target.table, target.columns.status));
        let path = format!("{database}-{name}-{queue:016x}");
        let cannot = |error| refused(format!("the lock file {path} cannot be used: {error}"));
        let file = File::options().create(true).append(true).open(&path).map_err(cannot)?;
        match file.try_lock() {
            Ok(()) => *lead = Some(file),
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(cannot(error)),
        }
        Ok(true)
    }

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
        "database is locked" | "database table is locked" | "database schema has changed" | "locking protocol" => {
            ErrorClass::Conflict
        }
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

fn set_busy_timeout(connection: &mut SqliteConnection, wait: Duration) -> QueryResult<()> {
    connection.batch_execute(&format!("PRAGMA busy_timeout = {}", wait.as_millis()))?;
    let busy_timeout: i64 = pragma(connection, "(SELECT timeout FROM pragma_busy_timeout)")?;
    if u128::try_from(busy_timeout) != Ok(wait.as_millis()) {
        return Err(refused(format!("the session's busy_timeout is {busy_timeout} after it was set")));
    }
    Ok(())
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
