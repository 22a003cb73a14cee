//! Check: the rules that concern more than one value.

use std::time::Duration;

use syn::ext::IdentExt;
use syn::{Data, Error, Fields};

use super::kinds::{self, same};
use crate::model::{Field, Model};
use crate::parse::{COLUMNS, MAX_NAME_BYTES, Retry};

/// The runtime's `Retry::DEFAULT_MAX`.
const DEFAULT_MAX: Duration = Duration::from_secs(60 * 60);

/// Reports every rule that the entity breaks.
pub(crate) fn check(model: &Model<'_>, errors: &mut Vec<Error>) {
    if shape(model, errors) {
        primary_key(model, errors);
        fields_are_no_queue_columns(model, errors);
    }
    column_names(model, errors);
    retry(model, errors);
    mode(model, errors);
    kinds::check(model, errors);
}

fn mode(model: &Model<'_>, errors: &mut Vec<Error>) {
    let attributes = &model.attributes;
    if let (Some(_), Some(group)) = (&attributes.lease, &attributes.group) {
        let message = "`group` and `lease` exclude each other\n\
                       help: `group` runs many short handlers in one transaction, `lease` runs slow calls outside of any: \
                       remove one";
        errors.push(Error::new(group.span, message));
    }
    let Some(column) = &attributes.order_in_group else { return };
    if attributes.group.is_none() {
        let message =
            "`order_in_group` orders the messages of a group, and this queue has no groups\nhelp: add `group = 50`";
        errors.push(Error::new(column.span(), message));
    } else if model.field_of(column).is_none() && !model.fields.is_empty() {
        let entity = &model.input.ident;
        let message = format!(
            "`{entity}` has no field for the column `{}`\nhelp: a group is ordered by a field, whose type is `Ord`",
            column.unraw()
        );
        errors.push(Error::new(column.span(), message));
    }
}

fn shape(model: &Model<'_>, errors: &mut Vec<Error>) -> bool {
    const HELP: &str = "help: an entity is a struct with named fields, one for each column it selects";

    let (span, found) = match &model.input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(_) => return true,
            Fields::Unnamed(_) => (data.struct_token.span, "a tuple struct"),
            Fields::Unit => (data.struct_token.span, "a unit struct"),
        },
        Data::Enum(data) => (data.enum_token.span, "an enum"),
        Data::Union(data) => (data.union_token.span, "a union"),
    };
    errors.push(Error::new(span, format!("`Queueable` cannot be derived for {found}\n{HELP}")));
    false
}

fn primary_key(model: &Model<'_>, errors: &mut Vec<Error>) {
    if model.primary_key.is_empty() {
        let message = "`primary_key()` names no column\nhelp: name one: `#[diesel(primary_key(id))]`";
        errors.push(Error::new(model.primary_key_span, message));
    }
    for (i, column) in model.primary_key.iter().enumerate() {
        if model.primary_key[..i].contains(column) {
            errors.push(Error::new(column.span(), format!("`{column}` is named twice in the primary key")));
            continue;
        }
        match model.field_of(column) {
            Some(field) => errors.extend(key_type(field)),
            None => {
                let entity = &model.input.ident;
                let message = format!(
                    "`{entity}` has no field for the column `{}` of its primary key\n\
                     help: add the field, or name the key's columns with `#[diesel(primary_key(..))]`{}",
                    column.unraw(),
                    embedded_hint(model),
                );
                errors.push(Error::new(column.span(), message));
            }
        }
    }
}

fn embedded_hint(model: &Model<'_>) -> &'static str {
    let embeds = model.fields.iter().any(|field| field.embed);
    if embeds {
        "\nnote: the derive cannot see the fields of an embedded struct: give the key a field of its own"
    } else {
        ""
    }
}

fn key_type(field: &Field<'_>) -> Option<Error> {
    let name = field.ident.unraw();
    if let Some((attribute, _)) = &field.select_expression {
        let message = format!(
            "the key `{name}` is selected by an expression, so its type is not the type of the key's column\n\
             help: give the column a field without `select_expression`"
        );
        return Some(Error::new(attribute.span(), message));
    }
    if field.has_one_type() {
        return None;
    }
    let (attribute, _) = field.serialize_as.as_ref().or(field.deserialize_as.as_ref())?;
    let message = format!(
        "the key `{name}` is read as one type and written as another\n\
         help: give `deserialize_as` and `serialize_as` the same type, which is then the type of the key"
    );
    Some(Error::new(attribute.span(), message))
}

fn fields_are_no_queue_columns(model: &Model<'_>, errors: &mut Vec<Error>) {
    let optional = model.optional_columns().into_iter().map(|column| (column.name, column.span));
    let names: Vec<_> = model.column_names().into_iter().chain(optional).collect();
    for field in model.fields.iter().filter(|field| !field.embed) {
        let column = &field.column.value;
        if names.iter().any(|(name, _)| same(name, column)) {
            let entity = &model.input.ident;
            let message = format!(
                "the column `{column}` belongs to the queue and cannot be a field\n\
                 note: saving a stale `{entity}` would write its old queue state and could put a finished row back into the queue\n\
                 help: remove the field and select `{entity}::queue_state()` beside the entity;\n      \
                 if the column is your own, rename the queue's: `#[queue(prefix = \"..\")]`"
            );
            errors.push(Error::new(field.column.span, message));
        }
    }
}

fn column_names(model: &Model<'_>, errors: &mut Vec<Error>) {
    let optional = model.optional_columns();
    let words: Vec<_> = COLUMNS.into_iter().chain(optional.iter().map(|column| column.constant)).collect();
    let optional_names = optional.iter().map(|column| (column.name.clone(), column.span));
    let names: Vec<_> = model.column_names().into_iter().chain(optional_names).collect();
    for (i, (name, span)) in names.iter().enumerate() {
        let other = names[..i].iter().zip(&words).find(|((other, _), _)| same(other, name));
        if let Some(((_, other_span), other)) = other {
            let message = format!("the columns `{other}` and `{}` have the same name, `{name}`", words[i]);
            errors.push(Error::new(span.or(*other_span).unwrap_or(model.input.ident.span()), message));
        }
    }
    let Some(prefix) = &model.attributes.prefix else { return };
    // Names that are given have been measured where they were read.
    let longest = names.iter().map(|(name, _)| name).max_by_key(|name| name.len());
    if let Some(name) = longest.filter(|name| name.len() > MAX_NAME_BYTES) {
        let message = format!(
            "with this prefix the column `{name}` has {} bytes, and a column name has at most {MAX_NAME_BYTES}",
            name.len()
        );
        errors.push(Error::new(prefix.span, message));
    }
}

fn retry(model: &Model<'_>, errors: &mut Vec<Error>) {
    let (first, max) = match &model.attributes.retry {
        Some(Retry::Linear { step, max }) => (step, max),
        Some(Retry::Exponential { first, max: None, .. }) if first.value > DEFAULT_MAX => {
            let message =
                "the first delay is longer than the default cap of one hour\nhelp: name the cap: `max = \"..\"`";
            errors.push(Error::new(first.span, message));
            return;
        }
        Some(Retry::Exponential { first, max, .. }) => (first, max),
        _ => return,
    };
    if let Some(max) = max
        && max.value < first.value
    {
        let message = "the longest delay is shorter than the first one\nhelp: `max` must be at least the first delay";
        errors.push(Error::new(max.span, message));
    }
}
