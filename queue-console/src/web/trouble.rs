//! Why a page cannot be shown, in words. What the database has said stays in the application's log.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::StatusCode;
use queue_core::internals::by_name::is_timeout;
use queueable::Error;

use crate::database::Database;
use crate::failure::Failure;

/// Why there is no answer.
#[derive(Debug, Clone)]
pub(super) enum Trouble {
    /// The request is wrong.
    Wrong(String),
    NotFound(String),
    Forbidden(String),
    /// The rows are others by now.
    Stale(String),
    /// The database does not answer.
    Away,
    /// It takes too long.
    Slow,
    /// A change takes too long, and may have been made.
    Unsure,
    /// Too many requests wait.
    Busy,
    /// The library or the database has refused it.
    Refused(String),
    /// An error that was not yet looked at.
    Asked(Arc<Error>),
}

pub(super) type Told<T> = Result<T, Trouble>;

impl Trouble {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Trouble::Wrong(_) => StatusCode::BAD_REQUEST,
            Trouble::NotFound(_) => StatusCode::NOT_FOUND,
            Trouble::Forbidden(_) => StatusCode::FORBIDDEN,
            Trouble::Stale(_) => StatusCode::CONFLICT,
            Trouble::Away | Trouble::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Trouble::Slow | Trouble::Unsure => StatusCode::GATEWAY_TIMEOUT,
            Trouble::Refused(_) | Trouble::Asked(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Looks at an error: what the database says goes to the log.
    pub(super) fn seen<C: Database>(self) -> Self {
        let Trouble::Asked(error) = self else { return self };
        if is_timeout::<C>(&error) {
            return Trouble::Slow;
        }
        let mut of = &*error;
        while let Error::Interrupted { source, .. } = of {
            of = source;
        }
        match of {
            Error::Database(source) | Error::Held(source) if is_lost::<C>(source) => Trouble::away(&error),
            Error::Connect(_) | Error::Establish(_) => Trouble::away(&error),
            Error::Database(_) | Error::Held(_) => Trouble::logged(&error),
            Error::Setting { .. } => Trouble::Wrong(error.to_string()),
            _ => Trouble::Refused(error.to_string()),
        }
    }

    pub(super) fn away(error: &dyn fmt::Display) -> Self {
        tracing::warn!(%error, "the page has no connection to the database");
        Trouble::Away
    }

    /// Writes an error to the log, and says where it is.
    pub(super) fn logged(error: &dyn fmt::Display) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        tracing::error!(%error, number, "the database has refused what the page asked for");
        Trouble::Refused(format!(
            "The database has refused this. The application's log has its words, as number {number}."
        ))
    }
}

fn is_lost<C: Database>(error: &diesel::result::Error) -> bool {
    use diesel::result::DatabaseErrorKind::ClosedConnection;
    use queue_core::internals::backend::ErrorClass::ConnectionLost;
    matches!(error, diesel::result::Error::DatabaseError(ClosedConnection, _)) || C::classify(error) == ConnectionLost
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Wrong(text)
            | Trouble::NotFound(text)
            | Trouble::Forbidden(text)
            | Trouble::Stale(text)
            | Trouble::Refused(text) => f.write_str(text),
            Trouble::Away => f.write_str("The database does not answer. This page can be loaded again at any time."),
            Trouble::Slow => f.write_str(
                "The database has needed too long for this. A narrower search, or one by an index, is quicker.",
            ),
            Trouble::Unsure => f.write_str(
                "The database has needed too long for this, and it may have been done all the same: please look before you repeat it.",
            ),
            Trouble::Busy => f.write_str("Too many people are asking at the moment. Please load this page again."),
            Trouble::Asked(_) => f.write_str("The database has refused this."),
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Asked(Arc::new(error))
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Usage(text) => Trouble::Wrong(text),
            Failure::NoConnection(text) => Trouble::away(&text),
            Failure::Found | Failure::Interrupted(_) => Trouble::Refused(failure.to_string()),
            Failure::Failed(text) => Trouble::logged(&text),
        }
    }
}
