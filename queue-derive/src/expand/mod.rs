//! Expand: the column module and the trait impls. No control flow, no SQL.
//!
//! `fallback.rs` writes what replaces an entity with mistakes, so that the user sees those mistakes and no others. For an enum
//! of stages with wrong attributes `stage.rs` does the same; another type gets no impl.

mod crate_path;
mod duration;
mod expand;
mod fallback;
mod fields;
mod kinds;
mod selection;
mod stage;

pub(crate) use self::crate_path::in_crate;
pub(crate) use self::expand::expand;
pub(crate) use self::fallback::expand as expand_with_errors;
pub(crate) use self::stage::expand as expand_stage;
