//! The tests' database: MariaDB, or any MySQL that `QUEUEABLE_MYSQL_URL` names, whichever client speaks to it.

mod chinook;
mod database;
mod pipe;
mod server;

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};

pub(crate) use self::database::Database;
pub(crate) use self::server::{PrivateServer, eventually, free_ports};
use super::Conn;

/// Names the backend, as its feature does.
pub(crate) const NAME: &str = "mysql";

/// Whether the database refuses a handler's COMMIT in a group.
pub(crate) const REFUSES_COMMITS: bool = false;

/// The type of a key that the database counts up.
pub(crate) const AUTO_KEY: &str = "BIGINT AUTO_INCREMENT PRIMARY KEY";
/// The type of 64-bit integers.
pub(crate) const BIGINT: &str = "BIGINT";
/// The type of text that may be a key.
pub(crate) const TEXT: &str = "VARCHAR(255)";
/// The type of bytes that may be a key.
pub(crate) const BYTES: &str = "VARBINARY(255)";

/// The type of the queue's times.
pub(crate) const TIME: &str = "DATETIME(6)";
/// The type of long text.
pub(crate) const LONG_TEXT: &str = "MEDIUMTEXT";
/// How many digits of a second the queue's time columns keep.
pub(crate) const TIME_DIGITS: u16 = 6;

/// Lets no statement of a session wait longer than ten seconds for a lock.
pub(crate) const AT_MOST_TEN_SECONDS: &str =
    "SET SESSION lock_wait_timeout = 10; SET SESSION innodb_lock_wait_timeout = 10";
/// Counts the DDL that waits for a lock in the test's database.
pub(crate) const DDL_WAITS: &str = "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() \
     AND state LIKE 'Waiting for table metadata lock%' AND info LIKE 'ALTER TABLE%'";
/// The expressions that tell how long a session waits for locks.
pub(crate) const LOCK_WAITS: &[&str] =
    &["CAST(@@SESSION.innodb_lock_wait_timeout AS CHAR)", "CAST(@@SESSION.lock_wait_timeout AS CHAR)"];

/// The number by which the server knows a session.
pub(crate) const SESSION: &str = "CONNECTION_ID()";

/// Counts the statements that wait for a row in the test's database.
pub(crate) const WAITS: &str = "SELECT count(*) FROM information_schema.innodb_trx \
     JOIN information_schema.processlist ON id = trx_mysql_thread_id WHERE trx_state = 'LOCK WAIT' AND db = DATABASE()";
/// Makes a session's transactions serializable by default.
pub(crate) const SERIALIZABLE: &str = "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE";

/// Makes a trigger that lets no session change a payment of 7 cents.
pub(crate) const KEEP_SEVEN: &str = "CREATE TRIGGER keep BEFORE UPDATE ON payments FOR EACH ROW \
     IF OLD.amount_cents = 7 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'kept'; END IF";

/// The database's error text when the disk is full.
pub(crate) const DISK_IS_FULL: &str = "The table 'payments' is full";

/// Makes a trigger that refuses every change of a payment of 7 cents.
pub(crate) const REFUSE_SEVEN: &str = KEEP_SEVEN;
/// Makes a trigger that restores the old values of a payment of 7 cents, while the update counts the row as changed.
pub(crate) const PUT_SEVEN_BACK: &str = "CREATE TRIGGER put_back BEFORE UPDATE ON payments FOR EACH ROW \
     IF OLD.amount_cents = 7 THEN SET NEW.status = OLD.status, NEW.next_attempt_time = OLD.next_attempt_time, \
     NEW.try_count = OLD.try_count, NEW.last_attempt_time = OLD.last_attempt_time, \
     NEW.last_attempt_error_message = OLD.last_attempt_error_message; END IF";
/// Makes a trigger that refuses to change the status and the number of tries of a payment of 7 cents, and nothing else.
pub(crate) const REFUSE_STATE_OF_SEVEN: &str = "CREATE TRIGGER refuse_state BEFORE UPDATE ON payments FOR EACH ROW \
     IF OLD.amount_cents = 7 AND (NEW.status <> OLD.status OR NEW.try_count <> OLD.try_count) \
     THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no other state of sevens'; END IF";

