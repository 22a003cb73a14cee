//! A second call of a leased row while the first one runs.

use std::time::Duration;

use crate::sync::in_test::{make_second_call, set_wants_second_call};

/// Has the calls of leased rows on this thread offer a second one, until the returned value is dropped.
pub fn offer_second_calls() -> OfferedCalls {
    set_wants_second_call(true);
    OfferedCalls
}

/// Ends the offers when it is dropped.
#[must_use = "it ends the offers when it is dropped"]
pub struct OfferedCalls;

impl Drop for OfferedCalls {
    fn drop(&mut self) {
        set_wants_second_call(false);
    }
}

/// Has another worker call the handler of the row that is being called on this thread, from the beginning to the end. Returns
/// whether it came to the end in this time.
pub fn second_call(at_most: Duration) -> bool {
    make_second_call(at_most)
}
