//! MySQL and MariaDB.

mod clients;
mod control_table;
mod dialect;
mod errors;
mod examination;
mod indexable;
mod schema;
mod session;
mod settings;
mod trigger;

#[cfg(feature = "async-mysql")]
pub use self::clients::AsyncMysqlSession;
