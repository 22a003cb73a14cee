//! The derive of `Stage`: an enum's names as text, and Diesel's mapping to it.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{Attribute, Data, DeriveInput, Error, Fields, LitStr, Path, Result, Variant};

use super::crate_path::in_crate;
use crate::parse;

/// The longest text that every database's column takes, in bytes.
const MAX_BYTES: usize = 191;

/// Writes the impls for an enum without fields. If an attribute is wrong, they stand beside its error, so that an entity with
/// these stages is not accused too.
pub(crate) fn expand(input: &DeriveInput) -> TokenStream {
    let variants = match variants(input) {
        Ok(variants) => variants,
        Err(error) => return error.to_compile_error(),
    };
    let mut errors = TokenStream::new();
    let path = crate_path(&input.attrs).unwrap_or_else(|error| {
        errors.extend(error.to_compile_error());
        None
    });
    let names = names(&variants).unwrap_or_else(|error| {
        errors.extend(error.to_compile_error());
        variants.iter().map(|variant| variant.ident.unraw().to_string()).collect()
    });
    let impls = impls(input, &variants, &names);
    let impls = match path {
        Some(path) => in_crate(impls, &path),
        None => impls,
    };
    quote!(#errors #impls)
}

/// Returns the path from `#[stage(crate = ..)]`.
fn crate_path(attributes: &[Attribute]) -> Result<Option<Path>> {
    let mut given = None;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("stage")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("expected `crate = path`; the name of a stage stands on its variant"));
            }
            given = Some(parse::crate_path(meta.value()?)?);
            Ok(())
        })?;
    }
    Ok(given)
}

fn variants(input: &DeriveInput) -> Result<Vec<&Variant>> {
    const HELP: &str =
        "help: the stages of a pipeline are an enum without fields: `enum InvoiceStage { Render, Send }`";

    let Data::Enum(data) = &input.data else {
        return Err(Error::new(input.ident.span(), format!("`Stage` can only be derived for an enum\n{HELP}")));
    };
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(&input.generics, format!("stages have no parameters\n{HELP}")));
    }
    if data.variants.is_empty() {
        return Err(Error::new(input.ident.span(), format!("`{}` has no stage\n{HELP}", input.ident)));
    }
    match data.variants.iter().find(|variant| !matches!(variant.fields, Fields::Unit)) {
        Some(variant) => Err(Error::new_spanned(&variant.fields, format!("a stage has no fields\n{HELP}"))),
        None => Ok(data.variants.iter().collect()),
    }
}

fn names(variants: &[&Variant]) -> Result<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for variant in variants {
        let name = name(variant)?;
        if let Some(other) = names.iter().position(|other| *other == name) {
            let message = format!("`{}` and `{}` have the same text, `{name}`", variants[other].ident, variant.ident);
            return Err(Error::new(variant.ident.span(), message));
        }
        names.push(name);
    }
    Ok(names)
}

/// Returns the name from `#[stage(name = "..")]`, or the variant's name in capitals with underscores.
fn name(variant: &Variant) -> Result<String> {
    let mut given: Option<LitStr> = None;
    for attribute in variant.attrs.iter().filter(|attribute| attribute.path().is_ident("stage")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("name") {
                return Err(meta.error("expected `name = \"..\"`"));
            }
            given = Some(meta.value()?.parse()?);
            Ok(())
        })?;
    }
    if let Some(given) = given {
        let text = given.value();
        if text.is_empty() || text.len() > MAX_BYTES || text.contains('\0') {
            let message = format!("expected a text of 1 to {MAX_BYTES} bytes without NUL");
            return Err(Error::new(given.span(), message));
        }
        return Ok(text);
    }
    let mut name = String::new();
    for character in variant.ident.unraw().to_string().chars() {
        if character.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(character.to_uppercase());
    }
    Ok(name)
}

fn impls(input: &DeriveInput, variants: &[&Variant], names: &[String]) -> TokenStream {
    let entity = &input.ident;
    let variants: Vec<_> = variants.iter().map(|variant| &variant.ident).collect();
    quote! {
        #[automatically_derived]
        #[allow(deprecated)]
        impl ::queueable::Stage for #entity {
            const ALL: &'static [Self] = &[#(Self::#variants),*];
            const NAMES: &'static [&'static ::core::primitive::str] = &[#(#names),*];
            fn name(self) -> &'static ::core::primitive::str {
                match self {
                    #(Self::#variants => #names),*
                }
            }
        }

        #[automatically_derived]
        #[allow(deprecated)]
        impl<__DB> ::diesel::serialize::ToSql<::diesel::sql_types::Text, __DB> for #entity
        where
            __DB: ::diesel::backend::Backend,
            ::core::primitive::str: ::diesel::serialize::ToSql<::diesel::sql_types::Text, __DB>,
        {
            fn to_sql<'b>(&'b self, __out: &mut ::diesel::serialize::Output<'b, '_, __DB>) -> ::diesel::serialize::Result {
                let __name = ::queueable::Stage::name(*self);
                <::core::primitive::str as ::diesel::serialize::ToSql<::diesel::sql_types::Text, __DB>>::to_sql(__name, __out)
            }
        }

        #[automatically_derived]
        #[allow(deprecated)]
        impl<__DB> ::diesel::deserialize::FromSql<::diesel::sql_types::Text, __DB> for #entity
        where
            __DB: ::diesel::backend::Backend,
            ::std::string::String: ::diesel::deserialize::FromSql<::diesel::sql_types::Text, __DB>,
        {
            fn from_sql(__value: __DB::RawValue<'_>) -> ::diesel::deserialize::Result<Self> {
                let __name = <::std::string::String as ::diesel::deserialize::FromSql<
                    ::diesel::sql_types::Text,
                    __DB,
                >>::from_sql(__value)?;
                ::queueable::__derive::stage_named(&__name)
            }
        }
    }
}
