//! Parse: the queue's own attribute, `#[queue(..)]`.

use std::time::Duration;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Data, DeriveInput, Error, Ident, Meta, Path, Result, Token};

use super::kinds::{self, Archive, Kinds, OPTIONAL_COLUMNS, Occasion, Periodic, Priority};
use super::suggest;
use super::value::{self, Group, Retry, Written};

/// The queue's columns: their default names, which are also the keys that rename them.
pub(crate) const COLUMNS: [&str; 5] =
    ["status", "next_attempt_time", "try_count", "last_attempt_time", "last_attempt_error_message"];

/// The other keys.
const SETTINGS: [&str; 26] = [
    "crate",
    "prefix",
    "module",
    "retry",
    "max_tries",
    "timeout",
    "lease",
    "group",
    "order_in_group",
    "order_by",
    "priority",
    "claim_if",
    "stage",
    "periodic",
    "version",
    "rerun_on_change",
    "occasion",
    "timestamps",
    "on_success",
    "archive",
    "window",
    "exclusive",
    "serial_by",
    "at_most",
    "fair_by",
    "wake",
];

/// Other words for keys: former names of theirs, and the words of other job frameworks.
const OTHER_WORDS: [(&str, &str); 19] = [
    ("attempts", "max_tries"),
    ("backoff", "retry"),
    ("batch", "group"),
    ("budget", "timeout"),
    ("concurrency", "at_most"),
    ("condition", "claim_if"),
    ("fair", "fair_by"),
    ("group_by", "order_in_group"),
    ("guard", "claim_if"),
    ("limit", "at_most"),
    ("max_attempts", "max_tries"),
    ("max_retries", "max_tries"),
    ("metrics", "timestamps"),
    ("occurrence", "occasion"),
    ("rerun_on", "rerun_on_change"),
    ("schedule", "periodic"),
    ("serial", "serial_by"),
    ("singleton", "exclusive"),
    ("when", "claim_if"),
];

/// What the `#[queue(..)]` attributes of a struct say.
#[derive(Default)]
pub(crate) struct Attributes {
    /// Where the library is, if not at `::queueable`.
    pub(crate) crate_path: Option<Path>,
    pub(crate) prefix: Option<Written<String>>,
    /// The names that were given, in the order of [`COLUMNS`].
    pub(crate) columns: [Option<Written<String>>; 5],
    pub(crate) module: Option<Ident>,
    pub(crate) retry: Option<Retry>,
    pub(crate) max_tries: Option<u32>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) lease: Option<Written<Duration>>,
    pub(crate) group: Option<Written<Group>>,
    pub(crate) order_in_group: Option<Ident>,
    pub(crate) kinds: Kinds,
}

