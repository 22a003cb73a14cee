//! `backlog`, `errors` and `statistics`.

use std::time::Duration;

use queueable::report::{Backlog, Counted, ErrorGroup, ErrorReport, Statistics};
use serde_json::json;

use super::{Context, condition};
use crate::cli;
use crate::database::Database;
use crate::failure::{Answer, Failure};
use crate::queue::{Facts, Queue, Rows};
use crate::shown::{Cell, Table, ago, number, of_report, rows, span, spark, visible};

/// The queues of a report, and the rows that it is about.
fn asked<'p, C: Database>(context: &Context<'p, C>, report: &cli::Report) -> Answer<Vec<(&'p dyn Queue<C>, Rows)>> {
    let cli::OfRows { queue, filter, .. } = &report.rows;
    let queues = context.parts.queues(queue.as_deref())?;
    let asked = queues.into_iter().map(|queue| {
        let filter = filter.as_deref().map(|text| condition(queue.facts(), text)).transpose()?;
        if let Some(column) = report.by.as_deref() {
            queue.facts().check_split(column)?;
        }
        Ok((queue, Rows { filter, ..Rows::default() }))
    });
    asked.collect()
}

impl Facts {
    /// Refuses a column that is not there, and one whose values the report must not show.
    pub(crate) fn check_split(&self, column: &str) -> Answer {
        match self.column(column) {
            None => Err(Failure::Usage(self.columns.lacks(column))),
            Some(_) if self.is_secret(column) => {
                Err(Failure::Usage(format!("the values of `{column}` are not shown, so no report is split by them")))
            }
            Some(_) => Ok(()),
        }
    }
}

/// The name of a queue in a report.
fn named<C: Database>(context: &Context<'_, C>, facts: &Facts) -> Cell {
    Cell::new(facts.name(context.parts))
}

pub(super) fn backlog<C: Database>(context: &mut Context<'_, C>, report: &cli::Report) -> Answer {
    let by = report.by.as_deref();
    let mut table = Table::default().text("queue");
    if let Some(column) = by {
        table = table.text(column);
    }
    for name in ["due", "scheduled", "running", "held back", "behind others", "over limit", "paused", "failed"] {
        table = table.number(name);
    }
    table = table.number("oldest due");
    let mut notes = Vec::new();
    for (queue, rows) in asked(context, report)? {
        let facts = queue.facts();
        match by {
            None => {
                let backlog = context.ask(queue, |queue, connection| queue.backlog(connection, &rows))?;
                context.screen.object(|| json!({ "queue": facts.queue, "backlog": of_report(&backlog) }))?;
                table.line([named(context, facts)].into_iter().chain(cells_of(&backlog)));
                notes.extend(backlog.paused.iter().map(|paused| format!("{}: {paused}", facts.table)));
                notes.extend(backlog.limits.iter().map(|limits| format!("{}: {limits}", facts.table)));
            }
            Some(column) => {
                let split = context.ask(queue, |queue, connection| queue.backlog_by(connection, &rows, column))?;
                for part in &split.parts {
                    context.screen.object(
                        || json!({ "queue": facts.queue, "by": column, "value": part.value, "backlog": of_report(&part.report) }),
                    )?;
                    let value = part.value.as_deref().map_or(Cell::new("null").dim(), Cell::new);
                    table.line([named(context, facts), value].into_iter().chain(cells_of(&part.report)));
                }
                if split.left_out > 0 {
                    notes.push(format!("{}: and {} more values", facts.table, number(split.left_out)));
                }
                left_out(context, facts, split.left_out)?;
            }
        }
    }
    context.screen.table(&table.without_empty_columns())?;
    notes.iter().try_for_each(|note| context.screen.say(note))
}

/// Says at the end of a queue's objects how much is not among them.
fn left_out<C: Database>(context: &Context<'_, C>, facts: &Facts, left_out: i64) -> Answer {
    match left_out {
        0 => Ok(()),
        _ => context.screen.object(|| json!({ "queue": facts.queue, "left_out": left_out })),
    }
}

