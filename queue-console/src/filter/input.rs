//! The tokens that a parser reads, and its steps along them.

use chrono::{DateTime, Utc};
use winnow::Parser;
use winnow::combinator::{opt, peek};
use winnow::error::ErrMode;
use winnow::stream::{Stateful, TokenSlice};
use winnow::token::any;

use super::column::Columns;
use super::lexer::{Kind, Token};
use super::refused::{Fault, Parsed};

pub(super) type Tokens<'t> = Stateful<TokenSlice<'t, Token>, State<'t>>;

/// What the parser knows at each token.
#[derive(Debug, Clone)]
pub(super) struct State<'t> {
    pub(super) text: &'t str,
    pub(super) columns: &'t Columns,
    pub(super) now: DateTime<Utc>,
    pub(super) depth: usize,
    pub(super) comparisons: usize,
}

/// Returns the token that comes next. The last one is [`Kind::End`], which nobody takes.
pub(super) fn next<'t>(input: &mut Tokens<'t>) -> Parsed<&'t Token> {
    peek(any).parse_next(input)
}

/// Takes the token that comes next, unless it is the end.
pub(super) fn take<'t>(input: &mut Tokens<'t>) -> Parsed<&'t Token> {
    let token = next(input)?;
    if token.kind != Kind::End {
        any.void().parse_next(input)?;
    }
    Ok(token)
}

pub(super) fn expect(input: &mut Tokens<'_>, keyword: &'static str, accepted: &str) -> Parsed<()> {
    let token = next(input)?;
    match opt(word(keyword)).parse_next(input)? {
        Some(()) => Ok(()),
        None => Fault::new(token.span.clone(), format!("`{keyword}` is missing here")).accepts(accepted).cut(),
    }
}

pub(super) fn word<'t>(word: &'static str) -> impl Parser<Tokens<'t>, (), ErrMode<Fault>> {
    any.verify(move |token: &Token| token.is_word(word)).void()
}

pub(super) fn symbol<'t>(symbol: &'static str) -> impl Parser<Tokens<'t>, (), ErrMode<Fault>> {
    any.verify(move |token: &Token| token.is_symbol(symbol)).void()
}
