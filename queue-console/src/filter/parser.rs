//! The grammar: `or` binds less than `and`, and `and` less than `not`.

use chrono::{DateTime, Utc};
use queue_core::internals::backend::Holds;
use winnow::Parser;
use winnow::combinator::{opt, separated};
use winnow::error::ErrMode;
use winnow::stream::{Stateful, TokenSlice};
use winnow::token::any;

use super::column::{Column, Columns};
use super::condition::{Condition, Named, Operator, is_keyword};
use super::input::{State, Tokens, expect, next, symbol, take, word};
use super::lexer::{Kind, Token, tokens};
use super::operand::{list, pattern, value};
use super::refused::{Fault, Parsed, Refused, shown};

/// The longest text, in bytes.
const LONGEST_TEXT: usize = 64 * 1024;

/// How deep conditions may stand inside each other. The parser calls itself for each level.
const DEEPEST: usize = 64;

/// How many comparisons a condition may have. SQLite refuses expressions of more than 1,000 levels, and counts each `and` as one.
const MOST_COMPARISONS: usize = 500;

/// Reads a condition on the rows of a table with these columns. `now` is the time that `now()` stands for.
///
/// # Errors
///
/// [`Refused`] if the text is no condition: it says the place and what is accepted there.
pub(crate) fn parse(text: &str, columns: &Columns, now: DateTime<Utc>) -> Result<Condition, Refused> {
    let condition = if text.len() > LONGEST_TEXT {
        Fault::new(0..0, format!("a condition has at most {LONGEST_TEXT} bytes, and this one {}", text.len())).cut()
    } else {
        whole(text, columns, now)
    };
    condition.map_err(|error| match error {
        ErrMode::Cut(fault) | ErrMode::Backtrack(fault) => fault.of(text),
        ErrMode::Incomplete(_) => Fault::new(text.len()..text.len(), "the condition has no end").of(text),
    })
}

fn whole(text: &str, columns: &Columns, now: DateTime<Utc>) -> Parsed<Condition> {
    let tokens = tokens(text)?;
    let state = State { text, columns, now, depth: 0, comparisons: 0 };
    let mut input = Stateful { input: TokenSlice::new(&tokens), state };
    let condition = any_of(&mut input)?;
    let token = next(&mut input)?;
    match token.kind {
        Kind::End => Ok(condition),
        Kind::Symbol(")") => Fault::new(token.span.clone(), "this parenthesis closes none").cut(),
        _ => Fault::new(token.span.clone(), "the condition before this is complete")
            .accepts("`and`, `or`, or the end")
            .cut(),
    }
}

fn any_of(input: &mut Tokens<'_>) -> Parsed<Condition> {
    separated(1.., all_of, word("or")).map(|conditions| one_or(conditions, Condition::Any)).parse_next(input)
}

fn all_of(input: &mut Tokens<'_>) -> Parsed<Condition> {
    separated(1.., one, word("and")).map(|conditions| one_or(conditions, Condition::All)).parse_next(input)
}

fn one_or(mut conditions: Vec<Condition>, several: fn(Vec<Condition>) -> Condition) -> Condition {
    match conditions.pop() {
        Some(condition) if conditions.is_empty() => condition,
        last => {
            conditions.extend(last);
            several(conditions)
        }
    }
}

fn one(input: &mut Tokens<'_>) -> Parsed<Condition> {
    let token = next(input)?;
    input.state.depth += 1;
    if input.state.depth > DEEPEST {
        return Fault::new(token.span.clone(), format!("conditions stand inside each other at most {DEEPEST} deep"))
            .cut();
    }
    let condition = if opt(word("not")).parse_next(input)?.is_some() {
        Condition::Not(Box::new(one(input)?))
    } else if opt(symbol("(")).parse_next(input)?.is_some() {
        in_parentheses(input, token)?
    } else {
        about_a_column(input)?
    };
    input.state.depth -= 1;
    Ok(condition)
}

fn in_parentheses(input: &mut Tokens<'_>, opening: &Token) -> Parsed<Condition> {
    let condition = any_of(input)?;
    let token = next(input)?;
    if opt(symbol(")")).parse_next(input)?.is_some() {
        return Ok(condition);
    }
    let fault = match token.kind {
        Kind::End => Fault::new(opening.span.clone(), "this parenthesis is not closed"),
        _ => Fault::new(token.span.clone(), "the condition before this is complete"),
    };
    fault.accepts("`and`, `or`, `)`").cut()
}

