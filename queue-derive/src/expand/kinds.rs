//! Expand: what an entity asks for beyond the five columns.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::Ident;
use syn::spanned::Spanned;

use super::duration::duration;
use crate::model::{Model, OptionalColumn};
use crate::parse::Missed;

/// Writes the constants of the optional columns.
pub(crate) fn column_constants(model: &Model<'_>) -> TokenStream {
    let columns = model.optional_columns();
    let columns = columns.iter().map(|OptionalColumn { constant, kind, name, doc, .. }| {
        let (constant, kind) = (format_ident!("{constant}"), format_ident!("{kind}"));
        let doc = format!("The column `{name}`: {doc}");
        quote! {
            #[doc = #doc]
            pub const #constant: #constant = ::queueable::columns::QueueColumn::new();
            #[doc = #doc]
            pub type #constant = ::queueable::columns::QueueColumn<Queue, ::queueable::columns::#kind>;
        }
    });
    quote!(#(#columns)*)
}

fn order_column(name: &impl ToTokens, descending: bool, is_long: &TokenStream) -> TokenStream {
    quote!(::queueable::__derive::OrderColumn { name: #name, descending: #descending, is_long: #is_long })
}

/// Asks the SQL type of a column whether its values may be too long for an index. The type's own constant is preferred to the
/// trait's.
fn is_long(model: &Model<'_>, column: &Ident) -> TokenStream {
    let table = &model.table;
    quote_spanned! {column.span()=>
        {
            #[allow(unused_imports)]
            use ::queueable::__derive::OtherOrderType as _;
            <::queueable::__derive::OrderType<<#table::#column as ::diesel::Expression>::SqlType>>::IS_LONG
        }
    }
}

/// Writes the constant and the function of the queue's trait, for an entity that asks for anything beyond the five
/// columns.
pub(crate) fn options(model: &Model<'_>) -> TokenStream {
    let kinds = &model.attributes.kinds;
    let columns = model.optional_columns();
    let column = |constant: &str| columns.iter().find(|column| column.constant == constant).map(|column| &column.name);
    let age = |age: Option<std::time::Duration>| option(age.map(duration));
    let mut fields = Vec::new();
    let order = |columns: &[TokenStream], age: TokenStream| {
        some(&quote!(::queueable::__derive::Order { columns: &[#(#columns),*], age: #age }))
    };
    if let Some(by) = &kinds.order_by {
        let columns = by.columns.iter().map(|order| {
            order_column(&name_of(model, &order.column), order.descending, &is_long(model, &order.column))
        });
        let columns: Vec<_> = columns.collect();
        let order = order(&columns, age(by.age));
        fields.push(quote!(order: #order));
    }
    if let (Some(priority), Some(name)) = (&kinds.priority, column("priority")) {
        let order = order(&[order_column(name, false, &quote!(false))], age(priority.age));
        let name = some(name);
        fields.push(quote!(priority: #name));
        // Beside the errors of the check the literal is written too, and names no field twice.
        if kinds.order_by.is_none() {
            fields.push(quote!(order: #order));
        }
    }
    if let (Some(stage), Some(name)) = (&kinds.stage, column("stage")) {
        let stages = some(
            &quote!(::queueable::__derive::Stages { column: #name, names: <#stage as ::queueable::Stage>::NAMES }),
        );
        fields.push(quote!(stages: #stages));
    }
    if let Some(periodic) = &kinds.periodic {
        let [period, cron, time_zone, scheduled] = ["period", "cron", "time_zone", "scheduled_time"].map(column);
        let missed = match periodic.missed {
            Missed::Once => quote!(Once),
            Missed::Skip(late) => {
                let late = duration(late);
                quote!(Skip(#late))
            }
            Missed::All(cap) => quote!(All(#cap)),
        };
        let periodic = some(&quote! {
            ::queueable::__derive::Periodic {
                period: #period,
                cron: #cron,
                time_zone: #time_zone,
                scheduled_time: #scheduled,
                missed: ::queueable::__derive::Missed::#missed,
            }
        });
        fields.push(quote!(periodic: #periodic));
    }
    if let Some(version) = &kinds.version {
        let version = some(&name_of(model, version));
        fields.push(quote!(version: #version));
    }
    if let (Some((_, rerun_on_change)), Some(count)) = (&kinds.rerun_on_change, column("change_count")) {
        let names = rerun_on_change.iter().map(|column| name_of(model, column));
        let rerun =
            some(&quote!(::queueable::__derive::RerunOnChange { columns: &[#(#names),*], change_count: #count }));
        fields.push(quote!(rerun_on_change: #rerun));
    }
    if let Some(name) = column("occasion").map(some) {
        fields.push(quote!(occasion: #name));
    }
    if let Some(name) = column("traceparent").map(some) {
        fields.push(quote!(traceparent: #name));
    }
    if kinds.timestamps.is_some() {
        let times = ["created", "updated", "begin", "end"].map(|time| {
            let (field, name) = (format_ident!("{time}"), option(column(&format!("{time}_time"))));
            quote!(#field: #name)
        });
        fields.push(quote!(timestamps: ::queueable::__derive::Timestamps { #(#times),* }));
    }
    if kinds.on_success_delete.is_some() {
        fields.push(quote!(on_success: ::queueable::__derive::OnFinish::Delete));
    }
    if let Some(archive) = &kinds.archive {
        let success = archive.success.as_ref().filter(|_| kinds.on_success_delete.is_none());
        let success = success.map(|table| &table.value);
        let failed = archive.failed.as_ref().map(|table| &table.value);
        fields.extend(success.map(|table| quote!(on_success: ::queueable::__derive::OnFinish::Archive(#table))));
        fields.extend(failed.map(|table| quote!(on_failure: ::queueable::__derive::OnFinish::Archive(#table))));
    }
    if let Some(keep) = &kinds.keep {
        let [success, failed, skipped] = [keep.success.as_ref().map(|kept| kept.value), keep.failed, keep.skipped]
            .map(|kept| option(kept.map(duration)));
        fields
            .push(quote!(keep: ::queueable::__derive::Keep { success: #success, failed: #failed, skipped: #skipped }));
    }
    if let Some(window) = kinds.window.as_ref().map(some) {
        fields.push(quote!(window: #window));
    }
    if kinds.exclusive.is_some() {
        fields.push(quote!(exclusive: true));
    }
    fields.extend(lanes(model));
    if kinds.notify {
        fields.push(quote!(notifies: true));
    }
    if kinds.claim_if.is_some() {
        fields.push(quote!(conditional: true));
    }
    if kinds.report_index {
        fields.push(quote!(report_index: true));
    }
    if let Some(column) = &kinds.report_by {
        let (name, values) = (name_of(model, column), values_of(model, column));
        let by = some(&quote!((#name, #values)));
        fields.push(quote!(report_by: #by));
    }
    if fields.is_empty() {
        return TokenStream::new();
    }
    let claim_if = claim_if(model);
    quote! {
        const OPTIONS: ::queueable::__derive::Options =
            ::queueable::__derive::Options { #(#fields,)* ..::queueable::__derive::Options::NONE };
        #claim_if
    }
}

fn some(value: &impl ToTokens) -> TokenStream {
    quote!(::core::option::Option::Some(#value))
}

fn option(value: Option<impl ToTokens>) -> TokenStream {
    value.map_or_else(|| quote!(::core::option::Option::None), |value| some(&value))
}

/// Writes the fields for the column by which rows are scheduled, and for the limits.
fn lanes(model: &Model<'_>) -> Vec<TokenStream> {
    let kinds = &model.attributes.kinds;
    let mut fields = Vec::new();
    let by_column = kinds.at_most.iter().find_map(|(_, at_most)| Some((at_most.number, at_most.by.as_ref()?)));
    let column = kinds
        .serial_by
        .as_ref()
        .map(|serial| &serial.column)
        .or(by_column.map(|(_, column)| column))
        .or(kinds.fair_by.as_ref());
    if let Some(column) = column {
        let (name, values) = (name_of(model, column), values_of(model, column));
        let serial = kinds.serial_by.is_some();
        let strict = kinds.serial_by.as_ref().is_some_and(|serial| serial.strict.is_some());
        let at_most = option(by_column.map(|(number, _)| number).or(serial.then_some(1)));
        let lanes = some(&quote! {
            ::queueable::__derive::Lanes {
                column: #name,
                of: #values,
                at_most: #at_most,
                serial: #serial,
                strict: #strict,
            }
        });
        fields.push(quote!(lanes: #lanes));
    }
    if let Some((_, whole)) = kinds.at_most.iter().find(|(_, at_most)| at_most.by.is_none()) {
        let at_most = some(&whole.number);
        fields.push(quote!(at_most: #at_most));
    }
    fields
}

/// Returns the name of a column in the database, as `table!` knows it. If there is no such column, the error is where
/// it is named.
fn name_of(model: &Model<'_>, column: &Ident) -> TokenStream {
    let table = &model.table;
    quote_spanned!(column.span()=> <#table::#column as ::diesel::Column>::NAME)
}

/// Returns what the values of a column are.
fn values_of(model: &Model<'_>, column: &Ident) -> TokenStream {
    let table = &model.table;
    quote_spanned!(column.span()=>
        <<#table::#column as ::diesel::Expression>::SqlType as ::queueable::__derive::LaneType>::VALUES
    )
}

fn claim_if(model: &Model<'_>) -> Option<TokenStream> {
    let condition = model.attributes.kinds.claim_if.as_ref()?;
    Some(quote! {
        fn claim_condition<__DB: ::queueable::bounds::QueueBackend>() -> ::core::option::Option<::queueable::__derive::ClaimCondition<__DB>> {
            ::queueable::__derive::claim_condition!(__DB, #condition)
        }
    })
}

/// Writes the impls that tell calls what the entity asks for, and the checks of the names in the attributes.
pub(crate) fn markers(model: &Model<'_>) -> TokenStream {
    let kinds = &model.attributes.kinds;
    let (module, table) = (model.module(), &model.table);
    let mut markers = Vec::new();
    let mark = |name: &str| {
        let name = format_ident!("{name}");
        quote!(#[automatically_derived] impl ::queueable::__derive::#name for #module::Queue {})
    };
    markers.extend(kinds.priority.as_ref().map(|_| mark("HasPriority")));
    markers.extend(kinds.periodic.as_ref().map(|_| mark("HasSchedule")));
    markers.extend(kinds.traceparent.as_ref().map(|_| mark("HasTraceParent")));
    markers.extend(kinds.archive.as_ref().map(|_| mark("HasArchive")));
    markers.extend(kinds.keep.as_ref().map(|_| mark("HasKeep")));
    markers.extend(kinds.stage.as_ref().map(|stage| {
        quote! {
            #[automatically_derived]
            #[allow(deprecated)]
            impl ::queueable::__derive::HasStages<#stage> for #module::Queue {}
        }
    }));
    markers.extend(kinds.version.as_ref().map(|column| {
        quote! {
            #[automatically_derived]
            impl ::queueable::__derive::HasVersion for #module::Queue {
                type Column = #table::#column;
            }
        }
    }));
    markers.extend(kinds.claim_if.as_ref().map(|condition| {
        let place = Span::call_site().located_at(condition.span());
        let assertion =
            quote_spanned!(place=> ::queueable::__derive::assert_condition::<#table::table, _>(&(#condition)));
        quote! {
            const _: () = {
                fn _condition() {
                    #assertion
                }
            };
        }
    }));
    quote!(#(#markers)*)
}
