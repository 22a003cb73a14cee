//! The derive macro of queueable.
use proc_macro::TokenStream;

/// Derives Queueable.
#[proc_macro_derive(Queueable, attributes(queue, diesel))]
pub fn derive_queueable(_input: TokenStream) -> TokenStream {
    TokenStream::new()
}
