//! What the rows of a group of failures have in common, and other rows do not.

use std::collections::HashMap;

use crate::shown::{Typed, number, typed};
use queue_core::internals::by_name::TextColumn;

use crate::command::is_number;

/// A value stands out if at least half of the rows have it, and if it is twice as common among them as among the others.
const LEAST_SHARE: f64 = 0.5;
const TIMES: f64 = 2.0;

/// Fewer rows say nothing.
const LEAST_ROWS: usize = 3;

/// How many columns are named.
const NAMED: usize = 5;

/// What stands out in a column.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Trait {
    pub(super) column: String,
    pub(super) text: Said,
    /// The share of the rows, and of the others.
    pub(super) share: f64,
    pub(super) others: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Said {
    Value(Option<String>),
    Between(String, String),
}

type Values<'v> = &'v [Vec<Option<String>>];

/// Finds the columns whose values stand out among `rows`, the most telling first. Both have a value for each column.
pub(super) fn traits(columns: &[TextColumn], rows: Values<'_>, others: Values<'_>) -> Vec<Trait> {
    if rows.len() < LEAST_ROWS {
        return Vec::new();
    }
    let weight = |of: &Trait| of.share - of.others;
    // Of a column's most common value and its range, the one that tells more.
    let of = |at: usize| {
        let found = [value_of(&columns[at], at, rows, others), range_of(&columns[at], at, rows, others)];
        found.into_iter().flatten().reduce(|value, range| if weight(&range) > weight(&value) { range } else { value })
    };
    let mut traits: Vec<_> = (0..columns.len()).filter_map(of).collect();
    traits.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    traits.truncate(NAMED);
    traits
}

fn share(part: usize, of: usize) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

fn stands_out(share: f64, others: f64) -> bool {
    share >= LEAST_SHARE && share >= TIMES * others
}

fn value_of(column: &TextColumn, at: usize, rows: Values<'_>, others: Values<'_>) -> Option<Trait> {
    let mut counts: HashMap<&Option<String>, usize> = HashMap::new();
    rows.iter().for_each(|row| *counts.entry(&row[at]).or_default() += 1);
    let (value, count) = counts.into_iter().max_by_key(|(value, count)| (*count, std::cmp::Reverse(*value)))?;
    let (share, others) =
        (share(count, rows.len()), self::share(others.iter().filter(|row| row[at] == *value).count(), others.len()));
    let text = Said::Value(value.as_ref().map(|text| match typed(Some(text), column.holds) {
        Typed::Boolean(is) => is.to_string(),
        _ => text.clone(),
    }));
    (count > 1 && stands_out(share, others)).then(|| Trait { column: column.name.clone(), text, share, others })
}

/// A range of numbers that holds all of the rows, and few of the others.
fn range_of(column: &TextColumn, at: usize, rows: Values<'_>, others: Values<'_>) -> Option<Trait> {
    if !is_number(column.holds) || others.is_empty() {
        return None;
    }
    let numbers = |rows: Values<'_>| -> Vec<f64> {
        rows.iter()
            .filter_map(|row| row[at].as_deref()?.parse().ok())
            .filter(|number: &f64| number.is_finite())
            .collect()
    };
    let (inside, outside) = (numbers(rows), numbers(others));
    if inside.len() < rows.len() {
        return None;
    }
    let (least, most) = (inside.iter().copied().reduce(f64::min)?, inside.iter().copied().reduce(f64::max)?);
    let among = outside.iter().filter(|number| (least..=most).contains(*number)).count();
    let others = share(among, others.len());
    let text = Said::Between(shown(least), shown(most));
    stands_out(1.0, others).then(|| Trait { column: column.name.clone(), text, share: 1.0, others })
}

fn shown(value: f64) -> String {
    const EXACT: f64 = 9e15;
    if value.fract() == 0.0 && value.abs() < EXACT { number(value as i64) } else { value.to_string() }
}

impl Trait {
    /// The shares in words.
    pub(super) fn shares(&self) -> String {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        format!("{} of these rows, {} of the others", percent(self.share), percent(self.others))
    }
}

#[cfg(test)]
mod tests {
    use queue_core::internals::by_name::Holds;

    use super::*;

    fn columns() -> Vec<TextColumn> {
        let column = |name: &str, holds| TextColumn { name: name.to_owned(), holds };
        vec![
            column("company_id", Holds::Integers(8)),
            column("country", Holds::Texts),
            column("cents", Holds::Integers(8)),
        ]
    }

    fn row(company: i64, country: Option<&str>, cents: i64) -> Vec<Option<String>> {
        vec![Some(company.to_string()), country.map(str::to_owned), Some(cents.to_string())]
    }

    #[test]
    fn values_and_ranges_that_others_do_not_have_stand_out() {
        let rows: Vec<_> = (0..20).map(|at| row(if at < 18 { 3345 } else { at }, Some("DE"), -100 - at)).collect();
        let others: Vec<_> = (0..100).map(|at| row(at, Some("DE"), at * 10)).collect();
        let traits = traits(&columns(), &rows, &others);
        let said: Vec<_> = traits.iter().map(|of| (of.column.as_str(), &of.text)).collect();
        let range = Said::Between("-119".to_owned(), "-100".to_owned());
        assert_eq!(said, [("cents", &range), ("company_id", &Said::Value(Some("3345".to_owned())))]);
        assert_eq!(traits[1].shares(), "90 % of these rows, 0 % of the others");
    }

    #[test]
    fn few_rows_and_common_values_say_nothing() {
        let rows = [row(1, None, 5), row(1, None, 5)];
        assert_eq!(traits(&columns(), &rows, &[]), []);
        let rows: Vec<_> = (0..10).map(|at| row(at, Some("DE"), at)).collect();
        assert_eq!(traits(&columns(), &rows, &rows), []);
    }

    #[test]
    fn null_is_a_value_too() {
        let rows: Vec<_> = (0..10).map(|at| row(at, None, at)).collect();
        let others: Vec<_> = (0..10).map(|at| row(at, Some("DE"), at)).collect();
        assert_eq!(traits(&columns(), &rows, &others)[0].text, Said::Value(None));
    }
}
