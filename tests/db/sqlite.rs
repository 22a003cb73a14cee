//! The tests' database: SQLite.

mod chinook;
mod pipe;

use std::env;
use std::process::Command;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{self, ConnectionManager, CustomizeConnection, Pool};
use tempfile::TempDir;

/// The connection that the tests of this root use.
pub(crate) type Conn = SqliteConnection;

/// Names the backend, as its feature does.
pub(crate) const NAME: &str = "sqlite";

/// Whether the database refuses a handler's COMMIT in a group.
pub(crate) const REFUSES_COMMITS: bool = false;

/// Whether the worker sees that the database has refused a handler's COMMIT in a group, also if the handler ignores that.
pub(crate) const SEES_REFUSED_COMMITS: bool = false;

/// The type of a key that the database counts up.
pub(crate) const AUTO_KEY: &str = "INTEGER PRIMARY KEY AUTOINCREMENT";
/// The type of 64-bit integers.
pub(crate) const BIGINT: &str = "BIGINT";
/// The type of text that may be a key.
pub(crate) const TEXT: &str = "TEXT";
/// The type of bytes that may be a key.
pub(crate) const BYTES: &str = "BLOB";

/// The type of the queue's times.
pub(crate) const TIME: &str = "TEXT";
/// The type of long text.
pub(crate) const LONG_TEXT: &str = "TEXT";
/// How many digits of a second the queue's time columns keep.
pub(crate) const TIME_DIGITS: u16 = 3;

/// Makes a trigger that lets no session change a payment of 7 cents.
pub(crate) const KEEP_SEVEN: &str =
    "CREATE TRIGGER keep BEFORE UPDATE ON payments WHEN OLD.amount_cents = 7 BEGIN SELECT RAISE(IGNORE); END";

/// The database's error text when the disk is full.
pub(crate) const DISK_IS_FULL: &str = "database or disk is full";

/// Makes the first delete of the archived payment 2 fail, as beside a session that has locked it.
pub(crate) fn conflict_at_first_delete_of_two(connection: &mut SqliteConnection) {
    diesel::define_sql_function! { fn tick() -> diesel::sql_types::Integer; }

    let mut ticks = 0;
    let tick = move || {
        ticks += 1;
        ticks
    };
    tick_utils::register_nondeterministic_impl(&*connection, tick).unwrap();
    let busy = "CREATE TRIGGER busy BEFORE DELETE ON payments_failed WHEN OLD.id = 2
        BEGIN SELECT CASE WHEN tick() = 1 THEN RAISE(ABORT, 'database is locked') END; END";
    connection.batch_execute(busy).unwrap();
}

/// Makes a trigger that refuses every change of a payment of 7 cents.
pub(crate) const REFUSE_SEVEN: &str = "CREATE TRIGGER refuse_seven BEFORE UPDATE ON payments WHEN OLD.amount_cents = 7 \
     BEGIN SELECT RAISE(ABORT, 'no change of sevens'); END";
/// Makes a trigger that restores the old values of the queue's columns of a payment of 7 cents.
pub(crate) const PUT_SEVEN_BACK: &str = "CREATE TRIGGER put_back AFTER UPDATE ON payments WHEN OLD.amount_cents = 7 BEGIN \
     UPDATE payments SET status = OLD.status, next_attempt_time = OLD.next_attempt_time, try_count = OLD.try_count, \
     last_attempt_time = OLD.last_attempt_time, last_attempt_error_message = OLD.last_attempt_error_message \
     WHERE id = OLD.id; END";
/// Makes a trigger that refuses to change the status and the number of tries of a payment of 7 cents, and nothing else.
pub(crate) const REFUSE_STATE_OF_SEVEN: &str = "CREATE TRIGGER refuse_state BEFORE UPDATE ON payments \
     WHEN OLD.amount_cents = 7 AND (NEW.status <> OLD.status OR NEW.try_count <> OLD.try_count) \
     BEGIN SELECT RAISE(ABORT, 'no other state of sevens'); END";

