//! The databases: private servers with durable commits, and a database on one of them for each run.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use contestant::Backend;
use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};

use crate::process;

#[allow(unused, reason = "the suite needs more of it")]
#[path = "../../tests/db/mysql.rs"]
pub(crate) mod mysql;
#[allow(unused, reason = "the suite needs more of it")]
#[path = "../../tests/db/postgres.rs"]
pub(crate) mod postgres;
#[allow(unused, reason = "the suite needs more of it")]
#[path = "../../tests/db/sqlite.rs"]
pub(crate) mod sqlite;

/// Settings of the servers besides those of the tests. The tests turn `fsync` off; the benchmark needs it.
const POSTGRES: &[&str] = &[
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
    "shared_buffers=512MB",
    "max_wal_size=4GB",
    "dynamic_shared_memory_type=posix",
];
const MARIADB: &[&str] =
    &["--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=1G", "--innodb-log-file-size=1G"];

/// The settings that a reader of the numbers must know.
const POSTGRES_SHOWN: &[&str] = &[
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_sync_method",
    "shared_buffers",
    "max_wal_size",
    "checkpoint_timeout",
    "autovacuum",
];
const MARIADB_SHOWN: &[&str] = &[
    "version",
    "innodb_flush_log_at_trx_commit",
    "innodb_flush_method",
    "innodb_doublewrite",
    "innodb_buffer_pool_size",
    "innodb_log_file_size",
    "log_bin",
];

/// A server of the benchmark's own. It ends with this value, or with the process.
pub(crate) enum Server {
    /// With its process id.
    Postgres(postgres::PrivateServer, u32),
    Mariadb(mysql::PrivateServer, u32),
    /// SQLite has none.
    Sqlite(Backend),
}

impl Server {
    pub(crate) fn start(backend: Backend) -> Result<Self> {
        Ok(match backend {
            Backend::Postgres => {
                let server = postgres::PrivateServer::start();
                server.set_arguments(POSTGRES.iter().flat_map(|set| ["-c".to_owned(), (*set).to_owned()]).collect());
                // The tests' command makes the server's files and starts it, and these settings need a new start.
                server.kill();
                server.restart();
                let directory = diesel::select(sql::<Text>("current_setting('data_directory')"))
                    .get_result(&mut PgConnection::establish(server.url())?)?;
                Server::Postgres(server, process_in(directory, "postmaster.pid")?)
            }
            Backend::Mariadb => {
                let arguments = MARIADB.iter().map(|&argument| argument.to_owned()).collect();
                let server = mysql::PrivateServer::start_with(mysql::initialize, arguments);
                let directory = diesel::select(sql::<Text>("@@datadir"))
                    .get_result(&mut MysqlConnection::establish(server.url())?)?;
                Server::Mariadb(server, process_in(directory, "mariadb.pid")?)
            }
            Backend::SqliteFull | Backend::SqliteNormal => Server::Sqlite(backend),
        })
    }

    pub(crate) fn backend(&self) -> Backend {
        match self {
            Server::Postgres(..) => Backend::Postgres,
            Server::Mariadb(..) => Backend::Mariadb,
            Server::Sqlite(backend) => *backend,
        }
    }

    /// The processor time that it has used so far.
    pub(crate) fn processor_time(&self) -> Result<Duration> {
        match self {
            Server::Postgres(_, process) | Server::Mariadb(_, process) => process::processor_time_of_all(*process),
            Server::Sqlite(_) => Ok(Duration::ZERO),
        }
    }

    /// The settings of the running server, from the server itself.
    pub(crate) fn settings(&self) -> Result<String> {
        let mut settings = String::new();
        match self {
            Server::Postgres(server, _) => {
                let mut connection = PgConnection::establish(server.url())?;
                for name in POSTGRES_SHOWN {
                    let value: String = diesel::select(sql::<Text>(&format!("current_setting('{name}')")))
                        .get_result(&mut connection)?;
                    write!(settings, "{name} = {value}, ")?;
                }
            }
            Server::Mariadb(server, _) => {
                let mut connection = MysqlConnection::establish(server.url())?;
                for name in MARIADB_SHOWN {
                    let value: String =
                        diesel::select(sql::<Text>(&format!("CAST(@@{name} AS CHAR)"))).get_result(&mut connection)?;
                    write!(settings, "{name} = {value}, ")?;
                }
            }
            Server::Sqlite(backend) => {
                let mut connection = SqliteConnection::establish(":memory:")?;
                let version: String = diesel::select(sql::<Text>("sqlite_version()")).get_result(&mut connection)?;
                let level = if *backend == Backend::SqliteFull { "FULL" } else { "NORMAL" };
                write!(settings, "version = {version}, journal_mode = WAL, synchronous = {level}, ")?;
            }
        }
        Ok(settings.trim_end_matches(", ").to_owned())
    }
}

/// A server's process id, from the file that it writes.
fn process_in(directory: String, file: &str) -> Result<u32> {
    let text = fs::read_to_string(PathBuf::from(directory).join(file))?;
    Ok(text.lines().next().context("a server writes down its number")?.trim().parse()?)
}

/// A run's own database. It is removed with this value.
pub(crate) struct Place {
    database: Database,
    pub(crate) backend: Backend,
}

enum Database {
    Postgres(postgres::Database),
    Mariadb(mysql::Database),
    Sqlite(sqlite::Database),
}

impl Place {
    /// A database on a server, with the ledger in it that handlers write to.
    pub(crate) fn on(server: &Server) -> Result<Self> {
        let database = match server {
            Server::Postgres(server, _) => Database::Postgres(postgres::Database::on(server)),
            Server::Mariadb(server, _) => Database::Mariadb(mysql::Database::on(server)),
            Server::Sqlite(_) => Database::Sqlite(sqlite::Database::new()),
        };
        let place = Place { database, backend: server.backend() };
        crate::table::create_ledger(place.backend, place.url())?;
        Ok(place)
    }

    /// Where the database is, as Diesel takes it.
    pub(crate) fn url(&self) -> &str {
        match &self.database {
            Database::Postgres(database) => database.url(),
            Database::Mariadb(database) => database.url(),
            Database::Sqlite(database) => database.url(),
        }
    }

    /// Does, after a filling, the maintenance that the server would otherwise do some minutes later in the middle of a run.
    pub(crate) fn settle_down(&self) -> Result<()> {
        match &self.database {
            Database::Postgres(database) => {
                let mut connection = database.connect();
                connection.batch_execute("VACUUM ANALYZE")?;
                connection.batch_execute("CHECKPOINT")?;
            }
            Database::Mariadb(database) => {
                database.connect().batch_execute("ANALYZE TABLE ledger")?;
            }
            Database::Sqlite(database) => {
                database.connect().batch_execute("PRAGMA wal_checkpoint(TRUNCATE)")?;
            }
        }
        Ok(())
    }

    /// How many rows the handlers have left in the ledger.
    pub(crate) fn booked(&self) -> Result<i64> {
        self.number("(SELECT count(*) FROM ledger)")
    }

    /// Asks for a number.
    pub(crate) fn number(&self, expression: &str) -> Result<i64> {
        let number = sql::<BigInt>(expression);
        Ok(match &self.database {
            Database::Postgres(database) => diesel::select(number).get_result(&mut database.connect())?,
            Database::Mariadb(database) => diesel::select(number).get_result(&mut database.connect())?,
            Database::Sqlite(database) => diesel::select(number).get_result(&mut database.connect())?,
        })
    }
}
