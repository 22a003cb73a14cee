//! An item as lines: its own, and one for each field, variant, method and impl.

use std::fs;

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Expr, Field, Fields, FnArg, ImplItem, Item, ItemFn, ItemImpl, ItemTrait, Lit, LitStr, Meta, Pat,
    Signature, Token, TraitItem, Variant, Visibility,
};

use super::crates::{Module, cfgs_of};
use super::one_line::one_line;

/// An item by the name that users give it.
pub(crate) struct Public {
    pub(crate) name: String,
    pub(crate) line: String,
    pub(crate) docs: String,
    pub(crate) is_hidden: bool,
    pub(crate) parts: Vec<Part>,
}

/// A field, a variant, a method, an impl.
pub(crate) struct Part {
    /// The name in its item; none of an impl of a trait, which the trait documents.
    pub(crate) name: Option<String>,
    /// The header of the impl in which it stands.
    pub(crate) within: Option<String>,
    pub(crate) line: String,
    pub(crate) docs: String,
    pub(crate) is_hidden: bool,
}

impl Part {
    fn new(module: &Module, name: &impl ToString, attributes: &[Attribute], declaration: TokenStream) -> Self {
        Part {
            name: Some(name.to_string()),
            within: None,
            line: with_attributes(attributes, declaration),
            docs: docs(module, attributes),
            is_hidden: is_hidden(attributes),
        }
    }
}

