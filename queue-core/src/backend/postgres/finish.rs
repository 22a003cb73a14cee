//! How a message ends on PostgreSQL in one round trip, and how that locks the next row.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use diesel::pg::Pg;
use diesel::result::Error;
use diesel::sql_types::{Bool, Text};

use super::clients::PgSession;
use super::errors::{
    NOT_LOCKED, NOT_ONE_ROW, OTHER_SETTINGS, is_marked, is_message, marked, may_be_for_other_settings,
};
use super::session::BEGIN;
use super::settings::{COMPARE, PUT_BACK, PgSettings};
use crate::backend::connection::{ErrorClass, ErrorClasses};
use crate::backend::transactions::{AfterFinish, OneRoundTrip, Unfinished};

use diesel::prelude::*;

/// How long a session that ends messages does without a comparison of the settings that are not decisive. It costs the server as much
/// as a fifth of a settlement, see `docs/performance.md`.
const UNSEEN: Duration = Duration::from_millis(100);

impl PgSettings {
    /// Returns the statement that the text of a settlement runs first, if any.
    fn first(&self) -> Option<&'static str> {
        if self.put_back_first.load(Ordering::Relaxed) {
            return Some(PUT_BACK);
        }
        let (mut compared, now) = (self.compared.lock(), Instant::now());
        let is_due = compared.is_none_or(|compared| now.duration_since(compared) >= UNSEEN);
        (self.are_known && is_due).then(|| {
            *compared = Some(now);
            COMPARE
        })
    }
}

impl<C: PgSession> OneRoundTrip<Pg> for C {
    /// Prepares the statement that settles a row.
    fn prepare_finish(
        &mut self,
        name: &str,
        statement: &str,
        settings: Option<&PgSettings>,
        token: Option<&str>,
    ) -> QueryResult<()> {
        // A row that is not as it was claimed causes an error, so that nothing has to be read back before the commit: its
        // text is no number, and the cast's error contains it. There is one cast, and no statement of its own sets the
        // token, because the server spends as much on the beginning of each as on many a function.
        self.batch_execute(&format!(
            "PREPARE {name} AS WITH settled AS ({statement}) SELECT CAST(CASE WHEN NOT ({}) THEN '{}' \
             WHEN pg_catalog.count(*) OPERATOR(pg_catalog.=) 1 THEN {} ELSE '{}' END AS integer) FROM settled",
            settings.map_or("true", PgSettings::are_same),
            marked(OTHER_SETTINGS),
            token.map_or("'1'".to_owned(), |token| format!("pg_catalog.set_config('{COMMITTED}', {token}, false)")),
            marked(NOT_ONE_ROW)
        ))
    }

    /// Prepares the statement that locks a prefetched row.
    fn prepare_lock(&mut self, name: &str, statement: &str) -> QueryResult<()> {
        self.batch_execute(&format!(
            "PREPARE {name} AS WITH locked AS ({statement}) SELECT CASE pg_catalog.count(*) WHEN 1 THEN 1 \
             ELSE CAST('{}' OPERATOR(pg_catalog.||) CAST(pg_catalog.count(*) AS text) AS integer) END FROM locked",
            marked(NOT_LOCKED)
        ))
    }

    /// Locks a prefetched row in the current transaction, and sets the savepoint.
    fn lock_next(&mut self, lock: &str, savepoint: &str) -> QueryResult<bool> {
        match self.batch_execute(&format!("EXECUTE {lock}; SAVEPOINT {savepoint}")) {
            Ok(()) => Ok(true),
            Err(error) if is_marked(&error, NOT_LOCKED) => self.batch_execute("ROLLBACK AND CHAIN").map(|()| false),
            Err(error) => Err(error),
        }
    }

