//! Reads what the screen shows.

use std::time::Duration;

use chrono::{DateTime, DurationRound, TimeDelta, Utc};
use queue_core::internals::by_name::PageOrder;
use queueable::report::{PollerProcess, Statistics};
use queueable::{Error, control};

use super::ask::{Errors, Group, Known, Listed, Look, Page, PageRow, Paragraph, Place, Snapshot};
use crate::command::{condition, is_number, key, with_keys};
use crate::console::Parts;
use crate::database::Database;
use crate::failure::{Answer, Failure};
use crate::filter::Condition;
use crate::queue::{Paging, Queue, Rows};
use crate::shown::{Typed, ago, since, typed};

/// How many minutes the rate is counted over.
const MINUTES: u8 = 10;

/// How many rows of a queue are read for the list.
const LISTED: usize = 200;

/// How many characters of a value are read for the list, and for a single row.
const LONGEST_LISTED: u32 = 200;
const LONGEST: u32 = 10_000;

/// What is asked with.
pub(super) struct Asking<'a, C: Database> {
    pub(super) parts: &'a Parts<C>,
    pub(super) connection: &'a mut C,
    pub(super) utc: bool,
}

impl<'a, C: Database> Asking<'a, C> {
    /// Reads what a tab needs. A queue that cannot be read has its reason beside its name; an error means that the connection is lost.
    pub(super) fn snapshot(&mut self, look: &Look) -> Answer<Snapshot> {
        let environment = control::environment(self.connection);
        let environment = self.unless_lost(environment)?.ok().flatten();
        let mut read = Snapshot { at: Utc::now(), environment, ..Snapshot::default() };
        match look {
            Look::Queues { chosen } => {
                read.queues = Some(self.queues(true)?);
                read.pollers = Some(self.pollers()?);
                if let Some(queue) = self.parts.queues.get(*chosen) {
                    let why = queue.why(self.connection, &Rows::default());
                    read.why = Some((*chosen, self.unless_lost(why)?));
                }
            }
            Look::Running => {
                read.queues = Some(self.queues(false)?);
                read.pollers = Some(self.pollers()?);
            }
            Look::Errors => read.errors = Some(self.errors()?),
            Look::Rows(listed) => read.page = self.page(listed)?.map(|page| (listed.clone(), page)),
            Look::Pollers => read.pollers = Some(self.pollers()?),
        }
        read.at = Utc::now();
        Ok(read)
    }

    /// An error of the database's is lost in the first sense only if it does not answer anything else either.
    pub(super) fn unless_lost<T>(&mut self, asked: Result<T, Error>) -> Answer<Result<T, String>> {
        match asked.map_err(Failure::from) {
            Ok(read) => Ok(Ok(read)),
            Err(failure @ Failure::NoConnection(_)) => Err(failure),
            Err(failure) => match self.connection.batch_execute("SELECT 1") {
                Ok(()) => Ok(Err(failure.to_string())),
                Err(_) => Err(Failure::NoConnection(failure.to_string())),
            },
        }
    }

    fn queues(&mut self, with_rate: bool) -> Answer<Vec<Known>> {
        let mut all = Vec::new();
        for queue in &self.parts.queues {
            let backlog = queue.backlog(self.connection, &Rows::default());
            let backlog = self.unless_lost(backlog)?;
            let mut done = Vec::new();
            if with_rate && backlog.is_ok() {
                let counted = queue.recent(self.connection, Duration::from_secs(60 * u64::from(MINUTES)));
                let counted = self.unless_lost(counted)?.ok().flatten();
                done = counted.map(|read| minutes(&read, Utc::now())).unwrap_or_default();
            }
            all.push(Known { backlog, done });
        }
        Ok(all)
    }

    fn pollers(&mut self) -> Answer<Option<Vec<PollerProcess>>> {
        let pollers = queueable::pollers(self.connection);
        Ok(self.unless_lost(pollers)?.ok().map(|pollers| with_keys(self.parts, pollers)))
    }

    fn errors(&mut self) -> Answer<Errors> {
        let mut errors = Errors::default();
        for (place, queue) in self.parts.queues.iter().enumerate() {
            let report = queue.errors(self.connection, &Rows::default());
            let report = match self.unless_lost(report)? {
                Ok(report) => report,
                Err(why) => {
                    errors.refused.push((place, why));
                    continue;
                }
            };
            errors.left_out += report.left_out;
            errors.groups.extend(report.groups.into_iter().map(|group| Group {
                queue: place,
                rows: group.rows,
                failed: group.failed,
                last: group.last,
                pattern: group.pattern,
                example: group.example_text,
                keys: group.examples,
            }));
        }
        errors.groups.sort_by_key(|group| std::cmp::Reverse(group.last));
        Ok(errors)
    }

