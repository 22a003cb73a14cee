//! SQLite.

mod dialect;
mod examination;
mod schema;
mod session;
mod settings;
mod trigger;
