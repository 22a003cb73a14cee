//! The texts with a meaning of their own in the error column. They are one format: none may be the beginning of
//! another.
//!
//! No failure has such a text. A failure's text that begins like one is written behind [`NO_MARK`], and code that reads
//! a mark compares it character by character.

/// The beginning of every mark.
const MARK: &str = "queueable: ";

/// Stands before the text of a failure that begins like a mark.
const NO_MARK: &str = "failure: ";

/// The beginning of the text on a row whose process ended while a handler processed it.
pub(crate) const CRASHED: &str = "queueable: the process ended while this message was handled";

/// The beginning of the text on a row while a handler processes it under strict accounts.
pub(crate) const PRESUMED: &str = "queueable: this message is being handled, or the process ended meanwhile";

/// The beginning of the text that a group leaves on its rows while it holds them.
pub(crate) const RESERVING: &str = "queueable: in the group ";

/// The text on a row that was stopped before any attempt failed.
pub(crate) const STOPPED: &str = "queueable: stopped";

/// The beginning of the text on a row whose last attempt never ended. The attempt's number follows.
pub(crate) const LEASE_EXPIRED: &str = "queueable: lease expired in attempt ";

/// Returns the text to put before the text of a failure, so that it does not read as a mark.
pub(crate) fn before_failure(text: &str) -> &'static str {
    if text.starts_with(MARK) { NO_MARK } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_the_beginning_of_another_and_all_are_told_from_failures() {
        let marks = [CRASHED, PRESUMED, RESERVING, STOPPED, LEASE_EXPIRED];
        for (i, mark) in marks.iter().enumerate() {
            assert_eq!(before_failure(mark), NO_MARK);
            assert!(marks.iter().enumerate().all(|(j, other)| i == j || !other.starts_with(mark)), "{mark}");
            // They stand between quotes in statements.
            assert!(!mark.contains(['\'', '\\']));
        }
        assert!(!NO_MARK.starts_with(MARK));
        assert_eq!(before_failure("stopped"), "");
    }
}
