//! What a handler may set on a connection of SQLite's, and how it is put back with the end of its message.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::BigInt;
use diesel::sqlite::{Sqlite, SqliteConnection};

use crate::backend::settings::SessionSettings;

/// The pragmas that take effect inside a transaction, and that every later one would find. (`foreign_keys`, `synchronous` and
/// `journal_mode` cannot be changed there.)
const PRAGMAS: [&str; 5] =
    ["query_only", "ignore_check_constraints", "recursive_triggers", "reverse_unordered_selects", "read_uncommitted"];

/// The pragmas' values, and how long is waited for a lock.
#[derive(Default)]
pub struct SqliteSettings {
    pragmas: Vec<(&'static str, i64)>,
    busy_timeout: Option<i64>,
}

impl SessionSettings for SqliteConnection {
    type Settings = SqliteSettings;

    const SETTINGS_ROLL_BACK: bool = false;

    fn read_settings(&mut self) -> QueryResult<SqliteSettings> {
        let mut pragmas = Vec::new();
        for name in PRAGMAS {
            pragmas.push((name, read(self, name)?));
        }
        let busy_timeout = super::pragma(self, "(SELECT timeout FROM pragma_busy_timeout)")?;
        Ok(SqliteSettings { pragmas, busy_timeout: Some(busy_timeout) })
    }

    fn put_settings_back(&mut self, settings: &SqliteSettings) -> QueryResult<bool> {
        for (name, value) in &settings.pragmas {
            // To set one has every statement prepared anew.
            if read(self, name)? != *value {
                self.batch_execute(&format!("PRAGMA {name} = {value}"))?;
            }
        }
        if let Some(busy_timeout) = settings.busy_timeout {
            self.batch_execute(&format!("PRAGMA busy_timeout = {busy_timeout}"))?;
        }
        Ok(true)
    }

    fn has_other_settings(&mut self, settings: &SqliteSettings) -> QueryResult<bool> {
        for (name, value) in &settings.pragmas {
            if read(self, name)? != *value {
                return Ok(true);
            }
        }
        // It is no statement's result.
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

fn read(connection: &mut SqliteConnection, name: &'static str) -> QueryResult<i64> {
    ReadPragma(name).get_result(connection)
}

/// A pragma as a statement that is prepared once.
struct ReadPragma(&'static str);

impl QueryFragment<Sqlite> for ReadPragma {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        out.push_sql("PRAGMA ");
        out.push_sql(self.0);
        Ok(())
    }
}

impl Query for ReadPragma {
    type SqlType = BigInt;
}

impl QueryId for ReadPragma {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<C> RunQueryDsl<C> for ReadPragma {}
