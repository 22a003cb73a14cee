//! What commands make of conditions without a text.

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;
use queue_core::internals::backend::{DeclaredColumn, Holds};

use super::column::{Column, Columns};
use super::condition::{Condition, Operator};
use super::sql::FilterSql;
use super::value::Value;

impl Column {
    pub(crate) fn new(name: &str, holds: Holds, nullable: bool) -> Self {
        DeclaredColumn { name: name.to_owned(), nullable, holds }.into()
    }
}

impl Columns {
    /// Says that there is no such column, and which may be meant.
    pub(crate) fn lacks(&self, name: &str) -> String {
        self.unknown(name, 0..name.len()).of(name).to_string()
    }
}

impl Condition {
    /// The rows for which one of these holds. SQLite reads so many only as a tree that is not deep.
    pub(crate) fn any(mut conditions: Vec<Condition>) -> Self {
        const WIDEST: usize = 50;
        while conditions.len() > WIDEST {
            conditions = conditions.chunks(WIDEST).map(|some| Condition::Any(some.to_vec())).collect();
        }
        Condition::Any(conditions)
    }

    /// The columns whose values it reads.
    pub(crate) fn compared(&self) -> Vec<&str> {
        match self {
            Condition::Any(conditions) | Condition::All(conditions) => {
                conditions.iter().flat_map(Condition::compared).collect()
            }
            Condition::Not(condition) => condition.compared(),
            Condition::IsNull { .. } => Vec::new(),
            Condition::IsTrue(column)
            | Condition::Compares { column, .. }
            | Condition::In { column, .. }
            | Condition::Between { column, .. }
            | Condition::Like { column, .. } => vec![&column.name],
        }
    }

    /// The rows whose keys come after the one that these equations name, or before it if the order descends. It also
    /// compares what a person may not, such as enumerations. The caller asks only for keys that the database sorts in this order.
    pub(crate) fn beyond(key: &[Condition], descends: bool) -> Self {
        let (next, or_equal) = match descends {
            true => (Operator::Less, Operator::LessOrEqual),
            false => (Operator::Greater, Operator::GreaterOrEqual),
        };
        let beyond = |place: usize| {
            let last = key[place].clone().with(next);
            Condition::All(key[..place].iter().cloned().chain([last]).collect())
        };
        match key {
            [one] => one.clone().with(next),
            // The first column alone is a range, for the index.
            _ => {
                let first = key.iter().take(1).map(|first| first.clone().with(or_equal));
                Condition::All(first.chain([Condition::Any((0..key.len()).map(beyond).collect())]).collect())
            }
        }
    }

    /// Compares the same column with the same value in another way.
    fn with(self, operator: Operator) -> Self {
        match self {
            Condition::Compares { column, value, .. } => Condition::Compares { column, operator, value },
            other => other,
        }
    }

    /// The rows for which all of these hold.
    pub(crate) fn all(conditions: Vec<Condition>) -> Self {
        Condition::All(conditions)
    }

    /// Returns the column and the value, if the condition is that they are equal.
    pub(crate) fn into_equal(self) -> Option<(String, Value)> {
        match self {
            Condition::Compares { column, operator: Operator::Equal, value } => Some((column.name, value)),
            _ => None,
        }
    }
}

/// A value alone.
pub(crate) struct ValueOf<'a>(pub(crate) &'a Value);

impl<DB: FilterSql> QueryFragment<DB> for ValueOf<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        DB::bind_value(&mut out, self.0)
    }
}