/// Makes a trigger that refuses every update of one payment.
pub(crate) fn refuse_update_of(id: i64) -> String {
    format!(
        "CREATE TRIGGER refuse BEFORE UPDATE ON payments WHEN OLD.id = {id} BEGIN SELECT RAISE(ABORT, 'refused'); END"
    )
}

/// Makes a trigger that refuses to remove one payment.
pub(crate) fn refuse_removal_of(id: i64) -> String {
    format!(
        "CREATE TRIGGER refuse BEFORE DELETE ON payments WHEN OLD.id = {id} BEGIN SELECT RAISE(ABORT, 'refused'); END"
    )
}

/// Makes the file grow beyond its limit, for which SQLite reports a full disk.
pub(crate) const FILL_THE_DISK: &str = "PRAGMA max_page_count = 1; CREATE TABLE large (x); \
    INSERT INTO large SELECT randomblob(1000000)";
/// Makes room again.
pub(crate) const MAKE_ROOM: &str = "PRAGMA max_page_count = 1000000";

/// A statement that fails with an error that quotes this text.
pub(crate) fn fail_quoting(text: &str) -> String {
    format!("SELECT [{text}]")
}

/// Writes an identifier so that its case and any character in it count.
pub(crate) fn quote(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

/// Lists a table's columns and indexes, as the catalogue has them; `$table` stands for its name.
pub(crate) const SHAPE: &str = "
    SELECT name || ' ' || type || ' ' || \"notnull\" || ' ' || coalesce(dflt_value, '') FROM pragma_table_info('$table')
    UNION ALL SELECT sql FROM sqlite_master WHERE tbl_name = '$table' AND type = 'index' AND sql IS NOT NULL ORDER BY 1";

/// Lists a table's triggers; `$table` stands for its name.
pub(crate) const TRIGGERS: &str =
    "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = '$table' ORDER BY 1";

/// Refreshes the planner's statistics of the payments.
pub(crate) const ANALYZE: &str = "ANALYZE payments";

/// Shows how the library would run a statement.
pub(crate) fn plan(connection: &mut Conn, statement: &str) -> String {
    use diesel::sql_types::{Integer, Text};
    let lines: Vec<(i32, i32, i32, String)> =
        diesel::dsl::sql::<(Integer, Integer, Integer, Text)>(&format!("EXPLAIN QUERY PLAN {statement}"))
            .load(connection)
            .expect("the statement can be explained");
    lines.into_iter().map(|(.., line)| line).collect::<Vec<_>>().join("\n")
}

/// How many rows a statement reads, if the database tells.
pub(crate) fn rows_read(_: &mut Conn, _: &str) -> Option<f64> {
    None
}

/// Whether a plan reads its rows from an index, in the index's order and bounded by it.
pub(crate) fn walks_the_index(plan: &str) -> bool {
    plan.contains("SEARCH") && !plan.contains("SCAN") && !plan.contains("TEMP B-TREE")
}

/// The Chinook sample's script for this backend, if the data is there.
pub(crate) fn chinook() -> Option<String> {
    chinook::script(NAME)
}

/// Whether the tools that the tests use can copy the queue's rows.
pub(crate) fn can_copy_rows() -> bool {
    true
}

/// Copies a database with SQLite's own shell.
pub(crate) fn dumped_and_restored(database: &Database) -> Database {
    let in_path = env::var_os("PATH").into_iter().flat_map(|path| env::split_paths(&path).collect::<Vec<_>>());
    let shell = in_path.map(|directory| directory.join("sqlite3")).find(|file| file.is_file());
    let shell = shell.expect("this test needs SQLite's shell `sqlite3` in PATH: install the Debian package `sqlite3`");
    let copy = Database::new();
    let dump = pipe::said(Command::new(&shell).args(["-init", "/dev/null", "-batch", database.url(), ".dump"]), &[]);
    pipe::said(Command::new(&shell).args(["-init", "/dev/null", "-batch", "-bail", copy.url()]), &dump);
    copy
}

/// A database file that only this value's owner uses. It is removed with the value, even if connections are still open.
pub(crate) struct Database {
    url: String,
    _directory: TempDir,
}

impl Database {
    /// Names a file in a directory of its own; the first connection creates it.
    pub(crate) fn new() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("queueable-sqlite-")
            .tempdir()
            .expect("the system's temporary directory is writable");
        let file = directory.path().join("test.sqlite");
        let url = file.to_str().expect("a temporary directory's path is text").to_owned();
        Self { url, _directory: directory }
    }

    /// Where the database is, as Diesel takes it.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Opens a connection that waits up to 5 seconds for other writers.
    pub(crate) fn connect(&self) -> Conn {
        let mut connection = Conn::establish(&self.url).unwrap_or_else(|error| panic!("{}: {error}", self.url));
        connection.batch_execute(PATIENCE).expect("a pragma of SQLite");
        connection
    }

    /// Opens a pool of `size` connections, as patient as those of [`connect`](Self::connect).
    pub(crate) fn pool(&self, size: u32) -> Pool<ConnectionManager<Conn>> {
        Pool::builder()
            .max_size(size)
            .connection_customizer(Box::new(Patient))
            .build(ConnectionManager::new(self.url()))
            .expect("the file can be opened")
    }
}