fn about_a_column(input: &mut Tokens<'_>) -> Parsed<Condition> {
    let column = column(input)?;
    let token = next(input)?;
    input.state.comparisons += 1;
    if input.state.comparisons > MOST_COMPARISONS {
        return Fault::new(token.span.clone(), format!("a condition has at most {MOST_COMPARISONS} comparisons"))
            .accepts("many values of one column as `column in (..)`")
            .cut();
    }
    let named = || Named { name: column.name.clone(), holds: column.holds };
    if let Kind::Symbol(symbol) = token.kind
        && let Some(operator) = Operator::of(symbol)
    {
        any.void().parse_next(input)?;
        comparable(column, operator.is_order(), token)?;
        return Ok(Condition::Compares { column: named(), operator, value: value(input, column)? });
    }
    if opt(word("is")).parse_next(input)?.is_some() {
        let is = opt(word("not")).parse_next(input)?.is_none();
        expect(input, "null", "`null` or `not null`")?;
        return Ok(Condition::IsNull { column: named(), is });
    }
    let is = opt(word("not")).parse_next(input)?.is_none();
    let token = next(input)?;
    if opt(word("in")).parse_next(input)?.is_some() {
        comparable(column, false, token)?;
        return Ok(Condition::In { column: named(), is, values: list(input, column)? });
    }
    if opt(word("between")).parse_next(input)?.is_some() {
        comparable(column, true, token)?;
        let low = value(input, column)?;
        expect(input, "and", "`and` with the upper end")?;
        return Ok(Condition::Between { column: named(), is, low, high: value(input, column)? });
    }
    if opt(word("like")).parse_next(input)?.is_some() {
        return Ok(Condition::Like { column: named(), is, pattern: pattern(input, column, token)? });
    }
    let ends = matches!(token.kind, Kind::End | Kind::Symbol(")")) || token.is_word("and") || token.is_word("or");
    if is && ends && column.holds == Holds::Booleans {
        return Ok(Condition::IsTrue(named()));
    }
    Fault::new(token.span.clone(), format!("a comparison of `{}` is missing here", column.name))
        .accepts(if is { "=, <>, !=, <, <=, >, >=, is, in, between, like, not" } else { "in, between, like" })
        .cut()
}

/// Reads the name of a column.
fn column<'t>(input: &mut Tokens<'t>) -> Parsed<&'t Column> {
    let columns = input.state.columns;
    let token = take(input)?;
    let found = match &token.kind {
        Kind::Name(name) => columns.quoted(name).ok_or_else(|| columns.unknown(name, token.span.clone())),
        Kind::Word(name) if !is_keyword(name) => {
            columns.bare(name).ok_or_else(|| columns.unknown(name, token.span.clone()))
        }
        kind => {
            let first = columns.list.first().map_or("id", |column| &column.name);
            let fault = Fault::new(token.span.clone(), not_a_condition(kind));
            return fault.accepts(format!("a column, as `{first}`, `not`, `(`")).cut();
        }
    };
    let after = next(input)?;
    match after.kind {
        Kind::Symbol("(") => {
            Fault::new(token.span.clone(), "a condition calls no function").accepts("now() as a value").cut()
        }
        Kind::Symbol(".") => {
            Fault::new(token.span.clone(), "a column stands without its table").accepts("the column's name alone").cut()
        }
        _ => found.map_err(ErrMode::Cut),
    }
}

fn not_a_condition(kind: &Kind) -> String {
    match kind {
        Kind::End => "a condition is missing here".to_owned(),
        Kind::Word(word) => {
            format!("no condition begins with `{}`; a column of this name stands in double quotes", shown(word))
        }
        Kind::Text(_) => {
            "a condition begins with a column, and a text is none; a column's name may stand in double quotes"
                .to_owned()
        }
        _ => "a condition begins with a column".to_owned(),
    }
}

/// Refuses a comparison that the column's values have no part in.
fn comparable(column: &Column, is_order: bool, token: &Token) -> Parsed<()> {
    let (what, accepted) = match column.holds {
        Holds::Json => ("JSON is not compared", "is null, is not null, like"),
        Holds::Booleans if is_order => ("true and false have no order", "=, <>, in, is null, or the column alone"),
        Holds::Others | Holds::Printed if is_order => {
            ("values of this type have no order here", "=, <>, in, like, is null")
        }
        _ => return Ok(()),
    };
    Fault::new(token.span.clone(), format!("`{}`: {what}", column.name)).accepts(accepted).cut()
}
