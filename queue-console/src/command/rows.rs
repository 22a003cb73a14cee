//! `explain` and `show`: single rows.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::{Context, key};
use crate::cli::Keys;
use crate::database::Database;
use crate::failure::{Answer, Failure};
use crate::queue::{Facts, Paging, Rows};
use crate::shown::{Cell, LONGEST, Table, Typed, ago, rows, typed, visible};
use queue_core::internals::by_name::{PageOrder, TextColumn};

pub(super) fn run<C: Database>(context: &mut Context<'_, C>, keys: &Keys, whole: bool) -> Answer {
    let queue = context.parts.queue(&keys.queue)?;
    let facts = queue.facts();
    let first = if whole { 0 } else { facts.domain };
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
            let values = || paging.columns.iter().zip(&line.values).skip(first);
            let said = explanation.as_ref().map(ToString::to_string);
            let row = json!({
                "queue": facts.queue, "key": line.key, "explanation": explanation, "text": said, "row": facts.json_of(values()),
            });
            facts.with_cut(row, values())
        })?;
        let said = explanation.map_or_else(|| "there is no such row".to_owned(), |explanation| explanation.to_string());
        let said: Vec<String> = said.lines().map(visible).collect();
        let mut table = Table::default().text(format!("{} {}", facts.table, visible(&line.key))).text(said.join("\n"));
        for (column, value) in paging.columns.iter().zip(&line.values).skip(first) {
            let shown = match typed(value.as_deref(), column.holds) {
                Typed::Text(text) if is_cut(&text, LONGEST) => Typed::Text(text + "…"),
                value => value,
            };
            let shown = facts.shown(context, &column.name, shown);
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

    pub(crate) fn json_of<'v>(&self, values: impl Iterator<Item = (&'v TextColumn, &'v Option<String>)>) -> Value {
        values.map(|(column, value)| (column.name.clone(), self.json_value(column, value.as_deref()))).collect()
    }

    /// Names the columns whose values were cut in the object of a row.
    pub(crate) fn with_cut<'v>(
        &self,
        mut object: Value,
        values: impl Iterator<Item = (&'v TextColumn, &'v Option<String>)>,
    ) -> Value {
        let cut = values.filter(|(column, value)| {
            !self.is_secret(&column.name) && value.as_ref().is_some_and(|text| is_cut(text, LONGEST))
        });
        let cut: Vec<_> = cut.map(|(column, _)| column.name.as_str()).collect();
        if !cut.is_empty() {
            object["cut"] = json!(cut);
        }
        object
    }
}

/// Whether a value that was read up to so many characters may have had more of them.
pub(super) fn is_cut(text: &str, longest: u32) -> bool {
    text.len() >= longest as usize && text.chars().count() >= longest as usize
}