impl Attributes {
    /// Reads every `#[queue(..)]` of the struct. It reports and leaves out what it cannot read.
    pub(crate) fn parse(input: &DeriveInput, errors: &mut Vec<Error>) -> Self {
        let mut attributes = Attributes::default();
        let mut seen = Vec::new();
        for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("queue")) {
            for item in items(attribute, errors) {
                // Of the whole queue, and by a column.
                let known = item.key != "at_most" && seen.contains(&item.key);
                let result = if known { Err(item.repeated()) } else { attributes.set(&item) };
                errors.extend(result.err());
                seen.push(item.key);
            }
        }
        refuse_on_fields(&input.data, errors);
        attributes
    }

    fn set(&mut self, item: &Item) -> Result<()> {
        let key = item.key.to_string();
        if let Some(column) = COLUMNS.iter().position(|name| *name == key) {
            self.columns[column] = Some(item.parse(value::column_name)?);
            return Ok(());
        }
        match key.as_str() {
            "crate" => self.crate_path = Some(item.parse(value::crate_path)?),
            "prefix" => self.prefix = Some(item.parse(value::prefix)?),
            "module" => self.module = Some(item.parse(value::module)?),
            "retry" => self.retry = Some(item.parse(value::retry)?),
            "max_tries" => self.max_tries = Some(item.parse(value::max_tries)?),
            "timeout" => self.timeout = Some(item.parse(value::timeout)?),
            "lease" => self.lease = Some(item.parse(value::lease)?),
            "group" => {
                let group =
                    if item.is_list() { item.parse_list(value::group_list)? } else { item.parse(value::group)? };
                self.group = Some(Written { value: group, span: item.key.span() });
            }
            "order_in_group" => self.order_in_group = Some(item.parse(value::order_in_group)?),
            "optimistic" => {
                let message = "`optimistic` belongs to the group\nhelp: write `group(50, optimistic)`";
                return Err(Error::new(item.key.span(), message));
            }
            _ => return self.set_kind(&key, item),
        }
        Ok(())
    }

    fn set_kind(&mut self, key: &str, item: &Item) -> Result<()> {
        let kinds = &mut self.kinds;
        let span = item.key.span();
        if let Some(column) = OPTIONAL_COLUMNS.iter().position(|(name, ..)| *name == key) {
            kinds.columns[column] = Some(item.parse(value::column_name)?);
            return Ok(());
        }
        match key {
            "order_by" => kinds.order_by = Some(item.parse_either(kinds::order_by)?),
            "priority" => {
                let (name, age) = match item.form() {
                    Form::Flag => (None, None),
                    Form::List => item.parse_list(kinds::priority_list)?,
                    Form::Value => (Some(item.parse(kinds::priority_name)?), None),
                };
                kinds.priority = Some(Priority { name, age });
            }
            "claim_if" => kinds.claim_if = Some(item.parse(kinds::claim_if)?),
            "stage" => kinds.stage = Some(item.parse(kinds::stage)?),
            "periodic" => {
                let missed = if item.is_flag() { kinds::ONCE } else { item.parse_list_only(kinds::periodic_list)? };
                kinds.periodic = Some(Periodic { span, missed });
            }
            "version" => kinds.version = Some(item.parse(kinds::column)?),
            "rerun_on_change" => kinds.rerun_on_change = Some((span, item.parse_list_only(kinds::columns)?)),
            "occasion" => {
                let name = match item.form() {
                    Form::Flag => None,
                    Form::Value => Some(item.parse(value::column_name)?),
                    Form::List => {
                        let message = "`occasion` stands alone, or with the name of its column\n\
                                       help: write `occasion`, or `occasion = \"charge_number\"`";
                        return Err(Error::new(span, message));
                    }
                };
                kinds.occasion = Some(Occasion { name });
            }
            "timestamps" => {
                let kept = if item.is_flag() { [true; 4] } else { item.parse_list_only(kinds::timestamps_list)? };
                kinds.timestamps = Some(kept);
            }
            "on_success" => kinds.on_success_delete = item.parse(kinds::on_success)?,
            "archive" => {
                let [success, failed] = item.parse_list_only(kinds::archive_list)?;
                kinds.archive = Some(Archive { span, success, failed });
            }
            "window" => kinds.window = Some(item.parse(kinds::window)?),
            "serial_by" => kinds.serial_by = Some(item.parse_either(kinds::serial_by)?),
            "fair_by" => kinds.fair_by = Some(item.parse_either(kinds::column)?),
            "at_most" => kinds.at_most.push((span, item.parse_either(kinds::at_most)?)),
            "wake" => kinds.notify = item.parse(kinds::wake)?,
            "exclusive" if item.is_flag() => kinds.exclusive = Some(span),
            "exclusive" => return Err(Error::new(span, "`exclusive` stands alone, without a value")),
            _ => {
                let renamed = OPTIONAL_COLUMNS.map(|(key, ..)| key);
                let accepted = [&SETTINGS[..], &COLUMNS, &renamed].concat();
                return Err(suggest::unknown_among("key", &item.key, &accepted, &OTHER_WORDS));
            }
        }
        Ok(())
    }
}

/// One `key = value`. The value is parsed when the key is known, so that a mistake in one item does not affect the
/// others.
struct Item {
    key: Ident,
    equals: bool,
    value: TokenStream,
}

