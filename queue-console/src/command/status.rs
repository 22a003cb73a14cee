//! `status`: the first screen. What is wrong comes first.

use std::time::Duration;

use chrono::{DateTime, Utc};
use queueable::Error;
use queueable::report::{Backlog, PeriodCounts, PollerProcess};
use serde_json::json;

use super::Context;
use crate::cli;
use crate::database::Database;
use crate::failure::{Answer, Failure};
use crate::queue::{Rows, State};
use crate::shown::{Cell, Table, number, of_report, span, spark};

/// Over which time the rate is counted.
const RECENT: Duration = Duration::from_secs(10 * 60);

/// How many of the worst things come first.
const WORST: usize = 3;

/// What is known of a queue.
pub(crate) struct Known {
    pub(crate) name: String,
    pub(crate) queue: String,
    pub(crate) backlog: Backlog,
    /// More rows than these were not counted, if that is a number.
    pub(crate) most: Option<i64>,
    /// What was finished in each of the last minutes, the oldest first; `None` if nobody counts minutes.
    pub(crate) done: Option<Vec<i64>>,
    /// How many rows have failed recently.
    pub(crate) failed: i64,
    /// The processes that serve it; `None` if nobody registers.
    pub(crate) pollers: Option<usize>,
}

/// Something that is wrong, with its weight.
pub(crate) struct Wrong {
    pub(crate) weight: u8,
    pub(crate) queue: String,
    /// A word for programs.
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

pub(super) fn run<C: Database>(context: &mut Context<'_, C>, of: &cli::Status) -> Answer {
    let pollers = registered(&mut context.connection)?;
    let mut known = Vec::new();
    for queue in context.parts.queues(None)? {
        let facts = queue.facts();
        let backlog = context.ask(queue, |queue, connection| queue.backlog(connection, &Rows::default()))?;
        let recent = context.ask(queue, |queue, connection| queue.recent(connection, RECENT))?;
        let periods = recent.map(|recent| recent.periods);
        let failed = Rows { states: vec![State::Failed], within: Some(RECENT), filter: None };
        let failed = context.ask(queue, |queue, connection| queue.count(connection, &failed))?;
        known.push(Known {
            name: facts.name(context.parts),
            queue: facts.queue.clone(),
            backlog,
            most: None,
            done: periods.as_ref().map(|periods| in_minutes(periods, context.now())),
            failed,
            pollers: serving(pollers.as_deref(), &facts.queue),
        });
    }
    let wrong = wrong(known.iter(), of);
    show(context, &known, &wrong)?;
    match of.check && !wrong.is_empty() {
        true => Err(Failure::Found),
        false => Ok(()),
    }
}

/// How many of the registered processes serve a queue; `None` if nobody registers.
pub(crate) fn serving(pollers: Option<&[PollerProcess]>, queue: &str) -> Option<usize> {
    let serves = |poller: &&PollerProcess| poller.queues.iter().any(|of| of.queue == queue);
    pollers.map(|pollers| pollers.iter().filter(serves).count())
}

/// How many rows were finished in each of the last minutes, the oldest first; none if none were.
fn in_minutes(periods: &[PeriodCounts], now: DateTime<Utc>) -> Vec<i64> {
    let minutes = RECENT.as_secs() as i64 / 60;
    let done_in = |minute: i64| {
        let is_of = |period: &&PeriodCounts| (now - period.start).num_minutes() == minute;
        periods.iter().filter(is_of).map(|period| period.succeeded + period.failed).sum()
    };
    let done: Vec<i64> = (0..=minutes).rev().map(done_in).collect();
    if done.iter().any(|rows| *rows > 0) { done } else { Vec::new() }
}

/// The processes that have registered; `None` if there is no table for them, or it may not be read.
pub(crate) fn registered<C: Database>(connection: &mut C) -> Answer<Option<Vec<PollerProcess>>> {
    match queueable::pollers(connection) {
        Ok(pollers) => Ok(Some(pollers)),
        Err(Error::Control(_)) => Ok(None),
        Err(error) => match Failure::from(error) {
            lost @ Failure::NoConnection(_) => Err(lost),
            // An account need not be able to read it.
            _ => Ok(None),
        },
    }
}

/// Finds what is wrong, worst first.
pub(crate) fn wrong<'k>(known: impl Iterator<Item = &'k Known>, of: &cli::Status) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    for Known { name, queue, backlog, most, failed, pollers, .. } in known {
        let mut add = |weight, kind, text: String| {
            wrong.push(Wrong { weight, queue: queue.clone(), kind, text: format!("{name}: {text}") });
        };
        let whole = backlog.paused.iter().find(|paused| paused.stage.is_none() && paused.value.is_none());
        if let Some(pollers) = pollers.filter(|pollers| *pollers < of.min_pollers) {
            let serving = match pollers {
                0 => "no registered poller serves it".to_owned(),
                1 => "only 1 registered poller serves it".to_owned(),
                _ => format!("only {pollers} registered pollers serve it"),
            };
            let due = match most.filter(|most| backlog.due > *most) {
                Some(most) => format!("more than {} are due", of_rows(most)),
                None => are(backlog.due, "due"),
            };
            match backlog.due {
                0 => add(3, "pollers", serving),
                _ => add(9, "pollers", format!("{serving}, and {due}")),
            }
        }
        let may_wait = of.allow_paused && waits_for_pauses(backlog);
        match (backlog.oldest_due.filter(|age| *age > of.max_age && !may_wait), whole) {
            (_, Some(paused)) if !of.allow_paused => add(6, "paused", paused.to_string()),
            (Some(age), None) => add(8, "oldest_due", format!("the oldest due row has waited for {}", span(age))),
            _ => {}
        }
        for paused in backlog.paused.iter().filter(|paused| paused.stage.is_some() || paused.value.is_some()) {
            if !of.allow_paused {
                add(4, "paused", paused.to_string());
            }
        }
        if of.max_due.is_some_and(|most| backlog.due > most) {
            add(7, "due", are(backlog.due, "due"));
        }
        match of.max_failed {
            Some(most) if backlog.failed > most => add(5, "failed", have_failed(backlog.failed)),
            None if !of.check && *failed > 0 => {
                add(5, "failed", format!("{} in the last 10 minutes", have_failed(*failed)));
            }
            _ => {}
        }
    }
    wrong.sort_by_key(|wrong| std::cmp::Reverse(wrong.weight));
    wrong
}

