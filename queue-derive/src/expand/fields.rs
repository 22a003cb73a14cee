//! Expand: the check that each field can be read from its column, at the field.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{GenericParam, Ident, Type};

use crate::model::{Field, Model};

/// Writes the checks of all fields, and of the entity if each of its fields is a column. A type parameter may be
/// anything, so an entity that has one is left to the bounds of the calls.
pub(crate) fn checks(model: &Model<'_>) -> Option<TokenStream> {
    let generics = &model.input.generics;
    if generics.params.iter().any(|parameter| !matches!(parameter, GenericParam::Lifetime(_))) {
        return None;
    }
    let (impl_generics, _, where_clause) = generics.split_for_impl();
    let columns: Vec<_> = model.fields.iter().filter_map(|field| Some((field, field.column_type(model)?))).collect();
    let each = columns.iter().map(|(field, sql_type)| {
        let question = if model.is_key(field) { "OfKey" } else { "OfField" };
        let ty = field.read_as();
        check(model, question, ty.span(), &quote!(#ty), sql_type)
    });
    let whole = (columns.len() == model.fields.len()).then(|| {
        let types = columns.iter().map(|(field, _)| field.read_as());
        let sql_types = columns.iter().map(|(_, sql_type)| sql_type);
        check(model, "OfEntity", model.input.ident.span(), &quote!((#(#types,)*)), &quote!((#(#sql_types,)*)))
    });
    Some(quote! {
        #[allow(deprecated)]
        const _: () = {
            #[allow(unused_imports)]
            fn _fields #impl_generics () #where_clause {
                use ::queueable::__derive::field_check::{NoFault as _, NotQueryable as _};
                #(#each)*
                #whole
            }
        };
    })
}

/// Writes one check. The compiler reports what it finds at the place of the method's name.
fn check(model: &Model<'_>, question: &str, place: Span, ty: &TokenStream, sql_type: &TokenStream) -> TokenStream {
    let entity = &model.input.ident;
    let (_, ty_generics, _) = model.input.generics.split_for_impl();
    let question = format_ident!("{question}");
    let place = Span::call_site().located_at(place);
    let method = quote_spanned!(place=> check);
    quote! {
        (&&&&&&&&::queueable::__derive::field_check::Probe::<
            ::queueable::__derive::field_check::#question, #entity #ty_generics, #ty, #sql_type
        >::new()).#method();
    }
}

impl Field<'_> {
    /// Returns the type as which the field's column is read.
    fn read_as(&self) -> &Type {
        self.deserialize_as.as_ref().map_or(&self.ty, |(_, ty)| ty)
    }

    /// Returns the SQL type of the field's column, if the field is one column.
    fn column_type(&self, model: &Model<'_>) -> Option<TokenStream> {
        if self.embed || self.select_expression.is_some() {
            return None;
        }
        let (table, name) = (&model.table, &self.column.value);
        let mut column: Ident = syn::parse_str(name).or_else(|_| syn::parse_str(&format!("r#{name}"))).ok()?;
        // Where Diesel's derive says so too if there is no such column, so that it is said once.
        column.set_span(self.column.span);
        Some(quote!(::diesel::dsl::SqlTypeOf<#table::#column>))
    }
}
