//! The database backends: the few things that differ between PostgreSQL, MySQL/MariaDB and SQLite.
//!
//! [`QueueBackend`] provides the SQL text, [`QueueConnection`] the session, and [`Schema`] the DDL. To add a
//! database, add a folder here.

mod archive;
#[doc(hidden)]
pub mod backends;
mod bind;
mod bystanders;
mod captured;
mod connection;
mod connection_source;
mod connections;
mod control_schema;
mod created;
mod ddl;
mod declared_column;
mod dialect;
#[cfg(feature = "_async")]
mod diesel_async_session;
mod differences;
mod error_class;
mod exclusion;
mod index;
mod live_table;
#[cfg(feature = "_mysql")]
mod mysql;
mod now;
mod one;
mod one_round_trip;
mod own_connection;
mod own_transaction;
#[cfg(feature = "_postgres")]
mod postgres;
mod rights;
mod schema;
mod session;
mod session_holder;
#[cfg(feature = "_async")]
mod session_runtime;
mod session_setup;
mod settings;
#[cfg(feature = "sqlite")]
mod sqlite;
mod statement;
mod table_name;
mod target;
mod transactions;
mod trigger;
mod trigger_migration;
mod unknown_columns;

pub use self::bind::Binds;
pub use self::connection::{AsQueueConnection, QueueBackend, QueueConnection};
pub use self::connection_source::ConnectionSource;
pub use self::declared_column::{DeclaredColumn, DeclaredTypes};
pub(crate) use self::dialect::LaneWalk;
pub use self::dialect::{ChangeSql, IndexSql, LaneSql, LockSql, RoundTrips, TextSql, TimeSql};
#[cfg(feature = "_async")]
pub use self::diesel_async_session::DieselAsyncSession;
pub use self::error_class::{ErrorClass, ErrorClasses};
pub use self::exclusion::{Exclusion, Place};
#[cfg(feature = "async-mysql")]
pub use self::mysql::mysql_async::AsyncMysqlSession;
pub use self::now::{Now, NowPlus};
pub use self::one_round_trip::{AfterFinish, OneRoundTrip, Unfinished};
#[cfg(feature = "async-postgres")]
pub use self::postgres::tokio_postgres::AsyncPgSession;
pub use self::session_setup::{SessionLimits, SessionSetup};
pub use self::settings::SessionSettings;
pub use self::statement::{Loads, Sql, Statement};
pub use self::table_name::TableName;
pub use self::target::{Schema, Step, Target, TriggerMigration};
pub use self::transactions::Transactions;

pub(crate) use self::captured::{Captured, CapturedKey, DatabaseText};
pub(crate) use self::connections::Connections;
pub(crate) use self::control_schema::{CONTROL_COLUMNS, CONTROL_TABLE};
#[cfg(feature = "_async")]
pub(crate) use self::diesel_async_session::{AsyncClient, ending_transactions};
pub(crate) use self::error_class::message_of;
pub(crate) use self::now::push_now_plus;
pub(crate) use self::rights::check_rights;
pub(crate) use self::session::{FINISH_LEASE, HOLD, Session};
pub(crate) use self::session_holder::SessionHolder;
pub(crate) use self::statement::{ByText, execute, execute_by_id, load, load_first};
pub(crate) use self::table_name::{column_names, fingerprint};
pub(crate) use self::target::{index_of, lane_index_of, ordered_index_of, pending_flag_of, strict_index_of};
pub(crate) use self::transactions::COMMIT_REFUSED;