/// Makes the first delete of the archived payment 2 fail, as beside a session that has locked it.
pub(crate) fn conflict_at_first_delete_of_two(connection: &mut impl SimpleConnection) {
    let busy = "CREATE TRIGGER busy BEFORE DELETE ON payments_failed FOR EACH ROW
        IF OLD.id = 2 AND @tried IS NULL THEN
            SET @tried = 1;
            SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1205,
                MESSAGE_TEXT = 'Lock wait timeout exceeded; try restarting transaction';
        END IF";
    connection.batch_execute(busy).unwrap();
}

/// Makes a trigger that refuses every update of one payment.
pub(crate) fn refuse_update_of(id: i64) -> String {
    format!(
        "CREATE TRIGGER refuse BEFORE UPDATE ON payments FOR EACH ROW \
         IF OLD.id = {id} THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused'; END IF"
    )
}

/// Makes a trigger that refuses to remove one payment.
pub(crate) fn refuse_removal_of(id: i64) -> String {
    format!(
        "CREATE TRIGGER refuse BEFORE DELETE ON payments FOR EACH ROW \
         IF OLD.id = {id} THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused'; END IF"
    )
}

/// Fails like a statement for which the disk has no room.
pub(crate) const FILL_THE_DISK: &str = "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1021, \
    MESSAGE_TEXT = 'Disk full (/tmp/x); waiting for someone to free some space... (errno: 28 \"No space left on device\")'";
/// Makes room again.
pub(crate) const MAKE_ROOM: &str = "DO 1";

/// A statement that fails with an error that quotes this text.
pub(crate) fn fail_quoting(text: &str) -> String {
    format!("INSERT INTO ledger (payment_id, amount_cents) VALUES ('{text}', 1)")
}

/// Writes an identifier so that its case and any character in it count.
pub(crate) fn quote(identifier: &str) -> String {
    format!("`{}`", identifier.replace('`', "``"))
}

/// Lists a table's columns and indexes, as the catalogue has them; `$table` stands for its name.
pub(crate) const SHAPE: &str = "
    SELECT CONCAT_WS(' ', COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, EXTRA) FROM information_schema.COLUMNS
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '$table'
    UNION ALL SELECT CONCAT_WS(' ', INDEX_NAME, SEQ_IN_INDEX, COLUMN_NAME) FROM information_schema.STATISTICS
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '$table' ORDER BY 1";

/// Lists a table's triggers; `$table` stands for its name.
pub(crate) const TRIGGERS: &str = "
    SELECT TRIGGER_NAME FROM information_schema.TRIGGERS
    WHERE EVENT_OBJECT_SCHEMA = DATABASE() AND EVENT_OBJECT_TABLE = '$table' ORDER BY 1";

/// Refreshes the planner's statistics of the payments.
pub(crate) const ANALYZE: &str = "ANALYZE TABLE payments";

/// Shows how the server would run a statement: the table's access type, its key, and what else is done.
pub(crate) fn plan(connection: &mut Conn, statement: &str) -> String {
    if is_mariadb() { plan_of_mariadb(connection, statement) } else { plan_of_mysql(connection, statement) }
}

