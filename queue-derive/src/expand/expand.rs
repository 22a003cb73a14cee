//! Expand: the column module and the two trait impls. No control flow, no SQL.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Ident, Path, Type, Visibility};

use super::duration::duration;
use super::{crate_path, fields, kinds, selection};
use crate::model::{KeyColumn, Model};
use crate::parse::{COLUMNS, Retry};

/// The marker of each column's kind in the runtime, in the order of [`COLUMNS`].
const KINDS: [&str; 5] = ["StatusText", "NextAttemptTime", "TryCount", "LastAttemptTime", "LastAttemptErrorMessage"];

/// One sentence for each column.
const DOCS: [&str; 5] = [
    "what is known of the row's work so far.",
    "when the next attempt is due; null means that the row is not to be processed.",
    "how many attempts were recorded since the row was enqueued.",
    "when the last recorded attempt ended.",
    "the text of the last failure.",
];

/// Writes everything for a valid entity.
pub(crate) fn expand(model: &Model<'_>, key: &[KeyColumn]) -> TokenStream {
    let module = column_module(model);
    let queue_table = queue_table(model);
    let queueable = queueable(model, &Key::new(&model.table, key));
    let selection = selection::assertions(model);
    let fields = fields::checks(model);
    quote!(#module #queue_table #queueable #selection #fields)
}

/// Writes the module of the queue's columns.
pub(crate) fn column_module(model: &Model<'_>) -> TokenStream {
    let visibility = &model.input.vis;
    let module = model.module();
    let entity = model.input.ident.unraw();
    let doc = format!("The queue columns of [`{entity}`]'s table, beside the table's own.");
    let queue_doc = format!("Marks the queue of `{entity}`.");
    let columns = model.column_names().into_iter().enumerate().map(|(i, (name, _))| {
        let (column, kind) = (format_ident!("{}", COLUMNS[i]), format_ident!("{}", KINDS[i]));
        let doc = format!("The column `{name}`: {}", DOCS[i]);
        quote! {
            #[doc = #doc]
            pub const #column: #column = ::queueable::columns::QueueColumn::new();
            #[doc = #doc]
            pub type #column = ::queueable::columns::QueueColumn<Queue, ::queueable::columns::#kind>;
        }
    });
    let all = COLUMNS.map(|column| format_ident!("{column}"));
    let optional_columns = kinds::column_constants(model);
    let queue_visibility = one_module_deeper(visibility);
    let module = quote! {
        #[doc = #doc]
        #[allow(non_upper_case_globals, non_camel_case_types, dead_code, unreachable_pub)]
        #visibility mod #module {
            #[doc = #queue_doc]
            #[derive(Debug, Clone, Copy)]
            #queue_visibility enum Queue {}
            #(#columns)*
            #optional_columns
            /// The five columns, as one value of type `QueueState`.
            pub const queue_state: queue_state = (#(#all),*);
            /// The five columns, as one value of type `QueueState`.
            pub type queue_state = ::queueable::columns::QueueStateColumns<Queue>;
        }
    };
    match &model.attributes.crate_path {
        Some(path) => crate_path::in_crate(module, &crate_path::one_module_deeper(path)),
        None => module,
    }
}

/// Returns the same visibility as seen from one module deeper. The marker is as visible as the entity, so that the
/// types it names, such as an enum of stages, need not be more visible.
fn one_module_deeper(visibility: &Visibility) -> TokenStream {
    match visibility {
        Visibility::Public(_) => quote!(pub),
        Visibility::Inherited => quote!(pub(super)),
        Visibility::Restricted(restricted) => {
            let path = &restricted.path;
            match path.segments.first() {
                Some(first) if first.ident == "crate" => quote!(pub(in #path)),
                _ if path.is_ident("self") => quote!(pub(super)),
                // `self` may only begin a path.
                Some(first) if first.ident == "self" => {
                    let rest = path.segments.iter().skip(1);
                    quote!(pub(in super::#(#rest)::*))
                }
                _ => quote!(pub(in super::#path)),
            }
        }
    }
}

/// Writes the impl that names the table and its queue columns.
pub(crate) fn queue_table(model: &Model<'_>) -> TokenStream {
    let module = model.module();
    let table = &model.table;
    let columns = COLUMNS.map(|column| format_ident!("{column}"));
    let names = model.column_names().map(|(name, _)| name);
    let options = kinds::options(model);
    let markers = kinds::markers(model);
    quote! {
        #[automatically_derived]
        #[allow(deprecated)]
        impl ::queueable::__derive::QueueTable for #module::Queue {
            type Table = #table::table;
            const TABLE: &'static #table::table = &#table::table;
            const COLUMNS: ::queueable::__derive::ColumnNames = ::queueable::__derive::ColumnNames { #(#columns: #names),* };
            #options
        }
        #markers
    }
}

/// The tokens that describe the primary key.
pub(crate) struct Key {
    pub(crate) columns: TokenStream,
    pub(crate) value: TokenStream,
    pub(crate) is_key: TokenStream,
    pub(crate) comparison: TokenStream,
    pub(crate) is_after: TokenStream,
    pub(crate) comparison_after: TokenStream,
    /// Where the compiler reports a key that does not fit its column.
    pub(crate) place: Span,
}

impl Key {
    pub(crate) fn new(table: &Path, key: &[KeyColumn]) -> Self {
        if let [KeyColumn { column, ty }] = key {
            // Nothing but the type has a place of its own. So a type that does not fit is reported there, and once.
            let place = Span::call_site().located_at(ty.span());
            let entity_column = quote_spanned!(place=> <Self as ::queueable::Entity>::KeyColumns);
            let value = quote_spanned!(place=> __key);
            let (is_key, comparison) = equals(place, &entity_column, ty, &value);
            let (is_after, comparison_after) = after(place, &entity_column, ty, &value);
            let (columns, value) = (quote!(#table::#column), quote!(#ty));
            return Key { columns, value, is_key, comparison, is_after, comparison_after, place };
        }
        let columns = key.iter().map(|KeyColumn { column, .. }| quote!(#table::#column));
        let types = key.iter().map(|KeyColumn { ty, .. }| ty);
        type Comparison = fn(Span, &TokenStream, &Type, &TokenStream) -> (TokenStream, TokenStream);
        let compared = |i: usize, compare: Comparison| {
            let (KeyColumn { column, ty }, i) = (&key[i], syn::Index::from(i));
            let place = Span::call_site().located_at(ty.span());
            // Cloned, because the value of one column stands in two conditions.
            compare(place, &quote!(#table::#column), ty, &quote!(::core::clone::Clone::clone(&__key.#i)))
        };
        let all = (0..key.len()).map(|i| compared(i, equals)).reduce(and);
        let (is_key, comparison) = all.expect("the check refuses an empty primary key");
        // After it by the first column, or the same there and after it by the others.
        let after = (0..key.len() - 1).rev().fold(compared(key.len() - 1, after), |rest, i| {
            let (first_type, first) = compared(i, after);
            let (same_type, same) = and(compared(i, equals), rest);
            (
                quote!(::diesel::dsl::Or<#first_type, #same_type>),
                quote!(::diesel::BoolExpressionMethods::or(#first, #same)),
            )
        });
        // PostgreSQL begins in an index at a value that it need not conclude from a disjunction.
        let (is_after, comparison_after) = and(compared(0, from), after);
        let (columns, value) = (quote!((#(#columns),*)), quote!((#(#types),*)));
        Key { columns, value, is_key, comparison, is_after, comparison_after, place: Span::call_site() }
    }
}

/// Writes the type and the value of a condition for which both of these hold.
fn and(
    (left_type, left): (TokenStream, TokenStream),
    (right_type, right): (TokenStream, TokenStream),
) -> (TokenStream, TokenStream) {
    (quote!(::diesel::dsl::And<#left_type, #right_type>), quote!(::diesel::BoolExpressionMethods::and(#left, #right)))
}

/// Writes the type of the condition `column > value`, and the condition.
fn after(place: Span, column: &TokenStream, ty: &Type, value: &TokenStream) -> (TokenStream, TokenStream) {
    (
        quote_spanned!(place=> <#column as ::queueable::__derive::KeyColumn<#ty>>::IsAfter),
        quote_spanned!(place=> <#column as ::queueable::__derive::KeyColumn<#ty>>::is_after(#value)),
    )
}

/// Writes the type of the condition `column >= value`, and the condition.
fn from(place: Span, column: &TokenStream, ty: &Type, value: &TokenStream) -> (TokenStream, TokenStream) {
    (
        quote_spanned!(place=> <#column as ::queueable::__derive::KeyColumn<#ty>>::IsFrom),
        quote_spanned!(place=> <#column as ::queueable::__derive::KeyColumn<#ty>>::is_from(#value)),
    )
}

/// Writes the type of the condition `column = value`, and the condition.
fn equals(place: Span, column: &TokenStream, ty: &Type, value: &TokenStream) -> (TokenStream, TokenStream) {
    (
        quote_spanned!(place=> <#column as ::queueable::__derive::KeyColumn<#ty>>::IsKey),
        quote_spanned!(place=> <#column as ::queueable::__derive::KeyColumn<#ty>>::is_key(#value)),
    )
}

/// Writes the entity's impl.
///
/// The argument is not called `key`: if the user's code imports a column of that name from the table's `dsl`, it would
/// be a pattern.
pub(crate) fn queueable(model: &Model<'_>, key: &Key) -> TokenStream {
    let entity = &model.input.ident;
    let name = entity.unraw().to_string();
    let (impl_generics, ty_generics, where_clause) = model.input.generics.split_for_impl();
    let module = model.module();
    let Key { columns, value, is_key, comparison, is_after, comparison_after, place } = key;
    let condition = quote_spanned! {*place=>
        fn is_key(__key: Self::Key) -> Self::IsKey { #comparison }
        fn is_after(__key: Self::Key) -> Self::IsAfter { #comparison_after }
    };
    let is_key = quote_spanned!(*place=> type IsKey = #is_key; type IsAfter = #is_after;);
    let parts = model.primary_key.len();
    let key_parts = (parts > 1).then(|| quote!(const KEY_PARTS: ::core::primitive::usize = #parts;));
    let max_tries = model.attributes.max_tries.map(|max_tries| quote!(max_tries: #max_tries,));
    let timeout =
        model.attributes.timeout.map(duration).map(|timeout| quote!(timeout: ::core::option::Option::Some(#timeout),));
    let lease = model.attributes.lease.as_ref().map(|lease| duration(lease.value)).map(|lease| quote!(lease: #lease,));
    let group = model.attributes.group.as_ref().map(|group| {
        let optimistic = group.value.optimistic;
        let size = group.value.size.map(|size| quote!(group: ::core::option::Option::Some(#size),));
        quote!(#size optimistic: #optimistic,)
    });
    let mode = match (&lease, &group) {
        (Some(_), _) => quote!(LeaseMode),
        (None, Some(_)) => quote!(GroupMode),
        (None, None) => quote!(TransactionMode),
    };
    let retry_policy = model.attributes.retry.as_ref().map(retry_policy);
    // An expression may read other tables, or the time. An embedded struct may contain one.
    let is_its_row = model.fields.iter().all(|field| field.select_expression.is_none() && !field.embed);
    let compare_in_group = model.order_in_group_field().map(compare_in_group);
    quote! {
        #[automatically_derived]
        #[allow(deprecated)]
        impl #impl_generics ::queueable::Entity for #entity #ty_generics #where_clause {
            type Queue = #module::Queue;
            type KeyColumns = #columns;
            type Key = #value;
            #is_key
            type Mode = ::queueable::bounds::#mode;
            const ENTITY: &'static ::core::primitive::str = #name;
            const KEY_COLUMNS: &'static #columns = &#columns;
            #key_parts
            const SETTINGS: ::queueable::__derive::Settings =
                ::queueable::__derive::Settings { #max_tries #timeout #lease #group ..::queueable::__derive::Settings::DEFAULT };
            const IS_ITS_ROW: ::core::primitive::bool = #is_its_row;
            #condition
            #compare_in_group
            #retry_policy
        }
    }
}

/// Writes the comparison with the column's span, so that the compiler reports a type without an order there.
fn compare_in_group((column, field): (&Ident, &Ident)) -> TokenStream {
    // Only its location: an attribute that a user's macro wrote has another hygiene, in which `self` is unknown.
    let place = Span::call_site().located_at(column.span());
    let compared = quote_spanned!(place=> ::core::cmp::Ord::cmp(&self.#field, &__other.#field));
    quote! {
        fn compare_in_group(&self, __other: &Self) -> ::core::cmp::Ordering {
            #compared
        }
    }
}

fn retry_policy(retry: &Retry) -> TokenStream {
    let policy = match retry {
        Retry::None => quote!(::queueable::Retry::None),
        Retry::Fixed(delay) => {
            let delay = duration(delay.value);
            quote!(::queueable::Retry::fixed(#delay))
        }
        Retry::Linear { step, max } => {
            let step = duration(step.value);
            let max = max.as_ref().map(|max| duration(max.value)).map(|max| quote!(.max(#max)));
            quote!(::queueable::Retry::linear(#step) #max)
        }
        Retry::Exponential { first, max, jitter_percent } => {
            let first = duration(first.value);
            let max = max.as_ref().map(|max| duration(max.value)).map(|max| quote!(.max(#max)));
            let jitter = jitter_percent.map(|percent| quote!(.jitter_percent(#percent)));
            quote!(::queueable::Retry::exponential(#first) #max #jitter)
        }
        Retry::Custom(policy) => quote!(#policy),
    };
    let span = match retry {
        Retry::Custom(policy) => policy.span(),
        _ => Span::mixed_site(),
    };
    let arc = quote_spanned!(span=> ::std::sync::Arc::new(#policy));
    quote! {
        fn retry_policy() -> ::std::sync::Arc<dyn ::queueable::RetryPolicy> {
            #arc
        }
    }
}
