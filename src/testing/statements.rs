//! The statements that a handler runs in a test.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use diesel::connection::InstrumentationEvent;
use queue_core::internals::testing::{AroundHandlers, around_handlers, end_listening, listen};

use crate::bounds::QueueConnection;

/// A statement that a handler has run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RanStatement {
    /// Its text as Diesel shows it, with the bound values at its end.
    pub sql: String,
    /// The database's error, if it was refused.
    pub error: Option<String>,
}

impl RanStatement {
    /// Tells whether the statement changes something: rows, or the schema. It goes by the first words of the text, so that
    /// a `SELECT` of a function that writes counts as a statement that reads.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::connection::SimpleConnection;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::testing::TestQueue;
    /// # use queueable::{HandlerResult, Message, Migrations, Outcome, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL)")?;
    /// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
    /// # connection.begin_test_transaction()?;
    /// # diesel::insert_into(payments::table).values((payments::id.eq(1), Payment::due_now())).execute(&mut connection)?;
    /// fn look(_: &Payment, message: &mut Message<'_, SqliteConnection>) -> HandlerResult {
    ///     payments::table.count().get_result::<i64>(message.connection())?;
    ///     Ok(Outcome::Done)
    /// }
    ///
    /// let attempted = Payment::attempt_with_sql(&mut connection, &look, &1)?;
    /// assert!(!attempted.statements.iter().any(|statement| statement.is_write()));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn is_write(&self) -> bool {
        written(&self.sql).is_some()
    }

    /// Returns the name of the table that the statement writes in, as the statement has it, without quotes. `None`: the
    /// statement only reads, or its text shows no table.
    pub fn written_table(&self) -> Option<String> {
        written(&self.sql).flatten()
    }
}

impl fmt::Display for RanStatement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sql)?;
        self.error.as_ref().map_or(Ok(()), |error| write!(f, " -- error: {error}"))
    }
}

/// Returns the table in which a statement writes, as far as its text shows it. The outer `None`: it writes nothing.
fn written(sql: &str) -> Option<Option<String>> {
    const VERBS: [&str; 4] = ["INSERT", "UPDATE", "DELETE", "MERGE"];

    let is_end = |c: char| c.is_whitespace() || c == '(' || c == ';';
    let mut words = sql.split(is_end).filter(|word| !word.is_empty());
    match &*words.next()?.to_ascii_uppercase() {
        "INSERT" | "REPLACE" | "UPDATE" | "DELETE" | "MERGE" | "TRUNCATE" | "COPY" => Some(first_name(words)),
        "CREATE" | "ALTER" | "DROP" | "GRANT" | "REVOKE" | "CALL" | "DO" | "LOAD" => Some(None),
        // The statement that writes may stand in the clause, or after it. `FOR UPDATE` locks.
        "WITH" => {
            let mut is_lock = false;
            words.find(|word| {
                let is_verb = !is_lock && VERBS.iter().any(|verb| word.eq_ignore_ascii_case(verb));
                is_lock = word.eq_ignore_ascii_case("FOR");
                is_verb
            })?;
            Some(first_name(words))
        }
        _ => None,
    }
}

/// Returns the first word that is a name, without quotes.
fn first_name<'w>(mut words: impl Iterator<Item = &'w str>) -> Option<String> {
    const NOISE: [&str; 14] = [
        "INTO",
        "FROM",
        "ONLY",
        "TABLE",
        "IGNORE",
        "LOW_PRIORITY",
        "HIGH_PRIORITY",
        "DELAYED",
        "QUICK",
        "OR",
        "REPLACE",
        "ROLLBACK",
        "ABORT",
        "FAIL",
    ];
    let name = words.find(|word| !NOISE.iter().any(|noise| word.eq_ignore_ascii_case(noise)))?;
    Some(name.replace(['"', '`', '[', ']'], ""))
}

impl Heard {
    fn hear(&mut self, event: &InstrumentationEvent<'_>) {
        match event {
            InstrumentationEvent::StartQuery { query, .. } if self.listens => {
                self.statements.push(RanStatement { sql: query.to_string(), error: None });
            }
            // On connections of diesel-async its text lacks the values.
            InstrumentationEvent::FinishQuery { query, error: Some(error), .. } if self.listens => {
                let text = query.to_string();
                let failed = self.statements.iter_mut().rfind(|ran| ran.error.is_none() && ran.sql.starts_with(&text));
                if let Some(failed) = failed {
                    failed.error = Some(error.to_string());
                }
            }
            _ => {}
        }
    }
}

/// How the statement begins by which the library finds out, after an async handler on MySQL, that no answer is missing. It runs
/// where the handler's statements do.
const LIBRARYS_OWN: &str = "SELECT ? LIMIT ? -- ";

/// The statements of the handlers of a connection, from now on.
pub(super) struct Recorder {
    heard: Arc<Mutex<Heard>>,
    _around: AroundHandlers,
}

#[derive(Default)]
struct Heard {
    /// Whether a handler runs.
    listens: bool,
    statements: Vec<RanStatement>,
}

impl Recorder {
    /// Listens on a connection, in the place of the instrumentation that it has.
    pub(super) fn begin<C: QueueConnection>(connection: &mut C) -> Self {
        let heard = Arc::<Mutex<Heard>>::default();
        let of_handlers = heard.clone();
        let around = around_handlers(move |call| {
            if call.lease.is_none() {
                of_handlers.lock().unwrap_or_else(PoisonError::into_inner).listens = !call.has_ended;
            }
            None
        });
        let of_connection = heard.clone();
        listen(connection, move |event| {
            of_connection.lock().unwrap_or_else(PoisonError::into_inner).hear(event);
        });
        Recorder { heard, _around: around }
    }

    /// Ends it, and returns the statements.
    pub(super) fn end<C: QueueConnection>(self, connection: &mut C) -> Vec<RanStatement> {
        end_listening(connection);
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.statements.retain(|statement| !statement.sql.starts_with(LIBRARYS_OWN));
        std::mem::take(&mut heard.statements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_statement_shows_where_it_writes() {
        let table = |name: &str| Some(Some(name.to_owned()));
        for (sql, expected) in [
            ("INSERT INTO `ledger` (`payment_id`) VALUES (?) -- binds: [7]", table("ledger")),
            ("INSERT OR REPLACE INTO ledger(id) VALUES (1)", table("ledger")),
            ("insert ignore into ledger values (1)", table("ledger")),
            ("UPDATE \"books\".\"ledger\" SET x = 1", table("books.ledger")),
            ("DELETE FROM ledger;", table("ledger")),
            ("WITH old AS (DELETE FROM ledger RETURNING id) SELECT * FROM old", table("ledger")),
            ("WITH a AS (SELECT 1 FOR UPDATE) INSERT INTO ledger SELECT 1", table("ledger")),
            ("CREATE TABLE x (id INT)", Some(None)),
            ("SELECT id FROM ledger FOR UPDATE SKIP LOCKED", None),
            ("WITH a AS (SELECT 1) SELECT * FROM a FOR UPDATE", None),
            ("SAVEPOINT diesel_savepoint_2", None),
            ("", None),
        ] {
            assert_eq!(written(sql), expected, "{sql}");
        }
    }
}
