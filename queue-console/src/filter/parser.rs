//! The grammar: `or` binds less than `and`, and `and` less than `not`.

use chrono::{DateTime, Utc};
use queue_core::internals::backend::Holds;
use winnow::Parser;
use winnow::combinator::{opt, peek, separated};
use winnow::error::ErrMode;
use winnow::stream::{Stateful, TokenSlice};
use winnow::token::any;

use super::column::{Column, Columns};
use super::condition::{Condition, Named, Operator, is_keyword};
use super::lexer::{Kind, Token, tokens};
use super::literal::{self, Literal};
use super::refused::{Fault, Parsed, Refused, shown};
use super::time;
use super::value::Value;

/// The longest text, in bytes.
const LONGEST_TEXT: usize = 64 * 1024;

/// How deep conditions may stand inside each other. The parser calls itself for each level.
const DEEPEST: usize = 64;

/// How many comparisons a condition may have. SQLite refuses expressions of more than 1,000 levels, and counts each `and` as one.
const MOST_COMPARISONS: usize = 500;

/// How many values a list may have.
const LONGEST_LIST: usize = 10_000;

type Tokens<'t> = Stateful<TokenSlice<'t, Token>, State<'t>>;

/// What the parser knows at each token.
#[derive(Debug, Clone)]
struct State<'t> {
    text: &'t str,
    columns: &'t Columns,
    now: DateTime<Utc>,
    depth: usize,
    comparisons: usize,
}

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
        let is_order = !matches!(operator, Operator::Equal | Operator::NotEqual);
        comparable(column, is_order, token)?;
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
        Holds::Others if is_order => {
            ("values of the application's own types have no order here", "=, <>, in, like, is null")
        }
        _ => return Ok(()),
    };
    Fault::new(token.span.clone(), format!("`{}`: {what}", column.name)).accepts(accepted).cut()
}

fn list(input: &mut Tokens<'_>, column: &Column) -> Parsed<Vec<Value>> {
    let token = next(input)?;
    if opt(symbol("(")).parse_next(input)?.is_none() {
        return Fault::new(token.span.clone(), "a list of values is missing here")
            .accepts("a list, as (1, 2, 3)")
            .cut();
    }
    let mut values = Vec::new();
    loop {
        let token = next(input)?;
        if values.len() == LONGEST_LIST {
            return Fault::new(token.span.clone(), format!("a list has at most {LONGEST_LIST} values")).cut();
        }
        values.push(value(input, column)?);
        if opt(symbol(",")).parse_next(input)?.is_some() {
            continue;
        }
        let token = next(input)?;
        if opt(symbol(")")).parse_next(input)?.is_none() {
            return Fault::new(token.span.clone(), "the list goes on or ends here").accepts("`,` or `)`").cut();
        }
        return Ok(values);
    }
}

fn pattern(input: &mut Tokens<'_>, column: &Column, like: &Token) -> Parsed<String> {
    if matches!(column.holds, Holds::Bytes | Holds::Booleans) {
        return Fault::new(like.span.clone(), format!("`{}` has no text that a pattern could match", column.name))
            .cut();
    }
    let token = next(input)?;
    let Kind::Text(pattern) = &token.kind else {
        return Fault::new(token.span.clone(), "a pattern is missing here")
            .accepts("a text in single quotes, as 'abc%': % stands for any text, _ for any character")
            .cut();
    };
    // PostgreSQL refuses it, and the others each do something else.
    if pattern.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1 {
        return Fault::new(token.span.clone(), "the backslash at the end of the pattern stands before nothing")
            .accepts("\\\\ for a backslash, \\% and \\_ for these characters themselves")
            .cut();
    }
    any.void().parse_next(input)?;
    Ok(pattern.clone())
}

fn value(input: &mut Tokens<'_>, column: &Column) -> Parsed<Value> {
    let first = next(input)?;
    let literal = literal(input, column)?;
    let span = first.span.start..end_before(input, first.span.end);
    let text = &input.state.text[span.clone()];
    literal::value(column, &literal, text, span).map_err(ErrMode::Cut)
}

/// Returns where the last token that was read ends.
fn end_before(input: &Tokens<'_>, or: usize) -> usize {
    input.input.previous_tokens().next().map_or(or, |token| token.span.end)
}

