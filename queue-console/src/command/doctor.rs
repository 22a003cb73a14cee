//! `doctor`: what makes the queues slow or unsafe on this database, worst first, each with what mends it.

use std::fs;
use std::path::Path;

use queue_core::internals::by_name::{LIBRARY_VERSION, pattern, settings, version};
use queueable::Paused;
use queueable::control;
use queueable::report::{Ill, Interval, Severity, examine};
use serde_json::{Value, json};

use super::Context;
use crate::cli::Doctor;
use crate::console::Parts;
use crate::database::{Database, without_password};
use crate::failure::{Answer, Failure};
use crate::queue::{Queue, Rows};
use crate::shown::{Cell, Table, of_report, visible};

pub(super) fn run<C: Database>(context: &mut Context<'_, C>, of: &Doctor) -> Answer {
    let mut ills = examine(&mut context.connection)?;
    let queues = context.parts.queues(of.queue.as_deref())?;
    for queue in &queues {
        ills.extend(queue.examine(&mut context.connection)?);
    }
    ills.sort();
    ills.dedup();
    for ill in &ills {
        context.screen.object(|| of_report(ill))?;
    }
    show(context, &ills)?;
    if let Some(file) = &of.bundle {
        bundle(context, &queues, &ills, file)?;
    }
    match ills.iter().any(|ill| of.fails_at(ill.severity)) {
        true => Err(Failure::Found),
        false => Ok(()),
    }
}

impl Doctor {
    /// Whether an ill of this severity is a finding for the exit code.
    fn fails_at(&self, severity: Severity) -> bool {
        match severity {
            Severity::Error => true,
            Severity::Warning => !self.errors_only,
            _ => false,
        }
    }
}

fn show<C: Database>(context: &Context<'_, C>, ills: &[Ill]) -> Answer {
    let screen = &context.screen;
    for ill in ills {
        let mut table = Table::default().text(ill.severity.to_string()).text(ill.kind.to_string());
        let of = ill.queue.as_deref().map_or_else(|| "the database".to_owned(), visible);
        for (name, text) in [("of", of.as_str()), ("problem", &ill.problem), ("mend", &ill.mend)] {
            for (line, part) in lines(text, screen.width().saturating_sub(12).max(30)).into_iter().enumerate() {
                table.line([Cell::new(if line == 0 { name } else { "" }), Cell::new(part)]);
            }
        }
        screen.table(&table)?;
        screen.say("")?;
    }
    let count = |severity| ills.iter().filter(|ill| ill.severity == severity).count();
    match ills {
        [] => screen.say("nothing is wrong"),
        _ => {
            let counts = [(Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Note, "note")];
            let counts = counts.map(|(severity, name)| match count(severity) {
                1 => format!("1 {name}"),
                many => format!("{many} {name}s"),
            });
            screen.say(counts.join(", "))
        }
    }
}

/// Breaks a text into lines at its blanks.
fn lines(text: &str, widest: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is a first line");
        if line.is_empty() {
            *line = word.to_owned();
        } else if line.chars().count() + 1 + word.chars().count() <= widest {
            *line += " ";
            *line += word;
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// Writes what a ticket needs: findings, backlogs, reasons, folded errors, plans, pauses, limits, pollers, versions, settings. It has
/// values of domain columns only where a report shows them: no rows.
fn bundle<C: Database>(context: &mut Context<'_, C>, queues: &[&dyn Queue<C>], ills: &[Ill], file: &Path) -> Answer {
    let address = context.parts.address(&context.line.global).ok().map(without_password);
    let made_at = context.now().to_rfc3339();
    let connection = &mut context.connection;
    let every = Rows::default();
    let queues: Vec<Value> = queues
        .iter()
        .map(|queue| {
            let facts = queue.facts();
            json!({
                "queue": facts.queue,
                "entity": facts.entity,
                "key": facts.key,
                "options": format!("{:?}", facts.options),
                "backlog": told(queue.backlog(connection, &every)),
                "why": without_values(told(queue.why(connection, &every))),
                "errors": told(queue.errors(connection, &every).map(|report| report.without_examples())),
                "statistics": told(queue.statistics(
                    connection,
                    &Rows { within: Some(std::time::Duration::from_secs(86_400)), ..Rows::default() },
                    Interval::Hour,
                )),
                "schema": told(queue.check(connection)),
                "sizes": told(queue.sizes(connection)),
                "plans": told(queue.plans(connection)),
            })
        })
        .collect();
    let bundle = json!({
        "made_at": made_at,
        "console": env!("CARGO_PKG_VERSION"),
        "library": LIBRARY_VERSION,
        "database": {
            "kind": C::NAME,
            "address": address,
            "version": told(version(connection)),
            "settings": told(settings(connection)),
        },
        "findings": ills.iter().map(of_report).collect::<Vec<_>>(),
        "queues": queues,
        "pauses": told(queueable::pauses(connection).map(|pauses| shown(context.parts, pauses))),
        "limits": told(control::limits(connection)),
        "environment": told(control::environment(connection)),
        "pollers": told(queueable::pollers(connection)),
    });
    let text = serde_json::to_string_pretty(&bundle).map_err(std::io::Error::from)?;
    fs::write(file, text + "\n").map_err(|error| Failure::Failed(format!("{}: {error}", file.display())))?;
    context.screen.say(format!("wrote {}", file.display()))
}

/// The pauses without values that are not shown.
fn shown<C: Database>(parts: &Parts<C>, pauses: Vec<Paused>) -> Vec<Paused> {
    let of = |paused: &Paused| parts.queues.iter().find(|queue| queue.facts().queue == paused.queue);
    let shown = |paused| match of(&paused) {
        Some(queue) => queue.facts().shown_pause(paused),
        None => paused,
    };
    pauses.into_iter().map(shown).collect()
}

/// A report, or why there is none.
fn told<T: serde::Serialize>(report: Result<T, queueable::Error>) -> Value {
    match report {
        Ok(report) => of_report(&report),
        Err(error) => json!({ "unread": error.to_string() }),
    }
}

/// Folds each `error` of an explanation to its pattern, because a message of the database may quote a row.
fn without_values(mut why: Value) -> Value {
    for reason in why.get_mut("reasons").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(Value::String(error)) = reason.pointer_mut("/explanation/error") {
            *error = pattern(error);
        }
    }
    why
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_the_database_loses_what_it_quotes() {
        let why = |error: &str| {
            let explanation = json!({ "reason": "refused", "error": error });
            json!({ "more": false, "reasons": [{ "rows": 1, "explanation": explanation }, { "rows": 2 }] })
        };
        let folded = without_values(why("the card 'Ann 4711' of order 12 is no card"));
        assert_eq!(folded, why("the card '<value>' of order <number> is no card"));
        let unread = json!({ "unread": "no such table" });
        assert_eq!(without_values(unread.clone()), unread);
    }
}
