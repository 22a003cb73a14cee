//! The database backends: the few things that differ between PostgreSQL, MySQL/MariaDB and SQLite.
//!
//! [`QueueBackend`] provides the SQL text, [`QueueConnection`] the session, and [`Schema`] the DDL. To add a
//! database, add a folder here.

#[doc(hidden)]
pub mod backends;
mod connection;
mod connections;
mod dialect;
#[cfg(feature = "_async")]
mod diesel_async;
mod examination;
#[cfg(feature = "_mysql")]
mod mysql;
mod now;
#[cfg(feature = "_postgres")]
mod postgres;
mod prepared;
#[cfg(feature = "_async")]
mod runtime;
mod schema;
mod session;
mod session_holder;
mod setup;
#[cfg(feature = "sqlite")]
mod sqlite;
mod statement;
mod transactions;

pub use self::connection::{AsQueueConnection, Binds, ErrorClass, ErrorClasses, QueueBackend, QueueConnection};
pub(crate) use self::connections::ServerWait;
pub use self::connections::{ConnectionSource, Connections, ConnectionsFrom};
pub(crate) use self::dialect::LaneWalk;
pub use self::dialect::{Dialect, TextSql, TimeSql};
#[cfg(feature = "_async")]
pub use self::diesel_async::DieselAsyncSession;
#[cfg(feature = "async-mysql")]
pub use self::mysql::AsyncMysqlSession;
pub(crate) use self::now::Waking;
pub use self::now::{Now, NowPlus};
#[cfg(feature = "async-postgres")]
pub use self::postgres::AsyncPgSession;
pub use self::schema::{
    DeclaredColumn, DeclaredTypes, Holds, OwnTable, Schema, Step, TableName, Target, TriggerMigration,
};
pub use self::setup::{Exclusion, LeadersDuty, Place, SessionLimits, SessionSettings, SessionSetup};
pub use self::statement::{Loads, Sql, Statement};
pub use self::transactions::{AfterFinish, OneRoundTrip, Transactions, Unfinished};

pub(crate) use self::connection::{is_of_a_pooler, message_of};
#[cfg(feature = "_async")]
pub(crate) use self::diesel_async::{AsyncClient, ending_transactions};
pub(crate) use self::examination::{Check, Examination};
pub(crate) use self::now::{now, now_plus, push_now_plus, statement_time, statement_time_plus};
pub(crate) use self::prepared::{FINISH_LEASE, HOLD, PreparedTexts};
pub(crate) use self::schema::{Named, check_rights, column_names, explain_rights, fingerprint, literal};
pub(crate) use self::session::Session;
pub(crate) use self::session_holder::SessionHolder;
pub(crate) use self::statement::{
    AuditRow, AuditType, ByText, Captured, CapturedKey, DatabaseText, execute, execute_by_id, load, load_first,
};
pub(crate) use self::transactions::COMMIT_REFUSED;
