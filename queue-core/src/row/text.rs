//! The texts in the error column: those of failures, and marks.
//!
//! The text of a failure is bounded, cut between characters, and without characters that a database refuses.
//!
//! The marks have a meaning of their own. They are one format: none may be the beginning of another. No failure has such
//! a text. A failure's text that begins like one is written behind [`NO_MARK`], and code that reads a mark compares it
//! character by character.

use std::error::Error;
use std::fmt::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::log::{Redact, hide_passwords};

/// What a write does with the text of the last failure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ErrorText {
    /// Keeps it.
    #[default]
    Keep,
    /// Clears it.
    Clear,
    /// Replaces it.
    Set(String),
}

impl ErrorText {
    /// Returns the new text, if it is replaced.
    pub(crate) fn text(&self) -> Option<&str> {
        if let ErrorText::Set(text) = self { Some(text) } else { None }
    }
}

/// The beginning of every mark.
const MARK: &str = "queueable: ";

/// Stands before the text of a failure that begins like a mark.
const NO_MARK: &str = "failure: ";

/// The beginning of the text on a row that was set aside because it has ended its process too often.
pub(crate) const SET_ASIDE: &str = "the process ended 3 times while this message was handled";

/// The beginning of the text on a row while a handler processes it that may end the process.
pub(crate) const PRESUMED: &str = "queueable: this message is being handled, or the process ended meanwhile";

/// The beginning of the text that a group leaves on its rows while it holds them.
pub(crate) const RESERVING: &str = "queueable: in the group ";

/// The text on a row that was stopped before any attempt failed.
pub(crate) const STOPPED: &str = "queueable: stopped";

/// The beginning of the text on a row whose last attempt never ended. The attempt's number follows.
pub(crate) const LEASE_EXPIRED: &str = "queueable: lease expired in attempt ";

/// Ends a text that was cut.
const CUT: &str = " [...]";

/// The number of bytes beyond the limit that the application's redaction gets, so that it sees a secret whole that the
/// cut would split.
const MARGIN: usize = 4096;

/// Makes the texts of failures that are stored on rows.
#[derive(Debug, Clone, Default)]
pub(crate) struct FailureTexts {
    /// The largest number of bytes that are stored.
    pub(crate) limit: usize,
    /// The application's redaction.
    pub(crate) redact: Option<Redact>,
}

