//! `explain` and `show`: single rows.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::{Context, key};
use crate::cli::Keys;
use crate::database::Database;
use crate::failure::{Answer, Failure};
use crate::queue::{Facts, Line, Paging, Rows};
use crate::shown::{Cell, Table, Typed, ago, rows, typed, visible};
use queue_core::internals::by_name::{PageOrder, TextColumn};

/// How many characters of a value are shown.
pub(crate) const LONGEST: u32 = 10_000;

pub(super) fn run<C: Database>(context: &mut Context<'_, C>, keys: &Keys, whole: bool) -> Answer {
    let queue = context.parts.queue(&keys.queue)?;
    let facts = queue.facts();
    let mut missing = 0;
    for text in &keys.keys {
        let condition = key(facts, text)?;
        let rows = Rows { filter: Some(condition.clone()), ..Rows::default() };
        let columns = facts.all_columns();
        let paging =
            Paging { columns, longest: LONGEST, order: PageOrder::Key, backwards: false, after: None, limit: 1 };
        let line = context.ask(queue, |queue, connection| queue.page(connection, &rows, &paging))?.into_iter().next();
        let Some(line) = line else {
            missing += 1;
            context.screen.object(|| json!({ "queue": facts.queue, "key": text, "row": null }))?;
            context.screen.say(format!("{} {}: there is no such row", facts.table, visible(text)))?;
            continue;
        };
        let explained = context.ask(queue, |queue, connection| queue.explain(connection, &condition))?;
        let explanation = explained.map(|(_, explanation)| explanation);
        context.screen.object(|| {
            let row = whole.then(|| facts.json(&line));
            let said = explanation.as_ref().map(ToString::to_string);
            json!({
                "queue": facts.queue, "key": line.key, "explanation": explanation, "text": said,
                "row": row.unwrap_or_else(|| facts.json_of_queue(&line)),
            })
        })?;
        let said = explanation.map_or_else(|| "there is no such row".to_owned(), |explanation| explanation.to_string());
        let said: Vec<String> = said.lines().map(visible).collect();
        let mut table = Table::default().text(format!("{} {}", facts.table, visible(&line.key))).text(said.join("\n"));
        for (column, value) in facts.columns.list.iter().zip(&line.values).skip(if whole { 0 } else { facts.domain }) {
            let shown = facts.shown(context, &column.name, typed(value.as_deref(), column.holds));
            table.line([Cell::new(&column.name), shown]);
        }
        context.screen.table(&table)?;
    }
    match missing {
        0 => Ok(()),
        _ => Err(Failure::Failed(format!("not found: {missing} of {}", rows(keys.keys.len())))),
    }
}

impl Facts {
    pub(crate) fn all_columns(&self) -> Vec<TextColumn> {
        let columns = self.columns.list.iter();
        columns.map(|column| TextColumn { name: column.name.clone(), holds: column.holds }).collect()
    }

    pub(crate) fn is_secret(&self, column: &str) -> bool {
        self.secret.iter().any(|secret| secret == column)
    }

    /// A value for people.
    pub(crate) fn shown<C: Database>(&self, context: &Context<'_, C>, column: &str, value: Typed) -> Cell {
        let time = |time| format!("{} ({})", context.screen.time(time), ago(time, context.now()));
        match self.words(column, value, time) {
            Ok(text) => Cell::new(text),
            Err(instead) => Cell::new(instead).dim(),
        }
    }

    /// A value in words, or what stands in its place.
    pub(crate) fn words(
        &self,
        column: &str,
        value: Typed,
        time: impl FnOnce(DateTime<Utc>) -> String,
    ) -> Result<String, &'static str> {
        match value {
            Typed::Null => Err("null"),
            _ if self.is_secret(column) => Err("[hidden]"),
            Typed::Time(at) => Ok(time(at)),
            Typed::Boolean(is) => Ok(is.to_string()),
            Typed::Text(text) => Ok(text),
        }
    }

    /// A value for programs.
    pub(crate) fn json_value(&self, column: &TextColumn, value: Option<&str>) -> Value {
        match self.is_secret(&column.name) && value.is_some() {
            true => Value::String("[hidden]".to_owned()),
            false => typed(value, column.holds).json(column.holds),
        }
    }

    pub(crate) fn json(&self, line: &Line) -> Value {
        let columns = self.all_columns();
        let values = columns.iter().zip(&line.values);
        values.map(|(column, value)| (column.name.clone(), self.json_value(column, value.as_deref()))).collect()
    }

    fn json_of_queue(&self, line: &Line) -> Value {
        let Value::Object(mut all) = self.json(line) else { return Value::Null };
        let domain = &self.columns.list[..self.domain];
        all.retain(|name, _| !domain.iter().any(|column| column.name == *name));
        Value::Object(all)
    }
}
