//! What a replay has shown.

use chrono::{DateTime, Utc};
use queueable::{AttemptEvent, Event};
use serde_json::{Value, json};

use super::statements::Statement;
use crate::command::Context;
use crate::database::Database;
use crate::failure::Answer;
use crate::queue::{Facts, Line};
use crate::shown::{Cell, Table, ago, typed, visible};

/// How an attempt has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Succeeded,
    Advanced,
    RunsAgain,
    Skipped,
    WillRetry,
    GaveUp,
    Interrupted,
    Refused,
    LeaseLost,
}

/// Returns how the attempt has ended that an event is about, if that is its end.
pub(super) fn end_of(event: &Event) -> Option<(End, &AttemptEvent)> {
    Some(match event {
        Event::Succeeded(attempt) => (End::Succeeded, attempt),
        Event::Advanced(attempt) => (End::Advanced, attempt),
        Event::RunsAgain(attempt) => (End::RunsAgain, attempt),
        Event::Skipped(attempt) => (End::Skipped, attempt),
        Event::WillRetry(attempt) => (End::WillRetry, attempt),
        Event::GaveUp(attempt) => (End::GaveUp, attempt),
        Event::Interrupted(attempt) => (End::Interrupted, attempt),
        Event::Refused(attempt) => (End::Refused, attempt),
        Event::LeaseLost(attempt) => (End::LeaseLost, attempt),
        _ => return None,
    })
}

impl End {
    /// The name in JSON, the same as in statistics and metrics.
    fn name(self) -> &'static str {
        match self {
            End::Succeeded => "succeeded",
            End::Advanced => "advanced",
            End::RunsAgain => "runs_again",
            End::Skipped => "skipped",
            End::WillRetry => "will_retry",
            End::GaveUp => "gave_up",
            End::Interrupted => "interrupted",
            End::Refused => "refused",
            End::LeaseLost => "lease_lost",
        }
    }

    /// What the attempt has done, in words.
    fn words(self) -> &'static str {
        match self {
            End::Succeeded => "succeeded",
            End::Advanced => "succeeded, and the row goes on to another stage",
            End::RunsAgain => "ended without a failure, and the row runs again",
            End::Skipped => "skipped the row",
            End::WillRetry => "failed, and would be retried",
            End::GaveUp => "failed for good",
            End::Interrupted => "was interrupted",
            End::Refused => "could not be written",
            End::LeaseLost => "lost its lease",
        }
    }
}

/// An attempt that was rolled back.
pub(super) struct Report {
    pub(super) end: End,
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
        !matches!(self.end, End::Succeeded | End::Advanced | End::RunsAgain | End::Skipped)
    }

    pub(super) fn show<C: Database>(&self, context: &Context<'_, C>, facts: &Facts) -> Answer {
        let screen = &context.screen;
        screen.object(|| self.json(facts))?;
        let AttemptEvent { try_number, stage, error, .. } = &self.event;
        let stage = stage.map_or_else(String::new, |stage| format!(" in {stage}"));
        screen.say(format!("try {try_number}{stage} {}", self.end.words()))?;
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
        let statements = self.statements.iter().map(|of| json!({ "sql": of.sql, "error": of.error }));
        json!({
            "queue": facts.queue,
            "key": self.before.key,
            "try_number": try_number,
            "stage": stage,
            "end": self.end.name(),
            "error": error,
            "next": self.next,
            "statements": statements.collect::<Vec<_>>(),
            "row": facts.json(&self.before),
            "would_be": self.after.as_ref().map(|after| facts.json(after)),
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
