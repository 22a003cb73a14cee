//! What an error says.

use diesel::result::Error;

/// What an error says about its cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The session is gone.
    ConnectionLost,
    /// A conflict with other transactions: deadlock, serialization failure, lock timeout, a changed plan. The same work
    /// may well succeed a moment later, so no try is used.
    Conflict,
    /// The server has no room left to write: nobody's fault, and it passes when somebody has made room. No try is used.
    NoRoom,
    /// Anything else.
    Other,
}

/// What an error says.
pub trait ErrorClasses {
    /// Says what an error means.
    ///
    /// Diesel hands over a kind for a few errors, and the message for all. A message may quote what a user has written, so it
    /// is compared as a whole, or by what stands at both of its ends, and never searched.
    fn classify(error: &Error) -> ErrorClass;

    /// Whether the database refuses every write: a standby, a server or a file that is read only.
    fn refuses_writes(error: &Error) -> bool;

    /// Whether the account lacks a right, where the database hides what it may not touch.
    fn denies_right(_error: &Error) -> bool {
        false
    }

    /// Whether this error tells that the server has rolled the whole transaction back.
    fn rolls_back(_error: &Error) -> bool {
        false
    }

    /// Whether a transaction may be committed although its COMMIT has ended with this error: the answer was lost.
    fn leaves_commit_in_doubt(error: &Error) -> bool {
        Self::classify(error) == ErrorClass::ConnectionLost
    }

    /// Whether this is the error by which a COMMIT of a group is refused whose cursor is gone, see
    /// [`super::dialect::RoundTrips::REFUSES_COMMITS`].
    fn lacks_group_cursor(_error: &Error) -> bool {
        false
    }
}
