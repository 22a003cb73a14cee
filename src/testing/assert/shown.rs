//! The message of an assertion that fails.

use std::fmt::Write;
use std::marker::PhantomData;

use chrono::{DateTime, Utc};
use queue_core::internals::by_name::{TextColumn, printable};

use super::asked::{about_from_now, utc};
use super::rows::{Inspects, Row, Which};
use crate::{Explanation, Queueable};

/// How many rows a message shows.
pub(super) const SHOWN: usize = 5;

/// A message, as far as it is written.
pub(super) struct Message<'c, Q, C> {
    text: String,
    connection: &'c mut C,
    now: DateTime<Utc>,
    /// The columns that the condition of the assertion names.
    named: Vec<TextColumn>,
    /// How many more rows may be shown.
    left: usize,
    entity: PhantomData<fn() -> Q>,
}

impl<'c, Q: Queueable, C: Inspects<Q>> Message<'c, Q, C> {
    /// Says what was expected, by a condition with this text, and how much of it was found.
    pub(super) fn new(
        connection: &'c mut C,
        now: DateTime<Utc>,
        (expected, found): (&str, &str),
        filter: Option<&str>,
    ) -> Result<Self, String> {
        let mut named = C::columns()?;
        named.retain(|TextColumn { name, .. }| {
            let quoted = ['`', '"'].map(|quote| format!("{quote}{name}{quote}"));
            filter.is_some_and(|filter| quoted.iter().any(|name| filter.contains(name)))
        });
        let text = format!("expected {expected}\nfound {found}, at {} by the clock of the test", utc(now));
        Ok(Message { text, connection, now, named, left: SHOWN, entity: PhantomData })
    }

    /// Shows rows under a heading, if there are any.
    pub(super) fn rows(&mut self, heading: &str, rows: Vec<Row<Q::Key>>) -> Result<(), String> {
        if rows.is_empty() || self.left == 0 {
            return Ok(());
        }
        self.text += &format!("\n{heading}:");
        let beyond = rows.len().saturating_sub(self.left);
        for row in rows.into_iter().take(self.left) {
            let line = self.line(row)?;
            self.text += &format!("\n  {line}");
            self.left -= 1;
        }
        if beyond > 0 {
            self.text += &format!("\n  and {beyond} more");
        }
        Ok(())
    }

    /// Shows the rows that come first, as far as there is place for them.
    pub(super) fn first_rows(&mut self, heading: &str, which: Which) -> Result<(), String> {
        let rows = self.connection.read(C::rows_in(&[]), which, self.left)?;
        self.rows(heading, rows)
    }

    /// Returns the connection.
    pub(super) fn connection(&mut self) -> &mut C {
        self.connection
    }

    /// Ends the message.
    pub(super) fn fails(self) -> Result<(), String> {
        Err(self.text)
    }

    fn line(&mut self, row: Row<Q::Key>) -> Result<String, String> {
        let Row { key, status, tries, next, error, is_decoded } = row;
        let status = printable(&status, false);
        let Some(key) = key else {
            return Ok(format!("{} with a key that cannot be decoded: {status}", Q::ENTITY));
        };
        let explanation = self.connection.explain_row(&key)?;
        let debug = format!("{key:?}");
        let texts = self.connection.texts(key, &self.named)?;
        let shown = |text: Option<String>| text.map_or("null".to_owned(), |text| printable(&text, false));
        // An archived row has no texts.
        let (key, values) = texts.map_or((debug, Vec::new()), |row| {
            let parts: Vec<_> = row.parts.into_iter().map(shown).collect();
            (parts.join(","), row.values)
        });
        let mut line = format!("{} {key}: {status}", Q::ENTITY);
        if tries > 0 {
            let _ = write!(line, " after {tries} {}", if tries == 1 { "try" } else { "tries" });
        }
        let is_scheduled = matches!(explanation, Explanation::ScheduledFor { .. });
        let waits = if is_scheduled { "scheduled for" } else { "next attempt at" };
        let _ = match next {
            Some(next) => write!(line, ", {waits} {}, {}", utc(next), about_from_now(next - self.now)),
            None if !is_decoded => write!(line, ", with columns that cannot be decoded"),
            None => write!(line, ", no next attempt"),
        };
        for (column, value) in self.named.iter().zip(values) {
            let _ = write!(line, ", {} = {}", column.name, shown(value));
        }
        if !is_scheduled || next.is_none() {
            let _ = write!(line, "; explain: {explanation}");
        }
        let is_said = matches!(explanation, Explanation::FailedForGood { .. });
        if let Some(error) = error.filter(|_| !is_said) {
            let _ = write!(line, "; last failure: {}", printable(&error, true));
        }
        Ok(line)
    }
}
