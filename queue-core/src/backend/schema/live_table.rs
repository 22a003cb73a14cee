//! A database's view of a live table, and how the table is altered.

use std::thread;
use std::time::{Duration, Instant};

use diesel::Connection;
use diesel::deserialize::QueryableByName;
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Bool, Nullable, Text};

use super::table_name::TableName;
use super::target::{Step, Target};
use crate::backend::connection::{ErrorClass, ErrorClasses, QueueBackend};
use crate::error::refused;

/// The comment by which a migration knows a column as the queue's. Restores and dumps keep it, and so does the renaming
/// of a column; on MySQL `MODIFY` and `CHANGE` have to repeat it. A column without it is the application's, whatever
/// its name, type and default: the queue would run rows that were never enqueued, and a revert would drop what is not
/// its own.
pub(crate) const MARK: &str = "queueable: a column of the queue";

/// A column of a table, as the catalogue has it.
#[derive(QueryableByName)]
pub(crate) struct LiveColumn {
    #[diesel(sql_type = Text)]
    pub(crate) name: String,
    /// The type by which the queue recognizes its columns.
    #[diesel(sql_type = Text)]
    pub(crate) data_type: String,
    /// The whole type, as DDL writes it.
    #[diesel(sql_type = Text)]
    pub(crate) whole_type: String,
    #[diesel(sql_type = Bool)]
    pub(crate) nullable: bool,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) default_value: Option<String>,
    /// Whether an insert may leave it out although it is not null.
    #[diesel(sql_type = Bool)]
    pub(crate) has_default: bool,
    /// The number of characters that a text in it can have; `None`: its type has no limit.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) length: Option<i64>,
    /// Whether it bears the queue's [`MARK`].
    #[diesel(sql_type = Bool)]
    pub(crate) marked: bool,
    /// Whether it is generated from other columns.
    #[diesel(sql_type = Bool)]
    pub(crate) computed: bool,
}

impl LiveColumn {
    /// Returns the type for people.
    pub(crate) fn sql_type(&self) -> String {
        let sql_type = self.data_type.to_ascii_lowercase();
        match self.length {
            // MySQL's catalogue has a length for the types of long texts too.
            Some(length) if sql_type.contains("char") => format!("{sql_type}({length})"),
            _ => sql_type,
        }
    }
}

pub(crate) fn find_column<'a>(live: &'a [LiveColumn], name: &str) -> Option<&'a LiveColumn> {
    live.iter().find(|column| column.name.eq_ignore_ascii_case(name))
}

/// Something that can be read like a table, but cannot have a queue.
#[derive(Debug, Clone, Copy)]
#[allow(dead_code, reason = "no database has them all")]
pub(crate) enum OtherKind {
    View,
    /// Its rows are on another server.
    Foreign,
    /// Only the session that has made it sees it.
    Temporary,
    /// A module of SQLite answers in place of a table.
    Virtual,
}

impl OtherKind {
    /// Says what is wrong, and the mend.
    pub(crate) fn problem(self, target: &Target) -> (String, &'static str) {
        let (kind, mend) = match self {
            OtherKind::View => ("a view", "derive Queueable on a struct of the table that the view reads"),
            OtherKind::Foreign => ("a foreign table", "run the poller on the server that has the table"),
            OtherKind::Temporary => ("a temporary table", "create it without TEMPORARY"),
            OtherKind::Virtual => {
                ("a virtual table", "derive Queueable on a struct of an ordinary table that refers to it")
            }
        };
        let table = &target.table;
        (format!("{table} is {kind}, and a queue needs an ordinary table, whose rows every session can lock"), mend)
    }
}

/// A database's view of a live table, and how the table is altered there.
pub(crate) trait LiveTable<DB = <Self as Connection>::Backend>: Connection<Backend: QueueBackend> {
    /// Whether a table can be created or altered inside a transaction.
    const ALTERS_IN_TRANSACTION: bool = true;

    /// Whether two columns of a table may differ in the case of their names alone.
    const NAMES_HAVE_CASE: bool = false;

    /// The default that gives an inserted row its time. `None`: the database cannot add one to an existing column.
    const INSERT_TIME: Option<&'static str>;

    /// Says what the table's name stands for, if that is not a table that can have a queue.
    fn other_kind(&mut self, target: &Target) -> QueryResult<Option<OtherKind>>;

    /// Returns the names of a table's columns, and for each a text that changes with the values that its type has.
    fn column_types(&mut self, table: &TableName) -> QueryResult<Vec<(String, String)>> {
        Ok(self.columns(table)?.into_iter().map(|column| (column.name, column.whole_type)).collect())
    }

    /// Returns the columns of a table in their order; none if there is no such table.
    fn columns(&mut self, table: &TableName) -> QueryResult<Vec<LiveColumn>>;

    /// Returns those columns of the queue's table that may be the queue's.
    fn live_columns(&mut self, target: &Target) -> QueryResult<Vec<LiveColumn>> {
        self.columns(&target.table)
    }

    /// Runs DDL that needs the table's strongest lock, without keeping other sessions waiting for long.
    fn alter(&mut self, ddl: &str) -> QueryResult<()>;

    /// Makes a step of a migration.
    fn step(name: &'static str, up: Vec<String>, down: Vec<String>) -> Step {
        Step { name, up, down, in_transaction: Self::ALTERS_IN_TRANSACTION, alone: false }
    }
}

/// Runs the first of the statements that are left to do, until none is left.
///
/// Others may be doing the same: processes that start together, or a server that still runs the statement of a killed
/// process. So what is left is looked up after each statement, and an error counts only if nothing has changed, or the same
/// statement leaves the same once more: a failed build may leave half an index, which is dropped and built again.
pub(crate) fn until_done<C>(
    connection: &mut C,
    left_to_do: impl Fn(&mut C) -> QueryResult<Vec<String>>,
    run: impl Fn(&mut C, &str) -> QueryResult<()>,
) -> QueryResult<()> {
    let (mut left, mut failed) = (left_to_do(connection)?, Vec::new());
    while let Some(statement) = left.first() {
        let done = run(connection, statement);
        left = match (done, left_to_do(connection)) {
            (done, Ok(after)) if after == left => return done,
            (Err(error), Err(_)) => return Err(error),
            (Err(error), Ok(after)) => {
                let failure = (statement.clone(), after.clone());
                if failed.contains(&failure) {
                    return Err(error);
                }
                failed.push(failure);
                after
            }
            (Ok(()), after) => after?,
        };
    }
    Ok(())
}

/// How long the change of a table waits for other transactions.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Tries a change of a table again as long as another transaction holds the table. The attempt learns how long the longest one
/// before it has taken.
#[allow(dead_code, reason = "on SQLite the session waits")]
pub(crate) fn patiently<C: ErrorClasses>(
    connection: &mut C,
    attempt: impl Fn(&mut C, Duration) -> QueryResult<()>,
) -> QueryResult<()> {
    let (started, mut longest) = (Instant::now(), Duration::ZERO);
    loop {
        let began = Instant::now();
        match attempt(connection, longest) {
            Err(error) if C::classify(&error) == ErrorClass::Conflict => {
                longest = longest.max(began.elapsed());
                // It may have built an index before it waited.
                if started.elapsed() > PATIENCE + 3 * longest {
                    let seconds = started.elapsed().as_secs();
                    return Err(refused(format!(
                        "other transactions have held the table, for {seconds} s: end them and run the migration again ({error})"
                    )));
                }
                thread::sleep(Duration::from_millis(fastrand::u64(50..250)));
            }
            done => return done,
        }
    }
}
