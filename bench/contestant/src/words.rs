//! The words between the benchmark and a contestant.

use serde::{Deserialize, Serialize};

/// What the benchmark asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// Asks for a [`Reply::Description`].
    Describe,
    /// Makes the tables, for a number of entities (kinds of jobs).
    Prepare {
        /// How many kinds of jobs there are; more than one only in the workload `idle`.
        entities: usize,
    },
    /// Fills the queue.
    Fill(Fill),
    /// Enqueues, and answers with [`Reply::Enqueued`].
    Enqueue(Enqueue),
    /// Starts the workers.
    Start(Work),
    /// Asks for a [`Reply::Handled`].
    Count,
    /// Asks for a [`Reply::Begun`].
    Begun,
    /// Stops the workers.
    Stop,
}

/// What a contestant answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Reply {
    /// What it is.
    Description(Description),
    /// It has done what was asked.
    Done,
    /// How long enqueueing took, and, where there were gaps, each message's number and when its commit had returned.
    Enqueued {
        /// From the first insert to the last commit.
        seconds: f64,
        /// Numbers, and nanoseconds since 1970.
        commits: Vec<(i64, u64)>,
    },
    /// How many messages its handlers were called with.
    Handled(u64),
    /// Messages' numbers, and when their handlers began, in nanoseconds since 1970.
    Begun(Vec<(i64, u64)>),
    /// It cannot.
    Trouble(String),
}

/// What a contestant says of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Description {
    /// What the command line and the tables call it.
    pub name: String,
    /// What it is compared as.
    pub kind: Kind,
    /// On which databases it works.
    pub backends: Vec<Backend>,
    /// What its numbers carry.
    pub guarantee: Guarantee,
    /// About how fast it is, so that there are enough rows.
    pub pace: Pace,
    /// Which workloads it can take part in.
    pub skills: Vec<Skill>,
    /// Its version, and the settings it is run with.
    pub settings: String,
}

/// What a contestant is compared as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Plain SQL by hand: what no framework can be expected to beat by much.
    Limit,
    /// Queueable.
    Queueable,
    /// Another framework.
    Peer,
}

/// A database, and how safely it commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Backend {
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    Mariadb,
    /// SQLite with a write-ahead log and `synchronous = FULL`: a commit is on the disk.
    SqliteFull,
    /// SQLite with a write-ahead log and `synchronous = NORMAL`: a power cut may take the last commits.
    SqliteNormal,
}

impl Backend {
    /// What the command line and the tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Postgres => "postgres",
            Backend::Mariadb => "mariadb",
            Backend::SqliteFull => "sqlite-full",
            Backend::SqliteNormal => "sqlite-normal",
        }
    }
}

/// How a handler's writes and its job's end go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Guarantee {
    /// They commit together or not at all.
    SameTransaction,
    /// The handler commits for itself; then the job's end is committed. A crash between them repeats the handler.
    AtLeastOnce,
    /// Nothing is handled: there is nothing to guarantee.
    None,
}

impl Guarantee {
    /// As the tables say it.
    pub fn name(self) -> &'static str {
        match self {
            Guarantee::SameTransaction => "same transaction",
            Guarantee::AtLeastOnce => "at least once",
            Guarantee::None => "-",
        }
    }
}

/// About how fast a contestant drains its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pace {
    /// Hundreds per second.
    Slow,
    /// Thousands per second: a commit per message.
    Single,
    /// Tens of thousands per second: a commit for many messages.
    Group,
}

/// What not everybody can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Skill {
    /// The workload `drain`.
    Drain,
    /// Handlers that do nothing.
    Nothing,
    /// `fill` can make rows that are finished.
    Finished,
    /// `fill` can give rows a payload of a given size.
    Wide,
    /// `enqueue` is there.
    Enqueue,
    /// Several kinds of jobs in one process.
    Entities,
    /// It waits for new messages: idle time and latency can be measured.
    Waits,
    /// It is a yardstick for many processes too.
    Scales,
    /// Its rows have an order, and `fill` can make rows that are not due yet.
    Ordered,
    /// It takes part in what takes minutes: a million rows, an old snapshot.
    Endures,
    /// Its handlers can wait for a service without a thread each.
    Calls,
    /// It reports what its table holds.
    Reports,
}

/// Rows to put into a queue.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fill {
    /// The first message's number; the others follow.
    pub first: i64,
    /// How many.
    pub rows: i64,
    /// How many bytes of payload each has besides.
    pub bytes: usize,
    /// What state they are in.
    pub state: RowState,
}

/// The state of the rows that are put into a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowState {
    /// They are due.
    Due,
    /// They are not due before the year 2100.
    Waiting,
    /// They are finished.
    Finished,
}

/// Messages to enqueue as an application does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Enqueue {
    /// The first message's number; the others follow.
    pub first: i64,
    /// How many.
    pub count: i64,
    /// How many of them one statement, or one call, enqueues.
    pub batch: usize,
    /// How many threads, or connections, enqueue at the same time.
    pub threads: usize,
    /// The longest pause between two messages, in microseconds; its length is random. 0: none, as fast as it can.
    pub gap: u64,
}

/// What is to be worked off.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Work {
    /// How many messages are handled at the same time.
    pub workers: usize,
    /// What the handler does.
    pub handler: Handler,
    /// How many kinds of jobs are served.
    pub entities: usize,
}

/// What a handler does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Handler {
    /// Inserts one row into `ledger`, through the message's transaction if the framework has one.
    Ledger,
    /// Nothing.
    Nothing,
    /// Nothing, but the time at which it begins is noted.
    Clock,
    /// Calls the service on this port, and inserts one row into `ledger` when it has answered.
    Call {
        /// The port on this machine.
        port: u16,
    },
}
