//! The program under test: a console, as an application has it. The tests start themselves as this program.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use portable_pty::CommandBuilder;
use queueable::{Migrations, Queueable};
use queueable_console::Console;

use crate::db::{BIGINT, Conn, Database, LONG_TEXT};
use crate::pty::Terminal;

diesel::table! {
    payments (id) {
        id -> BigInt,
        company_id -> BigInt,
        amount_cents -> BigInt,
        note -> Text,
        api_token -> Text,
    }
}

#[allow(dead_code, reason = "the console reads the columns")]
#[derive(Debug, Queryable, Selectable, Queueable)]
#[queue(fair_by = company_id)]
pub(crate) struct Payment {
    id: i64,
    company_id: i64,
    amount_cents: i64,
    note: String,
    api_token: String,
}

diesel::table! {
    mails (id) {
        id -> BigInt,
    }
}

#[allow(dead_code, reason = "the console reads the columns")]
#[derive(Debug, Queryable, Selectable, Queueable)]
pub(crate) struct Mail {
    id: i64,
}

/// Holds the arguments of the program, each in a line; only the program has it.
const ARGUMENTS: &str = "QUEUEABLE_TEST_ARGUMENTS";
/// Makes the console of the program read-only.
const READ_ONLY: &str = "QUEUEABLE_TEST_READ_ONLY";

/// Makes the program hold another one in a terminal, until its standard input ends.
const HOLDS: &str = "QUEUEABLE_TEST_HOLDS";

/// The size of a terminal over ssh.
pub(crate) const SMALL: (u16, u16) = (80, 24);

/// Is the program, if it was started as that; as a test it does nothing.
#[test]
fn program() {
    let Ok(arguments) = env::var(ARGUMENTS) else { return };
    if env::var_os(HOLDS).is_some() {
        return hold(&arguments);
    }
    let console = Console::<Conn>::new().entity::<Payment>().entity::<Mail>();
    let console = if env::var_os(READ_ONLY).is_some() { console.read_only() } else { console };
    let matches = console.subcommand().get_matches_from(std::iter::once("console").chain(arguments.lines()));
    let Ok(code) = console.run_matches(&matches);
    let codes = [0, 1, 2, 3, 4, 130].into_iter();
    let code = codes.into_iter().find(|number| ExitCode::from(*number) == code).expect("a documented exit code");
    std::process::exit(code.into());
}

/// Holds the program in a terminal, which the end of this process closes.
fn hold(arguments: &str) {
    let arguments: Vec<_> = arguments.lines().collect();
    let mut top = Start::of(&arguments).within(SMALL);
    top.shows("> payments");
    println!("\nholds {}", top.process());
    std::io::stdin().read_line(&mut String::new()).unwrap();
    std::process::exit(0);
}

/// A table of payments with the tables of the library.
pub(crate) fn payments() -> (Database, Conn) {
    let database = Database::new();
    let connection = set_up(&database);
    (database, connection)
}

pub(crate) fn set_up(database: &Database) -> Conn {
    let mut connection = database.connect();
    let table = format!(
        "CREATE TABLE payments (id {BIGINT} PRIMARY KEY NOT NULL, company_id {BIGINT} NOT NULL, \
         amount_cents {BIGINT} NOT NULL, note {LONG_TEXT} NOT NULL, api_token {LONG_TEXT} NOT NULL);
         CREATE TABLE mails (id {BIGINT} PRIMARY KEY NOT NULL)"
    );
    connection.batch_execute(&table).unwrap();
    let migrations = Migrations::new().entity::<Payment>().entity::<Mail>().control().pollers().audit();
    connection.run_pending_migrations(migrations).unwrap();
    connection
}

