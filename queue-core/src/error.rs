//! The core's own errors: situations that a caller can tell apart.

use std::any::Any;
use std::fmt;

use crate::log::hide_connection_secrets;

/// An error of a queue outside a handler.
///
/// ```no_run
/// # use diesel::prelude::*;
/// # use diesel::r2d2::{ConnectionManager, Pool};
/// # use queueable::{HandlerResult, Message, Outcome};
/// use queueable::{Error, Queueable};
///
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let pool = Pool::new(ConnectionManager::<SqliteConnection>::new("app.sqlite"))?;
/// let handle = match Payment::poller(pool, charge).start() {
///     Ok(handle) => handle,
///     Err(Error::Unsafe(findings)) => {
///         findings.iter().for_each(|finding| eprintln!("{}: {}", finding.problem, finding.mend));
///         std::process::exit(1);
///     }
///     Err(error) => return Err(error.into()),
/// };
/// # drop(handle);
/// # Ok(()) }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The table or the server does not meet a requirement of the queue, so the poller does not start. Each finding says
    /// what is wrong, and names the SQL or the setting that mends it.
    #[error("the queue cannot start:{}", listed(.0))]
    Unsafe(Vec<Finding>),

    /// A setting of the poller, of a pause, or of a call of an operator, makes no sense.
    #[error("{setting} is {found}, expected {expected}")]
    Setting {
        /// The setting's name.
        setting: &'static str,
        /// The value that was given.
        found: String,
        /// The accepted values.
        expected: &'static str,
    },

    /// The pool gave no connection in time. The text contains the reason that the database or its client library gives,
    /// without passwords.
    #[error("no connection from the pool: {0}")]
    Connect(#[source] ConnectFailure),

    /// No connection could be made.
    #[error("cannot connect to the database: {0}")]
    Establish(#[source] ConnectFailure),

    /// Running attempts or the application held rows for as long as the operation may wait. Or, in a transaction of the
    /// caller's with a stricter isolation than READ COMMITTED, others have changed them. Nothing was changed: call
    /// again, or allow a longer wait.
    #[error("a running attempt or another transaction holds some of the rows; nothing was changed: {0}")]
    Held(#[source] diesel::result::Error),

    /// A call that works in batches met an error after it had done some of them. Those are committed, unless they
    /// belong to the caller's transaction. The call can be made again and goes on with the rest.
    #[error("stopped after {rows} rows: {source}")]
    Interrupted {
        /// How many rows are done.
        rows: usize,
        /// What went wrong.
        source: Box<Error>,
    },

    /// The database refuses to let rows go because of its other rows: some refer to them, or the archive has their key
    /// already. Or the table refuses rows that come back from the archive. These rows stay as they are; all others are done.
    #[error("the database refused to move or remove {rows} rows: {source}")]
    Refused {
        /// How many rows stay.
        rows: usize,
        /// The database's error about the first of them.
        source: diesel::result::Error,
    },

    /// An archive cannot be used as requested: the entity names none, or it cannot be searched. The text says what to
    /// do.
    #[error("{0}")]
    Archive(String),

    /// A table of the library's own cannot be used as requested: it is missing, or the account lacks a right on it. The text
    /// says what to do.
    #[error("{0}")]
    Control(String),

    /// The database returned an error.
    #[error(transparent)]
    Database(#[from] diesel::result::Error),

    /// A thread could not be started.
    #[error("cannot start a worker thread: {0}")]
    Thread(#[source] std::io::Error),
}

/// Why there is no connection, without passwords: a client library quotes the parts of a URL that it cannot parse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConnectFailure(String);

impl ConnectFailure {
    pub(crate) fn new(error: &dyn fmt::Display) -> Self {
        ConnectFailure(hide_connection_secrets(&error.to_string()))
    }
}

/// One thing that is wrong with a live table or its server.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Finding {
    /// The entity whose queue is concerned.
    pub entity: String,
    /// What is wrong.
    pub problem: String,
    /// The SQL or the setting that mends it.
    pub mend: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; to mend it: {}", self.entity, self.problem, self.mend)
    }
}

fn listed(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("\n- {finding}")).collect()
}

/// Returns the text of a caught panic.
pub(crate) fn panic_text(payload: Box<dyn Any + Send>) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "of an unknown type".to_owned());
    // The payload's own `Drop` may panic again, and nobody needs the payload any more.
    std::mem::forget(payload);
    text
}

/// Returns an error of ours in the form in which Diesel carries one.
pub(crate) fn refused(text: String) -> diesel::result::Error {
    diesel::result::Error::DatabaseError(diesel::result::DatabaseErrorKind::Unknown, Box::new(text))
}
