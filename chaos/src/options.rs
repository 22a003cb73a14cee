//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

/// Kills, cuts and freezes the queue under load, and checks a money ledger afterwards.
///
/// Starts private servers, worker processes and an application, injects faults by the seed, and prints one JSON line for
/// each run. The exit code is 1 when an invariant broke, a bound was exceeded, or a run could not be made, and 2 when the
/// options ask for something impossible.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    /// The database; by default, every one that the run is for.
    #[arg(long)]
    pub(crate) backend: Option<Backend>,
    /// The mode of the workers; by default, every one that the run is for.
    #[arg(long)]
    pub(crate) mode: Option<Mode>,
    /// Decides which faults come when; by default, a random seed is drawn and printed.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// The length of the random schedule: by default 60 seconds, and ten minutes in a soak. Other bars have counts.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: Option<u64>,
    /// Runs this bar instead of the random schedule; may be given several times.
    #[arg(long)]
    pub(crate) bar: Vec<u8>,
    /// Runs the bars of the printed promise with few repetitions, in one mode on each database: what each change has to pass.
    #[arg(long, conflicts_with_all = ["bar", "backend", "mode"])]
    pub(crate) brief: bool,
    /// Runs every bar with few repetitions, which takes minutes.
    #[arg(long, conflicts_with_all = ["brief", "bar", "backend", "mode"])]
    pub(crate) smoke: bool,
    /// Runs every bar with the counts of a release, which takes hours.
    #[arg(long, conflicts_with_all = ["brief", "smoke", "bar"])]
    pub(crate) full: bool,
    /// Builds a copy of the library with bugs planted in it, enables one at a time, and prints which run found it.
    #[arg(long, conflicts_with_all = ["brief", "smoke", "bar", "full", "backend", "mode", "seconds", "patience"])]
    pub(crate) planted: bool,
    /// Only this planted bug, by its name; may be given several times.
    #[arg(long, requires = "planted")]
    pub(crate) bug: Vec<String>,
    /// Only compiles the library with the planted bugs.
    #[arg(long, requires = "planted", conflicts_with = "bug")]
    pub(crate) check: bool,
    /// SQL that spoils the rows before the checker looks, to see that it finds the damage.
    #[arg(long, hide = true)]
    pub(crate) spoil: Option<String>,
    /// The most seconds that a run waits for anything; by default, each wait has its own limit.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) patience: Option<u64>,
    /// How much a bar does, instead of as much as for a release: repetitions, rows or seconds, depending on the bar.
    #[arg(long, requires = "bar", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// The directory for curves, which are written as CSV and SVG.
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

/// The options of a worker process.
#[derive(Debug, Clone, Args)]
pub(crate) struct WorkerOptions {
    /// The database, as Diesel takes it.
    #[arg(long)]
    pub(crate) url: String,
    #[arg(long)]
    pub(crate) mode: Mode,
    /// Whether the workers reach PostgreSQL through diesel-async.
    #[arg(long)]
    pub(crate) is_async: bool,
    #[arg(long, default_value_t = 4)]
    pub(crate) workers: usize,
    /// The settings of the entity.
    #[arg(long, default_value = "usual")]
    pub(crate) terms: Terms,
    /// The file in which the worker notes its calls of the outside world.
    #[arg(long)]
    pub(crate) calls: PathBuf,
    #[arg(long, default_value_t = 200)]
    pub(crate) poll_interval_ms: u64,
    #[arg(long, default_value_t = 5000)]
    pub(crate) grace_ms: u64,
    #[arg(long, default_value = "on")]
    pub(crate) accounting: Accounting,
    /// Whether the poller opens its own connections instead of taking them from the application's pool.
    #[arg(long)]
    pub(crate) own_connections: bool,
    /// How long the database may take to answer.
    #[arg(long, default_value_t = 30_000)]
    pub(crate) network_timeout_ms: u64,
    /// How many sessions of the pool the application keeps for itself. The pool has four more than there are workers.
    #[arg(long, default_value_t = 0)]
    pub(crate) held_sessions: usize,
    /// How many bytes of a failure's text are stored.
    #[arg(long, default_value_t = 8 * 1024)]
    pub(crate) error_text_limit: usize,
    /// An action at a fail point: `NAME:PASS:ACTION`, as in `claimed:3:kill`; at every third pass: `claimed:3+:kill`.
    #[arg(long = "break")]
    pub(crate) breaks: Vec<Break>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Backend {
    Postgres,
    /// PostgreSQL, which the workers reach through diesel-async.
    #[value(name = "async-postgres")]
    #[serde(rename = "async-postgres")]
    AsyncPostgres,
    Mariadb,
    Galera,
    Sqlite,
}

impl Backend {
    /// The databases without the cluster.
    pub(crate) const SINGLE: &[Backend] = &[Backend::Postgres, Backend::Mariadb, Backend::Sqlite];
    /// The same, and the connection of diesel-async.
    pub(crate) const EACH_CLIENT: &[Backend] =
        &[Backend::Postgres, Backend::Mariadb, Backend::Sqlite, Backend::AsyncPostgres];
    /// The databases that sessions reach over a network.
    pub(crate) const SERVERS: &[Backend] = &[Backend::Postgres, Backend::Mariadb];
    /// The same, and the connection of diesel-async.
    pub(crate) const EACH_NETWORK_CLIENT: &[Backend] = &[Backend::Postgres, Backend::Mariadb, Backend::AsyncPostgres];
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
    /// The modes in which the handler runs in the transaction that settles its row.
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
    /// Ten seconds for a handler, two for a lease, and plenty of tries.
    Usual,
    /// Two seconds for a handler, 300 milliseconds for a lease.
    Hasty,
    /// The usual settings, with one try.
    Once,
    /// The entities of `kinds.rs` instead of the bank's.
    Kinds,
    /// The entities of `lanes.rs`.
    Lanes,
}

/// An action at a fail point of a worker process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Break {
    pub(crate) point: String,
    /// The pass at which it happens, counted from 1.
    pub(crate) pass: u64,
    /// Whether it happens again at every multiple of that pass.
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
    /// The thread waits for 400 milliseconds, longer than a hasty lease.
    Moment,
}

impl Break {
    /// An action at one pass.
    pub(crate) fn once(point: &str, pass: u64, action: Action) -> Self {
        Break { point: point.to_owned(), pass, again: false, action }
    }

    /// An action at every multiple of a pass.
    pub(crate) fn every(point: &str, pass: u64, action: Action) -> Self {
        Break { again: true, ..Break::once(point, pass, action) }
    }

    /// Whether the action happens at this pass.
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
