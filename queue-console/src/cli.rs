//! The command line.

use std::time::Duration;

use chrono::{DateTime, Utc};
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Operates the queues of this application.
#[derive(Debug, Parser)]
#[command(
    name = "console",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 done, 1 an error, 2 a wrong command line, 3 no connection, 4 found something (a check, a dry run), \
                  130 interrupted."
)]
pub(crate) struct Line {
    #[command(flatten)]
    pub(crate) global: Global,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The heading of the options that every command has.
const EVERY: &str = "Options of every command";

#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// The address of the database; for SQLite a file
    #[arg(long, global = true, help_heading = EVERY, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub(crate) database_url: Option<String>,

    /// Write JSON, one object a line; errors as JSON on standard error
    #[arg(long, global = true, help_heading = EVERY)]
    pub(crate) json: bool,

    /// Show times in UTC, not in the local zone
    #[arg(long, global = true, help_heading = EVERY)]
    pub(crate) utc: bool,

    /// When to colour: `auto` is at a terminal, unless NO_COLOR is set
    #[arg(long, global = true, help_heading = EVERY, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: clap::ColorChoice,

    /// Fit tables into so many columns [default: the terminal's; without a terminal, tables are as wide as they need to be]
    #[arg(long, global = true, help_heading = EVERY, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(20..))]
    pub(crate) width: Option<u16>,

    /// How long to wait for the database to connect, and to answer a report
    #[arg(long, global = true, help_heading = EVERY, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) timeout: Duration,

    /// Repeat a report, every two seconds or as often as the time says
    #[arg(long, global = true, help_heading = EVERY, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "2s", value_parser = pace)]
    pub(crate) watch: Option<Duration>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show all queues, and what is wrong first
    Status(Status),
    /// Show a live screen: queues, rates, what runs now, the newest errors
    Top(Top),
    /// Say why nothing happens: due rows by the reason for which they wait
    Why(OfRows),
    /// Explain rows: their state, and what happens to them next
    Explain(Keys),
    /// Show all columns of rows, and what happens to them next
    Show(Keys),
    /// List rows, page by page
    List(List),
    /// Count what is left to do
    Backlog(Report),
    /// Group failures by their text
    Errors(Errors),
    /// Count what was done, by periods
    Statistics(Statistics),
    /// Make failed and waiting rows due now
    Retry(Change),
    /// Move the next attempt of waiting rows
    Postpone(Postpone),
    /// Give rows up: they are not processed again
    Skip(Change),
    /// Stop rows until `resume`
    Stop(Change),
    /// Make stopped rows due again
    Resume(Change),
    /// Run finished rows once more
    Rerun(Change),
    /// Delete rows
    Delete(Change),
    /// Delete finished rows that are old
    Purge(Purge),
    /// Move finished rows to the archive
    Archive(Change),
    /// Bring rows back from the archive and make them due
    Redrive(Redrive),
    /// Set the priority of rows
    Priority(Priority),
    /// Make rows due that were never enqueued
    Enqueue(Change),
    /// Pause a queue, a stage or the rows of one value
    Pause(Pause),
    /// End a pause
    Unpause(Unpause),
    /// Show, set or end the limits of queues
    Limits(Limits),
    /// Show the processes that serve the queues
    Pollers,
    /// Show who has changed what
    Audit(Audit),
    /// Show whose database this is, or give it to another environment
    Environment(Environment),
    /// The migrations of the queues
    #[command(subcommand)]
    Migrate(Migrate),
    /// Find what makes the queues slow or unsafe, worst first, and say what mends it
    Doctor(Doctor),
    /// Write the completions of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual page
    Man,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Exit with 4 if a limit is exceeded, for cron and for probes
    #[arg(long)]
    pub(crate) check: bool,

    /// With `--check`: how long the oldest due row may have waited
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    pub(crate) max_age: Duration,

    /// With `--check`: how many rows may be due
    #[arg(long, value_name = "ROWS")]
    pub(crate) max_due: Option<i64>,

    /// With `--check`: how many rows may have failed
    #[arg(long, value_name = "ROWS")]
    pub(crate) max_failed: Option<i64>,

    /// With `--check`: how many pollers must be alive for each queue, if pollers register
    #[arg(long, value_name = "POLLERS", default_value_t = 1)]
    pub(crate) min_pollers: usize,

