//! The derive macro of [queueable](https://docs.rs/queueable). Use it through that crate.

mod check;
mod expand;
mod model;
mod parse;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

use crate::model::Model;
use crate::parse::Attributes;

// The facade runs the examples. A development dependency on it would build diesel a second time, for the host, with
// fewer features than diesel's own derives were built with, and that does not compile.
#[cfg_attr(not(doctest), doc = include_str!("../docs/derive.md"))]
#[cfg_attr(doctest, doc = "Its examples are run by the facade.")]
#[proc_macro_derive(Queueable, attributes(queue, diesel))]
pub fn derive_queueable(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    let mut errors = Vec::new();
    let attributes = Attributes::parse(&input, &mut errors);
    let crate_path = attributes.crate_path.clone();
    let model = Model::new(&input, attributes, &mut errors);
    check::check(&model, &mut errors);
    let expanded = match model.key() {
        Some(key) if errors.is_empty() => expand::expand(&model, &key),
        _ => expand::expand_with_errors(&model, errors),
    };
    match crate_path {
        Some(path) => expand::in_crate(expanded, &path).into(),
        None => expanded.into(),
    }
}

/// Derives [`Stage`](../queueable/trait.Stage.html) for an enum without fields, and Diesel's `ToSql` and `FromSql` between it
/// and text.
///
/// The text of a stage is its name in capitals with underscores; `#[stage(name = "render")]` on a variant gives
/// another. `#[stage(crate = my_app::queueable)]` on the enum says where the library is, if it is not `::queueable`. With
/// Diesel's own `AsExpression` and `FromSqlRow`, queries can filter by it and load it:
///
/// ```text
/// #[derive(Debug, Clone, Copy, PartialEq, Eq, AsExpression, FromSqlRow, Stage)]
/// #[diesel(sql_type = diesel::sql_types::Text)]
/// enum InvoiceStage { Render, Send, Book }
/// ```
#[proc_macro_derive(Stage, attributes(stage))]
pub fn derive_stage(input: TokenStream) -> TokenStream {
    expand::expand_stage(&parse_macro_input!(input as DeriveInput)).into()
}