/// Describes an item without its impls; `brought` are the attributes of the `use` that gives it its name.
pub(crate) fn described(module: &Module, item: &Item, name: &str, brought: &[Attribute]) -> Public {
    let attributes = attributes_of(item);
    let path: TokenStream = name.parse().unwrap_or_default();
    let (declaration, parts) = match item {
        Item::Const(item) => {
            let ty = &item.ty;
            (quote!(const #path: #ty), Vec::new())
        }
        Item::Enum(item) => {
            let (generics, bounds) = (&item.generics, &item.generics.where_clause);
            let variants = item.variants.iter().map(|variant| part_of_variant(module, variant)).collect();
            (quote!(enum #path #generics #bounds), variants)
        }
        Item::Fn(item) => (declaration_of_fn(item, &path), Vec::new()),
        Item::Macro(item) => {
            let pattern = item.mac.tokens.clone().into_iter().next();
            (quote!(macro #path! #pattern), Vec::new())
        }
        Item::Mod(_) => (quote!(mod #path), Vec::new()),
        Item::Struct(item) => {
            let (generics, bounds, shape) = (&item.generics, &item.generics.where_clause, shape_of(&item.fields));
            (quote!(struct #path #generics #bounds #shape), parts_of_fields(module, &item.fields))
        }
        Item::Trait(item) => {
            let (generics, bounds) = (&item.generics, &item.generics.where_clause);
            let (colon, supertraits) = (&item.colon_token, &item.supertraits);
            (quote!(trait #path #generics #colon #supertraits #bounds), parts_of_trait(module, item))
        }
        Item::Type(item) => {
            let (generics, ty) = (&item.generics, &item.ty);
            (quote!(type #path #generics = #ty), Vec::new())
        }
        other => (other.to_token_stream(), Vec::new()),
    };
    let line = with_attributes(&[brought, &module.cfgs, attributes].concat(), declaration);
    Public { name: name.to_owned(), line, docs: docs(module, attributes), is_hidden: is_hidden(attributes), parts }
}

/// Describes what another crate has, and this one hands on.
pub(crate) fn described_elsewhere(name: &str, target: &[String], brought: &[Attribute], is_hidden: bool) -> Public {
    let docs = "Its own crate says.".to_owned();
    Public {
        name: name.to_owned(),
        line: format!("{}use {} as {name}", with_attributes(brought, TokenStream::new()), target.join("::")),
        docs,
        is_hidden,
        parts: Vec::new(),
    }
}

/// The function, or the derive that it is.
fn declaration_of_fn(item: &ItemFn, path: &TokenStream) -> TokenStream {
    let derive = item.attrs.iter().find(|attribute| attribute.path().is_ident("proc_macro_derive"));
    if let Some(Meta::List(derive)) = derive.map(|derive| &derive.meta) {
        let tokens = &derive.tokens;
        return quote!(derive(#tokens));
    }
    let mut signature = plain(&item.sig);
    signature.ident = quote::format_ident!("queueable_name");
    let renamed = signature.into_token_stream().into_iter().flat_map(|token| match &token {
        TokenTree::Ident(ident) if ident == "queueable_name" => path.clone(),
        _ => token.into(),
    });
    renamed.collect()
}

fn part_of_variant(module: &Module, variant: &Variant) -> Part {
    let mut shown = variant.clone();
    shown.attrs.clear();
    shown.fields.iter_mut().for_each(|field| field.attrs.clear());
    let mut part = Part::new(module, &variant.ident, &variant.attrs, shown.into_token_stream());
    let is_undocumented = |field: &Field| field.ident.is_some() && docs(module, &field.attrs).is_empty();
    if variant.fields.iter().any(is_undocumented) {
        part.docs.clear();
    }
    part
}

/// What stands behind a struct's name: `{ .. }` and `_` are what nobody else sees.
fn shape_of(fields: &Fields) -> TokenStream {
    match fields {
        Fields::Named(fields) if fields.named.iter().all(is_public) => TokenStream::new(),
        Fields::Named(_) => quote!({ .. }),
        Fields::Unnamed(fields) => {
            let types = fields.unnamed.iter().map(|field| {
                let ty = &field.ty;
                if is_public(field) { quote!(#ty) } else { quote!(_) }
            });
            quote!((#(#types),*))
        }
        Fields::Unit => TokenStream::new(),
    }
}

fn parts_of_fields(module: &Module, fields: &Fields) -> Vec<Part> {
    let named = fields.iter().filter(|field| is_public(field)).filter_map(|field| Some((field.ident.as_ref()?, field)));
    let part = |(name, field): (_, &Field)| {
        let ty = &field.ty;
        Part::new(module, name, &field.attrs, quote!(#name: #ty))
    };
    named.map(part).collect()
}

fn parts_of_trait(module: &Module, item: &ItemTrait) -> Vec<Part> {
    let part = |item: &TraitItem| match item {
        TraitItem::Const(item) => {
            let (name, ty) = (&item.ident, &item.ty);
            let provided = item.default.as_ref().map(|_| quote!({ .. }));
            Some(Part::new(module, name, &item.attrs, quote!(const #name: #ty #provided)))
        }
        TraitItem::Fn(item) => {
            let signature = plain(&item.sig);
            let provided = item.default.as_ref().map(|_| quote!({ .. }));
            Some(Part::new(module, &item.sig.ident, &item.attrs, quote!(#signature #provided)))
        }
        TraitItem::Type(item) => {
            let (name, colon, bounds) = (&item.ident, &item.colon_token, &item.bounds);
            let (generics, wheres) = (&item.generics, &item.generics.where_clause);
            Some(Part::new(module, name, &item.attrs, quote!(type #name #generics #colon #bounds #wheres)))
        }
        _ => None,
    };
    item.items.iter().filter_map(part).collect()
}

/// An impl of a trait; what is in it the trait says.
pub(crate) fn part_of_impl(module: &Module, item: &ItemImpl) -> Part {
    let line = with_attributes(&[&module.cfgs[..], &cfgs_of(&item.attrs)].concat(), header_of(item));
    Part { name: None, within: None, line, docs: String::new(), is_hidden: is_hidden(&item.attrs) }
}

/// The public methods and constants of an inherent impl.
pub(crate) fn parts_of_impl(module: &Module, item: &ItemImpl) -> Vec<Part> {
    let header = with_attributes(&[&module.cfgs[..], &cfgs_of(&item.attrs)].concat(), header_of(item));
    let part = |item: &ImplItem| match item {
        ImplItem::Const(item) if is_pub(&item.vis) => {
            let (name, ty) = (&item.ident, &item.ty);
            Some(Part::new(module, name, &item.attrs, quote!(const #name: #ty)))
        }
        ImplItem::Fn(item) if is_pub(&item.vis) => {
            Some(Part::new(module, &item.sig.ident, &item.attrs, plain(&item.sig).into_token_stream()))
        }
        _ => None,
    };
    item.items.iter().filter_map(part).map(|part| Part { within: Some(header.clone()), ..part }).collect()
}

fn header_of(item: &ItemImpl) -> TokenStream {
    let (generics, bounds, ty) = (&item.generics, &item.generics.where_clause, &item.self_ty);
    let of = item.trait_.as_ref().map(|(not, path, of)| quote!(#not #path #of));
    quote!(impl #generics #of #ty #bounds)
}

/// A signature without what only its body wants: `mut`.
fn plain(signature: &Signature) -> Signature {
    let mut signature = signature.clone();
    for argument in &mut signature.inputs {
        match argument {
            FnArg::Receiver(receiver) if receiver.reference.is_none() => receiver.mutability = None,
            FnArg::Typed(argument) => {
                if let Pat::Ident(name) = &mut *argument.pat {
                    name.mutability = None;
                }
            }
            FnArg::Receiver(_) => {}
        }
    }
    signature
}

/// A line with the attributes that a user's code depends on. The order of derives does not matter.
fn with_attributes(attributes: &[Attribute], declaration: TokenStream) -> String {
    let mut line = String::new();
    for attribute in attributes {
        let path = attribute.path();
        if path.is_ident("derive") {
            let derives = attribute.parse_args_with(Punctuated::<syn::Path, Token![,]>::parse_terminated);
            let mut derives: Vec<_> =
                derives.into_iter().flatten().map(|path| one_line(path.to_token_stream())).collect();
            derives.sort();
            line += &format!("#[derive({})] ", derives.join(", "));
        } else if path.is_ident("must_use") {
            line += "#[must_use] ";
        } else if ["cfg", "default", "deprecated", "non_exhaustive", "serde"].iter().any(|kept| path.is_ident(kept)) {
            line += &format!("{} ", one_line(attribute.to_token_stream()));
        }
    }
    line + &one_line(declaration)
}

/// What the documentation says, with the files that it includes.
fn docs(module: &Module, attributes: &[Attribute]) -> String {
    let mut text = String::new();
    for attribute in attributes {
        let meta = match &attribute.meta {
            Meta::List(list) if list.path.is_ident("cfg_attr") => {
                let metas = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
                metas.into_iter().flatten().find(|meta| meta.path().is_ident("doc"))
            }
            meta => Some(meta.clone()),
        };
        if let Some(Meta::NameValue(doc)) = meta
            && doc.path.is_ident("doc")
        {
            text += &format!("{}\n", text_of(module, &doc.value));
        }
    }
    text
}

fn text_of(module: &Module, value: &Expr) -> String {
    match value {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => text.value(),
            other => other.to_token_stream().to_string(),
        },
        Expr::Macro(called) if called.mac.path.is_ident("include_str") => {
            let included = called.mac.parse_body::<LitStr>().map(|path| module.file.with_file_name(path.value()));
            included.ok().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default()
        }
        other => other.to_token_stream().to_string(),
    }
}

pub(crate) fn is_hidden(attributes: &[Attribute]) -> bool {
    let is_it = |attribute: &Attribute| match &attribute.meta {
        Meta::List(list) => list.path.is_ident("doc") && list.tokens.to_string() == "hidden",
        _ => false,
    };
    attributes.iter().any(is_it)
}

fn is_public(field: &Field) -> bool {
    is_pub(&field.vis)
}

fn is_pub(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

pub(crate) fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        _ => &[],
    }
}