const PATIENCE: &str = "PRAGMA busy_timeout = 20000";

#[derive(Debug)]
struct Patient;

impl CustomizeConnection<Conn, r2d2::Error> for Patient {
    fn on_acquire(&self, connection: &mut Conn) -> Result<(), r2d2::Error> {
        connection.batch_execute(PATIENCE).map_err(r2d2::Error::QueryError)
    }
}

/// The settings of a connection, as one text.
pub(crate) fn settings() -> String {
    SETTINGS.to_owned()
}

const SETTINGS: &str = "(SELECT query_only FROM pragma_query_only) || (SELECT timeout FROM pragma_busy_timeout) \
     || (SELECT ignore_check_constraints FROM pragma_ignore_check_constraints) \
     || (SELECT recursive_triggers FROM pragma_recursive_triggers) || (SELECT foreign_keys FROM pragma_foreign_keys) \
     || (SELECT reverse_unordered_selects FROM pragma_reverse_unordered_selects) \
     || (SELECT legacy_alter_table FROM pragma_legacy_alter_table) || (SELECT writable_schema FROM pragma_writable_schema) \
     || (SELECT max_page_count FROM pragma_max_page_count) || (SELECT locking_mode FROM pragma_locking_mode) \
     || (SELECT locking_mode FROM pragma_locking_mode WHERE schema = 'main') \
     || (SELECT cache_size FROM pragma_cache_size) || ('a' LIKE 'A') || (SELECT count(*) FROM sqlite_temp_master) \
     || (SELECT count(*) FROM pragma_database_list WHERE name <> 'temp')";

/// Makes a second table of payments, in the same file: a handler cannot attach another one inside a transaction.
pub(crate) fn twin(_elsewhere: &Database) -> String {
    "CREATE TABLE twins AS SELECT * FROM payments".to_owned()
}

pub(crate) fn twin_table(_elsewhere: &Database) -> String {
    "twins".to_owned()
}

/// Settings that a handler may change for its transaction.
pub(crate) fn set_locally(_elsewhere: &Database) -> Vec<String> {
    vec!["PRAGMA defer_foreign_keys = 1".to_owned()]
}

/// Settings that a handler may change for its connection.
pub(crate) fn set_for_the_session(_elsewhere: &Database) -> Vec<String> {
    let pragmas = [
        "foreign_keys = 1",
        "busy_timeout = 1",
        "ignore_check_constraints = 1",
        "recursive_triggers = 1",
        "reverse_unordered_selects = 1",
        "legacy_alter_table = 1",
        "writable_schema = 1",
        "max_page_count = 100000",
        "locking_mode = EXCLUSIVE",
        "main.locking_mode = EXCLUSIVE",
        "cache_size = 77",
        "case_sensitive_like = 1",
    ];
    // The last one, because it refuses the others.
    let others = ["CREATE TEMPORARY TABLE IF NOT EXISTS notes (id)", "PRAGMA query_only = 1"];
    pragmas.into_iter().map(|pragma| format!("PRAGMA {pragma}")).chain(others.map(str::to_owned)).collect()
}
