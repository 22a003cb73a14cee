//! How much the tests do that try what chance decides.

use std::env;

/// `usual` in each run, and `thorough` where the variable `QUEUEABLE_THOROUGH` is set, as it is every night.
pub(crate) fn times<T>(usual: T, thorough: T) -> T {
    if env::var_os("QUEUEABLE_THOROUGH").is_some() { thorough } else { usual }
}