    fn page(&mut self, listed: &Listed) -> Answer<Option<Result<Page, String>>> {
        let Some(queue) = self.parts.queues.get(listed.queue) else { return Ok(None) };
        let facts = queue.facts();
        // The condition is read anew, because it may have `now` in it.
        let filter = match listed.filter.as_deref().map(|text| condition(facts, text)).transpose() {
            Ok(filter) => filter,
            Err(refused) => return Ok(Some(Err(refused.to_string()))),
        };
        let rows = Rows { states: listed.state.into_iter().collect(), within: None, filter };
        let columns = facts.listed(&[])?;
        let paging = Paging {
            columns: columns.clone(),
            longest: LONGEST_LISTED,
            order: listed.order,
            backwards: false,
            after: None,
            limit: LISTED + 1,
        };
        let lines = queue.page(self.connection, &rows, &paging);
        let lines = match self.unless_lost(lines)? {
            Ok(lines) => lines,
            Err(why) => return Ok(Some(Err(why))),
        };
        let now = Utc::now();
        let rows = lines.iter().take(LISTED).map(|line| {
            let values = columns.iter().zip(&line.values).map(|(column, value)| {
                let value = typed(value.as_deref(), column.holds);
                if value == Typed::Null { Err("") } else { facts.words(&column.name, value, |time| ago(time, now)) }
            });
            PageRow { place: Place { queue: listed.queue, key: line.key.clone() }, values: values.collect() }
        });
        let rows = rows.collect();
        let columns = columns.into_iter().map(|column| (column.name, is_number(column.holds))).collect();
        Ok(Some(Ok(Page { columns, rows, more: lines.len() > LISTED })))
    }

    /// Reads all columns of a row, and explains it.
    pub(super) fn row(&mut self, place: &Place) -> Answer<Option<Vec<Paragraph>>> {
        let (queue, condition) = self.chosen(place)?;
        let facts = queue.facts();
        let rows = Rows { filter: Some(condition.clone()), ..Rows::default() };
        let columns = facts.all_columns();
        let paging =
            Paging { columns, longest: LONGEST, order: PageOrder::Key, backwards: false, after: None, limit: 1 };
        let Some(line) = queue.page(self.connection, &rows, &paging)?.into_iter().next() else { return Ok(None) };
        let explained = queue.explain(self.connection, &condition)?;
        let Some((_, explanation)) = explained else { return Ok(None) };
        let mut text = vec![Paragraph::text(explanation.to_string()), Paragraph::text("")];
        let (now, utc) = (Utc::now(), self.utc);
        let time = |time: DateTime<Utc>| format!("{} ({})", since(time, utc), ago(time, now));
        text.extend(facts.columns.list.iter().zip(&line.values).map(|(column, value)| {
            match facts.words(&column.name, typed(value.as_deref(), column.holds), time) {
                Ok(text) => Paragraph::named(&column.name, text),
                Err(instead) => Paragraph { is_dim: true, ..Paragraph::named(&column.name, instead) },
            }
        }));
        Ok(Some(text))
    }

    /// Returns the queue of a row, and the condition that picks the row.
    pub(super) fn chosen(&self, place: &Place) -> Answer<(&'a dyn Queue<C>, Condition)> {
        let queue = self.queue(place.queue)?;
        Ok((queue, key(queue.facts(), &place.key)?))
    }

    pub(super) fn queue(&self, place: usize) -> Answer<&'a dyn Queue<C>> {
        let queue = self.parts.queues.get(place).ok_or_else(|| Failure::Failed("there is no such queue".to_owned()))?;
        Ok(&**queue)
    }
}

/// What was finished in each of the last minutes, the oldest first.
fn minutes(read: &Statistics, now: DateTime<Utc>) -> Vec<i64> {
    let minute = TimeDelta::minutes(1);
    let now = now.duration_trunc(minute).unwrap_or(now);
    // The database's clock may be ahead of this machine's.
    let last = read.periods.iter().map(|period| period.start).max().map_or(now, |start| start.max(now));
    let begins = (0..MINUTES).rev().map(|before| last - minute * i32::from(before));
    let done = |begin: DateTime<Utc>| {
        let periods = read.periods.iter().filter(|period| period.start == begin);
        periods.map(|period| period.succeeded + period.failed).sum()
    };
    begins.map(done).collect()
}
