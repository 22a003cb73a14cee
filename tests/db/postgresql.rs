//! The tests' database: PostgreSQL, whichever client speaks to it.

mod chinook;
mod database;
mod pipe;
mod server;

use std::path::Path;
use std::process::Command;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;

pub(crate) use self::database::Database;
pub(crate) use self::server::{PrivateServer, eventually};
use super::Conn;

/// Names the backend, as its feature does.
pub(crate) const NAME: &str = "postgres";

/// Whether the database refuses a handler's COMMIT in a group.
pub(crate) const REFUSES_COMMITS: bool = true;

/// The type of a key that the database counts up.
pub(crate) const AUTO_KEY: &str = "BIGSERIAL PRIMARY KEY";
/// The type of 64-bit integers.
pub(crate) const BIGINT: &str = "BIGINT";
/// The type of text that may be a key.
pub(crate) const TEXT: &str = "TEXT";
/// The type of bytes that may be a key.
pub(crate) const BYTES: &str = "BYTEA";

/// The type of the queue's times.
pub(crate) const TIME: &str = "TIMESTAMPTZ";
/// The type of long text.
pub(crate) const LONG_TEXT: &str = "TEXT";
/// How many digits of a second the queue's time columns keep.
pub(crate) const TIME_DIGITS: u16 = 6;

/// Lets no statement of a session wait longer than ten seconds for a lock.
pub(crate) const AT_MOST_TEN_SECONDS: &str = "SET lock_timeout = '10s'";
/// Counts the DDL that waits for a lock in the test's database.
pub(crate) const DDL_WAITS: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
     AND wait_event_type = 'Lock' AND query LIKE '%ALTER TABLE%' AND pid <> pg_backend_pid()";
/// The expressions that tell how long a session waits for locks.
pub(crate) const LOCK_WAITS: &[&str] = &["current_setting('lock_timeout')"];

/// The number by which the server knows a session.
pub(crate) const SESSION: &str = "CAST(pg_backend_pid() AS bigint)";

/// Counts the statements that wait for a lock in the test's database.
pub(crate) const WAITS: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
/// Makes a session's transactions serializable by default.
pub(crate) const SERIALIZABLE: &str = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE";

/// Makes a trigger that lets no session change a payment of 7 cents.
pub(crate) const KEEP_SEVEN: &str = "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$; \
     CREATE TRIGGER keep BEFORE UPDATE ON payments FOR EACH ROW WHEN (OLD.amount_cents = 7) EXECUTE FUNCTION keep()";

/// The database's error text when the disk is full.
pub(crate) const DISK_IS_FULL: &str = "could not extend file \"base/1/2\": No space left on device";

/// Makes the first delete of the archived payment 2 fail, as beside a session that has locked it.
pub(crate) fn conflict_at_first_delete_of_two(connection: &mut impl SimpleConnection) {
    // A sequence goes on although the transaction is rolled back.
    let busy = "CREATE SEQUENCE tries;
        CREATE FUNCTION busy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('tries') = 1 THEN RAISE EXCEPTION 'busy' USING ERRCODE = 'serialization_failure'; END IF;
            RETURN OLD;
        END $$;
        CREATE TRIGGER busy BEFORE DELETE ON payments_failed FOR EACH ROW WHEN (OLD.id = 2) EXECUTE FUNCTION busy()";
    connection.batch_execute(busy).unwrap();
}

/// Makes a trigger that refuses every change of a payment of 7 cents.
pub(crate) const REFUSE_SEVEN: &str = "CREATE FUNCTION refuse_seven() RETURNS trigger LANGUAGE plpgsql AS \
     $$ BEGIN RAISE EXCEPTION 'no change of sevens'; END $$; \
     CREATE TRIGGER refuse_seven BEFORE UPDATE ON payments FOR EACH ROW WHEN (OLD.amount_cents = 7) \
     EXECUTE FUNCTION refuse_seven()";
/// Makes a trigger that restores the old values of a payment of 7 cents, while the update counts the row as changed.
pub(crate) const PUT_SEVEN_BACK: &str = "CREATE FUNCTION put_back() RETURNS trigger LANGUAGE plpgsql AS \
     $$ BEGIN RETURN OLD; END $$; \
     CREATE TRIGGER put_back BEFORE UPDATE ON payments FOR EACH ROW WHEN (OLD.amount_cents = 7) \
     EXECUTE FUNCTION put_back()";
