//! How tables are made and become queues, on each database.

use anyhow::Result;
use diesel::migration::MigrationSource;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;

use crate::db::{mysql, postgres, sqlite};
use crate::session::Dialect;

/// The types of a key that the database counts up, of an integer of 64 bits, and of a text that may be left out.
pub(crate) fn types(dialect: Dialect) -> (&'static str, &'static str, &'static str) {
    match dialect {
        Dialect::Postgres => (postgres::AUTO_KEY, postgres::BIGINT, "TEXT NOT NULL DEFAULT ''"),
        Dialect::Mysql => (mysql::AUTO_KEY, mysql::BIGINT, "VARCHAR(255) NOT NULL DEFAULT ''"),
        Dialect::Sqlite => (sqlite::AUTO_KEY, sqlite::BIGINT, "TEXT NOT NULL DEFAULT ''"),
    }
}

/// Makes queues of the tables of these entities.
macro_rules! make_queues {
    ($url:expr, $($entity:ty),+) => {
        match crate::session::Dialect::of($url) {
            crate::session::Dialect::Postgres => crate::tables::migrate::<diesel::PgConnection>(
                $url,
                queueable::Migrations::new()$(.entity::<$entity>())+,
            ),
            crate::session::Dialect::Mysql => crate::tables::migrate::<diesel::MysqlConnection>(
                $url,
                queueable::Migrations::new()$(.entity::<$entity>())+,
            ),
            crate::session::Dialect::Sqlite => crate::tables::migrate::<diesel::SqliteConnection>(
                $url,
                queueable::Migrations::new()$(.entity::<$entity>())+,
            ),
        }
    };
}
pub(crate) use make_queues;

/// Runs migrations on a connection that waits for other writers, as an application's has to on SQLite.
pub(crate) fn migrate<C>(url: &str, migrations: impl MigrationSource<C::Backend>) -> Result<()>
where
    C: Connection + MigrationHarness<C::Backend>,
{
    let mut connection = C::establish(url)?;
    if Dialect::of(url) == Dialect::Sqlite {
        connection.batch_execute("PRAGMA busy_timeout = 20000")?;
    }
    connection.run_pending_migrations(migrations).map_err(anyhow::Error::from_boxed)?;
    Ok(())
}
