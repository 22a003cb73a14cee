//! The commands.

mod control;
mod doctor;
mod lists;
mod migrate;
mod reports;
mod rows;
mod status;
mod why;

#[cfg(feature = "top")]
pub(crate) use self::lists::is_number;
pub(crate) use self::reports::group_name;

use std::io::stdout;
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::change;
use crate::cli::{Command, Line};
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
    /// The name of those that change something only with an option.
    pub(crate) const BY_OPTION: &'static str = "change";

    /// The commands that change something.
    pub(crate) const CHANGES: [&'static str; 15] = [
        "retry",
        "postpone",
        "skip",
        "stop",
        "resume",
        "rerun",
        "delete",
        "purge",
        "archive",
        "redrive",
        "priority",
        "enqueue",
        "pause",
        "unpause",
        Command::BY_OPTION,
    ];

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Command::Retry(_) => "retry",
            Command::Postpone(_) => "postpone",
            Command::Skip(_) => "skip",
            Command::Stop(_) => "stop",
            Command::Resume(_) => "resume",
            Command::Rerun(_) => "rerun",
            Command::Delete(_) => "delete",
            Command::Purge(_) => "purge",
            Command::Archive(_) => "archive",
            Command::Redrive(_) => "redrive",
            Command::Priority(_) => "priority",
            Command::Enqueue(_) => "enqueue",
            Command::Pause(_) => "pause",
            Command::Unpause(_) => "unpause",
            Command::Limits(limits) if limits.changes() => Command::BY_OPTION,
            Command::Environment(environment) if environment.adopt.is_some() => Command::BY_OPTION,
            Command::Migrate(crate::cli::Migrate::Run { .. }) => Command::BY_OPTION,
            _ => "report",
        }
    }

    /// Whether it only reads.
    pub(crate) fn is_report(&self) -> bool {
        self.name() == "report" && !matches!(self, Command::Migrate(crate::cli::Migrate::Write { .. }))
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
        Command::Migrate(migrate) => migrate::run(context, migrate),
        Command::Doctor(doctor) => doctor::run(context, doctor),
        Command::Top(_) | Command::Completions { .. } | Command::Man => Ok(()),
        _ => change::run(context),
    }
}

/// Writes what needs no database.
pub(crate) fn write_of(command: &Command, mut of: clap::Command) -> Answer {
    match command {
        Command::Completions { shell } => {
            let name = of.get_bin_name().unwrap_or(of.get_name()).to_owned();
            clap_complete::generate(*shell, &mut of, name, &mut stdout());
            Ok(())
        }
        _ => Ok(clap_mangen::Man::new(of).render(&mut stdout())?),
    }
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
            let failure = Failure::from(error);
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
    filter::parse(text, &facts.columns, Utc::now()).map_err(|refused| Failure::Usage(refused.to_string()))
}

/// Returns the condition that picks the row with a key.
pub(crate) fn key(facts: &Facts, text: &str) -> Answer<filter::Condition> {
    let parts: Vec<&str> = match facts.key.len() {
        1 => vec![text],
        _ => text.split(',').map(str::trim).collect(),
    };
    if parts.len() != facts.key.len() {
        let columns = facts.key.join(",");
        return Err(Failure::Usage(format!("`{text}` is no key of {}: it has the parts {columns}", facts.table)));
    }
    let is: Vec<_> = facts.key.iter().zip(parts).map(|(column, part)| facts.is(column, part)).collect();
    condition(facts, &is.join(" and "))
}

impl Facts {
    /// Writes the condition that a column has this value.
    pub(crate) fn is(&self, column: &str, value: &str) -> String {
        self.compares(column, "=", value)
    }

    /// Writes a comparison of a column with the value that a text means.
    pub(crate) fn compares(&self, column: &str, operator: &str, value: &str) -> String {
        use queue_core::internals::by_name::Holds::{Booleans, Bytes, Decimals, Floats, Integers, Unsigned};
        let holds = self.columns.list.iter().find(|of| of.name == column).map(|of| of.holds);
        let is_number = matches!(holds, Some(Integers(_) | Unsigned(_) | Decimals | Floats))
            && value.chars().all(|c| c.is_ascii_digit() || matches!(c, '-' | '.' | 'e' | 'E'));
        let is_boolean = holds == Some(Booleans) && matches!(value, "true" | "false");
        let literal = match is_number || is_boolean {
            true => value.to_owned(),
            false if holds == Some(Bytes) => format!("x'{}'", value.replace('\'', "''")),
            false => format!("'{}'", value.replace('\'', "''")),
        };
        format!("\"{}\" {operator} {literal}", column.replace('"', "\"\""))
    }
}
