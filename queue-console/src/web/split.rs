//! The choice of the rows that a report is about, and of the column by which it is split.

use maud::{Markup, html};
use queue_core::internals::by_name::{Holds, TextColumn};

use super::cells::value;
use super::search::{Fields, field, has_or, query};
use super::trouble::Told;
use crate::command::{condition, quoted};
use crate::filter::Condition;
use crate::queue::Facts;
use crate::shown::visible;

/// What a report is asked for.
#[derive(Debug, Clone)]
pub(super) struct Split {
    /// The condition, in the language of `--where`.
    pub(super) text: Option<String>,
    pub(super) by: Option<TextColumn>,
}

impl Split {
    /// Reads the fields; a column that is not there, or whose values are not shown, is refused.
    pub(super) fn of(facts: &Facts, fields: &Fields) -> Told<Self> {
        let by = field(fields, "by");
        if let Some(column) = by {
            facts.check_split(column)?;
        }
        Ok(Split { text: field(fields, "where").map(str::to_owned), by: by.and_then(|name| facts.column(name)) })
    }

    pub(super) fn filter(&self, facts: &Facts) -> Told<Option<Condition>> {
        Ok(self.text.as_deref().map(|text| condition(facts, text)).transpose()?)
    }

    /// The condition for one value of the column, beside the one that there is.
    pub(super) fn only(&self, facts: &Facts, column: &str, value: Option<&str>) -> String {
        let is = match value {
            Some(value) => facts.is(column, value),
            None => format!("{} is null", quoted(column)),
        };
        match &self.text {
            // It has been chosen already.
            Some(text) if *text == is || text.ends_with(&format!(" and {is}")) && !has_or(text) => text.clone(),
            Some(text) => format!("({text}) and {is}"),
            None => is,
        }
    }

    /// The value of a part of the report, with a link to its rows alone.
    pub(super) fn value(&self, facts: &Facts, address: &str, of: Option<&str>) -> Markup {
        let Some(column) = &self.by else { return html! {} };
        let only = [("where".to_owned(), self.only(facts, &column.name, of))];
        html! { a href={ (address) "?" (query(&only)) } { (value(facts, column, of)) } }
    }

    /// The fields of the form: `others` come first.
    pub(super) fn form(&self, facts: &Facts, address: &str, others: &Markup) -> Markup {
        let by = self.by.as_ref().map(|column| column.name.as_str());
        html! {
            form.search role="search" method="get" action=(address) {
                div.fields {
                    (others)
                    div.field {
                        label for="by" { "Split by" }
                        select #by name="by" {
                            option value="" { "nothing" }
                            @for name in columns(facts) { option value=(name) selected[by == Some(name)] { (visible(name)) } }
                        }
                    }
                    div.field.wide {
                        label for="where" { "Condition" }
                        input #where type="text" name="where" value=[self.text.as_deref()] autocomplete="off" spellcheck="false";
                    }
                }
                div.actions { button type="submit" { "Show" } }
            }
        }
    }
}

/// The columns by which a report may be split. A key has a value for each row, and other types have no short values.
fn columns(facts: &Facts) -> impl Iterator<Item = &str> {
    let is_short = |holds: Holds| !matches!(holds, Holds::Json | Holds::Bytes | Holds::Floats);
    let all = facts.columns.list.iter().filter(move |column| is_short(column.holds));
    let names = all.map(|column| column.name.as_str());
    names.filter(|name| {
        !facts.is_secret(name) && facts.key != [*name] && *name != facts.names.last_attempt_error_message
    })
}
