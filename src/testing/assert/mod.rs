//! Assertions on rows, whose messages show what is there instead.
//!
//! `macros.rs` is what tests call, and `checks.rs` compares. `asked.rs` has the options, `rows.rs` reads, and `shown.rs` writes the
//! message.

mod asked;
mod checks;
mod macros;
mod rows;
mod shown;

#[doc(inline)]
pub use crate::{
    __assert_enqueued as assert_enqueued, __assert_next as assert_next, __assert_nothing_due as assert_nothing_due,
    __assert_settled as assert_settled, __refute_enqueued as refute_enqueued,
};

/// What the macros call: functions that return the message of a failing assertion.
#[doc(hidden)]
pub mod __assert {
    pub use super::asked::{Asked, Length, Lengths};
    pub use super::checks::{all, enqueued, next, not_enqueued, nothing_due, passes, settled};
}
