//! A filter as a person reads it: its SQL, with the values in their places.

use std::fmt;

use diesel::query_builder::{QueryBuilder, QueryFragment, debug_query};

use super::condition::{Condition, IfAny};
use crate::backend::QueueBackend;
use crate::row::{bounded, printable};

/// How many bytes of a filter's SQL the table has, and of the other conditions.
const LONGEST_FILTER: usize = 4_000;

/// Writes a filter and further conditions as a person reads them.
pub(crate) fn filter_text<DB: QueueBackend>(
    filter: Option<&dyn QueryFragment<DB>>,
    others: impl Iterator<Item = String>,
) -> String {
    let text = filter.map_or_else(|| "all rows".to_owned(), sql_text);
    let others: String = others.map(|condition| format!("; {condition}")).collect();
    [text, others].map(|text| bounded(&printable(&text, false), LONGEST_FILTER)).concat()
}

impl<DB: QueueBackend> Condition<'_, DB> {
    /// Writes the filter as a person reads it, if there is one.
    pub fn filter_text(&self) -> Option<String> {
        self.filter.map(|filter| filter_text(Some(filter), std::iter::empty()))
    }
}

/// Writes SQL with its values in their places; if their places are not certain, with the values behind it.
fn sql_text<DB: QueueBackend>(filter: &dyn QueryFragment<DB>) -> String {
    let filter = IfAny(Some(filter));
    let mut builder = DB::QueryBuilder::default();
    let mut debug = String::new();
    let shown = fmt::write(&mut debug, format_args!("{:#?}", debug_query::<DB, _>(&filter)));
    // Then the call itself cannot be written either, and says why.
    let (Ok(()), Ok(())) = (filter.to_sql(&mut builder, &DB::default()), shown) else { return "..".to_owned() };
    let (mut sql, values) = (builder.finish(), values(&debug));
    // Between two filters stands `) AND (`.
    let mut depth = 0;
    if sql.matches(['(', ')']).any(|parenthesis| {
        depth += if parenthesis == "(" { 1 } else { -1 };
        depth < 0
    }) {
        sql = format!("({sql})");
    }
    let placed = with_values(&sql, '$', &values).or_else(|| with_values(&sql, '?', &values));
    placed.unwrap_or_else(|| format!("{sql} -- binds: [{}]", values.join(", ")))
}

/// Reads the values from the `Debug` of Diesel's query, which has each on lines of its own, and the further lines of one indented
/// deeper.
fn values(debug: &str) -> Vec<String> {
    const INDENT: &str = "        ";
    let closes = |line: &str| line.starts_with([']', '}', ')']);
    let mut values = Vec::<String>::new();
    for line in debug.lines().skip_while(|line| !line.starts_with("    binds: [")).skip(1) {
        let Some(line) = line.strip_prefix(INDENT) else { break };
        let part = line.trim_start();
        match values.last_mut() {
            Some(value) if line.starts_with(' ') || closes(line) => {
                if closes(part) {
                    value.truncate(value.trim_end_matches(',').len());
                } else if !value.ends_with(['[', '{', '(']) {
                    value.push(' ');
                }
                value.push_str(part);
            }
            _ => values.push(part.to_owned()),
        }
    }
    values.iter().map(|value| as_literal(value.strip_suffix(',').unwrap_or(value))).collect()
}

/// Writes a text between the quotes of SQL.
fn as_literal(debug: &str) -> String {
    match debug.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(text) => format!("'{}'", text.replace("\\\"", "\"").replace('\'', "''")),
        None => debug.to_owned(),
    }
}

/// Puts the values in the places that a mark shows: `?`, or `$` before the place's number. `None` if it is not certain that these
/// are the places.
fn with_values(sql: &str, mark: char, values: &[String]) -> Option<String> {
    // What is between quotes is no place, and these make it hard to tell.
    if ["\\", "--", "/*"].iter().any(|odd| sql.contains(odd)) {
        return None;
    }
    let (mut text, mut quote, mut left) = (String::new(), None, values.iter());
    let mut rest = sql.chars();
    while let Some(c) = rest.next() {
        if quote.is_none() && c == mark {
            text.push_str(left.next()?);
            if mark == '$' {
                let number = (values.len() - left.len()).to_string();
                rest = rest.as_str().strip_prefix(&number)?.chars();
                if rest.as_str().starts_with(|c: char| c.is_ascii_digit()) {
                    return None;
                }
            }
            continue;
        }
        match quote {
            Some(end) if end == c => quote = None,
            None if matches!(c, '\'' | '"' | '`') => quote = Some(c),
            _ => {}
        }
        text.push(c);
    }
    (left.len() == 0).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debug(values: &impl fmt::Debug) -> String {
        format!("Query {{\n    sql: \"\",\n    binds: {},\n}}", format!("{values:#?}").replace('\n', "\n    "))
    }

    #[test]
    fn values_are_told_apart_whatever_they_are() {
        #[derive(Debug)]
        #[expect(dead_code, reason = "it is shown")]
        enum Value {
            Number(i64),
            Text(&'static str),
            List(Vec<i64>),
            Named { a: Option<i64>, b: &'static str },
            Nothing,
        }
        let named = Value::Named { a: Some(1), b: "x,\n        y" };
        let of = [Value::Number(-3), Value::Text("a, b\n],"), Value::List(vec![1, 2]), named, Value::Nothing];
        let expected = [
            "Number(-3)",
            "Text(\"a, b\\n],\")",
            "List([1, 2])",
            "Named {a: Some(1), b: \"x,\\n        y\"}",
            "Nothing",
        ];
        assert_eq!(values(&debug(&of)), expected);
        assert_eq!(
            values(&debug(&["O'Brien \"the \\ cat\"", "", "\u{202e}"])),
            ["'O''Brien \"the \\\\ cat\"'", "''", "'\\u{202e}'"]
        );
        assert_eq!(values(&debug(&[0; 0])), [""; 0]);
    }

    #[test]
    fn values_are_put_in_their_places_or_nowhere() {
        let values = ["7".to_owned(), "'?'".to_owned()];
        let with = |sql, mark| with_values(sql, mark, &values);
        assert_eq!(with("a = ? AND '?' <> b OR `c?` = ?", '?').as_deref(), Some("a = 7 AND '?' <> b OR `c?` = '?'"));
        assert_eq!(with("a = $1 AND \"$2\" = $2", '$').as_deref(), Some("a = 7 AND \"$2\" = '?'"));
        assert_eq!(with("a = ?", '?'), None);
        assert_eq!(with("a = ? AND b = ? AND c = ?", '?'), None);
        assert_eq!(with("a = $2 AND b = $1", '$'), None);
        assert_eq!(with("a = 'it\\'s ?' AND b = ? AND c = ?", '?'), None);
        assert_eq!(with("a = ? -- it's\n AND b = ? AND c = ?", '?'), None);
        let many: Vec<_> = (1..=12).map(|i| i.to_string()).collect();
        let sql: String = (1..=12).map(|i| format!("${i} ")).collect();
        assert_eq!(with_values(&sql, '$', &many).as_deref(), Some("1 2 3 4 5 6 7 8 9 10 11 12 "));
    }
}
