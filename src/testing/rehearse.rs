//! Handlers on due rows, in transactions that are rolled back.

use std::collections::BTreeMap;
use std::fmt;

use super::attempt::attempt_row;
use super::drained::Attempt;
use super::rolled_back::RolledBack;
use super::statements::{RanStatement, Recorder};
use crate::bounds::{AsQueueConnection, Explains, HandlerFor};
use crate::{Error, Explanation, Queueable};

/// Tries handlers on due rows and takes all of it back, made by [`TestQueue::rehearse`](super::TestQueue::rehearse).
#[must_use = "no handler is tried before `with` is called"]
pub struct Rehearsal<'c, Q: Queueable, C> {
    connection: &'c mut C,
    keys: Vec<Q::Key>,
    rehearsed: Rehearsed,
}

impl<Q: Queueable, C> fmt::Debug for Rehearsal<'_, Q, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rehearsal").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl<'c, Q, C> Rehearsal<'c, Q, C>
where
    Q: Queueable + 'static,
    C: AsQueueConnection + Explains<Q>,
{
    pub(super) fn of(connection: &'c mut C, keys: Vec<Q::Key>) -> Self {
        let rows = keys.iter().map(|key| RehearsedRow { key: format!("{key:?}"), runs: Vec::new() }).collect();
        Rehearsal { connection, keys, rehearsed: Rehearsed { entity: Q::ENTITY, rows } }
    }

    /// Tries a handler on each of the rows. Each attempt begins with the table as it was, and is rolled back. `name` is what
    /// the report calls the handler.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] at once if a handler ends its transaction, because what it did before is then committed: the report
    /// cannot be had for such a handler. [`Error::Unsafe`] if the table is not what the entity needs, [`Error::Database`].
    pub fn with<H>(mut self, name: impl Into<String>, handler: &H) -> Result<Self, Error>
    where
        H: HandlerFor<Q, C::Connection>,
    {
        let name = name.into();
        for (key, row) in self.keys.iter().zip(&mut self.rehearsed.rows) {
            let mut run = rehearse_row::<Q, C, H>(self.connection, handler, key)?;
            if let Some(attempt) = &run.attempt {
                row.key = attempt.key.to_string();
            }
            run.handler = name.clone();
            row.runs.push(run);
        }
        Ok(self)
    }

    /// Ends the rehearsal.
    pub fn report(self) -> Rehearsed {
        self.rehearsed
    }
}

/// Makes an attempt on one row, and takes it back.
fn rehearse_row<Q, C, H>(connection: &mut C, handler: &H, key: &Q::Key) -> Result<RehearsedRun, Error>
where
    Q: Queueable + 'static,
    C: AsQueueConnection + Explains<Q>,
    H: HandlerFor<Q, C::Connection>,
{
    let mut rolled_back = RolledBack::begin(connection.as_queue_connection())?;
    let recorder = Recorder::begin(rolled_back.connection());
    let attempted = attempt_row::<Q, _, _>(rolled_back.connection(), handler, key);
    let statements = recorder.end(rolled_back.connection());
    let ended = rolled_back.end();
    // An attempt that could not be made says more than a rollback that could not.
    let attempt = attempted?;
    ended?;
    let kept = match &attempt {
        Some(_) => None,
        None => Some(match Q::explain(connection, key)? {
            Explanation::Due => "another session has locked it".to_owned(),
            why => why.to_string(),
        }),
    };
    let writes = statements.into_iter().filter(RanStatement::is_write).collect();
    Ok(RehearsedRun { handler: String::new(), attempt, kept, writes })
}

/// What handlers would do with due rows.
///
/// Its text is a table for people: a line for each row and handler, and below it, for the rows that the handlers treat
/// differently, what each of them writes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Rehearsed {
    /// The entity's name.
    pub entity: &'static str,
    /// The rows, those first that have been due longest.
    pub rows: Vec<RehearsedRow>,
}

