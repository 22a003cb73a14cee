//! How a command ends: its exit code, and what is said about it.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::process::ExitCode;

use diesel::result::{DatabaseErrorKind, Error as DieselError};
use queue_core::internals::backend::ErrorClass;
use queueable::Error;

use crate::database::Database;

/// What `main` returns: the exit code. What has gone wrong was written to standard error before.
///
/// | code | |
/// |---|---|
/// | 0 | done |
/// | 1 | an error |
/// | 2 | the command line was wrong; nothing was read or changed |
/// | 3 | no connection to the database, or no answer from it |
/// | 4 | found something: a check with findings, a dry run that would change rows |
/// | 130 | interrupted by Ctrl-C |
pub type Result = std::result::Result<ExitCode, Infallible>;

/// How a command has ended before its end.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is wrong.
    Usage(String),
    /// There is no connection, or no answer.
    NoConnection(String),
    /// A check has found something, and has shown it.
    Found,
    /// The person has interrupted it.
    Interrupted(String),
    /// Anything else.
    Failed(String),
}

pub(crate) type Answer<T = ()> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::Failed(_) => 1,
            Failure::Usage(_) => 2,
            Failure::NoConnection(_) => 3,
            Failure::Found => 4,
            Failure::Interrupted(_) => 130,
        }
    }

    /// The name of the kind, as the JSON on standard error has it.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Failure::Failed(_) => "error",
            Failure::Usage(_) => "usage",
            Failure::NoConnection(_) => "no_connection",
            Failure::Found => "found",
            Failure::Interrupted(_) => "interrupted",
        }
    }

    /// Says something more, in a line of its own.
    pub(crate) fn with(self, more: &str) -> Self {
        let add = |text: String| if more.is_empty() { text } else { format!("{text}\n{more}") };
        match self {
            Failure::Failed(text) => Failure::Failed(add(text)),
            Failure::NoConnection(text) => Failure::NoConnection(add(text)),
            Failure::Interrupted(text) => Failure::Interrupted(add(text)),
            other => other,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Found => Ok(()),
            Failure::Usage(text) | Failure::NoConnection(text) | Failure::Interrupted(text) | Failure::Failed(text) => {
                f.write_str(text)
            }
        }
    }
}

impl Failure {
    /// Makes a failure of an error on this kind of connection, which tells whether the connection is lost.
    pub(crate) fn of<C: Database>(error: Error) -> Self {
        let mut of = &error;
        while let Error::Interrupted { source, .. } = of {
            of = source;
        }
        let lost = match of {
            Error::Database(source) | Error::Held(source) => C::classify(source) == ErrorClass::ConnectionLost,
            _ => false,
        };
        match lost {
            true => Failure::NoConnection(format!("the connection to the database is lost: {error}")),
            false => error.into(),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match &error {
            Error::Database(DieselError::DatabaseError(DatabaseErrorKind::ClosedConnection, _))
            | Error::Connect(_)
            | Error::Establish(_) => Failure::NoConnection(format!("the connection to the database is lost: {error}")),
            Error::Setting { .. } => Failure::Usage(error.to_string()),
            _ => Failure::Failed(error.to_string()),
        }
    }
}

impl From<DieselError> for Failure {
    fn from(error: DieselError) -> Self {
        Error::from(error).into()
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Failed(error.to_string())
    }
}
