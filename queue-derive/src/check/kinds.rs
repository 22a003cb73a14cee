//! Check: which kinds of work can be combined.

use proc_macro2::Span;
use syn::Error;

use crate::model::{Model, named_columns, plain};
use crate::parse::OPTIONAL_COLUMNS;

/// Reports every rule about the kinds of work that the entity breaks.
pub(crate) fn check(model: &Model<'_>, errors: &mut Vec<Error>) {
    let kinds = &model.attributes.kinds;
    let mut refuse = |span: Span, message: &str| errors.push(Error::new(span, message));
    let archives_successes = kinds.archive.as_ref().and_then(|archive| archive.success.as_ref());
    if let (Some(order), Some(_)) = (&kinds.order_by, &kinds.priority) {
        refuse(
            order.columns[0].column.span(),
            "`order_by` and `priority` are two orders\n\
             help: `priority` is a column of the queue's own, `order_by` one of the domain's: remove one",
        );
    }
    if let Some(span) = kinds.exclusive {
        if model.attributes.group.is_some() {
            refuse(
                span,
                "`exclusive` works one message at a time, `group` many\n\
                 help: remove one; strict order and a failure in the middle of a group do not go together",
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
    let leaves = kinds.on_success_delete.or(kinds.archive.as_ref().map(|archive| archive.span));
    if let (Some((span, _)), Some(_)) = (&kinds.rerun_on_change, leaves) {
        refuse(
            *span,
            "`rerun_on_change` is for rows that stay and change, `on_success = delete` and `archive` take them away\n\
             help: remove one",
        );
    }
    let leaves_on_success = kinds.on_success_delete.or(archives_successes.map(|table| table.span));
    if let (Some(periodic), Some(_)) = (&kinds.periodic, leaves_on_success) {
        refuse(
            periodic.span,
            "a row with a schedule runs again after a success, and cannot be deleted or archived by it\nhelp: remove one",
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
            "`rerun_on_change` and `stage` do not go together: new content would pass the stages only that are left\n\
             help: give the row's way through the stages an entity of its own, with a `prefix`, that this one enqueues",
        );
    }
    if let (Some(span), Some(_)) = (kinds.exclusive, &kinds.periodic) {
        refuse(
            span,
            "`exclusive` and `periodic` do not go together: the first schedule is always pending, and the others wait behind it\n\
             help: remove one",
        );
    }
    for (place, (key, _, wanted)) in OPTIONAL_COLUMNS.into_iter().enumerate() {
        if let Some(name) = kinds.columns[place].as_ref().filter(|_| !model.asks_for(place)) {
            let message = format!("`{key}` names a column that is not there\nhelp: add `{wanted}`, or remove `{key}`");
            refuse(name.span, &message);
        }
    }
    let own: Vec<_> = model.column_names().into_iter().map(|(name, _)| name).collect();
    for (key, column) in named_columns(model) {
        if own.contains(&plain(column)) {
            let message = format!(
                "`{column}` is a column of the queue, `{key}` names one of the domain\n\
                 note: the queue writes it at every attempt"
            );
            refuse(column.span(), &message);
        }
    }
}
