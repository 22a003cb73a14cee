//! Check: which kinds of work can be combined.

use proc_macro2::Span;
use syn::Error;

use crate::model::{Model, OptionalColumn, named_columns, plain};
use crate::parse::{Kinds, OPTIONAL_COLUMNS};

/// Reports every rule about the kinds of work that the entity breaks.
pub(crate) fn check(model: &Model<'_>, errors: &mut Vec<Error>) {
    let kinds = &model.attributes.kinds;
    let mut refuse = |span: Span, message: &str| errors.push(Error::new(span, message));
    let archives_successes = kinds.archive.as_ref().and_then(|archive| archive.success.as_ref());
    if let (Some(order), Some(_)) = (&kinds.order_by, &kinds.priority) {
        refuse(
            order.columns[0].column.span(),
            "`order_by` and `priority` both set the order\n\
             help: `priority` adds a column to the queue, `order_by` names one of your own: remove one",
        );
    }
    if let Some(span) = kinds.exclusive {
        if model.attributes.group.is_some() {
            refuse(
                span,
                "`exclusive` runs one message at a time, `group` runs many\n\
                 help: remove one; a failure in the middle of a group would break the strict order",
            );
        }
        let ages = kinds.order_by.as_ref().and_then(|order| order.age).is_some()
            || kinds.priority.as_ref().and_then(|priority| priority.age).is_some();
        if ages {
            refuse(span, "`exclusive` keeps a strict order, `age` breaks it\nhelp: remove one");
        }
    }
    if let (Some(span), Some(_)) = (kinds.on_success_delete, archives_successes) {
        refuse(span, "a row that succeeds is deleted or archived, not both\nhelp: remove one");
    }
    if let (Some(_), Some(kept)) = (kinds.on_success_delete, kinds.keep.as_ref().and_then(|keep| keep.success.as_ref()))
    {
        refuse(
            kept.span,
            "`on_success = delete` removes a row when it succeeds, so there is nothing to keep\n\
             help: remove one: with `keep(success = ..)` alone, the row is deleted after that time",
        );
    }
    if let (Some(keep), Some(_)) = (&kinds.keep, &kinds.rerun_on_change) {
        refuse(
            keep.span,
            "`rerun_on_change` needs rows that stay, and `keep` removes them after some time\n\
             help: remove one",
        );
    }
    let leaves = kinds.on_success_delete.or(kinds.archive.as_ref().map(|archive| archive.span));
    if let (Some((span, _)), Some(_)) = (&kinds.rerun_on_change, leaves) {
        refuse(
            *span,
            "`rerun_on_change` needs rows that stay, and `on_success = delete` and `archive` remove them\n\
             help: remove one",
        );
    }
    let leaves_on_success = kinds.on_success_delete.or(archives_successes.map(|table| table.span));
    if let (Some(periodic), Some(_)) = (&kinds.periodic, leaves_on_success) {
        refuse(
            periodic.span,
            "a row with a schedule runs again after a success, and cannot be deleted or archived after one\nhelp: remove one",
        );
    }
    if let (Some(periodic), Some(_)) = (&kinds.periodic, &kinds.stage) {
        refuse(
            periodic.span,
            "`periodic` and `stage` do not go together: the schedule would run the last stage again\n\
             help: give the periodic work an entity of its own that enqueues the pipeline's rows",
        );
    }
    if let (Some((span, _)), Some(_)) = (&kinds.rerun_on_change, &kinds.stage) {
        refuse(
            *span,
            "`rerun_on_change` and `stage` do not go together: new content would pass only the stages that are left\n\
             help: give the stages an entity of their own on the same table, with a `prefix`, which this one enqueues",
        );
    }
    if let (Some(span), Some(_)) = (kinds.exclusive, &kinds.periodic) {
        refuse(
            span,
            "`exclusive` and `periodic` do not go together: the first schedule is always pending, and the others wait behind it\n\
             help: remove one",
        );
    }
    check_lanes(kinds, &mut refuse);
    check_strict(kinds, &mut refuse);
    for (place, (key, _, wanted)) in OPTIONAL_COLUMNS.into_iter().enumerate() {
        if let Some(name) = kinds.columns[place].as_ref().filter(|_| !model.asks_for(place)) {
            let message = format!(
                "`{key}` names a column that this queue does not have\nhelp: add `{wanted}`, or remove `{key}`"
            );
            refuse(name.span, &message);
        }
    }
    check_named_columns(model, &mut refuse);
}

