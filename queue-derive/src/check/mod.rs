//! Check: refuses what cannot work, with each error at the smallest wrong token.

mod check;
mod kinds;

pub(crate) use self::check::check;