fn literal(input: &mut Tokens<'_>, column: &Column) -> Parsed<Literal> {
    let token = take(input)?;
    let refuse = |message: String| Fault::new(token.span.clone(), message);
    match &token.kind {
        Kind::Number(number) => Ok(Literal::Number(number.clone())),
        Kind::Text(text) => Ok(Literal::Text(text.clone())),
        Kind::Bytes(bytes) => Ok(Literal::Bytes(bytes.clone())),
        Kind::Symbol(sign @ ("-" | "+")) => {
            let token = take(input)?;
            match &token.kind {
                Kind::Number(number) if *sign == "-" => Ok(Literal::Number(format!("-{number}"))),
                Kind::Number(number) => Ok(Literal::Number(number.clone())),
                _ => Fault::new(token.span.clone(), "a number is missing here").cut(),
            }
        }
        Kind::Duration(_) => refuse("this is no value".to_owned()).accepts("a time, as now() - 2h").cut(),
        Kind::Word(word) if word.eq_ignore_ascii_case("true") => Ok(Literal::Boolean(true)),
        Kind::Word(word) if word.eq_ignore_ascii_case("false") => Ok(Literal::Boolean(false)),
        Kind::Word(word) if word.eq_ignore_ascii_case("null") => {
            refuse("no value equals null, not even null".to_owned()).accepts("`is null`, `is not null`").cut()
        }
        Kind::Word(word) if word.eq_ignore_ascii_case("now") => now(input),
        Kind::Word(word) | Kind::Name(word) if input.state.columns.bare(word).is_some() => {
            refuse(format!("`{}` is compared with values, not with another column", column.name)).cut()
        }
        Kind::Word(word) | Kind::Name(word) => {
            let text = format!("'{}'", shown(word));
            refuse(format!("`{}` is no value; a text stands in single quotes: {text}", shown(word))).cut()
        }
        Kind::Symbol(_) | Kind::End => {
            refuse("a value is missing here".to_owned()).accepts(literal::accepted(column)).cut()
        }
    }
}

/// Reads the rest of `now() - 1d + 2h`.
fn now(input: &mut Tokens<'_>) -> Parsed<Literal> {
    for parenthesis in ["(", ")"] {
        let token = next(input)?;
        if opt(symbol(parenthesis)).parse_next(input)?.is_none() {
            return Fault::new(token.span.clone(), "`now` is a function without arguments").accepts("now()").cut();
        }
    }
    let mut time = input.state.now;
    loop {
        let is_later = opt(symbol("+")).parse_next(input)?.is_some();
        if !is_later && opt(symbol("-")).parse_next(input)?.is_none() {
            let Some(time) = time::in_range(time) else { return out_of_range(input) };
            return Ok(Literal::Time(time));
        }
        let token = take(input)?;
        let duration = match &token.kind {
            Kind::Duration(text) => time::duration(text),
            _ => None,
        };
        let Some(duration) = duration else {
            return Fault::new(token.span.clone(), "a length of time is missing here")
                .accepts("numbers with the units ms, s, m, h, d, w, y, as 2h, 30m or 1d12h")
                .cut();
        };
        let sum = if is_later { time.checked_add_signed(duration) } else { time.checked_sub_signed(duration) };
        let Some(sum) = sum else { return out_of_range(input) };
        time = sum;
    }
}

fn out_of_range(input: &Tokens<'_>) -> Parsed<Literal> {
    let span = input.input.previous_tokens().next().map_or(0..0, |token| token.span.clone());
    Fault::new(span, "this time is not in the years 1 to 9999").cut()
}

/// Returns the token that comes next. The last one is [`Kind::End`], which nobody takes.
fn next<'t>(input: &mut Tokens<'t>) -> Parsed<&'t Token> {
    peek(any).parse_next(input)
}

/// Takes the token that comes next, unless it is the end.
fn take<'t>(input: &mut Tokens<'t>) -> Parsed<&'t Token> {
    let token = next(input)?;
    if token.kind != Kind::End {
        any.void().parse_next(input)?;
    }
    Ok(token)
}

fn expect(input: &mut Tokens<'_>, keyword: &'static str, accepted: &str) -> Parsed<()> {
    let token = next(input)?;
    match opt(word(keyword)).parse_next(input)? {
        Some(()) => Ok(()),
        None => Fault::new(token.span.clone(), format!("`{keyword}` is missing here")).accepts(accepted).cut(),
    }
}

fn word<'t>(word: &'static str) -> impl Parser<Tokens<'t>, (), ErrMode<Fault>> {
    any.verify(move |token: &Token| token.is_word(word)).void()
}

fn symbol<'t>(symbol: &'static str) -> impl Parser<Tokens<'t>, (), ErrMode<Fault>> {
    any.verify(move |token: &Token| token.is_symbol(symbol)).void()
}
