//! The settings that a handler may change on an SQLite connection, and how they are restored at the end of its message.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::BigInt;
use diesel::sqlite::{Sqlite, SqliteConnection};

use crate::backend::settings::SessionSettings;

/// The pragmas that take effect inside a transaction, and that change what a later transaction writes. (`foreign_keys`,
/// `synchronous` and `journal_mode` cannot be changed there.) SQLite prepares the statement anew for each read of a
/// pragma.
const PRAGMAS: [&str; 3] = ["query_only", "ignore_check_constraints", "recursive_triggers"];

/// The pragmas' values, and the busy timeout.
#[derive(Default)]
pub struct SqliteSettings {
    pragmas: Option<[i64; PRAGMAS.len()]>,
    busy_timeout: Option<i64>,
}

impl SessionSettings for SqliteConnection {
    type Settings = SqliteSettings;

    const SETTINGS_ROLL_BACK: bool = false;

    fn read_settings(&mut self) -> QueryResult<SqliteSettings> {
        let busy_timeout = super::pragma(self, "(SELECT timeout FROM pragma_busy_timeout)")?;
        Ok(SqliteSettings { pragmas: Some(read_all(self)?), busy_timeout: Some(busy_timeout) })
    }

    fn put_settings_back(&mut self, settings: &SqliteSettings) -> QueryResult<bool> {
        if let Some(pragmas) = settings.pragmas {
            for ((found, value), name) in read_all(self)?.into_iter().zip(pragmas).zip(PRAGMAS) {
                // Setting one makes SQLite prepare every statement anew.
                if found != value {
                    self.batch_execute(&format!("PRAGMA {name} = {value}"))?;
                }
            }
        }
        if let Some(busy_timeout) = settings.busy_timeout {
            self.batch_execute(&format!("PRAGMA busy_timeout = {busy_timeout}"))?;
        }
        Ok(true)
    }

    fn has_other_settings(&mut self, settings: &SqliteSettings) -> QueryResult<bool> {
        if let Some(pragmas) = settings.pragmas
            && read_all(self)? != pragmas
        {
            return Ok(true);
        }
        // It is not the result of a statement.
        if let Some(busy_timeout) = settings.busy_timeout {
            self.batch_execute(&format!("PRAGMA busy_timeout = {busy_timeout}"))?;
        }
        Ok(false)
    }

    fn end_handler(
        &mut self,
        end: &'static str,
        then: Option<&'static str>,
        settings: &SqliteSettings,
    ) -> QueryResult<bool> {
        self.batch_execute(end)?;
        let is_as_it_was = self.put_settings_back(settings)?;
        then.map_or(Ok(()), |then| self.batch_execute(then))?;
        Ok(is_as_it_was)
    }
}

fn read_all(connection: &mut SqliteConnection) -> QueryResult<[i64; PRAGMAS.len()]> {
    Ok([
        ReadPragma::<0>.get_result(connection)?,
        ReadPragma::<1>.get_result(connection)?,
        ReadPragma::<2>.get_result(connection)?,
    ])
}

/// One of the pragmas as a statement that is prepared once.
#[derive(QueryId)]
struct ReadPragma<const PLACE: usize>;

impl<const PLACE: usize> QueryFragment<Sqlite> for ReadPragma<PLACE> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        out.push_sql("PRAGMA ");
        out.push_sql(PRAGMAS[PLACE]);
        Ok(())
    }
}

impl<const PLACE: usize> Query for ReadPragma<PLACE> {
    type SqlType = BigInt;
}

impl<C, const PLACE: usize> RunQueryDsl<C> for ReadPragma<PLACE> {}
