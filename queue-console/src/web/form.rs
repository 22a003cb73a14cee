//! The form of a search: the condition as text, and a field for each column that knows the column's type.

use clap::ValueEnum;
use maud::{Markup, html};

use super::guard::Visit;
use super::layout::segment;
use super::search::{SINCE, STATES, Search, kind, mode, name_of, operators, step};
use super::site::{Named, Site};
use crate::cli::Order;
use crate::database::Database;
use crate::filter::Column;
use crate::queue::Facts;
use crate::shown::visible;

pub(super) fn form<C: Database>(site: &Site<C>, visit: &Visit, named: &Named, search: &Search) -> Markup {
    let facts = site.of(named).facts();
    let state = search.state.map_or("", name_of);
    let listed: Vec<String> =
        search.listed(facts).map(|columns| columns.into_iter().map(|of| of.name).collect()).unwrap_or_default();
    html! {
        form.search role="search" method="get" action={ (visit.root) "q/" (segment(&named.name)) "/search" } {
            div.fields {
                div.field.wide {
                    label for="where" { "Condition" }
                    input #where type="text" name="where" value=[search.text.as_deref()] autocomplete="off" spellcheck="false"
                        placeholder={ (example(facts)) };
                }
                div.field {
                    label for="state" { "State" }
                    select #state name="state" {
                        option value="" { "any" }
                        @for (name, _) in STATES { option value=(name) selected[name == state] { (name) } }
                    }
                }
                div.field {
                    label for="order" { "Order" }
                    select #order name="order" {
                        option value="" { "as the state suggests" }
                        @for order in Order::value_variants() {
                            @if let Some(value) = order.to_possible_value() {
                                option value=(value.get_name()) selected[search.order == Some(*order)] {
                                    (value.get_help().map(ToString::to_string).unwrap_or_default())
                                }
                            }
                        }
                    }
                }
                (since_field(search.since.as_deref()))
                div.actions { button type="submit" { "Search" } }
            }
            details {
                summary { "Search by column" }
                p.muted { "Each field that is filled in is added to the condition. Times are in UTC." }
                div.fields { @for column in &facts.columns.list { (field(facts, column)) } }
                div.actions { button type="submit" { "Add and search" } }
            }
            details {
                summary { "Columns shown" }
                fieldset {
                    legend.visually-hidden { "Columns shown" }
                    div.fields { @for column in facts.columns.list.iter().filter(|of| !facts.key.contains(&of.name)) {
                        label { input type="checkbox" name="columns" value=(column.name) checked[listed.contains(&column.name)]; " " bdi { (visible(&column.name)) } }
                    } }
                }
                div.actions { button type="submit" { "Show these" } }
            }
        }
    }
}

/// The choice of a time within which rows were attempted last.
pub(super) fn since_field(since: Option<&str>) -> Markup {
    let since = since.unwrap_or_default();
    html! {
        div.field {
            label for="since" { "Last attempt" }
            select #since name="since" {
                @for (value, name) in SINCE { option value=(value) selected[value == since] { (name) } }
                // An address may name another one.
                @if !SINCE.iter().any(|(value, _)| *value == since) { option value=(since) selected { (visible(since)) } }
            }
        }
    }
}

/// A condition as this table might have it.
fn example(facts: &Facts) -> String {
    let is_usual = |column: &&Column| crate::command::is_number(column.holds) && !facts.key.contains(&column.name);
    let column = facts.columns.list[..facts.domain].iter().find(is_usual);
    column.map(|column| format!("{} = 42", column.name)).unwrap_or_else(|| "status = 'FAILED'".to_owned())
}

/// The field of a column: what is compared, and with which value.
fn field(facts: &Facts, column: &Column) -> Markup {
    let name = &column.name;
    let id = format!("v.{name}");
    let operators: Vec<&str> = match facts.is_secret(name) {
        // Its values are nobody's business.
        true => operators(column).into_iter().filter(|operator| operator.ends_with("null")).collect(),
        false => operators(column),
    };
    let choices: Option<Vec<&str>> = match (&column.values, column.holds) {
        (Some(values), _) => Some(values.iter().map(String::as_str).collect()),
        (None, queue_core::internals::by_name::Holds::Booleans) => Some(vec!["true", "false"]),
        _ => None,
    };
    let has_values = operators.iter().any(|operator| !operator.ends_with("null"));
    html! {
        @if !operators.is_empty() {
            div.field role="group" aria-label=(visible(name)) {
                label for=(id) { bdi { (visible(name)) } }
                span.pair {
                    select name={ "o." (name) } aria-label={ "How " (visible(name)) " is compared" } {
                        @if !has_values { option value="=" { "any" } }
                        @for operator in &operators { option value=(operator) { (operator) } }
                    }
                    @if has_values {
                        @match choices {
                            Some(choices) => select id=(id) name=(id) {
                                option value="" { "any" }
                                @for choice in choices { option value=(choice) { (visible(choice)) } }
                            },
                            None => input id=(id) type=(kind(column)) name=(id) step=[step(column)] inputmode=[mode(column)] autocomplete="off";,
                        }
                    } @else {
                        span #(id) .muted { "hidden" }
                    }
                }
            }
        }
    }
}
