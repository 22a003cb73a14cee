//! The meaning of PostgreSQL's errors, and of errors that the queue's own statements raise on purpose.

use std::sync::LazyLock;

use diesel::pg::Pg;
use diesel::result::{DatabaseErrorInformation, DatabaseErrorKind, Error};

use super::clients::PgSession;
use crate::backend::connection::{ErrorClass, ErrorClasses, message_of};

impl<C: PgSession> ErrorClasses<Pg> for C {
    fn refuses_writes(error: &Error) -> bool {
        match error {
            Error::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, _) => true,
            Error::DatabaseError(_, information) => information.message().ends_with(" during recovery"),
            _ => false,
        }
    }

    fn classify_answer(kind: &DatabaseErrorKind, answer: &dyn DatabaseErrorInformation) -> ErrorClass {
        match kind {
            // The primary has become a standby. A new session finds the new primary, if the URL names both.
            DatabaseErrorKind::ReadOnlyTransaction => ErrorClass::ConnectionLost,
            // A message of the client's own, into which no server quotes anything.
            DatabaseErrorKind::UnableToSendCommand if is_lost_by_client(answer.message()) => ErrorClass::ConnectionLost,
            // Diesel passes on the message and not the SQLSTATE (40P01, 53100, 55P03, 57P01..57P03, 0A000).
            DatabaseErrorKind::Unknown | DatabaseErrorKind::UnableToSendCommand => {
                classify_message(answer.message(), answer.details(), answer.hint())
            }
            _ => ErrorClass::Other,
        }
    }

    fn is_timeout(error: &Error) -> bool {
        is_message(error, "canceling statement due to statement timeout")
    }

    fn leaves_commit_in_doubt(error: &Error) -> bool {
        // An operator may have cancelled the beginning of the next transaction, which is in one text with the COMMIT. A
        // timeout is always the commit's own.
        Self::classify(error) == ErrorClass::ConnectionLost
            || is_message(error, "canceling statement due to user request")
    }

    fn lacks_group_cursor(error: &Error) -> bool {
        is_message(error, "cursor \"queueable_group\" does not exist")
    }
}

/// Tells whether this is the database's whole message.
pub(super) fn is_message(error: &Error, text: &str) -> bool {
    message_of(error) == Some(text)
}

/// Classifies a message without its SQLSTATE. The server quotes users' texts in messages, so this never searches in
/// them.
///
/// A function of the application may raise any message. The server's own deadlock message comes with a detail and a
/// hint, which are compared too. For the other messages, the limit on a row's interruptions bounds the harm.
pub(super) fn classify_message(message: &str, details: Option<&str>, hint: Option<&str>) -> ErrorClass {
    let is_between = |start: &str, end: &str| message.strip_prefix(start).is_some_and(|rest| rest.ends_with(end));
    let is_deadlock = message == "deadlock detected"
        && hint == Some("See server log for query details.")
        && details.is_some_and(|details| details.starts_with("Process "));
    let is_full = message.starts_with("could not ")
        && (message.ends_with(": No space left on device") || hint == Some("Check free disk space."));
    if LOST.contains(&message)
        // These are libpq's own messages, into which no server quotes anything.
        || message.starts_with("server closed the connection unexpectedly\n")
        || message.starts_with("no connection to the server\n")
        || is_between("cannot execute ", " during recovery")
    {
        ErrorClass::ConnectionLost
    } else if is_deadlock || CONFLICTS.contains(&message) {
        ErrorClass::Conflict
    } else if is_full {
        ErrorClass::NoRoom
    } else {
        ErrorClass::Other
    }
}

/// Tells whether this is how tokio-postgres says that the connection is gone, if it has heard nothing from the server.
pub(super) fn is_lost_by_client(message: &str) -> bool {
    ["connection closed", "error communicating with the server", "unexpected message from server"]
        .iter()
        .any(|text| message.strip_prefix(text).is_some_and(|rest| rest.is_empty() || rest.starts_with(": ")))
}

/// The server's messages when it ends a session, beside those that Diesel recognizes by the end of the connection
/// (57P01, 57P02, 57P05, 25P03, 25P04).
const LOST: [&str; 6] = [
    "terminating connection due to administrator command",
    "terminating connection because of crash of another server process",
    "terminating connection due to unexpected postmaster exit",
    "terminating connection due to idle-session timeout",
    "terminating connection due to idle-in-transaction timeout",
    "terminating connection due to transaction timeout",
];

