//! The commands, and the options of all of them.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use super::changes::{Change, Postpone, Priority, Purge, Redrive};
use super::control::{Audit, Environment, Limits, Migrate, Pause, Scope};
use super::replay::Replay;
use super::reports::{Doctor, Errors, Keys, List, OfRows, Report, Serve, Statistics, Status, Top};
use super::times::{duration, pace};

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
    /// Serve the page: see and steer the queues in a browser
    Serve(Serve),
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
    /// Attempt a row again as last time, and roll everything back
    Replay(Replay),
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
    Unpause(Scope),
    /// Show, set or end the limits of queues
    ///
    /// A call that sets limits replaces all limits of the queue.
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