    /// With `--check`: a paused queue is no finding
    #[arg(long)]
    pub(crate) allow_paused: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// How long it waits before it asks the database again
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = pace)]
    pub(crate) every: Duration,

    #[command(flatten)]
    pub(crate) author: Author,
}

/// The rows of one queue, or of all.
#[derive(Debug, Args)]
pub(crate) struct OfRows {
    /// The queue: its table, `table.status` if the table has several, or its entity [default: all]
    #[arg(index = 1)]
    pub(crate) queue: Option<String>,

    /// Only rows for which this holds: `company_id = 3345 and amount_cents > 100`
    #[arg(long = "where", value_name = "CONDITION")]
    pub(crate) filter: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Keys {
    /// The queue
    #[arg(index = 1)]
    pub(crate) queue: String,

    /// The rows' keys; the parts of a key are separated by commas
    #[arg(index = 2, required = true, value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) keys: Vec<String>,
}

/// The state of the rows.
#[derive(Debug, Default, Args)]
#[group(multiple = false)]
pub(crate) struct States {
    /// Rows that are due
    #[arg(long)]
    pub(crate) due: bool,

    /// Rows whose next attempt is later
    #[arg(long)]
    pub(crate) scheduled: bool,

    /// Rows under a lease
    #[arg(long)]
    pub(crate) running: bool,

    /// Rows that have failed for good
    #[arg(long)]
    pub(crate) failed: bool,

    /// Rows that were skipped
    #[arg(long)]
    pub(crate) skipped: bool,

    /// Rows that have ended in any way
    #[arg(long)]
    pub(crate) finished: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// The latest attempt first
    Latest,
    /// The earliest next attempt first
    Next,
    /// By the key
    Key,
    /// By the key, the last one first
    KeyDescending,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) rows: OfRows,

    #[command(flatten)]
    pub(crate) states: States,

    /// The columns, separated by commas [default: the key, and what fits of the domain's columns]
    #[arg(long, value_delimiter = ',', value_name = "COLUMNS")]
    pub(crate) columns: Vec<String>,

    /// How the rows are sorted [default: failed and finished rows by their latest attempt, due and scheduled ones by their next, others by
    /// the key]
    #[arg(long, value_enum)]
    pub(crate) order: Option<Order>,

    /// How many rows
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,

    /// Where the page begins: the text that the page before ends with
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Report {
    #[command(flatten)]
    pub(crate) rows: OfRows,

    /// Split by the values of this column
    #[arg(long, value_name = "COLUMN")]
    pub(crate) by: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Errors {
    #[command(flatten)]
    pub(crate) report: Report,

    /// Only rows that were attempted within this time
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) since: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Statistics {
    #[command(flatten)]
    pub(crate) report: Report,

    /// How far back
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = duration)]
    pub(crate) since: Duration,

    /// How long a period is [default: minutes for up to two hours, hours for up to three days, else days]
    #[arg(long, value_enum)]
    pub(crate) interval: Option<Interval>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Interval {
    Minute,
    Hour,
    Day,
}

/// A change of rows.
#[derive(Debug, Args)]
pub(crate) struct Change {
    /// The queue
    #[arg(index = 1)]
    pub(crate) queue: String,

    /// The rows' keys
    #[arg(index = 2, value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) keys: Vec<String>,

    /// Only rows for which this holds
    #[arg(long = "where", value_name = "CONDITION")]
    pub(crate) filter: Option<String>,

    #[command(flatten)]
    pub(crate) states: States,

    /// Only rows of this group of `errors`
    #[arg(long, value_name = "GROUP")]
    pub(crate) error_group: Option<String>,

    /// All rows, without a condition
    #[arg(long)]
    pub(crate) all: bool,

    /// Show what would change, and change nothing; exits with 4 if there is something
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,

    #[command(flatten)]
    pub(crate) author: Author,

    /// How many rows are changed in one transaction
    #[arg(long, value_name = "ROWS", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=5000))]
    pub(crate) batch: u32,

    /// The name of the environment, which is asked for before more than 1,000 rows of a production are changed
    #[arg(long, value_name = "NAME")]
    pub(crate) environment: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Author {
    /// Who asks for it [default: the user's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,

    /// Why, for the audit
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false, id = "when")]
pub(crate) struct When {
    /// Until this time: RFC 3339
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) until: Option<DateTime<Utc>>,

