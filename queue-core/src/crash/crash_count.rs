//! The number of crashes that happened while a row was handled. It stands in the row's error text, where every process
//! on every machine reads it at the claim, and where an operator sees it.

use std::fmt;

use crate::row::{CRASHED, PRESUMED};

/// The number of crashes after which a row is set aside. The first may be another row's fault; two more in a row, alone
/// in the process, are not.
pub(crate) const CRASHES: u32 = 3;

/// Stands between the text about the crashes and the text that the row had before.
const BEFORE: &str = "; before that: ";

/// How many characters of the earlier text are kept: a suspicion does not last long, and the column's text is bounded.
const KEPT: usize = 1000;

/// The suspicion that a row ends its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Suspicion {
    /// The number of crashes so far.
    pub(crate) crashes: u32,
    /// Whether the last of them is only presumed: a worker writes the text before the handler runs.
    pub(crate) presumed: bool,
}

impl Suspicion {
    /// Finds the suspicion in a row's error text.
    pub(crate) fn of(text: Option<&str>) -> Option<Self> {
        let text = text?;
        let of = |said: &str, presumed| {
            let (number, rest) = text.strip_prefix(said)?.strip_prefix(" (crash ")?.split_once(" of ")?;
            let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(')')?;
            (rest.is_empty() || rest.starts_with(BEFORE)).then_some(())?;
            Some(Suspicion { crashes: number.parse().ok()?, presumed })
        };
        of(CRASHED, false).or_else(|| of(PRESUMED, true))
    }

    /// Tells whether the row is to be set aside.
    pub(crate) fn is_proven(self) -> bool {
        self.crashes >= CRASHES
    }

    /// Returns the text for a row whose error text was `text`.
    pub(crate) fn over(self, text: Option<&str>) -> String {
        with_earlier(self.to_string(), text)
    }

    /// Returns the text for a row that is set aside and whose error text was `text`.
    pub(crate) fn final_text(text: Option<&str>) -> String {
        let said = format!("the process ended {CRASHES} times while this message was handled: it is set aside");
        with_earlier(said, text)
    }
}

/// Returns the text that a row had before it was suspected.
pub(crate) fn earlier(text: Option<&str>) -> Option<&str> {
    match Suspicion::of(text) {
        Some(_) => text?.split_once(BEFORE).map(|(_, earlier)| earlier),
        None => text,
    }
}

fn with_earlier(said: String, text: Option<&str>) -> String {
    match earlier(text) {
        Some(earlier) => said + BEFORE + &earlier.chars().take(KEPT).collect::<String>(),
        None => said,
    }
}

impl fmt::Display for Suspicion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = if self.presumed { PRESUMED } else { CRASHED };
        write!(f, "{said} (crash {} of {CRASHES})", self.crashes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspicion_is_read_as_it_was_written_whatever_the_text_before() {
        for crashes in [0, 1, 2, u32::MAX] {
            for presumed in [false, true] {
                let suspicion = Suspicion { crashes, presumed };
                assert_eq!(Suspicion::of(Some(&suspicion.to_string())), Some(suspicion));
                for before in ["no route", "", "a\nb; before that: c", "(crash 1 of 3)"] {
                    let text = suspicion.over(Some(before));
                    assert_eq!(Suspicion::of(Some(&text)), Some(suspicion));
                    assert_eq!(earlier(Some(&text)), Some(before));
                    // The next suspicion replaces this one.
                    let next = Suspicion { crashes: 9, presumed: false };
                    assert_eq!(next.over(Some(&text)), next.over(Some(before)));
                }
                assert_eq!(earlier(Some(&suspicion.to_string())), None);
            }
        }
    }

    #[test]
    fn other_texts_are_no_suspicion() {
        let last = Suspicion::final_text(Some("no route"));
        assert!(last.ends_with("before that: no route"), "{last}");
        for text in [
            "",
            "no route",
            &last,
            CRASHED,
            &format!("{CRASHED} (crash one of 3)"),
            &format!("{CRASHED} (crash 99999999999 of 3)"),
            &format!("{CRASHED} (crash 1 of 3), said the bank"),
            &format!("Error: {CRASHED} (crash 1 of 3)"),
            // The mark of an earlier release.
            "the process ended while this message was handled (crash 1 of 3)",
        ] {
            assert_eq!(Suspicion::of(Some(text)), None, "{text}");
            assert_eq!(earlier(Some(text)), Some(text));
        }
        assert_eq!(Suspicion::of(None), None);
    }

    #[test]
    fn a_long_text_before_is_cut() {
        let long = "\u{e9}".repeat(50_000);
        let text = Suspicion { crashes: 1, presumed: false }.over(Some(&long));
        assert!(text.len() < 4 * KEPT && Suspicion::of(Some(&text)).is_some());
    }
}