fn cells_of(backlog: &Backlog) -> Vec<Cell> {
    let some = |rows: Option<i64>| Cell::new(rows.filter(|rows| *rows > 0).map(number).unwrap_or_default());
    let failed = Cell::new(number(backlog.failed));
    vec![
        Cell::new(number(backlog.due)),
        Cell::new(number(backlog.scheduled)),
        Cell::new(backlog.running.map(number).unwrap_or_default()),
        some(Some(backlog.held_back)),
        some(backlog.behind_others),
        some(backlog.over_limit),
        some(backlog.paused_due),
        if backlog.failed > 0 { failed.red() } else { failed },
        Cell::new(backlog.oldest_due.map(span).unwrap_or_default()),
    ]
}

/// A short name of a group of failures, by which `--error-group` finds it again.
pub(crate) fn group_name(pattern: &str) -> String {
    // FNV-1a, which is the same in every release.
    let hash = pattern
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{:08x}", hash >> 32)
}

/// Finds the group of failures that has this short name. Two may share one: then neither is taken.
pub(crate) fn group_of<K>(report: ErrorReport<K>, name: &str) -> Answer<Option<ErrorGroup<K>>> {
    let mut found = report.groups.into_iter().filter(|group| group_name(&group.pattern) == name);
    match (found.next(), found.next()) {
        (group, None) => Ok(group),
        (_, Some(_)) => Err(Failure::Usage(format!(
            "two groups of errors share the short name `{name}`: choose the rows by a condition instead"
        ))),
    }
}

pub(super) fn errors<C: Database>(context: &mut Context<'_, C>, errors: &cli::Errors) -> Answer {
    let by = errors.report.by.as_deref();
    let mut table = Table::default().text("queue");
    if let Some(column) = by {
        table = table.text(column);
    }
    let mut table = table
        .text("group")
        .number("rows")
        .number("failed")
        .number("retrying")
        .whole("first")
        .whole("last")
        .text("examples")
        .text("error");
    let mut unread = 0;
    for (queue, rows) in asked(context, &errors.report)? {
        let facts = queue.facts();
        let rows = Rows { within: errors.since, ..rows };
        let (parts, unread_of_queue) = match by {
            None => {
                let report = context.ask(queue, |queue, connection| queue.errors(connection, &rows))?;
                let left_out = report.left_out;
                (vec![(None, report)], left_out)
            }
            Some(column) => {
                let split = context.ask(queue, |queue, connection| queue.errors_by(connection, &rows, column))?;
                let parts = split.parts.into_iter().map(|part| (Some(part.value), part.report));
                (parts.collect(), split.left_out)
            }
        };
        for (value, report) in parts {
            show_groups(context, facts, by, value.as_ref(), &report, &mut table)?;
        }
        left_out(context, facts, unread_of_queue)?;
        unread += unread_of_queue;
    }
    match table.is_empty() {
        true => context.screen.say("no row has failed")?,
        false => context.screen.table(&table)?,
    }
    if unread > 0 {
        context.screen.say(format!("and {} whose texts were not read", rows(usize::try_from(unread).unwrap_or(0))))?;
    }
    Ok(())
}

fn show_groups<C: Database>(
    context: &Context<'_, C>,
    facts: &Facts,
    by: Option<&str>,
    value: Option<&Option<String>>,
    report: &ErrorReport<String>,
    table: &mut Table,
) -> Answer {
    for group in &report.groups {
        let name = group_name(&group.pattern);
        context.screen.object(|| {
            let mut object = json!({ "queue": facts.queue, "group": name, "errors": of_report(group) });
            if let (Some(column), Some(value)) = (by, value) {
                (object["by"], object["value"]) = (json!(column), json!(value));
            }
            object
        })?;
        let time = |time: Option<_>| time.map(|time| ago(time, context.now())).unwrap_or_default();
        let value = value.map(|value| value.as_deref().map_or(Cell::new("null").dim(), Cell::new));
        let failed = Cell::new(number(group.failed));
        let cells = [
            Cell::new(name),
            Cell::new(number(group.rows)),
            failed,
            Cell::new(number(group.retrying)),
            Cell::new(time(group.first)),
            Cell::new(time(group.last)),
            Cell::new(group.examples.join(" ")),
            Cell::new(group.pattern.lines().next().unwrap_or_default()),
        ];
        table.line([named(context, facts)].into_iter().chain(value).chain(cells));
    }
    Ok(())
}

