//! Turns an existing Diesel table into a reliable queue.

pub use queue_core::*;
pub use queue_derive::Queueable;
