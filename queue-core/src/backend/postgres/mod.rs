//! PostgreSQL.

mod clients;
mod dialect;
mod errors;
mod examination;
mod finish;
mod live_table;
mod schema;
mod session;
mod settings;
mod trigger;

#[cfg(feature = "async-postgres")]
pub use self::clients::AsyncPgSession;
