//! The answer to a text that is no condition: the guilty place, and what is accepted there.

use std::fmt;
use std::ops::Range;

use unicode_width::UnicodeWidthStr;
use winnow::error::{ErrMode, ParserError};
use winnow::stream::{Location, Stream};

/// How many characters of the text stand before the guilty place, and how many from it on.
const CONTEXT: usize = 60;

/// How many characters of a word a message quotes.
const QUOTED: usize = 40;

/// A text was refused as a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The text.
    pub(crate) text: String,
    /// Where in the text the fault is, in bytes.
    pub(crate) span: Range<usize>,
    /// What is wrong.
    pub(crate) message: String,
    /// What may stand there instead.
    pub(crate) accepted: Option<String>,
}

/// What is wrong at a place of the text.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    span: Range<usize>,
    message: String,
    accepted: Option<String>,
}

/// The result of a part of the parser.
pub(super) type Parsed<T> = Result<T, ErrMode<Fault>>;

impl Fault {
    pub(super) fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Fault { span, message: message.into(), accepted: None }
    }

    /// Says what may stand there instead.
    pub(super) fn accepts(self, accepted: impl Into<String>) -> Self {
        Fault { accepted: Some(accepted.into()), ..self }
    }

    /// Refuses the text because of this fault: no other way to read the text is tried.
    pub(super) fn cut<T>(self) -> Parsed<T> {
        Err(ErrMode::Cut(self))
    }

    pub(super) fn of(self, text: &str) -> Refused {
        Refused { text: text.to_owned(), span: self.span, message: self.message, accepted: self.accepted }
    }
}

impl<I: Stream + Location> ParserError<I> for Fault {
    type Inner = Self;

    fn from_input(input: &I) -> Self {
        let at = input.current_token_start();
        Fault::new(at..at, "this is not expected here")
    }

    fn into_inner(self) -> Result<Self, Self> {
        Ok(self)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, guilty, after) = self.excerpt();
        let indent = " ".repeat(before.width());
        let carets = "^".repeat(guilty.width().max(1));
        writeln!(f, "{}", self.message)?;
        writeln!(f, "  {before}{guilty}{after}")?;
        write!(f, "  {indent}{carets}")?;
        match &self.accepted {
            Some(accepted) => write!(f, "\n  accepted: {accepted}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Refused {}

impl Refused {
    /// Returns the guilty part of the text, with a piece of the text before and after it, as they are shown.
    fn excerpt(&self) -> (String, String, String) {
        let part = |range: Range<usize>| self.text.get(range).unwrap_or_default();
        let (before, guilty) = (part(0..self.span.start), part(self.span.clone()));
        let after = part(self.span.end..self.text.len());
        let skipped = before.chars().count().saturating_sub(CONTEXT);
        let kept: String = before.chars().skip(skipped).collect();
        let before = format!("{}{}", if skipped > 0 { "…" } else { "" }, visible(&kept));
        (before, shortened(guilty, CONTEXT), shortened(after, CONTEXT))
    }
}

/// Writes a word of the text so that a message can quote it.
pub(super) fn shown(word: &str) -> String {
    shortened(word, QUOTED)
}

fn shortened(text: &str, to: usize) -> String {
    match text.char_indices().nth(to) {
        Some((end, _)) => format!("{}…", visible(&text[..end])),
        None => visible(text),
    }
}

/// Writes characters that a terminal would obey or hide, such as line ends and marks of direction, as escapes.
fn visible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\'' | '"' | '\\' => visible.push(c),
            _ => visible.extend(c.escape_debug()),
        }
    }
    visible
}
