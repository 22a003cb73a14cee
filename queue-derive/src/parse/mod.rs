//! Parse: what the attributes say, each value with an error message of its own.
//!
//! An item that cannot be read is reported at its token and left out, so that one mistake does not hide others.

mod attribute;
mod item;
mod kinds;
mod lanes;
mod retry;
mod suggest;
mod value;

pub(crate) use self::attribute::{Attributes, COLUMNS};
pub(crate) use self::item::without_quotes;
pub(crate) use self::kinds::{Kinds, Missed, OPTIONAL_COLUMNS};
pub(crate) use self::retry::Retry;
pub(crate) use self::value::{MAX_NAME_BYTES, Written, crate_path};
