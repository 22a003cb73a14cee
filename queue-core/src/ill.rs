//! What makes a queue slow or unsafe on its database, as an examination reports it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::log::hide_connection_secrets;

/// One thing that makes a queue slow or unsafe, with what mends it.
///
/// [`Queueable::examine`](crate::Queueable::examine) and [`examine`](crate::examine) find them, the worst first.
///
/// ```
/// use queueable::report::{Ill, IllKind, Severity};
///
/// let json = r#"{"kind": "stuck-lease", "severity": "warning", "queue": "payments.status",
///     "problem": "3 leases ended more than 5m ago", "mend": "start a poller"}"#;
/// let ill: Ill = serde_json::from_str(json).unwrap();
/// assert_eq!((ill.kind, ill.severity), (IllKind::StuckLease, Severity::Warning));
/// assert_eq!(
///     ill.to_string(),
///     "warning: stuck-lease: payments.status: 3 leases ended more than 5m ago; to mend it: start a poller",
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ill {
    /// How bad it is.
    pub severity: Severity,
    /// What it is.
    pub kind: IllKind,
    /// The queue's name in the control table, such as `payments.status`; `None` if the whole database has it.
    #[serde(default)]
    pub queue: Option<String>,
    /// What is wrong, with the figures.
    pub problem: String,
    /// The SQL, the setting or the step that mends it.
    pub mend: String,
}

impl Ill {
    pub(crate) fn new(kind: IllKind, severity: Severity, problem: String, mend: impl Into<String>) -> Self {
        Ill { severity, kind, queue: None, problem, mend: mend.into() }
    }

    /// An ill that says what could not be read, and why.
    pub(crate) fn unread(what: &str, error: &dyn fmt::Display) -> Self {
        let why = hide_connection_secrets(&error.to_string());
        let problem = format!("{what} could not be read: {why}");
        Ill::new(IllKind::Unread, Severity::Note, problem, "run the examination as an account that may read it")
    }
}

impl fmt::Display for Ill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: ", self.severity, self.kind)?;
        if let Some(queue) = &self.queue {
            write!(f, "{queue}: ")?;
        }
        write!(f, "{}; to mend it: {}", self.problem, self.mend)
    }
}

/// How bad an [`Ill`] is. The worst is the least, so that a sort puts it first.
///
/// ```
/// use queueable::report::Severity;
///
/// assert!(Severity::Error < Severity::Warning);
/// assert_eq!(Severity::Note.to_string(), "note");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Severity {
    /// Work stands still, or may be lost or repeated.
    Error,
    /// Work is slow, or will be.
    Warning,
    /// Something to know.
    Note,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        })
    }
}

/// Writes the kinds, each with its stable name.
macro_rules! kinds {
    ($($(#[$doc:meta])+ $kind:ident = $name:literal,)+) => {
        /// What an [`Ill`] is. Its name, which serde and `Display` write, stays the same in later releases.
        ///
        /// ```
        /// use queueable::report::IllKind;
        ///
        /// assert_eq!(IllKind::OldTransaction.to_string(), "old-transaction");
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum IllKind {
            $($(#[$doc])+ #[serde(rename = $name)] $kind,)+
        }

        impl fmt::Display for IllKind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(IllKind::$kind => $name,)+ })
            }
        }
    };
}

kinds! {
    /// The columns, the triggers, the archive or `table!` are not what the queue needs, as `check_schema` finds.
    Schema = "schema",
    /// An index of the queue is missing, is not valid, has other columns, or the planner may not use it.
    Index = "index",
    /// The account lacks a right.
    Rights = "rights",
    /// A crash of the server empties the table.
    UnloggedTable = "unlogged-table",
    /// A crash of the machine may undo commits, or damage the database.
    Durability = "durability",
    /// The database takes no writes, or the sessions may make none.
    ReadOnly = "read-only",
    /// The database's file is on a file system on which its locks do not work.
    NetworkFileSystem = "network-file-system",
    /// A pooler gives the sessions of the server away between transactions.
    Pooler = "pooler",
    /// Sessions have another isolation level by default than the queue expects.
    Isolation = "isolation",
    /// Sessions do not commit their statements by default.
    Autocommit = "autocommit",
    /// The server stores a mutilated value in place of one that does not fit.
    SqlMode = "sql-mode",
    /// The text of a failure cannot hold every character.
    CharacterSet = "character-set",
    /// Nobody serves a queue that has due rows.
    NoPoller = "no-poller",
    /// Rows have a status that is none of the queue's.
    UnknownStatus = "unknown-status",
    /// Rows are in a stage that is none of the entity's.
    UnknownStage = "unknown-stage",
    /// Leases ended long ago, and nobody has taken their rows.
    StuckLease = "stuck-lease",
    /// Rows have been due for long.
    OldDueRow = "old-due-row",
    /// Rows have ended their process again and again.
    PoisonRow = "poison-row",
    /// Rows are tried again and again.
    EndlessRetries = "endless-retries",
    /// A pause has stood for long.
    LongPause = "long-pause",
    /// A row of the control table means nothing, so pollers ignore it.
    ControlRow = "control-row",
    /// A table of the library's own lacks columns.
    OwnTable = "own-table",
    /// Processes that serve one queue have different settings.
    DifferentSettings = "different-settings",
    /// Processes have different versions of the library.
    DifferentVersions = "different-versions",
    /// A poller has no connection to the database for some of its threads.
    PollerWithoutConnection = "poller-without-connection",
    /// The clock of the database differs from the one of this machine.
    Clock = "clock",
    /// Nearly all connections, or prepared statements, that the server allows are in use.
    Connections = "connections",
    /// A time-out of sessions is too short.
    Timeouts = "timeouts",
    /// The server takes no long values.
    PacketSize = "packet-size",
    /// A transaction, a prepared one or a replication slot keeps old versions of rows.
    OldTransaction = "old-transaction",
    /// The table has many dead rows, or the server many old versions of rows.
    DeadRows = "dead-rows",
    /// Nothing removes dead rows by itself.
    Autovacuum = "autovacuum",
    /// The server will soon take no more transactions.
    TransactionIds = "transaction-ids",
    /// An index of the queue is much larger than its entries.
    BloatedIndex = "bloated-index",
    /// The server is a standby.
    Standby = "standby",
    /// A replica is behind its primary.
    ReplicaLag = "replica-lag",
    /// Row security is on for the table.
    RowSecurity = "row-security",
    /// Each write of the queue sets off triggers or columns of the application.
    Trigger = "trigger",
    /// The journal is one with which readers and the writer wait for each other.
    JournalMode = "journal-mode",
    /// One connection keeps all others out of the file.
    LockingMode = "locking-mode",
    /// The write-ahead log has grown, because no checkpoint could reset it.
    LargeWal = "large-wal",
    /// Most of the file is free.
    FreePages = "free-pages",
    /// The database's version is too old.
    OldVersion = "old-version",
    /// Texts by which rows are ordered or take turns are long.
    LongTexts = "long-texts",
    /// Something could not be read, so nothing is known of it.
    Unread = "unread",
}
