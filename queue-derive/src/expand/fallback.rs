//! Expand, after an error: impls that keep the rest of the user's code from failing too.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{Data, Error};

use super::expand::{self, Key};
use crate::model::Model;

/// Writes the errors, and as much of the usual code as is certain to compile.
pub(crate) fn expand(model: &Model<'_>, errors: Vec<Error>) -> TokenStream {
    let errors = errors.iter().map(Error::to_compile_error);
    let module = expand::column_module(model);
    // An enum has no table, and the default name would only cause one more error.
    let has_table = model.table_is_named || matches!(model.input.data, Data::Struct(_));
    let impls = has_table.then(|| {
        let queue_table = expand::queue_table(model);
        let key = model.key().filter(|key| !key.is_empty());
        let queueable = expand::queueable(model, &key.map_or_else(no_key, |key| Key::new(&model.table, &key)));
        quote!(#queue_table #queueable)
    });
    quote!(#(#errors)* #module #impls)
}

fn no_key() -> Key {
    Key {
        columns: quote!(()),
        value: quote!(()),
        is_key: quote!(()),
        comparison: quote!(__key),
        is_after: quote!(()),
        comparison_after: quote!(__key),
        place: Span::call_site(),
    }
}
