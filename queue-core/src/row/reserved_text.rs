//! The texts that have a meaning in the error column. They are one format: none may be the beginning of another.
//!
//! No failure bears one. A failure's text that begins as they do is written behind [`NO_MARK`], and what reads a mark compares
//! it character by character.

/// What every mark begins with.
const MARK: &str = "queueable: ";

/// What stands before the text of a failure that begins with the word of the marks.
const NO_MARK: &str = "failure: ";

/// What the text begins with that a row bears which was being handled when its process ended.
pub(crate) const CRASHED: &str = "queueable: the process ended while this message was handled";

/// What the text begins with that a row bears while it is worked under strict accounts.
pub(crate) const PRESUMED: &str = "queueable: this message is being handled, or the process ended meanwhile";

/// What the text begins with that a group leaves on its rows while it holds them.
pub(crate) const RESERVING: &str = "queueable: in the group ";

/// The text on a row that was stopped before any attempt failed.
pub(crate) const STOPPED: &str = "queueable: stopped";

/// What the text of a row begins with whose last attempt never ended. The attempt's number follows.
pub(crate) const LEASE_EXPIRED: &str = "queueable: lease expired in attempt ";

/// What is to stand before the text of a failure, so that it is no mark.
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
