//! The meaning of an error.

use diesel::Connection;
use diesel::result::Error;

/// The cause of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The session is lost.
    ConnectionLost,
    /// A conflict with other transactions: deadlock, serialization failure, lock timeout, a changed plan. The same work
    /// may well succeed a moment later, so no try is used.
    Conflict,
    /// The server has no room left to write. The message is not the cause, and the error ends when somebody makes room.
    /// No try is used.
    NoRoom,
    /// Anything else.
    Other,
}

/// The meaning of a database's errors.
pub trait ErrorClasses<DB = <Self as Connection>::Backend>: Connection {
    /// Classifies an error.
    ///
    /// Diesel passes on a kind for a few errors, and the message for all. A message may quote a user's text, so it is
    /// compared as a whole, or by its beginning and its end, and never searched.
    fn classify(error: &Error) -> ErrorClass;

    /// Tells whether the database refuses every write: a standby, a server or a file that is read only.
    fn refuses_writes(error: &Error) -> bool;

    /// Tells whether the account lacks a right, on databases that hide what the account may not use.
    fn denies_right(_error: &Error) -> bool {
        false
    }

    /// Tells whether the server has rolled the whole transaction back with this error.
    fn rolls_back(_error: &Error) -> bool {
        false
    }

    /// Tells whether a transaction may be committed although its COMMIT has ended with this error, because the answer
    /// was lost.
    fn leaves_commit_in_doubt(error: &Error) -> bool {
        Self::classify(error) == ErrorClass::ConnectionLost
    }

    /// Tells whether this is the error of a group's COMMIT that is refused because the group's cursor is gone, see
    /// [`super::dialect::RoundTrips::REFUSES_COMMITS`].
    fn lacks_group_cursor(_error: &Error) -> bool {
        false
    }
}

/// Returns the message of the server, or of its client.
pub(crate) fn message_of(error: &Error) -> Option<&str> {
    let Error::DatabaseError(_, information) = error else { return None };
    Some(information.message())
}