/// Whether all rows that are due wait for the end of a pause.
fn waits_for_pauses(backlog: &Backlog) -> bool {
    let are_of_stages = backlog.paused.iter().any(|paused| paused.stage.is_some());
    let are_of_values = backlog.paused.iter().any(|paused| paused.value.is_some());
    // A row of a paused stage and of a paused value is counted twice.
    backlog.paused_due == Some(backlog.due) && !(are_of_stages && are_of_values)
}

/// `1 row is due`, `2 rows are due`.
fn are(rows: i64, what: &str) -> String {
    format!("{} {} {what}", of_rows(rows), if rows == 1 { "is" } else { "are" })
}

fn have_failed(rows: i64) -> String {
    format!("{} {} failed", of_rows(rows), if rows == 1 { "has" } else { "have" })
}

fn of_rows(rows: i64) -> String {
    format!("{} {}", number(rows), if rows == 1 { "row" } else { "rows" })
}

fn show<C: Database>(context: &Context<'_, C>, known: &[Known], wrong: &[Wrong]) -> Answer {
    let screen = &context.screen;
    for of in known {
        let Known { queue, backlog, done, failed, pollers, .. } = of;
        screen.object(|| {
            json!({
                "queue": queue, "backlog": of_report(backlog), "pollers": pollers,
                "done_in_10_minutes": done.as_ref().map(|done| done.iter().sum::<i64>()), "failed_in_10_minutes": failed,
            })
        })?;
    }
    screen.object(|| {
        let of = |of: &Wrong| json!({ "queue": of.queue, "kind": of.kind, "text": of.text });
        json!({ "wrong": wrong.iter().map(of).collect::<Vec<_>>() })
    })?;
    match wrong {
        [] => screen.say("nothing is wrong")?,
        wrong => {
            for of in wrong.iter().take(WORST) {
                screen.say(format!("! {}", of.text))?;
            }
            if wrong.len() > WORST {
                screen.say(format!("  and {} more: see the table, `why` and `doctor`", wrong.len() - WORST))?;
            }
        }
    }
    screen.say("")?;
    let table = ["oldest due", "due", "scheduled", "running", "failed"];
    let table = table.iter().fold(Table::default().text("queue"), |table, name| table.number(*name));
    let mut table = table.number("per minute").text("last 10 min").number("pollers").text("paused");
    for Known { name, backlog, done, pollers, .. } in known {
        let minutes = RECENT.as_secs_f64() / 60.0;
        let rate = |done: &Vec<i64>| format!("{:.1}", done.iter().sum::<i64>() as f64 / minutes);
        let failed = Cell::new(number(backlog.failed));
        table.line([
            Cell::new(name),
            Cell::new(backlog.oldest_due.map(span).unwrap_or_default()),
            Cell::new(number(backlog.due)),
            Cell::new(number(backlog.scheduled)),
            Cell::new(backlog.running.map(number).unwrap_or_default()),
            if backlog.failed > 0 { failed.yellow() } else { failed },
            Cell::new(done.as_ref().map(rate).unwrap_or_default()),
            Cell::new(done.as_deref().map(spark).unwrap_or_default()),
            pollers.map(|pollers| Cell::new(pollers.to_string())).unwrap_or_default(),
            Cell::new(paused(backlog)),
        ]);
    }
    screen.table(&table.without_empty_columns())
}

/// Who has paused it, and for how much of it.
fn paused(backlog: &Backlog) -> String {
    let of = |paused: &queueable::Paused| match (&paused.stage, &paused.value) {
        (Some(stage), _) => format!("stage {stage} by {}", paused.by),
        (None, Some(value)) => format!("{value} by {}", paused.by),
        (None, None) => format!("by {}", paused.by),
    };
    backlog.paused.iter().map(of).collect::<Vec<_>>().join("; ")
}
