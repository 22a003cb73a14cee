//! `list`: rows, page by page.

use queue_core::internals::by_name::{Holds, PageOrder, TextColumn};
use serde_json::json;

use super::rows::is_cut;
use super::{Context, condition};
use crate::cli::{List, Order, States};
use crate::database::Database;
use crate::failure::{Answer, Failure};
use crate::filter::Condition;
use crate::queue::{Facts, Line, Paging, Rows, State};
use crate::shown::{Cell, Table, Typed, ago, typed};

/// How many of the domain's columns are shown without `--columns`.
const SHOWN: usize = 6;

pub(super) fn run<C: Database>(context: &mut Context<'_, C>, list: &List) -> Answer {
    let name = list.rows.queue.as_deref();
    let name = name.ok_or_else(|| Failure::Usage("the rows of which queue? `list payments`".to_owned()))?;
    let queue = context.parts.queue(name)?;
    let facts = queue.facts();
    let filter = list.rows.filter.as_deref().map(|text| condition(facts, text)).transpose()?;
    let rows = Rows { states: list.states.of(), within: None, filter };
    let columns = facts.listed(&list.columns)?;
    let order = list.order.map_or_else(|| default_order_of(rows.states.first().copied()), order_of);
    let after = list.after.as_deref().map(|cursor| facts.after(cursor, order, false)).transpose()?;
    let (limit, longest) = (list.limit as usize, context.screen.longest());
    let paging = Paging { columns: columns.clone(), longest, order, backwards: false, after, limit: limit + 1 };
    let mut lines = context.ask(queue, |queue, connection| queue.page(connection, &rows, &paging))?;
    let is_more = lines.len() > limit;
    let next = is_more.then(|| facts.cursor(&lines[limit - 1], order)).flatten();
    lines.truncate(limit);
    for line in &lines {
        context.screen.object(|| {
            let values = || columns.iter().zip(&line.values);
            let row = json!({ "queue": facts.queue, "key": line.key, "row": facts.json_of(values()) });
            facts.with_cut(row, values())
        })?;
    }
    let table = columns.iter().fold(Table::default(), |table, column| match column.holds {
        holds if is_number(holds) => table.number(&column.name),
        Holds::Instants | Holds::InstantsWithOffset => table.whole(&column.name),
        _ => table.text(&column.name),
    });
    let table = lines.iter().fold(table, |mut table, line| {
        let values = columns.iter().zip(&line.values);
        table.line(values.map(|(column, value)| brief(context, facts, column, value.as_deref())));
        table
    });
    let table = if list.columns.is_empty() { table.without_empty_columns() } else { table };
    match table.is_empty() {
        true => context.screen.say("no rows")?,
        false => context.screen.table(&table)?,
    }
    if is_more {
        match &next {
            Some(next) => context.screen.more(next)?,
            None => context.screen.say("more rows follow, and no page can begin after the last one: see `--where`")?,
        }
        context.screen.object(|| json!({ "next": next }))?;
    }
    Ok(())
}

pub(crate) fn is_number(holds: Holds) -> bool {
    matches!(holds, Holds::Integers(_) | Holds::Unsigned(_) | Holds::Decimals | Holds::Floats)
}

/// A value in a list: of a time only how long ago it was.
fn brief<C: Database>(context: &Context<'_, C>, facts: &Facts, column: &TextColumn, value: Option<&str>) -> Cell {
    match typed(value, column.holds) {
        Typed::Null => Cell::default(),
        Typed::Time(time) => Cell::new(ago(time, context.now())),
        Typed::Text(text) if is_cut(&text, context.screen.longest()) => {
            facts.shown(context, &column.name, Typed::Text(text + "…"))
        }
        other => facts.shown(context, &column.name, other),
    }
}

impl States {
    pub(crate) fn of(&self) -> Vec<State> {
        let States { due, scheduled, running, failed, skipped, finished } = *self;
        let states = [
            (due, State::Due),
            (scheduled, State::Scheduled),
            (running, State::Running),
            (failed, State::Failed),
            (skipped, State::Skipped),
            (finished, State::Finished),
        ];
        states.into_iter().filter(|(asked, _)| *asked).map(|(_, state)| state).collect()
    }
}

/// In which order the rows of a state come.
pub(crate) fn default_order_of(state: Option<State>) -> PageOrder {
    match state {
        Some(State::Failed | State::Skipped | State::Finished) => PageOrder::LatestAttempt,
        Some(State::Due | State::Scheduled | State::Running) => PageOrder::NextAttempt,
        None => PageOrder::Key,
    }
}

pub(crate) fn order_of(order: Order) -> PageOrder {
    match order {
        Order::Latest => PageOrder::LatestAttempt,
        Order::Next => PageOrder::NextAttempt,
        Order::Key => PageOrder::Key,
        Order::KeyDescending => PageOrder::KeyDescending,
    }
}

impl Facts {
    pub(crate) fn column(&self, name: &str) -> Option<TextColumn> {
        let column = self.columns.list.iter().find(|column| column.name == name)?;
        Some(TextColumn { name: column.name.clone(), holds: column.holds })
    }

    /// Returns the columns with these names; without names the key, some of the domain, and the state.
    pub(crate) fn listed(&self, names: &[String]) -> Answer<Vec<TextColumn>> {
        if !names.is_empty() {
            let column =
                |name: &String| self.column(name.trim()).ok_or_else(|| Failure::Usage(self.columns.lacks(name.trim())));
            return names.iter().map(column).collect();
        }
        let domain = self.columns.list[..self.domain].iter().map(|column| column.name.as_str());
        let others = domain.filter(|name| !self.key.iter().any(|key| key == name)).take(SHOWN);
        let names = self.names;
        let state = [names.status, names.next_attempt_time, names.try_count, names.last_attempt_error_message];
        let all = self.key.iter().map(String::as_str).chain(others).chain(state);
        Ok(all.filter_map(|name| self.column(name)).collect())
    }

    /// Where the next page begins: the order, the time and the key of the last row. `None`: no condition picks the rows after it.
    pub(crate) fn cursor(&self, line: &Line, order: PageOrder) -> Option<String> {
        let keys: Option<Vec<&String>> = line.parts.iter().map(Option::as_ref).collect();
        let keys = keys.filter(|_| self.is_ordered)?;
        Some(json!([order, line.time, keys]).to_string())
    }

    /// Reads such a text: the time, and the condition that picks the rows whose keys come after the key, or before it.
    pub(crate) fn after(&self, cursor: &str, order: PageOrder, backwards: bool) -> Answer<(Option<String>, Condition)> {
        let refused = || Failure::Usage(format!("`{cursor}` is not what a page in this order ends with"));
        let (of, time, keys): (PageOrder, Option<String>, Vec<String>) =
            serde_json::from_str(cursor).map_err(|_| refused())?;
        if of != order || keys.len() != self.key.len() || !self.is_ordered {
            return Err(refused());
        }
        let key = self.key.iter().zip(&keys).map(|(column, key)| condition(self, &self.is(column, key)));
        Ok((time, Condition::beyond(&key.collect::<Answer<Vec<_>>>()?, order.descends(backwards))))
    }
}