pub(super) fn statistics<C: Database>(context: &mut Context<'_, C>, of: &cli::Statistics) -> Answer {
    let interval = interval_of(of);
    let by = of.report.by.as_deref();
    for (queue, rows) in asked(context, &of.report)? {
        let facts = queue.facts();
        let rows = Rows { within: Some(of.since), ..rows };
        let (parts, unread) = match by {
            None => {
                let report = context.ask(queue, |queue, connection| queue.statistics(connection, &rows, interval))?;
                (vec![(None, report)], 0)
            }
            Some(column) => {
                let split =
                    context.ask(queue, |queue, connection| queue.statistics_by(connection, &rows, interval, column))?;
                let parts = split.parts.into_iter().map(|part| (Some(part.value), part.report));
                (parts.collect(), split.left_out)
            }
        };
        for (value, report) in parts {
            context.screen.object(|| {
                let mut object = json!({ "queue": facts.queue, "statistics": of_report(&report) });
                if let (Some(column), Some(value)) = (by, &value) {
                    (object["by"], object["value"]) = (json!(column), json!(value));
                }
                object
            })?;
            let title = match (by, &value) {
                (Some(column), Some(value)) => {
                    format!("{}, {column} = {}", facts.name(context.parts), visible(value.as_deref().unwrap_or("null")))
                }
                _ => facts.name(context.parts),
            };
            show_periods(context, &title, &report)?;
        }
        if unread > 0 {
            let periods = not_read(unread);
            context.screen.say(format!("{}: {periods}\n", facts.name(context.parts)))?;
        }
        left_out(context, facts, unread)?;
    }
    Ok(())
}

fn not_read(periods: i64) -> String {
    match periods {
        // Of minutes it is only known that there are others.
        1 => "and earlier periods that were not read".to_owned(),
        periods => format!("and {} earlier periods that were not read", number(periods)),
    }
}

fn interval_of(of: &cli::Statistics) -> queueable::report::Interval {
    use queueable::report::Interval;
    const HOUR: Duration = Duration::from_secs(3_600);
    match of.interval {
        Some(cli::Interval::Minute) => Interval::Minute,
        Some(cli::Interval::Hour) => Interval::Hour,
        Some(cli::Interval::Day) => Interval::Day,
        None if of.since <= 2 * HOUR => Interval::Minute,
        None if of.since <= 72 * HOUR => Interval::Hour,
        None => Interval::Day,
    }
}

fn show_periods<C: Database>(context: &Context<'_, C>, title: &str, report: &Statistics) -> Answer {
    context.screen.say(title)?;
    if report.periods.is_empty() {
        return context.screen.say("  nothing was done\n");
    }
    // The oldest comes first, as people read.
    let mut periods: Vec<_> = report.periods.iter().collect();
    periods.sort_by_key(|period| period.start);
    let done: Vec<_> = periods.iter().map(|period| period.succeeded).collect();
    let failed: Vec<_> = periods.iter().map(|period| period.failed).collect();
    context.screen.say(format!("  succeeded  {}", spark(&done)))?;
    if failed.iter().any(|rows| *rows > 0) {
        context.screen.say(format!("  failed     {}", spark(&failed)))?;
    }
    let mut table = Table::default().text("from").number("succeeded").number("failed");
    for name in ["retried", "p50 wait", "p95 wait", "mean", "p50", "p95"] {
        table = table.number(name);
    }
    for period in periods {
        let time = |time: Option<Duration>| Cell::new(time.map(span).unwrap_or_default());
        let attempts = period.attempts.as_ref();
        let failed = Cell::new(number(period.failed));
        table.line([
            Cell::new(context.screen.time(period.start)),
            Cell::new(number(period.succeeded)),
            if period.failed > 0 { failed.red() } else { failed },
            Cell::new(attempts.map(|attempts| number(attempts.will_retry)).unwrap_or_default()),
            time(attempts.and_then(|attempts| attempts.p50_wait)),
            time(attempts.and_then(|attempts| attempts.p95_wait)),
            time(period.mean),
            time(period.p50),
            time(period.p95),
        ]);
    }
    context.screen.table(&table.without_empty_columns())?;
    if report.counted == Counted::NewestRows {
        context.screen.say("of the newest 1,000,000 rows; pollers with `minutes` count all attempts")?;
    }
    if report.left_out > 0 {
        context.screen.say(not_read(report.left_out))?;
    }
    context.screen.say("")
}
