//! What a run has done: the rows of the tables, and what the model of the outside world shows.

use std::collections::{BTreeMap, BTreeSet};

use super::story::Effect;
use super::tables::{Table, Tables};

/// What there is after a run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Effects {
    pub(super) outside: Vec<String>,
    pub(super) tables: Tables,
}

/// A table's name and a column's.
type Column = (String, String);

/// How effects are compared.
#[derive(Default)]
pub(super) struct Terms {
    /// The columns that are not compared.
    left_out: BTreeSet<Column>,
    /// The columns of which new values are not compared: keys that the database counts up, and values that differ between two runs
    /// that nothing disturbed. Each with the values that were there before the runs.
    fresh: BTreeMap<Column, BTreeSet<String>>,
}

impl Terms {
    /// Leaves out the columns for which this holds.
    pub(super) fn leave_out(&mut self, tables: &Tables, is_out: impl Fn(&Table, &str) -> bool) {
        for (name, table) in tables {
            let out = table.columns.iter().filter(|column| is_out(table, column));
            self.left_out.extend(out.map(|column| (name.clone(), column.clone())));
        }
    }

    /// Finds the columns whose new values tell nothing, by what was there before and what was after each of two runs that nothing
    /// disturbed.
    pub(super) fn find_fresh(&mut self, before: &Tables, first: &Effects, second: &Effects) {
        for (name, table) in before {
            for (place, column) in table.columns.iter().enumerate() {
                let after = |effects: &Effects| effects.tables.get(name).map(|table| values(table, place));
                if table.counted.contains(column) || after(first) != after(second) {
                    let known = values(table, place).into_iter().collect();
                    self.fresh.insert((name.clone(), column.clone()), known);
                }
            }
        }
    }

    /// Returns the text of a row.
    fn line(&self, name: &str, columns: &[String], row: &[String]) -> String {
        let is_compared = |(column, value): &(&String, &String)| {
            let column = (name.to_owned(), (*column).clone());
            !self.left_out.contains(&column) && self.fresh.get(&column).is_none_or(|known| known.contains(*value))
        };
        let values = columns.iter().zip(row).filter(is_compared).map(|(column, value)| format!("{column} {value}"));
        format!("{name} ({})", values.collect::<Vec<_>>().join(", "))
    }
}

impl Effects {
    /// Returns the effects, each with the times that it is there. `true`: it is in the outside world.
    fn counted(&self, terms: &Terms) -> BTreeMap<(bool, String), usize> {
        let rows = self.tables.iter().flat_map(|(name, table)| table.rows.iter().map(move |row| (name, table, row)));
        let rows = rows.map(|(name, table, row)| (false, terms.line(name, &table.columns, row)));
        let mut counted = BTreeMap::new();
        for effect in rows.chain(self.outside.iter().map(|effect| (true, effect.clone()))) {
            *counted.entry(effect).or_default() += 1;
        }
        counted
    }

    /// Returns the effects that these have and the expected ones have not, or not as often, and the other way round.
    pub(super) fn differences(&self, expected: &Effects, terms: &Terms) -> Vec<Effect> {
        let (found, expected) = (self.counted(terms), expected.counted(terms));
        let all: BTreeSet<_> = found.keys().chain(expected.keys()).collect();
        let times = |of: &BTreeMap<_, usize>, effect| of.get(effect).copied().unwrap_or_default();
        all.into_iter()
            .map(|effect| Effect {
                is_outside: effect.0,
                what: effect.1.clone(),
                times: times(&found, effect),
                expected: times(&expected, effect),
            })
            .filter(|effect| effect.times != effect.expected)
            .collect()
    }
}

/// Returns the values of a column, in order.
fn values(table: &Table, place: usize) -> Vec<String> {
    let mut values: Vec<_> = table.rows.iter().filter_map(|row| row.get(place).cloned()).collect();
    values.sort();
    values
}
