//! Values of rows, as cells of a table.

use chrono::{DateTime, SecondsFormat, Utc};
use maud::{Markup, html};
use queue_core::internals::by_name::TextColumn;

use super::layout::time;
use crate::command::is_number;
use crate::queue::Facts;
use crate::shown::{Typed, typed, visible};

pub(super) fn heading(facts: &Facts, column: &TextColumn) -> Markup {
    let is_own = facts.columns.list.iter().position(|of| of.name == column.name).is_some_and(|at| at >= facts.domain);
    html! { th.number[is_number(column.holds)].own[is_own] scope="col" { bdi { (visible(&column.name)) } } }
}

/// The heading of the key, which each list begins with.
pub(super) fn key_heading(facts: &Facts) -> Markup {
    html! { th scope="col" { bdi { (visible(&facts.key.join(", "))) } } }
}

/// A value in a table.
pub(super) fn cell(facts: &Facts, column: &TextColumn, value: Option<&str>) -> Markup {
    html! { td.data.number[is_number(column.holds)] { (self::value(facts, column, value)) } }
}

/// A value, or what stands in its place.
pub(super) fn value(facts: &Facts, column: &TextColumn, value: Option<&str>) -> Markup {
    let value = typed(value, column.holds);
    if let Typed::Time(at) = value
        && !facts.is_secret(&column.name)
    {
        return time(at);
    }
    let is_status = column.name == facts.names.status;
    match facts.words(&column.name, value, exact) {
        Ok(text) if is_status => html! { (status(&text)) },
        Ok(text) => html! { bdi { (visible(&text)) } },
        Err("null") => html! { span.null { "null" } },
        Err(instead) => html! { span.secret { (instead) } },
    }
}

/// A time as it is, in UTC.
pub(super) fn exact(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// A status as a badge: a sign and its word.
pub(super) fn status(text: &str) -> Markup {
    let class = match text {
        "SUCCESS" => "succeeded",
        "FAILED" => "failed",
        "SKIPPED" => "skipped",
        "IN_PROGRESS" => "running",
        "ERROR" => "scheduled",
        _ => "due",
    };
    html! { span class={ "badge " (class) } { bdi { (visible(text)) } } }
}
