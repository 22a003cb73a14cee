//! Cuts the text into tokens.

use std::ops::Range;

use winnow::Parser;
use winnow::ascii::{digit1, multispace0};
use winnow::combinator::{alt, delimited, eof, fail, opt, preceded, repeat, terminated};
use winnow::stream::{LocatingSlice, Location, Stream};
use winnow::token::{any, one_of, take_while};

use super::refused::{Fault, Parsed, shown};

type Input<'a> = LocatingSlice<&'a str>;

/// A word of the language, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) span: Range<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A name or a keyword.
    Word(String),
    /// A name in double quotes or backticks.
    Name(String),
    /// A text in single quotes.
    Text(String),
    /// Bytes: `x'0a0b'`.
    Bytes(Vec<u8>),
    /// A number without its sign.
    Number(String),
    /// A length of time: `1d12h`.
    Duration(String),
    /// An operator or punctuation.
    Symbol(&'static str),
    /// The end of the text.
    End,
}

/// Longer symbols first.
const SYMBOLS: [&str; 13] = ["<>", "!=", "<=", ">=", "=", "<", ">", "(", ")", ",", "+", "-", "."];

impl Token {
    pub(super) fn is_symbol(&self, symbol: &str) -> bool {
        matches!(self.kind, Kind::Symbol(found) if found == symbol)
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(&self.kind, Kind::Word(found) if found.eq_ignore_ascii_case(word))
    }
}

impl Location for Token {
    fn previous_token_end(&self) -> usize {
        self.span.end
    }

    fn current_token_start(&self) -> usize {
        self.span.start
    }
}

/// Returns the text's tokens, with [`Kind::End`] as the last one.
pub(super) fn tokens(text: &str) -> Parsed<Vec<Token>> {
    let mut input = LocatingSlice::new(text);
    let mut tokens: Vec<Token> =
        preceded(multispace0, repeat(0.., terminated(token, multispace0))).parse_next(&mut input)?;
    if eof::<_, winnow::error::ErrMode<Fault>>.parse_next(&mut input).is_err() {
        return unknown(&input).cut();
    }
    tokens.push(Token { kind: Kind::End, span: text.len()..text.len() });
    Ok(tokens)
}

fn token(input: &mut Input<'_>) -> Parsed<Token> {
    alt((bytes, word, name, text, number, symbol))
        .with_span()
        .map(|(kind, span)| Token { kind, span })
        .parse_next(input)
}

/// Tells whether a word without quotes may begin so.
pub(super) fn begins_word(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

/// Tells whether a word without quotes may go on so.
pub(super) fn continues_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

fn word(input: &mut Input<'_>) -> Parsed<Kind> {
    (one_of(begins_word), take_while(0.., continues_word))
        .take()
        .map(|word: &str| Kind::Word(word.to_owned()))
        .parse_next(input)
}

fn name(input: &mut Input<'_>) -> Parsed<Kind> {
    alt((between('"'), between('`'))).map(Kind::Name).parse_next(input)
}

fn text(input: &mut Input<'_>) -> Parsed<Kind> {
    let from = input.current_token_start();
    let text = between('\'').parse_next(input)?;
    if text.contains('\0') {
        let span = from..input.current_token_start();
        return Fault::new(span, "a text has no null bytes: not every database can store them").cut();
    }
    Ok(Kind::Text(text))
}

/// Reads what stands between two quotes. Inside, a doubled quote stands for one.
fn between<'a>(quote: char) -> impl Parser<Input<'a>, String, winnow::error::ErrMode<Fault>> {
    move |input: &mut Input<'a>| {
        let from = input.current_token_start();
        one_of(quote).void().parse_next(input)?;
        let mut inside = String::new();
        loop {
            inside.push_str(take_while(0.., |c| c != quote).parse_next(input)?);
            if opt(one_of(quote)).parse_next(input)?.is_none() {
                return Fault::new(from..from + 1, format!("this {quote} has no end"))
                    .accepts(format!("a second {quote}; inside, a doubled {quote}{quote} stands for one"))
                    .cut();
            }
            if opt(one_of(quote)).parse_next(input)?.is_none() {
                return Ok(inside);
            }
            inside.push(quote);
        }
    }
}

fn bytes(input: &mut Input<'_>) -> Parsed<Kind> {
    let from = input.current_token_start();
    let digits =
        preceded(one_of(['x', 'X']), delimited('\'', take_while(0.., |c| c != '\''), '\'')).parse_next(input)?;
    match unhex(digits) {
        Some(bytes) => Ok(Kind::Bytes(bytes)),
        None => Fault::new(from..input.current_token_start(), "these are no bytes")
            .accepts("an even number of hexadecimal digits, as x'0a0b'")
            .cut(),
    }
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.chars().map(|c| c.to_digit(16)).collect::<Option<Vec<_>>>()?;
    let pairs = digits.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(|pair| u8::try_from(pair[0] * 16 + pair[1]).ok()).collect()
}

/// Reads a number, or a length of time, which begins with a number too.
fn number(input: &mut Input<'_>) -> Parsed<Kind> {
    let start = input.checkpoint();
    let exponent = (one_of(['e', 'E']), opt(one_of(['+', '-'])), digit1);
    let number: &str = (digit1, opt(('.', digit1)), opt(exponent)).take().parse_next(input)?;
    let rest: &str = take_while(0.., continues_word).parse_next(input)?;
    if rest.is_empty() {
        return Ok(Kind::Number(number.to_owned()));
    }
    input.reset(&start);
    take_while(1.., |c| continues_word(c) || c == '.')
        .map(|word: &str| Kind::Duration(word.to_owned()))
        .parse_next(input)
}

fn symbol(input: &mut Input<'_>) -> Parsed<Kind> {
    let from = input.current_token_start();
    if opt(alt(("--", "/*"))).parse_next(input)?.is_some() {
        return Fault::new(from..from + 2, "a condition has no comments").cut();
    }
    for symbol in SYMBOLS {
        if opt(symbol).parse_next(input)?.is_some() {
            return Ok(Kind::Symbol(symbol));
        }
    }
    fail.parse_next(input)
}

/// Says that no token begins at this place.
fn unknown(input: &Input<'_>) -> Fault {
    let at = input.current_token_start();
    let mut rest = *input;
    let c = any::<_, Fault>.parse_next(&mut rest).unwrap_or(' ');
    let fault = Fault::new(at..at + c.len_utf8(), format!("`{}` has no meaning here", shown(&c.to_string())));
    match c {
        ';' => fault.accepts("one condition, without a semicolon"),
        '‘' | '’' | '´' => fault.accepts("texts between straight quotes, as 'abc'"),
        '“' | '”' | '„' => fault.accepts("texts between straight single quotes, as 'abc'"),
        '!' => fault.accepts("`not` before a condition, `<>` or `!=` between a column and a value"),
        '&' => fault.accepts("`and`"),
        '|' => fault.accepts("`or`"),
        _ => fault.accepts(
            "columns, values, =, <>, !=, <, <=, >, >=, in, between, like, is null, and, or, not, parentheses, now()",
        ),
    }
}
