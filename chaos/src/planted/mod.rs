//! A harness that cannot fail is worth nothing: bugs are planted in a copy of the library, one is alive at a time, and a run
//! has to find each.

mod bugs;
mod copy;
mod edit;
mod hunt;

pub(crate) use self::copy::check;
pub(crate) use self::hunt::find_all;