/// The messages about a conflict with others (55P03, 0A000, 57P03).
const CONFLICTS: [&str; 8] = [
    "canceling statement due to lock timeout",
    "cached plan must not change result type",
    "the database system is starting up",
    "the database system is shutting down",
    "the database system is in recovery mode",
    "the database system is not accepting connections",
    "the database system is not yet accepting connections",
    "the database system is in archive recovery mode",
];

/// Tells whether a settlement may have been refused because of a setting of its handler: a role that may not write, or
/// a search path on which the table is not found. An unrelated error that reads like these costs one more attempt.
pub(super) fn may_be_for_other_settings(error: &Error) -> bool {
    let Some(message) = message_of(error) else { return false };
    // In whatever language: the handler may have set that too.
    message.contains(&marked(OTHER_SETTINGS))
        || message.starts_with("permission denied for ")
        // A handler that takes away the session's prepared statements does so each time.
        || (message.ends_with(" does not exist") && !message.starts_with("prepared statement "))
}

/// Writes a text that only the queue's own errors quote: it contains a token of this process, which is in no row.
pub(super) fn marked(text: &str) -> String {
    format!("queueable {:016x}: {text}: ", *TOKEN)
}

static TOKEN: LazyLock<u64> = LazyLock::new(|| fastrand::u64(..));

/// Tells whether the error is the failed cast of such a text, with a number at its end.
pub(super) fn is_marked(error: &Error, text: &str) -> bool {
    let quoted =
        message_of(error).and_then(|message| message.strip_prefix("invalid input syntax for type integer: \""));
    let number = quoted.and_then(|quoted| quoted.strip_prefix(&marked(text))?.strip_suffix('"'));
    number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The text in the error of a settlement that has not changed exactly one row.
pub(super) const NOT_ONE_ROW: &str = "rows changed";

/// The text in the error of a session whose handler has left other settings.
pub(super) const OTHER_SETTINGS: &str = "other settings";

/// The text in the error of a prefetched row that cannot be locked as it was read.
pub(super) const NOT_LOCKED: &str = "rows locked";

#[cfg(test)]
mod tests {
    use super::*;

    fn says(message: &str) -> ErrorClass {
        classify_message(message, None, None)
    }

    #[test]
    fn a_message_is_believed_as_a_whole_only() {
        for message in LOST {
            assert_eq!(says(message), ErrorClass::ConnectionLost, "{message}");
        }
        for message in CONFLICTS {
            assert_eq!(says(message), ErrorClass::Conflict, "{message}");
        }
        for message in LOST.iter().chain(&CONFLICTS).chain(&["deadlock detected", "cannot execute X during recovery"]) {
            let quoted = format!("invalid input syntax for type integer: \"{message}\"");
            assert_eq!(says(&quoted), ErrorClass::Other, "{quoted}");
        }
        assert_eq!(says("cannot execute LISTEN during recovery"), ErrorClass::ConnectionLost);
    }

    #[test]
    fn a_client_says_that_its_connection_is_gone() {
        assert!(is_lost_by_client("connection closed"));
        assert!(is_lost_by_client("error communicating with the server: Broken pipe (os error 32)"));
        assert!(!is_lost_by_client("error serializing parameter 0: connection closed"));
    }

    #[test]
    fn a_deadlock_is_known_by_what_comes_with_it() {
        let details = "Process 7 waits for ShareLock on transaction 8; blocked by process 9.";
        let found = |details, hint| classify_message("deadlock detected", details, hint);
        assert_eq!(found(Some(details), Some("See server log for query details.")), ErrorClass::Conflict);
        assert_eq!(found(Some(details), None), ErrorClass::Other);
        assert_eq!(found(None, Some("See server log for query details.")), ErrorClass::Other);
    }

    #[test]
    fn a_full_disk_is_nobodys_fault() {
        let full = "could not extend file \"base/16384/16397\": No space left on device";
        assert_eq!(says(full), ErrorClass::NoRoom);
        let short = "could not extend file \"base/1/2\": wrote only 4096 of 8192 bytes at block 7";
        assert_eq!(classify_message(short, None, Some("Check free disk space.")), ErrorClass::NoRoom);
        assert_eq!(says(&format!("invalid input syntax for type integer: \"{full}\"")), ErrorClass::Other);
    }
}
