//! Expand: a duration, as the runtime takes it.

use std::time::Duration;

use proc_macro2::TokenStream;
use quote::quote;

pub(crate) fn duration(duration: Duration) -> TokenStream {
    let milliseconds = u64::try_from(duration.as_millis()).expect("100 years of milliseconds fit into 64 bits");
    quote!(::std::time::Duration::from_millis(#milliseconds))
}
