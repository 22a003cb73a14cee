//! The commands.

mod control;
mod doctor;
mod lists;
mod migrate;
mod reports;
mod rows;
mod status;
mod why;

#[cfg(feature = "web")]
pub(crate) use self::control::scope;
#[cfg(feature = "top")]
pub(crate) use self::control::with_keys;
#[cfg(any(feature = "top", feature = "web"))]
pub(crate) use self::lists::is_number;
#[cfg(feature = "web")]
pub(crate) use self::lists::{default_order_of, order_of};
#[cfg(feature = "web")]
pub(crate) use self::reports::group_name;
pub(crate) use self::reports::group_of;
#[cfg(feature = "web")]
pub(crate) use self::status::{Known, registered, serving, wrong};

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::change;
use crate::cli::{Command, Line, Migrate};
use crate::console::Parts;
use crate::database::Database;
use crate::failure::{Answer, Failure};
use crate::filter;
use crate::queue::{Facts, Queue};
use crate::shown::Screen;

/// How many differences of a table are shown beside an error of the database.
const SHOWN_FINDINGS: usize = 2;

/// What a command works with.
pub(crate) struct Context<'a, C: Database> {
    pub(crate) parts: &'a Parts<C>,
    pub(crate) screen: Screen,
    pub(crate) connection: C,
    pub(crate) line: &'a Line,
}

impl Command {
    /// The commands that always change something, or run what the application would.
    pub(crate) const CHANGES: [&'static str; 15] = [
        "retry", "postpone", "skip", "stop", "resume", "rerun", "delete", "purge", "archive", "redrive", "priority",
        "enqueue", "replay", "pause", "unpause",
    ];

    /// Whether it changes something in the database, or could: a handler may do anything.
    pub(crate) fn changes(&self) -> bool {
        match self {
            Command::Retry(_)
            | Command::Postpone(_)
            | Command::Skip(_)
            | Command::Stop(_)
            | Command::Resume(_)
            | Command::Rerun(_)
            | Command::Delete(_)
            | Command::Purge(_)
            | Command::Archive(_)
            | Command::Redrive(_)
            | Command::Priority(_)
            | Command::Enqueue(_)
            | Command::Replay(_)
            | Command::Pause(_)
            | Command::Unpause(_)
            | Command::Migrate(Migrate::Run { .. }) => true,
            Command::Limits(limits) => limits.changes(),
            Command::Environment(environment) => environment.adopt.is_some(),
            _ => false,
        }
    }

    /// Whether it only reads.
    pub(crate) fn is_report(&self) -> bool {
        !self.changes() && !matches!(self, Command::Migrate(Migrate::Write { .. }))
    }
}

/// Runs a command.
pub(crate) fn run<C: Database>(parts: &Parts<C>, line: &Line) -> Answer {
    let connection = parts.connect(&line.global)?;
    let mut context = Context { parts, screen: Screen::new(&line.global), connection, line };
    let context = &mut context;
    match line.global.watch.filter(|_| line.command.is_report()) {
        Some(every) => context.watched(every, |context| once(context, &line.command)),
        None => once(context, &line.command),
    }
}

fn once<C: Database>(context: &mut Context<'_, C>, command: &Command) -> Answer {
    match command {
        Command::Status(of) => status::run(context, of),
        Command::Why(of) => why::run(context, of),
        Command::Explain(keys) => rows::run(context, keys, false),
        Command::Show(keys) => rows::run(context, keys, true),
        Command::List(of) => lists::run(context, of),
        Command::Backlog(of) => reports::backlog(context, of),
        Command::Errors(of) => reports::errors(context, of),
        Command::Statistics(of) => reports::statistics(context, of),
        Command::Pause(pause) => control::pause(context, pause),
        Command::Unpause(unpause) => control::unpause(context, unpause),
        Command::Limits(limits) => control::limits(context, limits),
        Command::Pollers => control::pollers(context),
        Command::Audit(audit) => control::audit(context, audit),
        Command::Environment(environment) => control::environment(context, environment),
        Command::Replay(replay) => crate::replay::run(context, replay),
        Command::Migrate(migrate) => migrate::run(context, migrate),
        Command::Doctor(doctor) => doctor::run(context, doctor),
        Command::Top(_) | Command::Serve(_) | Command::Completions { .. } | Command::Man => Ok(()),
        _ => change::run(context),
    }
}

/// Writes what needs no database.
pub(crate) fn write_of(screen: &Screen, command: &Command, mut of: clap::Command) -> Answer {
    let mut written = Vec::new();
    match command {
        Command::Completions { shell } => {
            let name = of.get_bin_name().unwrap_or(of.get_name()).to_owned();
            clap_complete::generate(*shell, &mut of, name, &mut written);
        }
        _ => clap_mangen::Man::new(of).render(&mut written)?,
    }
    screen.write(&String::from_utf8_lossy(&written))
}

