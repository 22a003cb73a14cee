//! Parse: the queue's own attribute, `#[queue(..)]`.

use std::time::Duration;

use syn::{Data, DeriveInput, Error, Ident, Path, Result};

use super::item::{Form, Item};
use super::kinds::{self, Archive, Kept, Kinds, OPTIONAL_COLUMNS, OwnColumn, Periodic, Priority};
use super::lanes;
use super::retry::{self, Retry};
use super::suggest;
use super::value::{self, Group, Written};

/// The queue's columns: their default names, which are also the keys that rename them.
pub(crate) const COLUMNS: [&str; 5] =
    ["status", "next_attempt_time", "try_count", "last_attempt_time", "last_attempt_error_message"];

/// The other keys.
const SETTINGS: [&str; 29] = [
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
    "keep",
    "window",
    "exclusive",
    "serial_by",
    "at_most",
    "fair_by",
    "wake",
    "report_index",
    "traceparent",
];

/// Other words for keys: former names of theirs, and the words of other job frameworks.
const OTHER_WORDS: [(&str, &str); 27] = [
    ("attempts", "max_tries"),
    ("backoff", "retry"),
    ("batch", "group"),
    ("batch_size", "group"),
    ("budget", "timeout"),
    ("concurrency", "at_most"),
    ("condition", "claim_if"),
    ("delete_on_success", "on_success"),
    ("fair", "fair_by"),
    ("group_by", "order_in_group"),
    ("guard", "claim_if"),
    ("limit", "at_most"),
    ("max_attempts", "max_tries"),
    ("max_retries", "max_tries"),
    ("metrics", "timestamps"),
    ("occurrence", "occasion"),
    ("rerun_on", "rerun_on_change"),
    ("retain", "keep"),
    ("retention", "keep"),
    ("retries", "max_tries"),
    ("schedule", "periodic"),
    ("serial", "serial_by"),
    ("singleton", "exclusive"),
    ("stages", "stage"),
    ("ttl", "keep"),
    ("visibility_timeout", "lease"),
    ("when", "claim_if"),
];

