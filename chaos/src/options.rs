//! What is asked for on the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

/// Kills, cuts and freezes the queue under load, and checks a money ledger afterwards.
///
/// Starts private servers, worker processes and an application, injects faults by the seed, and prints one JSON line for
/// each run. The exit code is 1 when an invariant broke, a bound was not kept, or a run could not be made, and 2 when what is
/// asked for cannot be.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    /// The database; when none is given, all that the run is for.
    #[arg(long)]
    pub(crate) backend: Option<Backend>,
    /// How the payments are worked; when nothing is said, in every way that the run is for.
    #[arg(long)]
    pub(crate) mode: Option<Mode>,
    /// Decides which faults come when; drawn and printed when it is not given.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// How long the random schedule goes on: 60 seconds if nothing is said, ten minutes in a soak. Other bars have counts.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: Option<u64>,
    /// Runs this bar instead of the random schedule; may be given several times.
    #[arg(long)]
    pub(crate) bar: Vec<u8>,
    /// Runs every bar with few repetitions: what CI does.
    #[arg(long, conflicts_with_all = ["bar", "backend", "mode"])]
    pub(crate) smoke: bool,
    /// Runs every bar with the counts that are wanted before a release, which takes hours.
    #[arg(long, conflicts_with_all = ["smoke", "bar"])]
    pub(crate) full: bool,
    /// Builds a copy of the library with bugs planted in it, lets each of them live in turn, and prints which run found it.
    #[arg(long, conflicts_with_all = ["smoke", "bar", "full", "backend", "mode", "seconds", "patience"])]
    pub(crate) planted: bool,
    /// Only this planted bug, by its name; may be given several times.
    #[arg(long, requires = "planted")]
    pub(crate) bug: Vec<String>,
    /// Only compiles the library with the planted bugs.
    #[arg(long, requires = "planted", conflicts_with = "bug")]
    pub(crate) check: bool,
    /// SQL that is run before the checker asks, to see that it finds what is wrong.
    #[arg(long, hide = true)]
    pub(crate) spoil: Option<String>,
    /// How many seconds a run waits at most for what has to come; each has its own bounds by default.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) patience: Option<u64>,
    /// How much a bar does instead of what a release asks for: repetitions, or rows, or seconds, as it is about.
    #[arg(long, requires = "bar", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Where curves are written, as CSV and SVG.
    #[arg(long, default_value = "target/chaos")]
    pub(crate) plots: PathBuf,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Works the payments until it is told to stop, by SIGTERM or by the end of its input. The harness starts these.
    #[command(hide = true)]
    Worker(WorkerOptions),
}

/// What a worker process is told.
#[derive(Debug, Clone, Args)]
pub(crate) struct WorkerOptions {
    /// The database, as Diesel takes it.
    #[arg(long)]
    pub(crate) url: String,
    #[arg(long)]
    pub(crate) mode: Mode,
    #[arg(long, default_value_t = 4)]
    pub(crate) workers: usize,
    /// Which settings the entity has.
    #[arg(long, default_value = "usual")]
    pub(crate) terms: Terms,
    /// The file in which the calls of the outside world are noted.
    #[arg(long)]
    pub(crate) calls: PathBuf,
    #[arg(long, default_value_t = 200)]
    pub(crate) poll_interval_ms: u64,
    #[arg(long, default_value_t = 5000)]
    pub(crate) grace_ms: u64,
    #[arg(long, default_value = "on")]
    pub(crate) accounting: Accounting,
    /// Whether the poller has connections of its own, and none of the application's pool.
    #[arg(long)]
    pub(crate) own_connections: bool,
    /// How many sessions of the pool the application keeps for itself, of four more than there are workers.
    #[arg(long, default_value_t = 0)]
    pub(crate) held_sessions: usize,
    /// Where crashes are accounted.
    #[arg(long)]
    pub(crate) crash_directory: PathBuf,
    /// How many bytes of a failure's text are stored.
    #[arg(long, default_value_t = 8 * 1024)]
    pub(crate) error_text_limit: usize,
    /// What happens at a fail point: `NAME:PASS:ACTION`, as in `claimed:3:kill`; or at every third pass: `claimed:3+:kill`.
    #[arg(long = "break")]
    pub(crate) breaks: Vec<Break>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Backend {
    Postgres,
    Mariadb,
    Galera,
    Sqlite,
}

impl Backend {
    /// The three that are one database each.
    pub(crate) const SINGLE: &[Backend] = &[Backend::Postgres, Backend::Mariadb, Backend::Sqlite];
    /// Those that sessions talk to over a network.
    pub(crate) const SERVERS: &[Backend] = &[Backend::Postgres, Backend::Mariadb];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    Transaction,
    Group,
    Lease,
}

impl Mode {
    pub(crate) const ALL: &[Mode] = &[Mode::Transaction, Mode::Group, Mode::Lease];
    /// Those in which the handler runs in the transaction that settles its row.
    pub(crate) const IN_TRANSACTION: &[Mode] = &[Mode::Transaction, Mode::Group];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Accounting {
    On,
    Strict,
    Off,
}

/// The settings with which an entity is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Terms {
    /// Ten seconds for a handler, two for a lease, tries in plenty.
    Usual,
    /// Two seconds for a handler, 300 milliseconds for a lease.
    Hasty,
    /// As usual, with one try.
    Once,
    /// Other entities than the bank's: those of `kinds.rs`.
    Kinds,
}

/// What happens at a fail point of a worker process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Break {
    pub(crate) point: String,
    /// At which pass, counted from 1.
    pub(crate) pass: u64,
    /// Whether also at every so-manieth pass after that.
    pub(crate) again: bool,
    pub(crate) action: Action,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Action {
    /// The process ends as by `kill -9`.
    Kill,
    /// The process is frozen as by `kill -STOP`.
    Stop,
    /// The thread waits a second.
    Wait,
    /// The thread waits for 400 milliseconds, which is longer than a hasty lease.
    Moment,
}

impl Break {
    /// At one pass.
    pub(crate) fn once(point: &str, pass: u64, action: Action) -> Self {
        Break { point: point.to_owned(), pass, again: false, action }
    }

    /// At every so-manieth pass.
    pub(crate) fn every(point: &str, pass: u64, action: Action) -> Self {
        Break { again: true, ..Break::once(point, pass, action) }
    }

    /// Whether it happens at this pass.
    pub(crate) fn is_at(&self, pass: u64) -> bool {
        if self.again { pass.is_multiple_of(self.pass) } else { pass == self.pass }
    }
}

impl std::str::FromStr for Break {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("not of the form NAME:PASS:ACTION: {text}");
        let [point, pass, action] = text.split(':').collect::<Vec<_>>()[..] else { return Err(wrong()) };
        let (pass, again) = pass.strip_suffix('+').map_or((pass, false), |pass| (pass, true));
        let pass = pass.parse().map_err(|_| wrong())?;
        Ok(Break { point: point.to_owned(), pass, again, action: Action::from_str(action, true)? })
    }
}

impl std::fmt::Display for Break {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let action = self.action.to_possible_value().expect("no action is skipped");
        let again = if self.again { "+" } else { "" };
        write!(f, "{}:{}{again}:{}", self.point, self.pass, action.get_name())
    }
}