/// Makes a trigger that refuses to change the status and the number of tries of a payment of 7 cents, and nothing else.
pub(crate) const REFUSE_STATE_OF_SEVEN: &str = "CREATE FUNCTION refuse_state() RETURNS trigger LANGUAGE plpgsql AS \
     $$ BEGIN RAISE EXCEPTION 'no other state of sevens'; END $$; \
     CREATE TRIGGER refuse_state BEFORE UPDATE ON payments FOR EACH ROW \
     WHEN (OLD.amount_cents = 7 AND (NEW.status <> OLD.status OR NEW.try_count <> OLD.try_count)) \
     EXECUTE FUNCTION refuse_state()";

/// Makes a trigger that refuses every update of one payment.
pub(crate) fn refuse_update_of(id: i64) -> String {
    format!(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN IF OLD.id = {id} THEN RAISE EXCEPTION 'refused'; END IF; RETURN NEW; END $$; \
         CREATE TRIGGER refuse BEFORE UPDATE ON payments FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
}

/// Makes a trigger that refuses to remove one payment.
pub(crate) fn refuse_removal_of(id: i64) -> String {
    format!(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN IF OLD.id = {id} THEN RAISE EXCEPTION 'refused'; END IF; RETURN OLD; END $$; \
         CREATE TRIGGER refuse BEFORE DELETE ON payments FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
}

/// Fails like a statement for which the disk has no room.
pub(crate) const FILL_THE_DISK: &str = "DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '53100', \
    MESSAGE = 'could not extend file \"base/1/2\": No space left on device', HINT = 'Check free disk space.'; END $$";
/// Makes room again.
pub(crate) const MAKE_ROOM: &str = "SELECT 1";

/// A statement that fails with an error that quotes this text.
pub(crate) fn fail_quoting(text: &str) -> String {
    format!("SELECT CAST('{text}' AS integer)")
}

/// Writes an identifier so that its case and any character in it count.
pub(crate) fn quote(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

/// Lists a table's columns and indexes, as the catalogue has them; `$table` stands for its name.
pub(crate) const SHAPE: &str = "
    SELECT attname || ' ' || format_type(atttypid, atttypmod) || ' ' || attnotnull || ' '
        || coalesce(pg_get_expr(adbin, adrelid), '')
    FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    WHERE attrelid = to_regclass('$table') AND attnum > 0 AND NOT attisdropped
    UNION ALL SELECT indexdef FROM pg_indexes WHERE tablename = '$table' ORDER BY 1";

/// Lists a table's triggers and the library's functions; `$table` stands for the table's name.
pub(crate) const TRIGGERS: &str = "
    SELECT tgname::text FROM pg_trigger WHERE tgrelid = to_regclass('$table') AND NOT tgisinternal
    UNION ALL SELECT proname || '()' FROM pg_proc WHERE proname LIKE 'zz\\_queueable%' ORDER BY 1";

/// Refreshes the planner's statistics of the payments.
pub(crate) const ANALYZE: &str = "ANALYZE payments";

/// Shows how the server would run a statement.
pub(crate) fn plan(connection: &mut Conn, statement: &str) -> String {
    let lines: Vec<String> = diesel::dsl::sql::<diesel::sql_types::Text>(&format!("EXPLAIN {statement}"))
        .load(connection)
        .expect("the statement can be explained");
    lines.join("\n")
}

/// How many rows the steps of a statement read, if the database tells.
pub(crate) fn rows_read(connection: &mut Conn, statement: &str) -> Option<f64> {
    let plan = plan(connection, &format!("(ANALYZE, TIMING OFF) {statement}"));
    let numbers =
        |word| plan.split(word).skip(1).filter_map(|rest| rest.split([' ', '\n']).next()?.parse::<f64>().ok());
    Some(numbers("actual rows=").chain(numbers("Rows Removed by Filter: ")).sum())
}

/// Whether a plan reads its rows from an index, in the index's order and bounded by it.
pub(crate) fn walks_the_index(plan: &str) -> bool {
    plan.contains("Index Cond") && !plan.contains("Seq Scan") && !plan.contains("Sort") && !plan.contains("Bitmap")
}

/// The Chinook sample's script for this backend, if the data is there.
pub(crate) fn chinook() -> Option<String> {
    chinook::script(NAME)
}

/// Whether the tools that the tests use can copy the queue's rows.
pub(crate) fn can_copy_rows() -> bool {
    true
}

/// Copies a database with PostgreSQL's own tools.
pub(crate) fn dumped_and_restored(database: &Database) -> Database {
    let copy = Database::new();
    // It refuses servers that are newer than itself.
    let named = std::env::var_os("QUEUEABLE_PG_DUMP").filter(|name| !name.is_empty());
    let pg_dump = named.map_or_else(|| server::program("pg_dump", PLACES), Into::into);
    let dump = pipe::said(Command::new(pg_dump).arg("--dbname").arg(database.url()), &[]);
    let mut restore = Command::new(server::program("psql", PLACES));
    restore.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--dbname"]).arg(copy.url());
    pipe::said(&mut restore, &dump);
    copy
}

const PRODUCT: &str = "PostgreSQL";
const PACKAGE: &str = "postgresql";
const VARIABLE: &str = "QUEUEABLE_PG_URL";
const ACCOUNT: &str = "postgres";
const DATA_DIRECTORY: &str = "current_setting('data_directory')";
/// The first port of its servers. The other database's ports begin elsewhere, so that a program can start both.
const FIRST_PORT: u16 = 15_000;
const PLACES: &[&str] = &["/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin", "/usr/local/bin", "/opt/homebrew/bin"];

fn root_url(port: u16) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/postgres")
}

fn initialize(data: &Path) -> Command {
    let mut command = Command::new(server::program("initdb", PLACES));
    command.arg("--pgdata").arg(data);
    command.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
    command
}

/// `fsync` only protects against a crash of the machine, which no test stages. `synchronous_commit` and `full_page_writes`
/// stay on, because tests do kill the server, and its commits must survive that.
fn serve(data: &Path, port: u16) -> Command {
    let mut command = Command::new(server::program("postgres", PLACES));
    command.arg("-D").arg(data).arg("-p").arg(port.to_string());
    for setting in [
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "max_connections=200",
        "fsync=off",
        // Shared memory in the data directory, and removed with it. The system's would stay after a kill.
        "dynamic_shared_memory_type=mmap",
        "lc_messages=C",
        "timezone=UTC",
    ] {
        command.args(["-c", setting]);
    }
    command
}

/// Starts a standby that streams from the server on this port, which may be a proxy's.
pub(crate) fn start_standby(port: u16) -> PrivateServer {
    let copy = |data: &Path| {
        let mut command = Command::new(server::program("pg_basebackup", PLACES));
        command.arg("--pgdata").arg(data).arg(format!("--port={port}"));
        command.args(["--host=127.0.0.1", "--username=postgres", "--checkpoint=fast", "--no-sync"]);
        // This makes the copy a standby of that server.
        command.arg("--write-recovery-conf");
        command
    };
    PrivateServer::start_with(copy, Vec::new())
}

/// Starts a PgBouncer in front of the shared server, with at most so many of the server's sessions for each database.
pub(crate) fn start_pooler(mode: &'static str, sessions: u32) -> PrivateServer {
    // The files: `serve` knows only the port.
    let initialize = |data: &Path| {
        let (_, address) = server::shared_url().split_once("://").expect("a URL");
        let (account, address) = address.split_once('@').expect("a URL with an account");
        let (user, password) = account.split_once(':').unwrap_or((account, ""));
        let host_and_port = address.split(['/', '?']).next().unwrap_or(address);
        let (host, port) = host_and_port.split_once(':').unwrap_or((host_and_port, "5432"));
        // PgBouncer takes no empty password.
        let password = if password.is_empty() { String::new() } else { format!(" password='{password}'") };
        let ini = format!(
            "[databases]\n* = host={host} port={port} user='{user}'{password}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             unix_socket_dir =\nauth_type = any\npool_mode = {mode}\ndefault_pool_size = {sessions}\nmax_client_conn = 100\n\
             query_wait_timeout = 10\nignore_startup_parameters = extra_float_digits\n"
        );
        let mut command = Command::new("sh");
        command.args(["-c", "mkdir \"$1\" && printf %s \"$2\" >\"$1/ini\"", "sh"]).arg(data).arg(ini);
        command
    };
    fn serve(data: &Path, port: u16) -> Command {
        let mut command = Command::new("sh");
        let script =
            "printf 'listen_port = %s\\n' \"$2\" | cat \"$1/ini\" - >\"$1/ini-$2\" && exec \"$3\" \"$1/ini-$2\"";
        command.args(["-c", script, "sh"]).arg(data).arg(port.to_string()).arg(server::program_of(
            "pgbouncer",
            "pgbouncer",
            POOLER_PLACES,
        ));
        command
    }
    let kind = server::Kind { serve, is_there: |url, _| Conn::establish(url).is_ok() };
    PrivateServer::start_as(kind, initialize, Vec::new())
}

const POOLER_PLACES: &[&str] = &["/usr/sbin", "/usr/bin", "/usr/local/bin", "/usr/local/sbin", "/opt/homebrew/bin"];

/// From `template0`, which accepts no connections: a session in the template would prevent the copy.
fn create_database(name: &str) -> String {
    format!("CREATE DATABASE {} TEMPLATE template0", quote(name))
}

fn drop_database(connection: &mut Conn, name: &str) -> QueryResult<()> {
    connection.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", quote(name)))
}

/// The settings of a session, as one text.
pub(crate) fn settings() -> String {
    SETTINGS.to_owned()
}

const SETTINGS: &str = "concat_ws('|', current_user, session_user, current_setting('search_path'), \
     current_setting('TimeZone'), current_setting('DateStyle'), current_setting('statement_timeout'), \
     current_setting('idle_in_transaction_session_timeout'), current_setting('default_transaction_isolation'), \
     current_setting('default_transaction_read_only'), current_setting('session_replication_role'), \
     current_setting('row_security'), current_setting('synchronous_commit'), current_setting('client_encoding'), \
     current_setting('transform_null_equals'), current_setting('quote_all_identifiers'), current_setting('xmloption'), \
     current_setting('default_tablespace'), current_setting('zero_damaged_pages'), current_setting('lc_messages'), \
     current_setting('application_name'), current_setting('work_mem'), current_setting('plan_cache_mode'), \
     current_setting('enable_seqscan'), current_setting('enable_hashjoin'), \
     (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()))";

/// Makes a second table of payments, which an unqualified name can mean after a handler has changed its session.
pub(crate) fn twin(_elsewhere: &Database) -> String {
    "CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.payments (LIKE payments INCLUDING ALL); \
     INSERT INTO elsewhere.payments SELECT * FROM payments"
        .to_owned()
}

pub(crate) fn twin_table(_elsewhere: &Database) -> String {
    "elsewhere.payments".to_owned()
}

const SET: [&str; 22] = [
    "search_path = elsewhere",
    "TimeZone = 'Pacific/Apia'",
    "DateStyle = 'German'",
    "statement_timeout = '1h'",
    "idle_in_transaction_session_timeout = '1h'",
    "lock_timeout = '77s'",
    "session_replication_role = 'replica'",
    "synchronous_commit = 'off'",
    "row_security = 'off'",
    "client_encoding = 'LATIN1'",
    "transform_null_equals = 'on'",
    "quote_all_identifiers = 'on'",
    "xmloption = 'document'",
    "default_tablespace = 'pg_default'",
    "zero_damaged_pages = 'on'",
    "lc_messages = 'POSIX'",
    "application_name = 'guest'",
    "work_mem = '77MB'",
    "plan_cache_mode = 'force_custom_plan'",
    "enable_seqscan = 'off'",
    "enable_hashjoin = 'off'",
    // The last one, because the role may not change the settings above.
    "ROLE pg_monitor",
];

/// Settings that a handler may change for its transaction.
pub(crate) fn set_locally(_elsewhere: &Database) -> Vec<String> {
    SET.iter().map(|setting| format!("SET LOCAL {setting}")).collect()
}

/// Settings that a handler may change for its session.
pub(crate) fn set_for_the_session(_elsewhere: &Database) -> Vec<String> {
    let more = [
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY".to_owned(),
        "SELECT pg_advisory_lock(77)".to_owned(),
    ];
    more.into_iter().chain(SET.iter().map(|setting| format!("SET {setting}"))).collect()
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
        connection.batch_execute(&format!("CREATE ROLE {name} LOGIN PASSWORD 'guest'")).expect("roles can be created");
        for right in rights {
            connection.batch_execute(&format!("GRANT {right} TO {name}")).expect("a right can be granted");
        }
        let (_, address) = database.url().split_once('@').expect("a URL with an account");
        Account { url: format!("postgres://{name}:guest@{address}"), name, database }
    }
}

impl Drop for Account<'_> {
    fn drop(&mut self) {
        let _ = self.database.connect().batch_execute(&format!("DROP OWNED BY {0}; DROP ROLE {0}", self.name));
    }
}