    /// Releases the savepoint, settles, commits, and begins what comes next.
    fn finish(
        &mut self,
        savepoint: &str,
        settle: &str,
        next: AfterFinish<'_>,
        settings: &PgSettings,
    ) -> Result<bool, Unfinished> {
        let (commit, locks) = match next {
            AfterFinish::Nothing => ("COMMIT".to_owned(), None),
            AfterFinish::Begin => ("COMMIT AND CHAIN".to_owned(), None),
            AfterFinish::Lock(lock, token) => {
                (format!("COMMIT AND CHAIN; EXECUTE {lock}; SAVEPOINT {savepoint}"), Some(token))
            }
        };
        let before = settings.first().map(|statement| format!("EXECUTE {statement}; ")).unwrap_or_default();
        let text = format!("RELEASE SAVEPOINT {savepoint}; {before}EXECUTE {settle}; {commit}");
        let Err(error) = self.batch_execute(&text) else {
            if matches!(next, AfterFinish::Nothing) {
                self.has_committed();
            }
            return Ok(locks.is_some());
        };
        if C::classify(&error) == ErrorClass::ConnectionLost {
            return Err(Unfinished::NotCommitted(error));
        }
        if is_marked(&error, NOT_ONE_ROW) {
            return Err(Unfinished::RowChanged(error));
        }
        if is_marked(&error, NOT_LOCKED) {
            // The commit has succeeded, because only the lock after it can fail in this way. If the session is lost by now,
            // its next statement shows it.
            let _ = self.batch_execute("ROLLBACK AND CHAIN");
            return Ok(false);
        }
        if let Some(token) = locks
            && is_committed(self, savepoint, token).map_err(Unfinished::NotCommitted)?
        {
            // An error that refuses this lock mostly refuses the claim that follows, and the claim reports it.
            tracing::debug!("the next row cannot be locked");
            return Ok(false);
        }
        Err(what_failed(self, savepoint, error, settings))
    }

    fn begin_holding(&mut self, hold: &str, savepoint: &str) -> QueryResult<bool> {
        let text = format!("{BEGIN}; EXECUTE {hold}; SAVEPOINT {savepoint}");
        let Err(error) = self.begin_with(&text) else { return Ok(true) };
        // Diesel does not count a transaction whose BEGIN failed.
        self.batch_execute("ROLLBACK")?;
        if is_marked(&error, NOT_ONE_ROW) { Ok(false) } else { Err(error) }
    }
}

/// The session's setting that holds the token of the last message committed by a text that goes on after the commit.
const COMMITTED: &str = "queueable.committed";

/// Finds out which of the statements that end a message has failed with this error: by whether the transaction, and the savepoint
/// in it, still exist.
fn what_failed<C: PgSession>(connection: &mut C, savepoint: &str, error: Error, settings: &PgSettings) -> Unfinished {
    let probed = connection.batch_execute(&format!("ROLLBACK TO SAVEPOINT {savepoint}"));
    let no_savepoint = format!("savepoint \"{savepoint}\" does not exist");
    match probed {
        Ok(()) => Unfinished::Savepoint(error),
        Err(probe) if is_message(&probe, &no_savepoint) => {
            // The transaction is there without the savepoint: the savepoint was released, or the handler has begun
            // another transaction.
            if is_message(&error, &no_savepoint) {
                Unfinished::Savepoint(error)
            } else if may_be_for_other_settings(&error) && settings.put_back_first() {
                Unfinished::SettingsNotPutBack(error)
            } else {
                Unfinished::NotWritten(error)
            }
        }
        Err(_) if is_message(&error, "RELEASE SAVEPOINT can only be used in transaction blocks") => {
            Unfinished::Savepoint(error)
        }
        Err(_) => Unfinished::NotCommitted(error),
    }
}

/// Tells whether the message with this token is committed, after its text has failed. If it is, the next transaction
/// has begun anew. If not, nothing was done. An error means that it cannot be determined.
///
/// A setting that a transaction makes stays in the session only if the transaction is committed. A savepoint would show
/// the same. But then one subtransaction would lock the next row and another would settle it, which needs a multixact.
fn is_committed(connection: &mut impl PgSession, savepoint: &str, token: u64) -> QueryResult<bool> {
    // An aborted transaction answers no query, and its own settings are undone when it ends, so it has to be ended
    // here. If the handler's savepoint still exists, it was not even released.
    if connection.batch_execute(&format!("ROLLBACK TO SAVEPOINT {savepoint}")).is_ok() {
        return Ok(false);
    }
    match connection.batch_execute("ROLLBACK AND CHAIN") {
        Ok(()) => {}
        // After a commit that was refused there is no transaction left to roll back.
        Err(error) if is_message(&error, "ROLLBACK AND CHAIN can only be used in transaction blocks") => {
            return Ok(false);
        }
        Err(error) => return Err(error),
    }
    let set: Option<String> = diesel::select(current_setting_or_null(COMMITTED, true)).get_result(connection)?;
    Ok(set == Some(token.to_string()))
}

#[diesel::declare_sql_function]
extern "SQL" {
    #[sql_name = "pg_catalog.current_setting"]
    fn current_setting_or_null(name: Text, missing_ok: Bool) -> diesel::sql_types::Nullable<Text>;
}
