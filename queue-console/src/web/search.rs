//! A search: its address is all of its state, so that a link to it can be sent to a colleague.

use std::collections::HashSet;

use clap::ValueEnum;
use queue_core::internals::by_name::{Holds, PageOrder, TextColumn};
use queueable::report::ErrorGroup;

use super::operation::lasting;
use super::trouble::{Told, Trouble};
use crate::cli::Order;
use crate::command::{condition, default_order_of, group_of, is_number, keys, order_of};
use crate::database::Database;
use crate::filter::{Column, Condition};
use crate::queue::{Facts, Queue, Rows, State};
use crate::shown::visible;

/// The states by their names in addresses.
pub(super) const STATES: [(&str, State); 6] = [
    ("due", State::Due),
    ("scheduled", State::Scheduled),
    ("running", State::Running),
    ("failed", State::Failed),
    ("skipped", State::Skipped),
    ("finished", State::Finished),
];

/// The windows of time by which rows are chosen, as Rails' consoles have them.
pub(super) const SINCE: [(&str, &str); 5] =
    [("", "any time"), ("1h", "the last hour"), ("3h", "3 hours"), ("1d", "the last day"), ("7d", "7 days")];

/// Which rows are looked for, and how they are shown.
#[derive(Debug, Clone, Default)]
pub(super) struct Search {
    /// The condition, in the language of `--where`.
    pub(super) text: Option<String>,
    pub(super) state: Option<State>,
    pub(super) order: Option<Order>,
    pub(super) columns: Vec<String>,
    /// The row after which the page begins, as the page before has named it.
    pub(super) after: Option<String>,
    /// Rows that were chosen one by one.
    pub(super) keys: Vec<String>,
    /// A group of failures, by its short name.
    pub(super) group: Option<String>,
    /// The time within which the rows were attempted last: `3h`.
    pub(super) since: Option<String>,
}

/// The fields of a query or of a form.
pub(super) type Fields = Vec<(String, String)>;

/// Finds the first value of a field that is not empty.
pub(super) fn field<'f>(fields: &'f Fields, name: &str) -> Option<&'f str> {
    fields.iter().find(|(of, value)| of == name && !value.trim().is_empty()).map(|(_, value)| value.as_str())
}

impl Search {
    pub(super) fn of(fields: &Fields) -> Told<Self> {
        let text = |name: &str| field(fields, name).map(str::to_owned);
        let all = |name: &str| -> Vec<String> {
            fields.iter().filter(|(of, _)| of == name).map(|(_, value)| value.clone()).collect()
        };
        let state = match field(fields, "state") {
            None => None,
            Some(name) => {
                let found = STATES.iter().find(|(of, _)| *of == name).map(|(_, state)| *state);
                Some(found.ok_or_else(|| Trouble::Wrong(format!("`{name}` is no state of rows.")))?)
            }
        };
        let order = field(fields, "order").map(|name| Order::from_str(name, true));
        let order = order.transpose().map_err(|_| Trouble::Wrong("There is no such order of rows.".to_owned()))?;
        // A form sends one field for each column, and a link one for all.
        let columns = all("columns");
        let columns = columns.iter().flat_map(|names| names.split(',')).map(str::trim).filter(|name| !name.is_empty());
        let columns = columns.map(str::to_owned).collect();
        field(fields, "since").map(lasting).transpose()?;
        // A key may be an empty text: without it, the row would become all rows.
        let (keys, group, since) = (all("key"), text("group"), text("since"));
        Ok(Search { text: text("where"), state, order, columns, after: text("after"), keys, group, since })
    }

    /// The search as a query, without the page.
    pub(super) fn fields(&self) -> Fields {
        let mut fields = Fields::new();
        let mut add = |name: &str, value: Option<String>| fields.extend(value.map(|value| (name.to_owned(), value)));
        add("where", self.text.clone());
        add("state", self.state.map(|state| name_of(state).to_owned()));
        add("order", self.order.and_then(|order| Some(order.to_possible_value()?.get_name().to_owned())));
        add("columns", (!self.columns.is_empty()).then(|| self.columns.join(",")));
        add("group", self.group.clone());
        add("since", self.since.clone());
        self.keys.iter().for_each(|key| add("key", Some(key.clone())));
        fields
    }

    /// The rows that it finds.
    pub(super) fn rows(&self, facts: &Facts) -> Told<Rows> {
        let mut conditions = Vec::new();
        if let Some(text) = &self.text {
            conditions.push(condition(facts, text)?);
        }
        if !self.keys.is_empty() {
            conditions.push(keys(facts, &self.keys)?);
        }
        let filter = (!conditions.is_empty()).then(|| Condition::all(conditions));
        let within = self.since.as_deref().map(lasting).transpose()?;
        Ok(Rows { states: self.state.into_iter().collect(), within, filter })
    }

    /// Finds the group of failures among these rows, if one was chosen.
    pub(super) fn group_among<C: Database>(
        &self,
        queue: &dyn Queue<C>,
        connection: &mut C,
        rows: &Rows,
    ) -> Told<Option<ErrorGroup<String>>> {
        let Some(name) = &self.group else { return Ok(None) };
        let gone = || Trouble::NotFound(format!("There is no group `{}` of errors any more.", visible(name)));
        Ok(Some(group_of(queue.errors(connection, rows)?, name)?.ok_or_else(gone)?))
    }

