//! A session for plain SQL on any of the databases, as the checker and the injector use it.

use anyhow::{Context, Result};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};

/// The SQL dialect of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Postgres,
    Mysql,
    Sqlite,
}

impl Dialect {
    /// The dialect of a database's address, as Diesel takes it.
    pub(crate) fn of(url: &str) -> Self {
        match url.split_once("://") {
            Some(("postgres" | "postgresql", _)) => Dialect::Postgres,
            Some(("mysql", _)) => Dialect::Mysql,
            _ => Dialect::Sqlite,
        }
    }

    /// The expression as text.
    pub(crate) fn text(self, expression: &str) -> String {
        match self {
            Dialect::Mysql => format!("CAST({expression} AS CHAR)"),
            Dialect::Postgres | Dialect::Sqlite => format!("CAST({expression} AS TEXT)"),
        }
    }

    /// The query that counts a database's sessions. SQLite has none.
    pub(crate) fn sessions(self) -> Option<&'static str> {
        match self {
            Dialect::Postgres => Some("SELECT COUNT(*) AS n FROM pg_stat_activity WHERE datname = current_database()"),
            Dialect::Mysql => Some("SELECT COUNT(*) AS n FROM information_schema.processlist WHERE db = DATABASE()"),
            Dialect::Sqlite => None,
        }
    }

    /// The type to which a sum must be cast for [`Session::count`].
    pub(crate) fn integer(self) -> &'static str {
        match self {
            Dialect::Mysql => "SIGNED",
            Dialect::Postgres | Dialect::Sqlite => "BIGINT",
        }
    }

    /// The database's time in this many seconds, for comparison with the queue's columns.
    pub(crate) fn now_plus(self, seconds: i64) -> String {
        match self {
            Dialect::Postgres => format!("clock_timestamp() + interval '{seconds} seconds'"),
            Dialect::Mysql => format!("UTC_TIMESTAMP(6) + INTERVAL {seconds} SECOND"),
            Dialect::Sqlite => format!("strftime('%Y-%m-%d %H:%M:%f', 'now', '{seconds} seconds')"),
        }
    }
}

/// A row of one column.
#[derive(Debug, QueryableByName)]
struct Line {
    #[diesel(sql_type = Nullable<Text>)]
    line: Option<String>,
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    n: i64,
}

/// One session with a database.
pub(crate) trait Session: Send {
    fn dialect(&self) -> Dialect;

    /// Runs statements without results.
    fn run(&mut self, sql: &str) -> QueryResult<()>;

    /// Runs one statement and says how many rows it changed.
    fn change(&mut self, sql: &str) -> QueryResult<usize>;

    /// The value of a query whose only column is called `n`.
    fn count(&mut self, sql: &str) -> QueryResult<i64>;

    /// The rows of a query whose only column is a text called `line`.
    fn lines(&mut self, sql: &str) -> QueryResult<Vec<String>>;
}

macro_rules! sessions {
    ($($connection:ty: $dialect:ident),*) => {$(
        impl Session for $connection {
            fn dialect(&self) -> Dialect {
                Dialect::$dialect
            }

            fn run(&mut self, sql: &str) -> QueryResult<()> {
                self.batch_execute(sql)
            }

            fn change(&mut self, sql: &str) -> QueryResult<usize> {
                diesel::sql_query(sql).execute(self)
            }

            fn count(&mut self, sql: &str) -> QueryResult<i64> {
                Ok(diesel::sql_query(sql).get_result::<Count>(self)?.n)
            }

            fn lines(&mut self, sql: &str) -> QueryResult<Vec<String>> {
                let lines: Vec<Line> = diesel::sql_query(sql).load(self)?;
                Ok(lines.into_iter().map(|line| line.line.unwrap_or_default()).collect())
            }
        }
    )*};
}

sessions!(PgConnection: Postgres, MysqlConnection: Mysql, SqliteConnection: Sqlite);

/// Opens a session.
pub(crate) fn connect(url: &str) -> Result<Box<dyn Session>> {
    let mut session: Box<dyn Session> = match Dialect::of(url) {
        Dialect::Postgres => Box::new(PgConnection::establish(url).context("no session")?),
        Dialect::Mysql => Box::new(MysqlConnection::establish(url).context("no session")?),
        Dialect::Sqlite => Box::new(SqliteConnection::establish(url).context("no session")?),
    };
    if session.dialect() == Dialect::Sqlite {
        session.run("PRAGMA busy_timeout = 20000")?;
    }
    Ok(session)
}
