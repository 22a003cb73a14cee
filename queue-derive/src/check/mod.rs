//! Check: what cannot be, each complaint at the smallest guilty token.

mod check;
mod kinds;

pub(crate) use self::check::check;