impl<C: Database> Context<'_, C> {
    /// The time by which ages are shown.
    pub(crate) fn now(&self) -> DateTime<Utc> {
        Utc::now()
    }

    /// Runs a report again and again. A connection that is lost is made anew.
    fn watched(&mut self, every: Duration, mut report: impl FnMut(&mut Self) -> Answer) -> Answer {
        loop {
            self.screen.clear()?;
            match report(self) {
                Ok(()) | Err(Failure::Found) => {}
                Err(failure @ (Failure::NoConnection(_) | Failure::Failed(_))) => {
                    self.screen.fail(&failure);
                    if let Ok(connection) = self.parts.connect(&self.line.global) {
                        self.connection = connection;
                    }
                }
                Err(failure) => return Err(failure),
            }
            std::thread::sleep(every);
        }
    }

    /// Asks a queue. If the database refuses, the reason may be that the table lacks something.
    pub(crate) fn ask<'q, T>(
        &mut self,
        queue: &'q dyn Queue<C>,
        ask: impl FnOnce(&'q dyn Queue<C>, &mut C) -> Result<T, queueable::Error>,
    ) -> Answer<T> {
        ask(queue, &mut self.connection).map_err(|error| {
            let is_of_database = matches!(error, queueable::Error::Database(_));
            let failure = Failure::of::<C>(error);
            if !is_of_database || matches!(failure, Failure::NoConnection(_)) {
                return failure;
            }
            let findings = queue.check(&mut self.connection).unwrap_or_default();
            let mut lines: Vec<_> =
                findings.iter().take(SHOWN_FINDINGS).map(|finding| format!("- {finding}")).collect();
            if !findings.is_empty() {
                lines
                    .push("the table lacks what the queue needs: see `migrate check`, or run `migrate run`".to_owned());
            }
            failure.with(&lines.join("\n"))
        })
    }
}

/// Reads a condition in words.
pub(crate) fn condition(facts: &Facts, text: &str) -> Answer<filter::Condition> {
    let condition = filter::parse(text, &facts.columns, Utc::now());
    let condition = condition.map_err(|refused| Failure::Usage(refused.to_string()))?;
    match condition.compared().into_iter().find(|column| facts.is_secret(column)) {
        Some(column) => Err(Failure::Usage(format!(
            "the values of `{column}` are not shown: a condition can only ask whether it is null"
        ))),
        None => Ok(condition),
    }
}

/// Returns the condition that picks the row with a key.
pub(crate) fn key(facts: &Facts, text: &str) -> Answer<filter::Condition> {
    let is: Vec<_> =
        facts.key.iter().zip(key_parts(facts, text)?).map(|(column, part)| facts.is(column, &part)).collect();
    condition(facts, &is.join(" and "))
}

/// Returns the condition that picks the rows with some keys.
pub(crate) fn keys(facts: &Facts, texts: &[String]) -> Answer<filter::Condition> {
    // Each by itself first, so that a refusal names the guilty one.
    let each = texts.iter().map(|text| key(facts, text)).collect::<Answer<Vec<_>>>()?;
    match &*facts.key {
        [column] if texts.len() > 1 => {
            let values: Vec<_> = texts.iter().map(|text| facts.literal(column, text)).collect();
            condition(facts, &format!("{} in ({})", quoted(column), values.join(", ")))
        }
        _ => Ok(filter::Condition::any(each)),
    }
}

/// The parts of a key: a JSON list, or texts with commas between them.
fn key_parts(facts: &Facts, text: &str) -> Answer<Vec<String>> {
    let listed = serde_json::from_str::<Vec<serde_json::Value>>(text).ok().filter(|_| facts.key.len() > 1);
    let parts: Vec<String> = match listed {
        Some(parts) => parts.iter().map(|part| part.as_str().map_or_else(|| part.to_string(), str::to_owned)).collect(),
        None if facts.key.len() == 1 => vec![text.to_owned()],
        None => text.split(',').map(str::to_owned).collect(),
    };
    match parts.len() == facts.key.len() {
        true => Ok(parts),
        false => {
            let columns = facts.key.join(",");
            Err(Failure::Usage(format!("`{text}` is no key of {}: it has the parts {columns}", facts.table)))
        }
    }
}

/// A name in quotes.
pub(crate) fn quoted(column: &str) -> String {
    format!("\"{}\"", column.replace('"', "\"\""))
}

impl Facts {
    /// Writes the condition that a column has this value.
    pub(crate) fn is(&self, column: &str, value: &str) -> String {
        self.compares(column, "=", value)
    }

    /// Writes a comparison of a column with the value that a text means.
    pub(crate) fn compares(&self, column: &str, operator: &str, value: &str) -> String {
        format!("{} {operator} {}", quoted(column), self.literal(column, value))
    }

    /// Writes the value that a text means in a column.
    pub(crate) fn literal(&self, column: &str, value: &str) -> String {
        use queue_core::internals::by_name::Holds::{Booleans, Bytes, Decimals, Floats, Integers, Unsigned};
        let column = self.columns.list.iter().find(|of| of.name == column);
        let is_unknown =
            column.and_then(|of| of.values.as_ref()).is_some_and(|known| !known.iter().any(|of| of == value));
        let holds = column.map(|of| of.holds);
        let is_number = matches!(holds, Some(Integers(_) | Unsigned(_) | Decimals | Floats))
            && value.starts_with(|c: char| c.is_ascii_digit() || c == '-')
            && value.chars().all(|c| c.is_ascii_digit() || matches!(c, '-' | '.' | 'e' | 'E'));
        match (holds, value) {
            // SQLite writes numbers.
            (Some(Booleans), "1" | "t" | "true") => "true".to_owned(),
            (Some(Booleans), "0" | "f" | "false") => "false".to_owned(),
            // With hyphens it is a UUID, which some databases store as bytes.
            (Some(Bytes), digits) if !digits.contains('-') => format!("x'{}'", value.replace('\'', "''")),
            _ if is_number => value.to_owned(),
            // A status or a stage of another version of the application.
            _ if is_unknown => quoted(value),
            _ => format!("'{}'", value.replace('\'', "''")),
        }
    }
}