impl Item {
    fn parse<T>(&self, parser: fn(ParseStream<'_>) -> Result<T>) -> Result<T> {
        if !self.equals || self.value.is_empty() {
            let message = format!("expected a value: `{}`", example(&self.key.to_string()));
            return Err(Error::new(self.key.span(), message));
        }
        let whole = |input: ParseStream<'_>| {
            let value = parser(input)?;
            if input.is_empty() { Ok(value) } else { Err(value::unexpected(input, "`,`")) }
        };
        whole.parse2(self.value.clone())
    }

    /// Reads `key = value` or `key(value, ..)`.
    fn parse_either<T>(&self, parser: fn(ParseStream<'_>) -> Result<T>) -> Result<T> {
        if self.is_list() { self.parse_list(parser) } else { self.parse(parser) }
    }

    /// Reads `key(value, ..)`.
    fn parse_list_only<T>(&self, parser: fn(ParseStream<'_>) -> Result<T>) -> Result<T> {
        if self.is_list() {
            return self.parse_list(parser);
        }
        let message = format!("expected a list: `{}`", example(&self.key.to_string()));
        Err(Error::new(self.key.span(), message))
    }

    fn form(&self) -> Form {
        if self.is_flag() {
            Form::Flag
        } else if self.is_list() {
            Form::List
        } else {
            Form::Value
        }
    }

    /// Tells whether it is a key alone.
    fn is_flag(&self) -> bool {
        !self.equals && self.value.is_empty()
    }

    /// Tells whether it is `key(value, ..)`.
    fn is_list(&self) -> bool {
        let delimiter =
            |token: TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis);
        !self.equals && self.value.clone().into_iter().next().is_some_and(delimiter)
    }

    fn parse_list<T>(&self, parser: fn(ParseStream<'_>) -> Result<T>) -> Result<T> {
        let whole = |input: ParseStream<'_>| {
            let list;
            syn::parenthesized!(list in input);
            let value = parser(&list)?;
            if !list.is_empty() {
                return Err(value::unexpected(&list, "`)`"));
            }
            if input.is_empty() { Ok(value) } else { Err(value::unexpected(input, "`,`")) }
        };
        whole.parse2(self.value.clone())
    }

    fn repeated(&self) -> Error {
        let key = &self.key;
        Error::new(
            key.span(),
            format!("`{key}` is given twice\nhelp: every key of `#[queue(..)]` may stand once, remove one"),
        )
    }
}

/// How an item is written.
enum Form {
    Flag,
    List,
    Value,
}

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
        "serial_by" | "fair_by" => "company_id",
        "at_most" => return "at_most(3, by = company_id)".to_owned(),
        "wake" => "notify",
        "window" => r#""Mon-Fri 22:00-06:00 Europe/Berlin""#,
        "periodic" => return "periodic(missed = once)".to_owned(),
        "rerun_on_change" => return "rerun_on_change(title, body)".to_owned(),
        "timestamps" => return "timestamps(begin, end)".to_owned(),
        "archive" => return "archive(success = payments_done, failed = payments_failed)".to_owned(),
        column => return format!(r#"{column} = "charge_{column}""#),
    };
    format!("{key} = {value}")
}

fn items(attribute: &Attribute, errors: &mut Vec<Error>) -> Vec<Item> {
    let mut items = Vec::new();
    let result = match &attribute.meta {
        Meta::List(list) => list.parse_args_with(|input: ParseStream<'_>| {
            while !input.is_empty() {
                items.push(item(input)?);
            }
            Ok(())
        }),
        meta => Err(Error::new_spanned(meta, "expected a list: `#[queue(key = value, ..)]`")),
    };
    errors.extend(result.err());
    items
}

/// Reads one item. No value contains a comma outside parentheses, so an item ends at the next one.
fn item(input: ParseStream<'_>) -> Result<Item> {
    if !input.peek(Ident::peek_any) {
        return Err(value::unexpected(input, "a key such as `retry`"));
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

fn refuse_on_fields(data: &Data, errors: &mut Vec<Error>) {
    let Data::Struct(data) = data else { return };
    for attribute in data.fields.iter().flat_map(|field| &field.attrs) {
        if attribute.path().is_ident("queue") {
            let message = "`#[queue(..)]` stands on the struct, not on a field\nhelp: queue columns are not fields, they are added to the table";
            errors.push(Error::new_spanned(attribute.path(), message));
        }
    }
}
