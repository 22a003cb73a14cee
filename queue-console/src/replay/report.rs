//! What a replay has shown.

use chrono::{DateTime, Utc};
use queueable::AttemptEvent;
use queueable::testing::AttemptEnd;
use serde_json::{Value, json};

use super::statements::Statement;
use crate::command::Context;
use crate::database::Database;
use crate::failure::Answer;
use crate::queue::{Facts, Line};
use crate::shown::{Cell, Table, ago, typed, visible};

/// The name in JSON, the same as in statistics and metrics.
fn name_of(end: AttemptEnd) -> Option<&'static str> {
    Some(match end {
        AttemptEnd::Succeeded => "succeeded",
        AttemptEnd::Advanced => "advanced",
        AttemptEnd::RunsAgain => "runs_again",
        AttemptEnd::Skipped => "skipped",
        AttemptEnd::WillRetry => "will_retry",
        AttemptEnd::GaveUp => "gave_up",
        AttemptEnd::Interrupted => "interrupted",
        AttemptEnd::Refused => "refused",
        AttemptEnd::LeaseLost => "lease_lost",
        _ => return None,
    })
}

/// What the attempt has done, in words.
fn words_of(end: AttemptEnd) -> String {
    match end {
        AttemptEnd::Advanced => "succeeded, and the row goes on to another stage".to_owned(),
        AttemptEnd::RunsAgain => "ended without a failure, and the row runs again".to_owned(),
        AttemptEnd::Skipped => "skipped the row".to_owned(),
        AttemptEnd::WillRetry => "failed, and would be retried".to_owned(),
        AttemptEnd::GaveUp => "failed for good".to_owned(),
        AttemptEnd::Interrupted => "was interrupted".to_owned(),
        AttemptEnd::Refused => "could not be written".to_owned(),
        end => end.to_string(),
    }
}

/// An attempt that was rolled back.
pub(super) struct Report {
    pub(super) end: AttemptEnd,
    pub(super) event: AttemptEvent,
    /// When the row would be due again.
    pub(super) next: Option<DateTime<Utc>>,
    pub(super) statements: Vec<Statement>,
    /// The row as it is.
    pub(super) before: Line,
    /// The row as it would have become; `None` if it would be gone.
    pub(super) after: Option<Line>,
}

impl Report {
    /// Whether the attempt has failed again.
    pub(super) fn has_failed(&self) -> bool {
        !matches!(self.end, AttemptEnd::Succeeded | AttemptEnd::Advanced | AttemptEnd::RunsAgain | AttemptEnd::Skipped)
    }

    pub(super) fn show<C: Database>(&self, context: &Context<'_, C>, facts: &Facts) -> Answer {
        let screen = &context.screen;
        screen.object(|| self.json(facts))?;
        let AttemptEvent { try_number, stage, error, .. } = &self.event;
        let stage = stage.map_or_else(String::new, |stage| format!(" in {stage}"));
        screen.say(format!("try {try_number}{stage} {}", words_of(self.end)))?;
        if let Some(error) = error {
            error.lines().try_for_each(|line| screen.say(format!("  {}", visible(line))))?;
        }
        match &*self.statements {
            [] => screen.say("the handler ran no SQL on its connection")?,
            statements => {
                screen.say("the handler's SQL:")?;
                for Statement { sql, error } in statements {
                    sql.lines().try_for_each(|line| screen.say(format!("  {}", visible(line))))?;
                    if let Some(error) = error {
                        screen.say(format!("  failed: {}", visible(error)))?;
                    }
                }
            }
        }
        match &self.after {
            None => screen.say("the row would have left its table")?,
            Some(after) => screen.table(&self.differences(context, facts, after))?,
        }
        screen.say("everything was rolled back")
    }

    /// The columns that the attempt would have changed.
    fn differences<C: Database>(&self, context: &Context<'_, C>, facts: &Facts, after: &Line) -> Table {
        let mut table = Table::default().text("column").text("is").text("would be");
        let values = self.before.values.iter().zip(&after.values);
        for (column, (before, after)) in facts.columns.list.iter().zip(values) {
            if before == after {
                continue;
            }
            let shown = |value: &Option<String>| {
                let time = |time| format!("{} ({})", context.screen.time(time), ago(time, context.now()));
                match facts.words(&column.name, typed(value.as_deref(), column.holds), time) {
                    Ok(text) => Cell::new(text),
                    Err(instead) => Cell::new(instead).dim(),
                }
            };
            table.line([Cell::new(&column.name), shown(before), shown(after)]);
        }
        table
    }

    fn json(&self, facts: &Facts) -> Value {
        let AttemptEvent { try_number, stage, error, .. } = &self.event;
        let columns = facts.all_columns();
        let of = |line: &Line| facts.json_of(columns.iter().zip(&line.values));
        let statements = self.statements.iter().map(|of| json!({ "sql": of.sql, "error": of.error }));
        json!({
            "queue": facts.queue,
            "key": self.before.key,
            "try_number": try_number,
            "stage": stage,
            "end": name_of(self.end),
            "error": error,
            "next": self.next,
            "statements": statements.collect::<Vec<_>>(),
            "row": of(&self.before),
            "would_be": self.after.as_ref().map(of),
        })
    }
}

impl Facts {
    /// The text of a column of the row; `None` is null.
    pub(super) fn value<'l>(&self, row: &'l Line, column: &str) -> Option<&'l str> {
        let place = self.columns.list.iter().position(|of| of.name == column)?;
        row.values.get(place)?.as_deref()
    }
}