/// Inserts payments that are due for a long time.
pub(crate) fn insert_due(connection: &mut Conn, ids: std::ops::RangeInclusive<i64>) {
    for id in ids {
        let row = format!(
            "INSERT INTO payments (id, company_id, amount_cents, note, api_token, next_attempt_time)
             VALUES ({id}, {}, {}, 'note {id}', 'tk-4711-{id}', '2026-01-01 00:00:00.000')",
            3300 + id,
            100 * id,
        );
        connection.batch_execute(&row).unwrap();
    }
}

/// Inserts payments that have failed for good.
pub(crate) fn insert_failed(connection: &mut Conn, ids: std::ops::RangeInclusive<i64>, error: &str) {
    for id in ids {
        let row = format!(
            "INSERT INTO payments (id, company_id, amount_cents, note, api_token, status, try_count, last_attempt_time,
                 last_attempt_error_message)
             VALUES ({id}, {}, {}, 'note {id}', 'tk-4711-{id}', 'FAILED', 3, '2026-01-01 00:00:00.000', '{error}')",
            3300 + id,
            100 * id,
        );
        connection.batch_execute(&row).unwrap();
    }
}

pub(crate) fn status(connection: &mut Conn, id: i64) -> String {
    let status = format!("SELECT status AS value FROM payments WHERE id = {id}");
    text(connection, &status).expect("there is such a payment")
}

/// Reads one text.
pub(crate) fn text(connection: &mut Conn, select: &str) -> Option<String> {
    diesel::sql_query(select).get_result::<OneText>(connection).optional().unwrap().map(|row| row.value)
}

#[derive(QueryableByName)]
struct OneText {
    #[diesel(sql_type = diesel::sql_types::Text)]
    value: String,
}

/// A start of the program.
pub(crate) struct Start {
    arguments: Vec<String>,
    variables: Vec<(&'static str, &'static str)>,
}

impl Start {
    /// `top`, which asks often.
    pub(crate) fn top(url: &str) -> Self {
        Self::of(&["top", "--every", "200ms", "--by", "ops@example.org", "--utc", "--database-url", url])
    }

    pub(crate) fn of(arguments: &[&str]) -> Self {
        Start { arguments: arguments.iter().map(ToString::to_string).collect(), variables: Vec::new() }
    }

    pub(crate) fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    pub(crate) fn variable(mut self, name: &'static str, value: &'static str) -> Self {
        self.variables.push((name, value));
        self
    }

    pub(crate) fn read_only(self) -> Self {
        self.variable(READ_ONLY, "1")
    }

    /// Starts it in a terminal.
    pub(crate) fn within(&self, size: (u16, u16)) -> Terminal {
        let mut command = CommandBuilder::new(env::current_exe().unwrap());
        command.args(["--exact", "program::program", "--nocapture", "--quiet"]);
        command.env_remove(HOLDS);
        for name in ["NO_COLOR", "DATABASE_URL", "COLORTERM"] {
            command.env_remove(name);
        }
        command.env("TERM", "xterm-256color");
        command.env(ARGUMENTS, self.arguments.join("\n"));
        self.variables.iter().for_each(|(name, value)| command.env(name, value));
        Terminal::start(command, size)
    }

    /// Starts it in a terminal that is closed when it shows the queues, as a lost connection does, and returns its process.
    pub(crate) fn in_a_terminal_that_is_closed(&self) -> u32 {
        let mut holder = Command::new(env::current_exe().unwrap())
            .args(["--exact", "program::program", "--nocapture", "--quiet"])
            .env(ARGUMENTS, self.arguments.join("\n"))
            .env(HOLDS, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(holder.stdout.take().unwrap()).lines().map_while(Result::ok);
        let process = lines.filter_map(|line| line.strip_prefix("holds ")?.parse().ok()).next().expect("it holds one");
        drop(holder.stdin.take());
        assert!(holder.wait().unwrap().success());
        process
    }

    /// Runs it without a terminal, and returns its exit code and what it has written to standard error.
    pub(crate) fn without_terminal(&self) -> (Option<i32>, String) {
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", "program::program", "--nocapture", "--quiet"])
            .env(ARGUMENTS, self.arguments.join("\n"))
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}