/// Words that are no keys: the word, the keys in whose value it may stand, and an item that has it.
const INNER_WORDS: [(&str, &[&str], &str); 21] = [
    ("age", &["order_by", "priority"], r#"order_by(due_date, age = "1h")"#),
    ("auto", &[], "group = auto"),
    ("begin", &["timestamps"], "timestamps(begin, end)"),
    ("by", &["at_most"], "at_most(3, by = company_id)"),
    ("created", &["timestamps"], "timestamps(created, updated)"),
    ("delete", &[], "on_success = delete"),
    ("end", &["timestamps"], "timestamps(begin, end)"),
    ("exponential", &[], r#"retry = exponential("10s")"#),
    ("failed", &["archive", "keep"], "archive(failed = payments_failed)"),
    ("fixed", &[], r#"retry = fixed("10s")"#),
    ("jitter", &["retry"], r#"retry = exponential("10s", jitter = 20)"#),
    ("linear", &[], r#"retry = linear("10s")"#),
    ("max", &["retry"], r#"retry = exponential("10s", max = "1h")"#),
    ("missed", &["periodic"], "periodic(missed = once)"),
    ("notify", &[], "wake = notify"),
    ("optimistic", &["group"], "group(50, optimistic)"),
    ("primary_key", &[], "#[diesel(primary_key(id))]"),
    ("strict", &["serial_by"], "serial_by(company_id, strict)"),
    ("skipped", &["keep"], r#"keep(skipped = "30d")"#),
    ("success", &["archive", "keep"], "archive(success = payments_done)"),
    ("table_name", &[], "#[diesel(table_name = payments)]"),
];

/// The keys that may stand alone.
const FLAGS: [&str; 7] = ["exclusive", "occasion", "periodic", "priority", "report_index", "timestamps", "traceparent"];

/// The keys whose list names several columns.
const LISTS: [&str; 2] = ["order_by", "rerun_on_change"];

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
        let mut seen: Vec<Item> = Vec::new();
        for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("queue")) {
            for item in Item::all(attribute, errors) {
                // Of the whole queue, and by a column.
                let known = item.key != "at_most" && seen.iter().any(|other| other.key == item.key);
                let result = if known { Err(item.repeated()) } else { attributes.set(&item, seen.last()) };
                errors.extend(result.err());
                seen.push(item);
            }
        }
        refuse_on_fields(&input.data, errors);
        attributes
    }

    /// Reads an item, which stands after `previous`.
    fn set(&mut self, item: &Item, previous: Option<&Item>) -> Result<()> {
        let key = item.key.to_string();
        if FLAGS.contains(&key.as_str()) && item.is_switch() {
            return Err(Error::new(
                item.key.span(),
                format!("`{key}` stands alone, or not at all\nhelp: write `{key}`"),
            ));
        }
        if let Some(column) = COLUMNS.iter().position(|name| *name == key) {
            self.columns[column] = Some(item.value(value::column_name)?);
            return Ok(());
        }
        match key.as_str() {
            "crate" => self.crate_path = Some(item.value(value::crate_path)?),
            "prefix" => self.prefix = Some(item.value(value::prefix)?),
            "module" => self.module = Some(item.value(value::module)?),
            "retry" => self.retry = Some(item.value(retry::retry)?),
            "max_tries" => self.max_tries = Some(item.value(value::max_tries)?),
            "timeout" => self.timeout = Some(item.value(value::timeout)?),
            "lease" => self.lease = Some(item.value(value::lease)?),
            "group" => {
                let group = match item.form() {
                    Form::List => item.list(value::group_list)?,
                    _ => item.value(value::group)?,
                };
                self.group = Some(Written { value: group, span: item.key.span() });
            }
            "order_in_group" => self.order_in_group = Some(item.value(value::order_in_group)?),
            _ => return self.set_kind(&key, item, previous),
        }
        Ok(())
    }

    fn set_kind(&mut self, key: &str, item: &Item, previous: Option<&Item>) -> Result<()> {
        let kinds = &mut self.kinds;
        let span = item.key.span();
        if let Some(column) = OPTIONAL_COLUMNS.iter().position(|(name, ..)| *name == key) {
            let name = item.value(value::column_name)?;
            kinds::is_no_schedule(key, &name)?;
            kinds.columns[column] = Some(name);
            return Ok(());
        }
        match key {
            "order_by" => kinds.order_by = Some(item.value_or_list(kinds::order_by)?),
            "priority" => {
                let (name, age) = match item.form() {
                    Form::Flag => (None, None),
                    Form::List => item.list(kinds::priority_list)?,
                    Form::Value => (Some(item.value(kinds::priority_name)?), None),
                };
                kinds.priority = Some(Priority { name, age });
            }
            "claim_if" => kinds.claim_if = Some(item.value(kinds::claim_if)?),
            "stage" => kinds.stage = Some(item.value(kinds::stage)?),
            "periodic" => {
                let missed = match item.form() {
                    Form::Flag => kinds::ONCE,
                    Form::List => item.list(kinds::periodic_list)?,
                    Form::Value => item.value(kinds::periodic_value)?,
                };
                kinds.periodic = Some(Periodic { span, missed });
            }
            "version" => kinds.version = Some(item.value(kinds::column)?),
            "rerun_on_change" => kinds.rerun_on_change = Some((span, item.list(kinds::columns)?)),
            "occasion" => kinds.occasion = Some(own_column(item, "charge_number")?),
            "traceparent" => kinds.traceparent = Some(own_column(item, "trace_context")?),
            "timestamps" => {
                let kept = match item.form() {
                    Form::Flag => [true; 4],
                    _ => item.list(kinds::timestamps_list)?,
                };
                kinds.timestamps = Some(kept);
            }
            "on_success" => kinds.on_success_delete = Some(item.value(kinds::on_success)?),
            "archive" => {
                let [success, failed] = item.list(kinds::archive_list)?;
                kinds.archive = Some(Archive { span, success, failed });
            }
            "keep" => kinds.keep = Some(Kept { span, ..item.list(kinds::keep_list)? }),
            "window" => kinds.window = Some(item.value(kinds::window)?),
            "serial_by" => kinds.serial_by = Some(item.value_or_list(lanes::serial_by)?),
            "fair_by" => kinds.fair_by = Some(item.value_or_list(lanes::fair_by)?),
            "at_most" => kinds.at_most.push((span, item.value_or_list(lanes::at_most)?)),
            "wake" => kinds.notify = item.value(kinds::wake)?,
            "exclusive" if item.form() == Form::Flag => kinds.exclusive = Some(span),
            "report_index" => {
                kinds.report_index = true;
                if item.form() != Form::Flag {
                    kinds.report_by = Some(item.value_or_list(kinds::report_by)?);
                }
            }
            "exclusive" => {
                return Err(Error::new(span, format!("`{key}` stands alone, without a value")));
            }
            _ => return Err(no_key(item, previous)),
        }
        Ok(())
    }
}

/// Reads a key of a column of the queue's own, which stands alone, or with another name for the column.
fn own_column(item: &Item, example: &str) -> Result<OwnColumn> {
    let name = match item.form() {
        Form::Flag => None,
        Form::Value => Some(item.value(value::column_name)?),
        Form::List => {
            let key = &item.key;
            let message = format!(
                "`{key}` stands alone, or with the name of its column\nhelp: write `{key}`, or `{key} = \"{example}\"`"
            );
            return Err(Error::new(key.span(), message));
        }
    };
    Ok(OwnColumn { name })
}

/// Makes the error at an item whose key is none, with what was probably meant.
fn no_key(item: &Item, previous: Option<&Item>) -> Error {
    let is_after = |keys: &[&str]| previous.filter(|previous| keys.iter().any(|key| previous.key == key));
    let meant = match INNER_WORDS.iter().find(|(word, ..)| item.key == word) {
        Some((_, keys, example)) => Some(is_after(keys).map_or((*example).to_owned(), |key| key.with(item))),
        None if item.form() != Form::List => is_after(&LISTS).filter(|_| !item.is_assigned()).map(|key| key.with(item)),
        None => None,
    };
    if let Some(meant) = meant {
        let message = format!("`{}` is not a key of `#[queue(..)]`\nhelp: write `{meant}`", item.key);
        return Error::new(item.key.span(), message);
    }
    let renamed = OPTIONAL_COLUMNS.map(|(key, ..)| key);
    let accepted = [&SETTINGS[..], &COLUMNS, &renamed].concat();
    suggest::unknown_among("key", &item.key, &accepted, &OTHER_WORDS)
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
