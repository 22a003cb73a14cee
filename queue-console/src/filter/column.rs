//! The columns that a condition may name.

use queue_core::internals::backend::{DeclaredColumn, Holds};
use strsim::damerau_levenshtein;

use super::refused::{Fault, shown};

/// Names longer than this are no misspelled column.
const LONGEST_NAME: usize = 256;

/// The columns of a table, the queue's among them.
#[derive(Debug, Clone)]
pub(crate) struct Columns {
    /// The table's name, for messages.
    pub(crate) table: String,
    /// The columns, in the order in which they are listed.
    pub(crate) list: Vec<Column>,
}

/// A column as a condition uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    /// Its name in the database.
    pub(crate) name: String,
    /// Whether it has nulls.
    pub(crate) nullable: bool,
    /// What its values are.
    pub(crate) holds: Holds,
    /// The texts that it has, if there are no others: the statuses of a queue.
    pub(crate) values: Option<Vec<String>>,
}

impl From<DeclaredColumn> for Column {
    fn from(declared: DeclaredColumn) -> Self {
        let DeclaredColumn { name, nullable, holds, .. } = declared;
        Column { name, nullable, holds, values: None }
    }
}

impl Column {
    /// Lets the column have these texts only.
    pub(crate) fn of_values(self, values: impl IntoIterator<Item: Into<String>>) -> Self {
        Column { values: Some(values.into_iter().map(Into::into).collect()), ..self }
    }
}

impl Columns {
    /// Finds the column of a name that stands without quotes: the one that is spelled so, or else the only one that is
    /// spelled so in other case.
    pub(super) fn bare(&self, name: &str) -> Option<&Column> {
        let folded = name.to_lowercase();
        self.quoted(name).or_else(|| {
            let mut found = self.list.iter().filter(|column| column.name.to_lowercase() == folded);
            found.next().filter(|_| found.next().is_none())
        })
    }

    /// Finds the column of a name that stands in quotes.
    pub(super) fn quoted(&self, name: &str) -> Option<&Column> {
        self.list.iter().find(|column| column.name == name)
    }

    /// Says that there is no such column, and which one may be meant.
    pub(super) fn unknown(&self, name: &str, span: std::ops::Range<usize>) -> Fault {
        let names: Vec<_> = self.list.iter().map(|column| column.name.as_str()).collect();
        let meant = nearest(name, &names).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
        Fault::new(span, format!("`{}` is no column of {}{meant}", shown(name), self.table)).accepts(names.join(", "))
    }
}

/// Returns the word that a misspelled one most probably stands for.
pub(super) fn nearest<'a>(misspelled: &str, words: &[&'a str]) -> Option<&'a str> {
    if misspelled.len() > LONGEST_NAME {
        return None;
    }
    let misspelled = misspelled.to_lowercase();
    let distance = |word: &str| damerau_levenshtein(&misspelled, &word.to_lowercase());
    let (distance, word) = words.iter().map(|word| (distance(word), *word)).min_by_key(|(distance, _)| *distance)?;
    (distance <= (misspelled.chars().count() / 3).max(1)).then_some(word)
}
