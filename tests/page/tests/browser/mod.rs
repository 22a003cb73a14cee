//! A real browser, and what the tests ask of it: to go somewhere, to find and click what a person sees, and to say what would be in a
//! person's way.

mod by;
mod check;
mod driver;
mod log;
mod picture;
mod runtime;
mod until;
mod window;
mod wire;

pub(crate) use self::by::By;
pub(crate) use self::runtime::runtime;
pub(crate) use self::until::{until, within};
pub(crate) use self::window::Browser;
