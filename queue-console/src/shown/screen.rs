//! Where answers go: standard output and standard error.

use std::cell::Cell;
use std::io::{IsTerminal, Write, stderr, stdin, stdout};

use anstream::{AutoStream, ColorChoice};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::table::Table;
use super::words::{since, visible};
use crate::cli::Global;
use crate::failure::{Answer, Failure};

/// How many characters of a value are shown at most, and in a table that has to fit.
pub(crate) const LONGEST: u32 = 10_000;
const BRIEF: u32 = 500;

/// What a command writes to.
#[derive(Debug, Clone)]
pub(crate) struct Screen {
    pub(crate) json: bool,
    pub(crate) utc: bool,
    color: ColorChoice,
    width: Option<u16>,
    changes: Cell<bool>,
}

impl Screen {
    pub(crate) fn new(global: &Global) -> Self {
        let color = match global.color {
            clap::ColorChoice::Auto => ColorChoice::Auto,
            clap::ColorChoice::Always => ColorChoice::Always,
            clap::ColorChoice::Never => ColorChoice::Never,
        };
        let terminal = || terminal_size::terminal_size().filter(|_| stdout().is_terminal()).map(|(width, _)| width.0);
        Screen {
            json: global.json,
            utc: global.utc,
            color,
            width: global.width.or_else(terminal),
            changes: Cell::new(false),
        }
    }

    /// One without the options of a command line.
    pub(crate) fn bare(json: bool) -> Self {
        Screen { json, utc: true, color: ColorChoice::Never, width: None, changes: Cell::new(false) }
    }

    /// Says that what follows changes something, whoever reads.
    pub(crate) fn changes(&self) {
        self.changes.set(true);
    }

    /// Whether somebody reads and can answer.
    pub(crate) fn asks(&self) -> bool {
        !self.json && stdin().is_terminal()
    }

    /// Writes a line, if there is no JSON.
    pub(crate) fn say(&self, line: impl AsRef<str>) -> Answer {
        match self.json {
            true => Ok(()),
            false => self.write(&format!("{}\n", line.as_ref())),
        }
    }

    /// Writes a table, if there is no JSON.
    pub(crate) fn table(&self, table: &Table) -> Answer {
        match self.json {
            true => Ok(()),
            false => self.write(&table.written(self.width)),
        }
    }

    /// Writes an object in a line of its own, if JSON is asked for.
    pub(crate) fn object(&self, object: impl FnOnce() -> Value) -> Answer {
        match self.json {
            true => self.write(&format!("{}\n", harmless(&object().to_string()))),
            false => Ok(()),
        }
    }

    pub(crate) fn write(&self, text: &str) -> Answer {
        let mut out = AutoStream::new(stdout(), self.color);
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // Who reads has gone, such as `head`. A report ends then, and a change goes on.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => match self.changes.get() {
                true => Ok(()),
                false => std::process::exit(0),
            },
            written => Ok(written?),
        }
    }

    /// Says how to read the next page: with the cursor as a shell takes it, a JSON text in single quotes.
    pub(crate) fn more(&self, cursor: &str) -> Answer {
        self.say(format!("more: --after {}", in_shell(cursor)))
    }

    /// Clears the terminal for the next report; without a terminal, an empty line comes between two reports.
    pub(crate) fn clear(&self) -> Answer {
        match stdout().is_terminal() {
            true => self.write("\u{1b}[2J\u{1b}[H"),
            false => self.say(""),
        }
    }

    /// How many characters of a value are read: for a table that has to fit, no more than it could show.
    pub(crate) fn longest(&self) -> u32 {
        match self.width.filter(|_| !self.json) {
            Some(_) => BRIEF,
            None => LONGEST,
        }
    }

    /// How many columns there are.
    pub(crate) fn width(&self) -> usize {
        self.width.map_or(100, usize::from)
    }

    /// A time for people.
    pub(crate) fn time(&self, time: DateTime<Utc>) -> String {
        since(time, self.utc)
    }

    pub(crate) fn fail(&self, failure: &Failure) {
        let text = failure.to_string();
        if text.is_empty() {
            return;
        }
        let lines = text.lines().map(visible).collect::<Vec<_>>().join("\n");
        let _ = match self.json {
            true => {
                let object = json!({ "error": failure.kind(), "message": text, "exit_code": failure.code() });
                writeln!(stderr(), "{}", harmless(&object.to_string()))
            }
            false => writeln!(stderr(), "error: {lines}"),
        };
    }
}

/// JSON in which no character means anything to a terminal. JSON's own writer escapes some of them.
fn harmless(json: &str) -> String {
    let escaped = |c: char| match c.is_ascii() || visible(c.encode_utf8(&mut [0; 4])).starts_with(c) {
        true => c.to_string(),
        false => c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
    };
    json.chars().map(escaped).collect()
}

/// A JSON text as a word of a shell.
fn in_shell(json: &str) -> String {
    format!("'{}'", harmless(json).replace('\'', "\\u0027"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_one_word_of_a_shell() {
        let cursor = json!(["key", null, ["it's\u{9b}31m\u{202e}"]]).to_string();
        let word = in_shell(&cursor);
        assert_eq!(word, r#"'["key",null,["it\u0027s\u009b31m\u202e"]]'"#);
        let read: Value = serde_json::from_str(word.trim_matches('\'')).expect("it is JSON");
        assert_eq!(read, serde_json::from_str::<Value>(&cursor).expect("it is JSON"));
    }

    #[test]
    fn json_stays_json_and_does_nothing_to_a_terminal() {
        let hostile = json!("a\u{1b}\u{9b}31m\u{202e}é日");
        let written = harmless(&hostile.to_string());
        assert!(!written.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{written}");
        assert!(written.contains("é日"), "{written}");
        assert_eq!(serde_json::from_str::<Value>(&written).expect("it is JSON"), hostile);
    }
}
