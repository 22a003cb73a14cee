//! A condition on rows, as it was understood.

use std::fmt;

use queue_core::internals::backend::Holds;

use super::lexer::{begins_word, continues_word};
use super::value::{Value, write_text};

/// The words that name no column without quotes.
pub(super) const KEYWORDS: [&str; 11] =
    ["and", "or", "not", "in", "between", "like", "is", "null", "true", "false", "now"];

/// A condition on the rows of a table. It has no text of the operator's but in its values, and the names of its columns are
/// those of the table.
///
/// Its `Display` is the condition in the language of `--where`, with the times that it was given.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Condition {
    /// One of two or more holds.
    Any(Vec<Condition>),
    /// All of two or more hold.
    All(Vec<Condition>),
    /// It does not hold.
    Not(Box<Condition>),
    /// The column is true.
    IsTrue(Named),
    /// The column is null, or is not.
    IsNull { column: Named, is: bool },
    /// The column compares so with a value.
    Compares { column: Named, operator: Operator, value: Value },
    /// The column is one of the values, or is not.
    In { column: Named, is: bool, values: Vec<Value> },
    /// The column lies between two values, both included, or does not.
    Between { column: Named, is: bool, low: Value, high: Value },
    /// The column's text matches a pattern, or does not.
    Like { column: Named, is: bool, pattern: String },
}

/// A column of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(super) name: String,
    pub(super) holds: Holds,
}

/// How a column compares with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Operator {
    /// Returns the operator, as SQL writes it.
    pub(super) fn as_sql(self) -> &'static str {
        match self {
            Operator::Equal => "=",
            Operator::NotEqual => "<>",
            Operator::Less => "<",
            Operator::LessOrEqual => "<=",
            Operator::Greater => ">",
            Operator::GreaterOrEqual => ">=",
        }
    }

    /// Tells whether it asks which of two values is greater.
    pub(super) fn is_order(self) -> bool {
        !matches!(self, Operator::Equal | Operator::NotEqual)
    }

    pub(super) fn of(symbol: &str) -> Option<Self> {
        Some(match symbol {
            "=" => Operator::Equal,
            "<>" | "!=" => Operator::NotEqual,
            "<" => Operator::Less,
            "<=" => Operator::LessOrEqual,
            ">" => Operator::Greater,
            ">=" => Operator::GreaterOrEqual,
            _ => return None,
        })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = |is: &bool| if *is { "" } else { "not " };
        match self {
            Condition::Any(conditions) => write_joined(f, conditions, " or "),
            Condition::All(conditions) => write_joined(f, conditions, " and "),
            Condition::Not(condition) => write!(f, "not ({condition})"),
            Condition::IsTrue(column) => write!(f, "{column}"),
            Condition::IsNull { column, is } => write!(f, "{column} is {}null", not(is)),
            Condition::Compares { column, operator, value } => write!(f, "{column} {} {value}", operator.as_sql()),
            Condition::In { column, is, values } => {
                write!(f, "{column} {}in (", not(is))?;
                write_each(f, values, ", ", |f, value| write!(f, "{value}"))?;
                f.write_str(")")
            }
            Condition::Between { column, is, low, high } => {
                write!(f, "{column} {}between {low} and {high}", not(is))
            }
            Condition::Like { column, is, pattern } => {
                write!(f, "{column} {}like ", not(is))?;
                write_text(f, pattern)
            }
        }
    }
}

fn write_joined(f: &mut fmt::Formatter<'_>, conditions: &[Condition], word: &str) -> fmt::Result {
    write_each(f, conditions, word, |f, condition| match condition {
        Condition::Any(_) | Condition::All(_) => write!(f, "({condition})"),
        _ => write!(f, "{condition}"),
    })
}

fn write_each<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    between: &str,
    write: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    items.iter().enumerate().try_for_each(|(i, item)| {
        if i > 0 {
            f.write_str(between)?;
        }
        write(f, item)
    })
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_word = self.name.starts_with(begins_word) && self.name.chars().all(continues_word);
        if is_word && !is_keyword(&self.name) {
            f.write_str(&self.name)
        } else {
            write!(f, "\"{}\"", self.name.replace('"', "\"\""))
        }
    }
}

pub(super) fn is_keyword(word: &str) -> bool {
    KEYWORDS.iter().any(|keyword| word.eq_ignore_ascii_case(keyword))
}
