//! Parse: what the attributes say, each value with its own complaint.
//!
//! An item that cannot be read is reported at its token and left out, so that a mistake hides no other.

mod attribute;
mod kinds;
mod suggest;
mod value;

pub(crate) use self::attribute::{Attributes, COLUMNS};
pub(crate) use self::kinds::{Missed, OPTIONAL_COLUMNS};
pub(crate) use self::value::{MAX_NAME_BYTES, Retry, Written};
