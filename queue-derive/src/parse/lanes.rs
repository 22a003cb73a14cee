//! Parse: the values of the keys that schedule rows by a column, or limit how many run.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Error, Ident, Result, Token};

use super::suggest::unknown;
use super::value::{arguments, column, unexpected, whole_number, with_help};

/// The column whose values' messages run one after the other.
pub(crate) struct SerialBy {
    pub(crate) column: Ident,
    /// Where `strict` stands, by which a message that waits for its retry holds back those behind it.
    pub(crate) strict: Option<Span>,
}

/// How many messages run at the same time, of the whole queue or of each value of a column.
pub(crate) struct AtMost {
    pub(crate) number: u32,
    pub(crate) by: Option<Ident>,
}

/// Reads `company_id` or `company_id, strict`.
pub(crate) fn serial_by(input: ParseStream<'_>) -> Result<SerialBy> {
    let column = column(input, "company_id")?;
    let mut strict = None;
    if !input.is_empty() {
        input.parse::<Token![,]>().map_err(|_| unexpected(input, "`,` or `)`"))?;
    }
    if !input.is_empty() {
        let word = input.call(Ident::parse_any).map_err(|_| unexpected(input, "`strict`"))?;
        if word != "strict" {
            return Err(unknown("argument", &word, &["strict"]));
        }
        strict = Some(word.span());
        input.parse::<Option<Token![,]>>()?;
    }
    match input.is_empty() {
        true => Ok(SerialBy { column, strict }),
        false => Err(unexpected(input, "`)`")),
    }
}

/// Reads `company_id`.
pub(crate) fn fair_by(input: ParseStream<'_>) -> Result<Ident> {
    let column = column(input, "company_id")?;
    let after = input.fork();
    if after.parse::<Token![,]>().is_ok() && after.peek(Ident::peek_any) {
        let word = after.call(Ident::parse_any)?;
        let message = format!(
            "`fair_by` takes a column and nothing else\n             help: write `fair_by = {column}`; `strict` belongs to `serial_by({column}, strict)`"
        );
        return Err(Error::new(word.span(), message));
    }
    Ok(column)
}

/// The largest number of messages that run at the same time: beyond it, the search for a free place costs more than a
/// short message.
const MOST_AT_ONCE: u32 = 1_000;

/// Reads `3` or `3, by = company_id`.
pub(crate) fn at_most(input: ParseStream<'_>) -> Result<AtMost> {
    let number = whole_number(input, 1, MOST_AT_ONCE).map_err(|error| match input.fork().call(Ident::parse_any) {
        Ok(column) => with_help(error, &format!("write `at_most(3, by = {column})`")),
        Err(_) => error,
    })?;
    let mut by = None;
    arguments(input, true, &["by"], |_, input| {
        by = Some(column(input, "company_id")?);
        Ok(())
    })?;
    Ok(AtMost { number, by })
}