fn plan_of_mariadb(connection: &mut Conn, statement: &str) -> String {
    #[derive(QueryableByName)]
    struct Line {
        #[diesel(sql_type = Text, column_name = "type")]
        access: String,
        #[diesel(sql_type = diesel::sql_types::Nullable<Text>)]
        key: Option<String>,
        #[diesel(sql_type = diesel::sql_types::Nullable<Text>, column_name = "Extra")]
        extra: Option<String>,
    }
    let lines: Vec<Line> =
        diesel::sql_query(format!("EXPLAIN {statement}")).load(connection).expect("the statement can be explained");
    let line = |line: Line| format!("type {} key {:?} extra {:?}", line.access, line.key, line.extra);
    lines.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

/// MySQL does not say which columns a prepared EXPLAIN has, so the plan goes through a variable, in the form that has a place
/// for each table. Returns it in the words of the table that MariaDB returns.
fn plan_of_mysql(connection: &mut Conn, statement: &str) -> String {
    let explain = format!("SET SESSION explain_json_format_version = 1; EXPLAIN FORMAT=JSON INTO @plan {statement}");
    connection.batch_execute(&explain).expect("the statement can be explained");
    let plan: String = diesel::select(sql::<Text>("@plan")).get_result(connection).expect("it was explained");
    let mut lines = Vec::new();
    push_steps(&serde_json::from_str(&plan).expect("JSON"), &mut lines);
    lines.join("\n")
}

/// Adds a line for each table of a plan, and one for each step that is not an access to a table.
fn push_steps(part: &serde_json::Value, lines: &mut Vec<String>) {
    if let Some(access) = part.get("access_type").and_then(|access| access.as_str()) {
        lines.push(format!("type {access} key {:?}", part.get("key").and_then(|key| key.as_str())));
    }
    for (step, extra) in [
        ("using_filesort", "Using filesort"),
        ("using_temporary_table", "Using temporary"),
        ("using_index_for_group_by", "Using index for group-by"),
    ] {
        // The last one may be the word for how it is used.
        if part.get(step).is_some_and(|is| is.as_bool() != Some(false)) {
            lines.push(extra.to_owned());
        }
    }
    // A derived table is stored in a temporary one, and that says nothing of how its own rows are found.
    let parts = part.as_object().into_iter().flatten().map(|(name, part)| match name.as_str() {
        "materialized_from_subquery" => &part["query_block"],
        _ => part,
    });
    parts.chain(part.as_array().into_iter().flatten()).for_each(|part| push_steps(part, lines));
}

/// How many rows a statement reads, those of temporary tables left out, if the database tells.
pub(crate) fn rows_read(connection: &mut Conn, statement: &str) -> Option<f64> {
    let before = handler_reads(connection);
    connection.batch_execute(statement).expect("the statement runs");
    Some(handler_reads(connection) - before)
}

fn handler_reads(connection: &mut Conn) -> f64 {
    #[derive(QueryableByName)]
    struct Reads {
        #[diesel(sql_type = Text, column_name = "Variable_name")]
        of: String,
        #[diesel(sql_type = Text, column_name = "Value")]
        number: String,
    }
    let reads: Vec<Reads> =
        diesel::sql_query("SHOW SESSION STATUS LIKE 'Handler_read_%'").load(connection).expect("the server counts");
    let of_indexes = reads.iter().filter(|reads| !reads.of.starts_with("Handler_read_rnd"));
    of_indexes.map(|reads| reads.number.parse::<f64>().expect("a number")).sum()
}

/// Whether a plan reads its rows from an index, in the index's order and bounded by it.
pub(crate) fn walks_the_index(plan: &str) -> bool {
    plan.contains("type range") && !plan.contains("filesort") && !plan.contains("temporary")
}

/// The Chinook sample's script for this backend, if the data is there.
pub(crate) fn chinook() -> Option<String> {
    chinook::script(NAME)
}

/// Whether the tools that the tests use can copy the queue's rows. MariaDB's write a value for MySQL's generated column, which
/// MySQL refuses (3105).
pub(crate) fn can_copy_rows() -> bool {
    is_mariadb()
}

/// Copies a database with MariaDB's own tools.
pub(crate) fn dumped_and_restored(database: &Database) -> Database {
    let copy = Database::new();
    let dump = pipe::said(tool("mariadb-dump", database).arg("--single-transaction").arg(name_of(database)), &[]);
    pipe::said(tool("mariadb", &copy).arg(name_of(&copy)), &dump);
    copy
}

/// A client program with the arguments to reach a database's server.
fn tool(name: &str, database: &Database) -> Command {
    let mut command = Command::new(server::program(name, PLACES));
    let (account, address) =
        database.url().split_once("://").and_then(|(_, rest)| rest.split_once('@')).expect("a URL");
    let (user, password) = account.split_once(':').unwrap_or((account, ""));
    let host = address.split_once('/').map_or(address, |(host, _)| host);
    let (host, port) = host.split_once(':').unwrap_or((host, "3306"));
    command.args(["--no-defaults", "--protocol=tcp"]).env("MYSQL_PWD", password);
    command.arg(format!("--user={user}")).arg(format!("--host={host}")).arg(format!("--port={port}"));
    command
}

fn name_of(database: &Database) -> &str {
    let name = database.url().rsplit('/').next().expect("a URL");
    name.split_once('?').map_or(name, |(name, _)| name)
}

const PRODUCT: &str = "MariaDB";
const PACKAGE: &str = "mariadb-server";
const VARIABLE: &str = "QUEUEABLE_MYSQL_URL";
const ACCOUNT: &str = "mysql";
const DATA_DIRECTORY: &str = "@@datadir";
/// The first port of its servers. The other database's ports begin elsewhere, so that a program can start both.
const FIRST_PORT: u16 = 22_500;
const PLACES: &[&str] = &["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/opt/homebrew/bin"];

fn root_url(port: u16) -> String {
    format!("mysql://root@127.0.0.1:{port}/mysql")
}

/// The program that serves MySQL, for private servers of MySQL's instead of MariaDB's.
fn mysqld() -> Option<String> {
    env::var("QUEUEABLE_MYSQLD").ok().filter(|program| !program.is_empty())
}

/// Where a server of MySQL's finds the statements for its start, beside its data directory.
const AT_START: &str = "init.sql";

pub(crate) fn initialize(data: &Path) -> Command {
    let Some(mysqld) = mysqld() else {
        let mut command = Command::new(server::program("mariadb-install-db", PLACES));
        command.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
        command.args(["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]);
        return command;
    };
    // A new server lets root in by the socket only.
    let root = "CREATE USER IF NOT EXISTS root@'127.0.0.1';\nGRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n";
    fs::write(data.with_file_name(AT_START), root).expect("the directory is writable");
    let mut command = Command::new(mysqld);
    command.args(["--no-defaults", "--initialize-insecure"]).arg(format!("--datadir={}", data.display()));
    command
}

/// `innodb-flush-log-at-trx-commit=2` hands a commit to the system without forcing it to the disk. With 0 the server
/// would keep it for up to a second, and a test that kills the server would find commits lost.
fn serve(data: &Path, port: u16) -> Command {
    let mysqld = mysqld();
    let mut command = Command::new(mysqld.as_deref().map_or_else(|| server::program("mariadbd", PLACES), Into::into));
    command.arg("--no-defaults").arg(format!("--datadir={}", data.display())).arg(format!("--port={port}"));
    command.args([
        "--skip-networking=0",
        "--bind-address=127.0.0.1",
        // Relative to the data directory, whose own path may be longer than a socket's name can be.
        "--socket=mariadb.sock",
        "--pid-file=mariadb.pid",
        "--skip-name-resolve",
        "--max-connections=200",
        "--innodb-flush-log-at-trx-commit=2",
        "--innodb-buffer-pool-size=128M",
        "--character-set-server=utf8mb4",
        "--default-time-zone=+00:00",
    ]);
    if mysqld.is_some() {
        command.args(["--mysqlx=OFF", "--skip-log-bin", "--secure-file-priv=NULL"]);
        command.arg(format!("--init-file={}", data.with_file_name(AT_START).display()));
    }
    command
}

fn create_database(name: &str) -> String {
    format!("CREATE DATABASE {} CHARACTER SET utf8mb4", quote(name))
}

/// Ends the sessions that are still in the database: the drop would wait for their transactions, for a day by default.
fn drop_database(connection: &mut Conn, name: &str) -> QueryResult<()> {
    let sessions: Vec<i64> = sql::<BigInt>("SELECT CAST(id AS SIGNED) FROM information_schema.processlist WHERE db = ")
        .bind::<Text, _>(name)
        .load(connection)?;
    for session in sessions {
        // A session that has ended meanwhile needs no killing.
        let _ = connection.batch_execute(&format!("KILL {session}"));
    }
    connection.batch_execute(&format!("SET SESSION lock_wait_timeout = 10; DROP DATABASE {}", quote(name)))
}

/// Whether the server of the tests is MariaDB, and not MySQL.
pub(crate) fn is_mariadb() -> bool {
    static IS: OnceLock<bool> = OnceLock::new();
    *IS.get_or_init(|| {
        let mut connection = Conn::establish(server::shared_url()).expect("the server answers");
        let version: String = diesel::select(sql::<Text>("VERSION()")).get_result(&mut connection).expect("it has one");
        version.contains("MariaDB")
    })
}

/// The settings of a session, as one text.
pub(crate) fn settings() -> String {
    match is_mariadb() {
        true => SETTINGS.to_owned(),
        false => SETTINGS
            .replace("@@tx_", "@@transaction_")
            .replace("max_statement_time", "max_execution_time")
            .replace("@@system_versioning_asof, ", ""),
    }
}

const SETTINGS: &str = "CONCAT_WS('|', COALESCE(CURRENT_ROLE(), '-'), DATABASE(), @@sql_mode, @@autocommit, \
     @@time_zone, @@tx_isolation, @@tx_read_only, @@foreign_key_checks, @@unique_checks, @@lock_wait_timeout, \
     @@innodb_lock_wait_timeout > 60, @@sql_select_limit, @@max_statement_time, @@character_set_results, @@insert_id, \
     @@auto_increment_increment, @@auto_increment_offset, @@optimizer_switch, @@system_versioning_asof, \
     @@completion_type, YEAR(NOW()) > 2020)";

/// Makes a second table of payments, which an unqualified name can mean after a handler has changed its session.
pub(crate) fn twin(elsewhere: &Database) -> String {
    let twin = twin_table(elsewhere);
    format!("CREATE TABLE {twin} LIKE payments; INSERT INTO {twin} SELECT * FROM payments")
}

pub(crate) fn twin_table(elsewhere: &Database) -> String {
    format!("{}.payments", quote(name_of(elsewhere)))
}

/// Settings that a handler may change inside its transaction: MySQL has none for a transaction, except the current database.
pub(crate) fn set_locally(elsewhere: &Database) -> Vec<String> {
    vec![format!("USE {}", quote(name_of(elsewhere)))]
}

/// Settings that a handler may change for its session.
pub(crate) fn set_for_the_session(elsewhere: &Database) -> Vec<String> {
    let settings = [
        "SET SESSION sql_mode = 'ANSI_QUOTES', SESSION completion_type = 'CHAIN'",
        "SET SESSION time_zone = '+05:00'",
        "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "SET SESSION TRANSACTION READ ONLY",
        "SET SESSION foreign_key_checks = 0, SESSION unique_checks = 0",
        "SET SESSION lock_wait_timeout = 77, SESSION innodb_lock_wait_timeout = 77",
        // Each server reads the other's variable as a comment.
        "SET SESSION sql_select_limit = 1 /*M! , SESSION max_statement_time = 100 */ \
         /*!80000 , SESSION max_execution_time = 100000 */",
        "SET NAMES latin1",
        // By the queue's clock no row would be due.
        "SET SESSION timestamp = 1000000000",
        "SET SESSION insert_id = 900000, SESSION auto_increment_increment = 7, SESSION auto_increment_offset = 3",
        "SET SESSION optimizer_switch = 'mrr=off,index_merge=off' /*M! , SESSION system_versioning_asof = '2026-01-01 00:00:00' */",
    ];
    settings.into_iter().map(str::to_owned).chain(set_locally(elsewhere)).collect()
}

/// The rights that a poller of payments needs.
pub(crate) const SMALLEST_RIGHTS: &[&str] = &[
    "SELECT ON payments",
    "UPDATE (status, next_attempt_time, try_count, last_attempt_time, last_attempt_error_message) ON payments",
];

/// An account with a few rights, dropped with the value.
pub(crate) struct Account<'a> {
    pub(crate) url: String,
    pub(crate) name: String,
    database: &'a Database,
}

impl<'a> Account<'a> {
    pub(crate) fn new(database: &'a Database, rights: &[&str]) -> Self {
        let name = format!("queueable_{:x}", fastrand::u64(..));
        let mut connection = database.connect();
        connection
            .batch_execute(&format!("CREATE USER '{name}'@'%' IDENTIFIED BY 'guest'"))
            .expect("users can be created");
        for right in rights {
            connection.batch_execute(&format!("GRANT {right} TO '{name}'@'%'")).expect("a right can be granted");
        }
        let (_, address) = database.url().split_once('@').expect("a URL with an account");
        Account { url: format!("mysql://{name}:guest@{address}"), name, database }
    }
}

impl Drop for Account<'_> {
    fn drop(&mut self) {
        let _ = self.database.connect().batch_execute(&format!("DROP USER '{}'@'%'", self.name));
    }
}