    /// For so long from now on
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) lasting: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Postpone {
    #[command(flatten)]
    pub(crate) change: Change,

    #[command(flatten)]
    pub(crate) when: When,
}

#[derive(Debug, Args)]
pub(crate) struct Purge {
    #[command(flatten)]
    pub(crate) change: Change,

    /// Only rows whose last attempt is older
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) older_than: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Redrive {
    #[command(flatten)]
    pub(crate) change: Change,

    /// Rows that have succeeded, not those that have failed
    #[arg(long)]
    pub(crate) succeeded: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Priority {
    #[command(flatten)]
    pub(crate) change: Change,

    /// The priority
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub(crate) to: i32,
}

/// What a pause is about.
#[derive(Debug, Args)]
pub(crate) struct Scope {
    /// The queue
    #[arg(index = 1)]
    pub(crate) queue: String,

    /// Only this stage
    #[arg(long, value_name = "STAGE", conflicts_with = "value")]
    pub(crate) stage: Option<String>,

    /// Only the rows of one value: `company_id = 3345`
    #[arg(long = "where", value_name = "COLUMN = VALUE")]
    pub(crate) value: Option<String>,

    #[command(flatten)]
    pub(crate) author: Author,
}

#[derive(Debug, Args)]
pub(crate) struct Pause {
    #[command(flatten)]
    pub(crate) scope: Scope,

    /// Until this time: RFC 3339
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "lasting")]
    pub(crate) until: Option<DateTime<Utc>>,

    /// For so long
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) lasting: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Unpause {
    #[command(flatten)]
    pub(crate) scope: Scope,
}

#[derive(Debug, Args)]
pub(crate) struct Limits {
    /// The queue [default: show those of all]
    #[arg(index = 1)]
    pub(crate) queue: Option<String>,

    /// How many workers of each process may work for the queue
    #[arg(long, value_name = "NUMBER", requires = "queue")]
    pub(crate) workers: Option<usize>,

    /// How many rows may be processed at the same time
    #[arg(long, value_name = "ROWS", requires = "queue")]
    pub(crate) at_most: Option<u32>,

    /// How long a row that fails waits
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "queue")]
    pub(crate) retry_delay: Option<Duration>,

    /// End the limits
    #[arg(long, requires = "queue", conflicts_with_all = ["workers", "at_most", "retry_delay"])]
    pub(crate) end: bool,

    #[command(flatten)]
    pub(crate) author: Author,
}

#[derive(Debug, Args)]
pub(crate) struct Audit {
    /// The queue [default: all]
    #[arg(index = 1)]
    pub(crate) queue: Option<String>,

    /// How many rows
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,

    /// Where the page begins: the text that the page before ends with
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Environment {
    /// Give the database to this environment
    #[arg(long, value_name = "NAME")]
    pub(crate) adopt: Option<String>,

    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,

    #[command(flatten)]
    pub(crate) author: Author,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Migrate {
    /// List the migrations, and which of them have run
    List,
    /// Write the migrations as SQL files for `diesel migration`
    Write {
        /// The directory of the migrations
        directory: std::path::PathBuf,
    },
    /// Run the migrations that have not run
    Run {
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Compare the live tables with the entities; exits with 4 if they differ
    Check,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// The queue [default: all]
    #[arg(index = 1)]
    pub(crate) queue: Option<String>,

    /// Write what a ticket needs into this file: findings, backlogs, reasons, folded errors, plans, pauses, pollers, versions, settings; no
    /// rows, and no password
    #[arg(long, value_name = "FILE")]
    pub(crate) bundle: Option<std::path::PathBuf>,

    /// Exit with 4 only for errors, not for warnings
    #[arg(long)]
    pub(crate) errors_only: bool,
}

/// A duration as people write it: `90s`, `1h 30m`, `2d`.
fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write it as `90s`, `1h 30m` or `2d`"))
}

/// A duration after which a database can be asked again.
fn pace(text: &str) -> Result<Duration, String> {
    const SHORTEST: Duration = Duration::from_millis(100);
    let pace = duration(text)?;
    if pace < SHORTEST { Err("the shortest time is 100ms".to_owned()) } else { Ok(pace) }
}

/// A time with its offset.
fn time(text: &str) -> Result<DateTime<Utc>, String> {
    let time = DateTime::parse_from_rfc3339(text);
    time.map(|time| time.to_utc()).map_err(|_| "write it as `2026-03-01T12:00:00Z`".to_owned())
}
