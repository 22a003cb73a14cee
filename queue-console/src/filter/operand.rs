//! What stands behind a comparison: values, lists of them, and patterns.

use queue_core::internals::backend::Holds;
use winnow::Parser;
use winnow::combinator::opt;
use winnow::error::ErrMode;
use winnow::token::any;

use super::column::Column;
use super::input::{Tokens, next, symbol, take};
use super::lexer::{Kind, Token};
use super::literal::{self, Literal};
use super::refused::{Fault, Parsed, shown};
use super::time;
use super::value::Value;

/// How many values a list may have.
const LONGEST_LIST: usize = 10_000;

pub(super) fn list(input: &mut Tokens<'_>, column: &Column) -> Parsed<Vec<Value>> {
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

pub(super) fn pattern(input: &mut Tokens<'_>, column: &Column, like: &Token) -> Parsed<String> {
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

pub(super) fn value(input: &mut Tokens<'_>, column: &Column) -> Parsed<Value> {
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
        Kind::Name(text) if column.values.is_some() && !text.contains('\0') => Ok(Literal::AnyText(text.clone())),
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