/// Reports the columns of the queue where a key names one of the domain. Those of its columns that only the application
/// changes may stand there.
fn check_named_columns(model: &Model<'_>, refuse: &mut impl FnMut(Span, &str)) {
    let optional = model.optional_columns().into_iter().filter(OptionalColumn::is_written_by_the_queue);
    let five = model.column_names().into_iter().map(|(name, _)| name);
    let own: Vec<_> = five.chain(optional.map(|column| column.name)).collect();
    for (key, column) in named_columns(model) {
        if own.iter().any(|name| same(name, &plain(column))) {
            let message = format!(
                "`{column}` is a column of the queue, `{key}` names one of the domain\n\
                 note: the queue itself writes it"
            );
            refuse(column.span(), &message);
        }
    }
}

/// Reports what `serial_by`, `at_most` and `fair_by` cannot be combined with.
fn check_lanes(kinds: &Kinds, refuse: &mut impl FnMut(Span, &str)) {
    let by = || kinds.at_most.iter().filter_map(|(_, at_most)| at_most.by.as_ref());
    let columns: Vec<_> =
        kinds.serial_by.iter().map(|serial| &serial.column).chain(by()).chain(&kinds.fair_by).collect();
    let Some(span) = columns.first().map(|column| column.span()).or(kinds.at_most.first().map(|(span, _)| *span))
    else {
        return;
    };
    for at_most in [kinds.at_most.iter().filter(|(_, at_most)| at_most.by.is_none()).nth(1)]
        .into_iter()
        .chain([kinds.at_most.iter().filter(|(_, at_most)| at_most.by.is_some()).nth(1)])
        .flatten()
    {
        refuse(
            at_most.0,
            "`at_most` is given twice\n\
             help: it may stand once for the whole queue and once with `by`: `at_most(10), at_most(3, by = company_id)`",
        );
    }
    if let (Some(_), Some(at_most)) = (&kinds.serial_by, by().next()) {
        refuse(
            at_most.span(),
            "`serial_by` already limits each value to one message, and `at_most(.., by = ..)` sets another limit\nhelp: remove one",
        );
    }
    if let Some(other) = columns.iter().find(|column| plain(column) != plain(columns[0])) {
        let message = format!(
            "only one column can schedule rows, and `{}` is not `{}`\n\
             help: name the same column in `serial_by`, `at_most` and `fair_by`; a generated column can stand for several",
            plain(other),
            plain(columns[0]),
        );
        refuse(other.span(), &message);
    }
    if let Some(exclusive) = kinds.exclusive {
        refuse(
            exclusive,
            "`exclusive` runs one message at a time, so there is nothing to schedule by a column or to limit\n\
             help: remove `exclusive`, or `serial_by`, `at_most` and `fair_by`",
        );
    }
    let ages = kinds.order_by.as_ref().and_then(|order| order.age).is_some()
        || kinds.priority.as_ref().and_then(|priority| priority.age).is_some();
    if ages && !columns.is_empty() {
        refuse(
            span,
            "`age` searches the rows of all values, a column that schedules rows takes the values in turn\nhelp: remove one",
        );
    }
}

/// Reports what `serial_by(.., strict)` cannot be combined with.
fn check_strict(kinds: &Kinds, refuse: &mut impl FnMut(Span, &str)) {
    let strict = kinds.serial_by.as_ref().and_then(|serial| serial.strict);
    if let (Some(strict), Some(_)) = (strict, &kinds.periodic) {
        refuse(
            strict,
            "`strict` and `periodic` do not go together: a run that has failed for good would hold back the other rows of its value until the next run\n\
             help: remove one",
        );
    }
}

/// MySQL and SQLite ignore the case of column names.
pub(super) fn same(a: &str, b: &str) -> bool {
    a.to_lowercase() == b.to_lowercase()
}
