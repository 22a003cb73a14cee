//! Expand: the assertions about what the entity selects. The code is compiled and never runs.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::parse_quote;
use syn::spanned::Spanned;

use crate::model::{Field, Model};

/// Writes the assertions that the entity is `Selectable`, whatever the backend, and that its expressions and embedded
/// structs are selected from its own table alone.
///
/// They assume that an embedded struct is `Selectable`: the entity's own impl requires it, and may do so for one backend
/// only.
pub(crate) fn assertions(model: &Model<'_>) -> TokenStream {
    let entity = &model.input.ident;
    let (_, ty_generics, _) = model.input.generics.split_for_impl();
    let mut generics = model.input.generics.clone();
    generics.params.push(parse_quote!(__DB: ::diesel::backend::Backend));
    for field in model.fields.iter().filter(|field| field.embed) {
        let embedded = &field.ty;
        generics.make_where_clause().predicates.push(parse_quote!(#embedded: ::diesel::Selectable<__DB>));
    }
    let (impl_generics, _, where_clause) = generics.split_for_impl();
    let entity = quote!(#entity #ty_generics);
    let assertion = expressions(model, &entity).unwrap_or_else(
        || quote_spanned!(model.input.ident.span()=> ::queueable::__derive::assert_selectable::<#entity, __DB>();),
    );
    let embedded = embedded(model);
    quote! {
        #[allow(deprecated)]
        const _: () = {
            fn _selectable #impl_generics () #where_clause {
                #assertion
            }
            #embedded
        };
    }
}

/// Writes the assertions for the fields with a `select_expression`; `None` if there are none.
///
/// They take the selection apart, which is a tuple with a part for each field. To repeat the expression would give it
/// another type where Diesel infers the type of a literal from that of the selection.
fn expressions(model: &Model<'_>, entity: &TokenStream) -> Option<TokenStream> {
    let table = &model.table;
    let (mut patterns, mut assertions) = (Vec::new(), Vec::new());
    for (i, field) in model.fields.iter().enumerate() {
        let Some((_, expression)) = &field.select_expression else {
            patterns.push(quote!(_));
            continue;
        };
        let part = format_ident!("__part_{i}");
        assertions.push(
            quote_spanned!(expression.span()=> ::queueable::__derive::assert_selected_from::<#table::table, _>(&#part)),
        );
        patterns.push(quote!(#part));
    }
    let selection = quote_spanned!(model.input.ident.span()=> ::queueable::__derive::selection_of::<#entity, __DB>());
    (!assertions.is_empty()).then(|| {
        quote! {
            let (#(#patterns,)*) = #selection;
            #(#assertions;)*
        }
    })
}

/// Writes the assertions for the embedded structs. A type with the entity's type parameters cannot be asked.
fn embedded(model: &Model<'_>) -> Option<TokenStream> {
    let is_embedded = |field: &&Field<'_>| field.embed && field.select_expression.is_none();
    let fields: Vec<_> = model.fields.iter().filter(is_embedded).collect();
    if fields.is_empty() || model.input.generics.type_params().next().is_some() {
        return None;
    }
    let table = &model.table;
    let (impl_generics, _, where_clause) = model.input.generics.split_for_impl();
    let assertions = fields.iter().map(|field| {
        let ty = &field.ty;
        quote_spanned!(ty.span()=> ::queueable::__derive::assert_embedded!(#ty, #table::table))
    });
    Some(quote! {
        fn _embedded #impl_generics () #where_clause {
            #(#assertions;)*
        }
    })
}