/// What handlers would do with one row.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RehearsedRow {
    /// The row's primary key, as the logs write it.
    pub key: String,
    /// What each handler did, in the order in which they were tried.
    pub runs: Vec<RehearsedRun>,
}

/// What one handler would do with one row.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RehearsedRun {
    /// The handler, by the name that the caller gave it.
    pub handler: String,
    /// The attempt. `None`: none could be made.
    pub attempt: Option<Attempt>,
    /// Why no attempt could be made.
    pub kept: Option<String>,
    /// The statements of the handler that write, with their values. Those of an attempt that has failed are among them,
    /// although the worker undoes them.
    pub writes: Vec<RanStatement>,
}

impl RehearsedRun {
    /// Counts the statements that write, by table. A statement whose text shows no table counts under the empty name.
    pub fn writes_by_table(&self) -> BTreeMap<String, usize> {
        let mut tables = BTreeMap::new();
        for statement in &self.writes {
            *tables.entry(statement.written_table().unwrap_or_default()).or_default() += 1;
        }
        tables
    }

    /// Tells whether another handler came to the same end, for the same reason, by the same writes.
    fn is_like(&self, other: &RehearsedRun) -> bool {
        let end = |run: &RehearsedRun| {
            let attempt = run.attempt.as_ref();
            attempt.map(|attempt| (attempt.end, attempt.error.clone(), attempt.enqueued.clone()))
        };
        end(self) == end(other) && self.kept == other.kept && self.writes == other.writes
    }

    fn outcome(&self) -> String {
        match (&self.attempt, &self.kept) {
            (Some(attempt), _) => {
                let error = attempt.error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
                format!("{}{error}", attempt.end)
            }
            (None, Some(kept)) => format!("not attempted: {kept}"),
            (None, None) => "not attempted".to_owned(),
        }
    }

    fn written(&self) -> String {
        let tables = self.writes_by_table();
        let texts = tables.iter().map(|(table, count)| match &**table {
            "" => format!("{count} elsewhere"),
            table => format!("{count} in {table}"),
        });
        if tables.is_empty() { "none".to_owned() } else { texts.collect::<Vec<_>>().join(", ") }
    }
}

impl RehearsedRow {
    /// Tells whether the handlers treat the row differently: another end, another error, other entities enqueued, or other
    /// writes. A value that the database gave, as from a sequence, is a difference if a statement has it.
    pub fn differs(&self) -> bool {
        self.runs.windows(2).any(|two| !two[0].is_like(&two[1]))
    }
}

impl Rehearsed {
    /// Returns the rows that the handlers treat differently.
    pub fn differing(&self) -> impl Iterator<Item = &RehearsedRow> {
        self.rows.iter().filter(|row| row.differs())
    }
}

impl fmt::Display for Rehearsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, differing) = (self.rows.len(), self.differing().count());
        writeln!(
            f,
            "{}: {rows} due rows rehearsed and rolled back, {differing} of them treated differently",
            self.entity
        )?;
        let mut lines = vec![["key", "handler", "writes", "end"].map(str::to_owned)];
        for row in &self.rows {
            for (number, run) in row.runs.iter().enumerate() {
                let key = if number == 0 { row.key.clone() } else { String::new() };
                let mark = if number > 0 && row.differs() { " (differs)" } else { "" };
                lines.push([key, format!("{}{mark}", run.handler), run.written(), first_line(&run.outcome())]);
            }
        }
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let [key, handler, writes] = [width(0), width(1), width(2)];
        for [k, h, w, end] in &lines {
            writeln!(f, "{k:key$}  {h:handler$}  {w:writes$}  {end}")?;
        }
        for row in self.differing() {
            for run in &row.runs {
                writeln!(f, "{} {}, {}:", self.entity, row.key, run.handler)?;
                run.writes.iter().try_for_each(|statement| writeln!(f, "    {statement}"))?;
                writeln!(f, "    {}", run.outcome())?;
            }
        }
        Ok(())
    }
}

/// Keeps a text of several lines out of the table.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
