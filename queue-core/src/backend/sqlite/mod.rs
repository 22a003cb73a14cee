//! SQLite.

mod dialect;
mod schema;
mod session;
mod settings;
mod trigger;