impl FailureTexts {
    /// Makes the text of a failure.
    pub(crate) fn of(&self, error: &(dyn Error + 'static)) -> String {
        let Some(redact) = &self.redact else { return failure_text(error, self.limit) };
        let text = redact.apply(&failure_text(error, self.limit + MARGIN));
        as_no_mark(bounded(&text, self.limit), self.limit)
    }
}

/// Writes an error and its sources into at most `limit` bytes, without passwords. It is safe when an error's `Display`
/// panics, never ends or fails.
pub(crate) fn failure_text(error: &(dyn Error + 'static), limit: usize) -> String {
    as_no_mark(bounded(&hide_passwords(&whole_text(error, limit)), limit), limit)
}

fn whole_text(error: &(dyn Error + 'static), limit: usize) -> String {
    let mut text = Bounded { text: String::new(), limit, cut: false };
    let written = catch_unwind(AssertUnwindSafe(|| {
        write!(text, "{error}")?;
        let mut source = error.source();
        // A chain of sources may be a cycle, and the limit does not end a cycle of empty texts.
        for _ in 0..32 {
            let Some(cause) = source else { break };
            let mut line = Bounded { text: String::new(), limit, cut: false };
            let _ = write!(line, "{cause}");
            // Many errors print their source themselves.
            if !text.text.contains(&line.text) {
                write!(text, ": {}", line.text)?;
            }
            source = cause.source();
        }
        fmt::Result::Ok(())
    }));
    match written {
        Ok(Ok(())) => {}
        Ok(Err(fmt::Error)) if text.cut => {}
        Ok(Err(fmt::Error)) => text.note("the error cannot be printed"),
        Err(payload) => {
            std::mem::forget(payload);
            text.note("the error panicked while it was printed");
        }
    }
    text.finish()
}

/// Cuts a text to at most `limit` bytes, between characters, and says so at its end.
pub(crate) fn bounded(text: &str, limit: usize) -> String {
    let mut bounded = Bounded { text: String::new(), limit, cut: false };
    let _ = bounded.write_str(text);
    bounded.finish()
}

/// Changes a failure's text that would read as one of the library's own marks.
fn as_no_mark(text: String, limit: usize) -> String {
    match before_failure(&text) {
        "" => text,
        before => bounded(&format!("{before}{text}"), limit),
    }
}

/// Replaces everything but printable ASCII, for a database whose encoding cannot store the text.
pub(crate) fn ascii_only(text: &str) -> String {
    text.chars().map(|c| if c == '\n' || c == ' ' || c.is_ascii_graphic() { c } else { '?' }).collect()
}

/// A text that stops growing at its limit.
struct Bounded {
    text: String,
    limit: usize,
    cut: bool,
}

impl Bounded {
    fn note(&mut self, note: &str) {
        if !self.text.is_empty() {
            let _ = self.write_str(": ");
        }
        let _ = self.write_str(note);
    }

    fn finish(mut self) -> String {
        if self.cut && self.limit >= CUT.len() {
            truncate(&mut self.text, self.limit - CUT.len());
            self.text.push_str(CUT);
        }
        self.text
    }
}

impl Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        for c in part.chars() {
            // PostgreSQL does not store NUL in text.
            let c = if c == '\0' { char::REPLACEMENT_CHARACTER } else { c };
            if self.text.len() + c.len_utf8() > self.limit {
                self.cut = true;
                return Err(fmt::Error);
            }
            self.text.push(c);
        }
        Ok(())
    }
}

fn truncate(text: &mut String, limit: usize) {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

/// Returns the text to put before the text of a failure, so that it does not read as a mark.
fn before_failure(text: &str) -> &'static str {
    if text.starts_with(MARK) { NO_MARK } else { "" }
}

/// Returns a text of the application or the database as a terminal may show it: characters that would move its cursor, change its
/// colours or the direction of the line are written as escapes. `lines`: a line feed stays.
pub fn printable(text: &str, lines: bool) -> String {
    let is_harmless = |c: char| {
        let turns = matches!(c, '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
        (c == '\n' && lines) || !(c.is_control() || turns)
    };
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if is_harmless(c) {
            shown.push(c)
        } else {
            shown.extend(c.escape_default())
        }
        shown
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Prints(fn(&mut fmt::Formatter<'_>) -> fmt::Result);

    impl fmt::Display for Prints {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0(f)
        }
    }

    impl Error for Prints {}

    #[test]
    fn a_nul_is_replaced_and_a_long_text_is_cut_at_a_character() {
        let text = failure_text(&Prints(|f| f.write_str("a\0b")), 100);
        assert_eq!(text, "a\u{fffd}b");
        let text = failure_text(&Prints(|f| f.write_str(&"é".repeat(1000))), 101);
        assert!(text.len() <= 101 && text.ends_with("é [...]"), "{text}");
        assert_eq!(failure_text(&Prints(|f| f.write_str("abc")), 3), "abc");
        assert_eq!(failure_text(&Prints(|f| f.write_str("äbc")), 1), "");
    }

    #[test]
    fn an_error_that_cannot_be_printed_still_has_a_text() {
        let text = failure_text(&Prints(|f| f.write_str("half").map(|()| panic!("in Display"))), 100);
        assert_eq!(text, "half: the error panicked while it was printed");
        let text = failure_text(&Prints(|_| Err(fmt::Error)), 100);
        assert_eq!(text, "the error cannot be printed");
        let endless = Prints(|f| {
            loop {
                f.write_str("more ")?;
            }
        });
        assert!(failure_text(&endless, 50).ends_with(" [...]"));
    }

    #[test]
    fn no_failure_reads_as_a_mark() {
        let text = |limit| failure_text(&Prints(|f| f.write_str("queueable: stopped")), limit);
        assert_eq!(text(100), "failure: queueable: stopped");
        assert!((0..30).all(|limit| text(limit).len() <= limit && !text(limit).starts_with("queueable: ")));
    }

    #[test]
    fn the_sources_of_an_error_are_told_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot charge")]
        struct Outer(#[source] std::num::ParseIntError);
        let error = Outer("x".parse::<i32>().unwrap_err());
        assert_eq!(failure_text(&error, 100), "cannot charge: invalid digit found in string");
    }

    #[test]
    fn none_is_the_beginning_of_another_and_all_are_told_from_failures() {
        let marks = [PRESUMED, RESERVING, STOPPED, LEASE_EXPIRED];
        for (i, mark) in marks.iter().enumerate() {
            assert_eq!(before_failure(mark), NO_MARK);
            assert!(marks.iter().enumerate().all(|(j, other)| i == j || !other.starts_with(mark)), "{mark}");
            // They stand between quotes in statements.
            assert!(!mark.contains(['\'', '\\']));
        }
        assert!(!NO_MARK.starts_with(MARK));
        assert_eq!(before_failure("stopped"), "");
    }

    #[test]
    fn a_terminal_shows_a_text_and_obeys_none() {
        assert_eq!(printable("no route to \u{1b}[2Jhost\r", false), "no route to \\u{1b}[2Jhost\\r");
        assert_eq!(printable("a\nb\u{202e}c\u{9b}2J", true), "a\nb\\u{202e}c\\u{9b}2J");
        assert_eq!(printable("a\nb", false), "a\\nb");
        assert_eq!(printable("Grüße, <b>'\"\\</b>", false), "Grüße, <b>'\"\\</b>");
    }
}
