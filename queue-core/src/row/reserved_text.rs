//! The texts that have a meaning in the error column. They are one format: none may be the beginning of another.

/// What the text begins with that a row bears while it is worked under strict accounts.
pub(crate) const PRESUMED: &str = "this message is being handled, or the process ended meanwhile";

/// What the text begins with that a group leaves on its rows while it holds them.
pub(crate) const RESERVING: &str = "in the group ";

/// The text on a row that was stopped before any attempt failed.
pub(crate) const STOPPED: &str = "stopped";

/// What the text of a row begins with whose last attempt never ended. The attempt's number follows.
pub(crate) const LEASE_EXPIRED: &str = "lease expired in attempt ";
