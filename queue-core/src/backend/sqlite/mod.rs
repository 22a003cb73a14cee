//! SQLite.

mod dialect;
mod schema;
mod session;
mod trigger;
