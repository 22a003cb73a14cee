//! Parse: one item of the attribute, and what the user probably meant by an item that cannot be read.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Error, Ident, LitStr, Meta, Result, Token};

use super::value::{unexpected, with_help};

/// One `key`, `key = value` or `key(value, ..)`. The value is read when the key is known, so that a mistake in one item does
/// not affect the others.
pub(crate) struct Item {
    pub(crate) key: Ident,
    equals: bool,
    value: TokenStream,
}

/// How an item is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `key`
    Flag,
    /// `key(value, ..)`
    List,
    /// `key = value`
    Value,
}

type Read<T> = fn(ParseStream<'_>) -> Result<T>;

impl Item {
    /// Reads the items of an attribute. It reports what is no item.
    pub(crate) fn all(attribute: &Attribute, errors: &mut Vec<Error>) -> Vec<Self> {
        let mut items = Vec::new();
        let result = match &attribute.meta {
            Meta::List(list) => list.parse_args_with(|input: ParseStream<'_>| {
                while !input.is_empty() {
                    items.push(Item::read(input)?);
                }
                Ok(())
            }),
            meta => Err(Error::new_spanned(meta, "expected a list: `#[queue(key = value, ..)]`")),
        };
        errors.extend(result.err());
        items
    }

    /// Reads one item. No value contains a comma outside parentheses, so an item ends at the next one.
    fn read(input: ParseStream<'_>) -> Result<Self> {
        if !input.peek(Ident::peek_any) {
            return Err(unexpected(input, "a key such as `retry`"));
        }
        let key = input.call(Ident::parse_any)?;
        let equals = input.parse::<Option<Token![=]>>()?.is_some();
        let mut value = TokenStream::new();
        while !input.is_empty() && !input.peek(Token![,]) {
            value.extend([input.parse::<TokenTree>()?]);
        }
        input.parse::<Option<Token![,]>>()?;
        Ok(Item { key, equals, value })
    }

    pub(crate) fn form(&self) -> Form {
        let is_list =
            |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis);
        match self.value.clone().into_iter().next() {
            _ if self.equals => Form::Value,
            None => Form::Flag,
            Some(token) if is_list(&token) => Form::List,
            Some(_) => Form::Value,
        }
    }

    /// Tells whether it is `key = true` or `key = false`.
    pub(crate) fn is_switch(&self) -> bool {
        self.equals && matches!(self.value.to_string().as_str(), "true" | "false")
    }

    /// Tells whether a `=` follows the key.
    pub(crate) fn is_assigned(&self) -> bool {
        self.equals
    }

    /// Returns this item with another one inside: `group(50, optimistic)`, `retry = fixed("10s", max = "1h")`.
    pub(crate) fn with(&self, inner: &Item) -> String {
        let inner_text = inner.text();
        match self.text().strip_suffix(')') {
            Some(open) => format!("{open}, {inner_text})"),
            None if self.form() == Form::Flag => format!("{}({inner_text})", self.key),
            None => format!("{}({}, {inner_text})", self.key, text(self.value.clone())),
        }
    }

    fn text(&self) -> String {
        let (key, value) = (&self.key, text(self.value.clone()));
        if self.equals { format!("{key} = {value}") } else { format!("{key}{value}") }
    }

    /// Reads `key = value`.
    pub(crate) fn value<T>(&self, read: Read<T>) -> Result<T> {
        self.read_as(&[Form::Value], "a value", read)
    }

    /// Reads `key(value, ..)`.
    pub(crate) fn list<T>(&self, read: Read<T>) -> Result<T> {
        self.read_as(&[Form::List], "a list", read)
    }

    /// Reads `key = value` or `key(value, ..)`.
    pub(crate) fn value_or_list<T>(&self, read: Read<T>) -> Result<T> {
        self.read_as(&[Form::Value, Form::List], "a value", read)
    }

    fn read_as<T>(&self, forms: &[Form], wanted: &str, read: Read<T>) -> Result<T> {
        let form = self.form();
        let has_value = self.form() == Form::List || self.equals && !self.value.is_empty();
        if !forms.contains(&form) || !has_value {
            let example = self.meant(forms, read).unwrap_or_else(|| example(&self.key.to_string()));
            return Err(Error::new(self.key.span(), format!("expected {wanted}: `{example}`")));
        }
        parse(form, self.value.clone(), read).map_err(|error| match self.meant(forms, read) {
            Some(meant) => with_help(error, &format!("write `{meant}`")),
            None => error,
        })
    }

    /// Returns the item as it was probably meant: in another form, without quotes, without the table before a column. Only
    /// what can be read is a good guess.
    fn meant<T>(&self, forms: &[Form], read: Read<T>) -> Option<String> {
        let value = match self.form() {
            Form::List => inside(&self.value)?,
            Form::Flag | Form::Value => self.value.clone(),
        };
        [value.clone(), without_quotes(value.clone()), without_paths(without_quotes(value))].into_iter().find_map(
            |value| {
                let is_read = |form: &&Form| match form {
                    Form::Flag => false,
                    Form::List => parse_list(quote::quote!((#value)), read).is_ok(),
                    Form::Value => parse_value(value.clone(), read).is_ok(),
                };
                // As it is written, if that can be read, and otherwise in the form that comes first.
                let form =
                    forms.iter().find(|form| **form == self.form() && is_read(form)).or(forms.iter().find(is_read))?;
                let (key, value) = (&self.key, text(value));
                Some(if *form == Form::List { format!("{key}({value})") } else { format!("{key} = {value}") })
            },
        )
    }

    pub(crate) fn repeated(&self) -> Error {
        let key = &self.key;
        let message = format!("`{key}` is given twice\nhelp: every key of `#[queue(..)]` may stand once, remove one");
        Error::new(key.span(), message)
    }
}

fn parse<T>(form: Form, value: TokenStream, read: Read<T>) -> Result<T> {
    if form == Form::List { parse_list(value, read) } else { parse_value(value, read) }
}

fn parse_value<T>(value: TokenStream, read: Read<T>) -> Result<T> {
    let whole = |input: ParseStream<'_>| {
        let value = read(input)?;
        if input.is_empty() { Ok(value) } else { Err(unexpected(input, "`,`")) }
    };
    whole.parse2(value)
}

fn parse_list<T>(value: TokenStream, read: Read<T>) -> Result<T> {
    let whole = |input: ParseStream<'_>| {
        let list;
        syn::parenthesized!(list in input);
        let value = read(&list)?;
        if !list.is_empty() {
            return Err(unexpected(&list, "`)`"));
        }
        if input.is_empty() { Ok(value) } else { Err(unexpected(input, "`,`")) }
    };
    whole.parse2(value)
}