    /// Whether nothing narrows it.
    pub(super) fn is_of_all(&self) -> bool {
        self.text.is_none()
            && self.state.is_none()
            && self.since.is_none()
            && self.group.is_none()
            && self.keys.is_empty()
    }

    pub(super) fn page_order(&self) -> PageOrder {
        match (self.order, self.state) {
            (Some(order), _) => order_of(order),
            (None, _) if self.group.is_some() => PageOrder::LatestAttempt,
            // No index has the successes by their times, and a database would sort all of them.
            (None, Some(State::Finished)) => PageOrder::KeyDescending,
            (None, state) => default_order_of(state),
        }
    }

    /// The columns beside the key.
    pub(super) fn listed(&self, facts: &Facts) -> Told<Vec<TextColumn>> {
        let mut listed = facts.listed(&self.columns)?;
        let mut seen = HashSet::new();
        listed.retain(|column| !facts.key.contains(&column.name) && seen.insert(column.name.clone()));
        Ok(listed)
    }
}

pub(super) fn name_of(state: State) -> &'static str {
    STATES.iter().find(|(_, of)| *of == state).map_or("", |(name, _)| name)
}

/// Writes a query.
pub(super) fn query<'f>(fields: impl IntoIterator<Item = &'f (String, String)>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    fields.into_iter().for_each(|(name, value)| _ = query.append_pair(name, value));
    query.finish()
}

/// What a field of the form compares.
pub(super) fn operators(column: &Column) -> Vec<&'static str> {
    let is_text = matches!(column.holds, Holds::Texts | Holds::Json);
    let mut operators = match column.holds {
        _ if column.values.is_some() => vec!["=", "<>"],
        Holds::Booleans => vec!["="],
        Holds::Json => Vec::new(),
        Holds::Others | Holds::Printed | Holds::Bytes | Holds::Uuids => vec!["=", "<>"],
        // No time that a person writes equals one with milliseconds.
        Holds::Instants | Holds::InstantsWithOffset | Holds::Timestamps => vec!["<", "<=", ">", ">="],
        _ => vec!["=", "<>", "<", "<=", ">", ">="],
    };
    if is_text && column.values.is_none() {
        operators.extend(["contains", "begins with"]);
    }
    if column.nullable {
        operators.extend(["is null", "is not null"]);
    }
    operators
}

/// Reads the form with a field for each column, and adds its conditions to the text.
pub(super) fn with_form(facts: &Facts, fields: &Fields) -> Told<Search> {
    let mut search = Search::of(fields)?;
    let mut conditions: Vec<String> = search.text.take().into_iter().collect();
    let mut added = Vec::new();
    for column in facts.columns.list.iter().filter(|column| !facts.is_secret(&column.name) || column.nullable) {
        let name = &column.name;
        let value = field(fields, &format!("v.{name}")).map(str::trim);
        let operator = field(fields, &format!("o.{name}")).unwrap_or("=");
        let compares = value.is_some() || operator.ends_with("null");
        if compares && !operators(column).contains(&operator) {
            return Err(Trouble::Wrong(format!("`{operator}` is no comparison for `{name}`.")));
        }
        let of = |value: &str| value.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
        let condition = match (operator, value) {
            ("is null" | "is not null", _) => Some(format!("{} {operator}", crate::command::quoted(name))),
            (_, None) => None,
            ("contains", Some(value)) => Some(facts.compares(name, "like", &format!("%{}%", of(value)))),
            ("begins with", Some(value)) => Some(facts.compares(name, "like", &format!("{}%", of(value)))),
            (_, Some(value)) => Some(facts.compares(name, operator, &as_written(column, value))),
        };
        added.extend(condition);
    }
    if !added.is_empty() && conditions.first().is_some_and(|text| condition(facts, text).is_ok()) {
        conditions = conditions.into_iter().map(|text| in_parentheses(&text)).collect();
    }
    conditions.extend(added);
    let text = conditions.join(" and ");
    // A condition that is wrong is told beside the text, at its place.
    Ok(Search { text: (!text.is_empty()).then_some(text), ..search })
}

/// A browser writes a date with a time as `2026-03-01T12:00` or `2026-03-01T12:00:30`, in the zone of nobody: it is UTC, and the form says so.
fn as_written(column: &Column, value: &str) -> String {
    let is_time = matches!(column.holds, Holds::Instants | Holds::InstantsWithOffset | Holds::Timestamps);
    let is_of = |format: &&str| chrono::NaiveDateTime::parse_from_str(value, format).is_ok();
    match is_time && ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"].iter().any(is_of) {
        true => value.replace('T', " "),
        false => value.to_owned(),
    }
}

/// `a or b` becomes `(a or b)`, before something is added to it.
fn in_parentheses(text: &str) -> String {
    if has_or(text) { format!("({text})") } else { text.to_owned() }
}

pub(super) fn has_or(text: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric()).any(|word| word.eq_ignore_ascii_case("or"))
}

/// The kind of field in which a column's value is written.
pub(super) fn kind(column: &Column) -> &'static str {
    match column.holds {
        Holds::Dates => "date",
        Holds::Instants | Holds::InstantsWithOffset | Holds::Timestamps => "datetime-local",
        _ => "text",
    }
}

/// How fine its values are: a browser asks for whole minutes unless it is told otherwise.
pub(super) fn step(column: &Column) -> Option<&'static str> {
    (kind(column) == "datetime-local").then_some("1")
}

pub(super) fn mode(column: &Column) -> Option<&'static str> {
    is_number(column.holds).then_some("decimal")
}