/// Returns what stands in the parentheses with which a list begins and ends.
fn inside(list: &TokenStream) -> Option<TokenStream> {
    let mut tokens = list.clone().into_iter();
    match (tokens.next()?, tokens.next()) {
        (TokenTree::Group(group), None) => Some(group.stream()),
        _ => None,
    }
}

/// Replaces each text in quotes by what it says.
pub(crate) fn without_quotes(tokens: TokenStream) -> TokenStream {
    let unquoted = |token: TokenTree| match &token {
        TokenTree::Literal(_) => match syn::parse2::<LitStr>(token.clone().into()) {
            Ok(text) => text.value().parse().unwrap_or_else(|_| token.into()),
            Err(_) => token.into(),
        },
        TokenTree::Group(group) => {
            TokenTree::from(Group::new(group.delimiter(), without_quotes(group.stream()))).into()
        }
        _ => TokenStream::from(token),
    };
    tokens.into_iter().map(unquoted).collect()
}

/// Replaces each path by its last segment.
fn without_paths(tokens: TokenStream) -> TokenStream {
    let mut kept: Vec<TokenTree> = Vec::new();
    for token in tokens {
        let is_colon = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ':');
        match token {
            TokenTree::Ident(_) if kept.last().is_some_and(is_colon) => {
                while kept.last().is_some_and(|before| is_colon(before) || matches!(before, TokenTree::Ident(_))) {
                    kept.pop();
                }
                kept.push(token);
            }
            TokenTree::Group(group) => kept.push(Group::new(group.delimiter(), without_paths(group.stream())).into()),
            token => kept.push(token),
        }
    }
    kept.into_iter().collect()
}

/// Writes tokens as a user would: `exponential("10s", max = "1h")`.
fn text(tokens: TokenStream) -> String {
    let (mut text, mut after_word) = (String::new(), false);
    for token in tokens {
        let is_word = matches!(token, TokenTree::Ident(_) | TokenTree::Literal(_));
        text += match &token {
            _ if is_word && after_word => " ",
            TokenTree::Punct(punct) if punct.as_char() == '=' => " ",
            _ => "",
        };
        match &token {
            TokenTree::Group(group) => text += &format!("({})", self::text(group.stream())),
            TokenTree::Punct(punct) if matches!(punct.as_char(), ',' | '=') => text += &format!("{punct} "),
            token => text += &token.to_string(),
        }
        after_word = is_word;
    }
    text.trim_end().to_owned()
}

/// Returns an item with this key that can be read.
fn example(key: &str) -> String {
    let value = match key {
        "crate" => "my_app::queueable",
        "prefix" => r#""charge_""#,
        "module" => "charge_queue",
        "retry" => r#"exponential("10s")"#,
        "max_tries" => "10",
        "timeout" => r#""30s""#,
        "lease" => r#""60s""#,
        "group" => "50",
        "order_in_group" => "company_id",
        "order_by" => "due_date",
        "claim_if" => r#""payments::state.eq(State::Approved)""#,
        "stage" => "InvoiceStage",
        "version" => "content_version",
        "on_success" => "delete",
        "serial_by" | "fair_by" | "report_index" => "company_id",
        "at_most" => return "at_most(3, by = company_id)".to_owned(),
        "wake" => "notify",
        "periodic" => return "periodic(missed = once)".to_owned(),
        "timestamps" => return "timestamps(begin, end)".to_owned(),
        "window" => r#""Mon-Fri 22:00-06:00 Europe/Berlin""#,
        "rerun_on_change" => return "rerun_on_change(title, body)".to_owned(),
        "archive" => return "archive(success = payments_done, failed = payments_failed)".to_owned(),
        "keep" => return r#"keep(success = "30d", failed = "1y")"#.to_owned(),
        column => return format!(r#"{column} = "charge_{column}""#),
    };
    format!("{key} = {value}")
}
