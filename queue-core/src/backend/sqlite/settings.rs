//! The settings that a handler may change on a SQLite connection, and how they are restored at the end of its message.
//!
//! Reading them all takes as long as several short statements, and SQLite runs no statement that the connection was not sent:
//! its triggers take no PRAGMA. So the worker reads them only after a handler with a statement that may change them, and Diesel's
//! instrumentation shows the statements.

use std::any::{Any, TypeId};
use std::sync::OnceLock;

use diesel::connection::{SimpleConnection, get_default_instrumentation};
use diesel::sql_types::{Nullable, Text};
use diesel::sqlite::SqliteConnection;

use crate::backend::setup::{SessionSettings, Watch};
use crate::backend::transactions::Transactions;

use diesel::prelude::*;

/// What holds for a connection: the SQL that reads it and, where that can be, the beginning of the SQL that sets it.
const SETTINGS: [(&str, Option<&str>); 28] = [
    pragma("PRAGMA query_only"),
    pragma("PRAGMA ignore_check_constraints"),
    pragma("PRAGMA recursive_triggers"),
    pragma("PRAGMA busy_timeout"),
    pragma("PRAGMA foreign_keys"),
    pragma("PRAGMA reverse_unordered_selects"),
    pragma("PRAGMA legacy_alter_table"),
    pragma("PRAGMA writable_schema"),
    pragma("PRAGMA trusted_schema"),
    pragma("PRAGMA max_page_count"),
    pragma("PRAGMA journal_size_limit"),
    pragma("PRAGMA wal_autocheckpoint"),
    // Of databases that are attached later, and of the queue's.
    pragma("PRAGMA locking_mode"),
    pragma("PRAGMA main.locking_mode"),
    pragma("PRAGMA synchronous"),
    pragma("PRAGMA secure_delete"),
    pragma("PRAGMA read_uncommitted"),
    pragma("PRAGMA temp_store"),
    pragma("PRAGMA cache_size"),
    pragma("PRAGMA cache_spill"),
    pragma("PRAGMA cell_size_check"),
    pragma("PRAGMA automatic_index"),
    pragma("PRAGMA full_column_names"),
    pragma("PRAGMA short_column_names"),
    pragma("PRAGMA count_changes"),
    ("SELECT 'A' NOT LIKE 'a'", Some("PRAGMA case_sensitive_like")),
    ("SELECT group_concat(name || ' ' || file) FROM pragma_database_list WHERE name <> 'temp'", None),
    ("SELECT count(*) FROM sqlite_temp_master", None),
];

const fn pragma(name: &'static str) -> (&'static str, Option<&'static str>) {
    (name, Some(name))
}

/// The settings of a session on which handlers run.
#[derive(Default)]
pub struct SqliteSettings(Option<Known>);

struct Known {
    own: Vec<String>,
    /// `None`: the application has an instrumentation of its own, which stays.
    watch: Option<Watch>,
}

impl Known {
    /// Tells whether a handler may have changed a setting.
    fn may_differ(&self) -> bool {
        self.watch.as_ref().is_none_or(Watch::is_unusual)
    }

    fn forget_words(&self) {
        self.watch.iter().for_each(Watch::forget);
    }
}

impl SessionSettings for SqliteConnection {
    type Settings = SqliteSettings;

    fn read_settings(&mut self) -> QueryResult<SqliteSettings> {
        let own = read_all(self)?;
        Ok(SqliteSettings(Some(Known { own, watch: watch(self) })))
    }

    fn watch_handler(settings: &SqliteSettings, is_lent: bool) {
        if let Some(watch) = settings.0.as_ref().and_then(|known| known.watch.as_ref()) {
            watch.lend(is_lent);
        }
    }

    fn put_settings_back(&mut self, settings: &SqliteSettings) -> QueryResult<bool> {
        let Some(known) = settings.0.as_ref().filter(|known| known.may_differ()) else { return Ok(true) };
        let mut found = read_all(self)?;
        if found != known.own {
            for ((found, own), (_, set)) in found.iter().zip(&known.own).zip(SETTINGS) {
                if let Some(set) = set.filter(|_| found != own) {
                    // Inside a transaction SQLite refuses or ignores some.
                    let _ = self.batch_execute(&format!("{set} = {own}"));
                }
            }
            found = read_all(self)?;
        }
        known.forget_words();
        Ok(found == known.own)
    }

    fn has_other_settings(&mut self, settings: &SqliteSettings) -> QueryResult<bool> {
        let Some(known) = settings.0.as_ref().filter(|known| known.may_differ()) else { return Ok(false) };
        let differs = read_all(self)? != known.own;
        if !differs {
            known.forget_words();
        }
        Ok(differs)
    }

    fn end_handler(
        &mut self,
        end: &'static str,
        then: Option<&'static str>,
        settings: &SqliteSettings,
    ) -> QueryResult<bool> {
        self.control(end)?;
        let is_as_it_was = self.put_settings_back(settings)?;
        then.map_or(Ok(()), |then| self.control(then))?;
        Ok(is_as_it_was)
    }
}

/// Reads the settings by statements that Diesel does not keep: SQLite prepares the statement of a pragma anew for each run, and
/// that takes longer for a prepared one than for a new one.
fn read_all(connection: &mut SqliteConnection) -> QueryResult<Vec<String>> {
    let read = |(sql, _)| {
        let value = diesel::dsl::sql::<Nullable<Text>>(sql).get_result::<Option<String>>(connection);
        // A build of SQLite may lack a pragma.
        value.optional().map(|value| value.flatten().unwrap_or_default())
    };
    SETTINGS.into_iter().map(read).collect()
}

/// Watches a connection without an instrumentation. Diesel has a private type for none, which a connection shows that has just
/// been made.
fn watch(connection: &mut SqliteConnection) -> Option<Watch> {
    static NONE: OnceLock<TypeId> = OnceLock::new();
    let is_default_none = || get_default_instrumentation().is_none();
    if NONE.get().is_none() && is_default_none() {
        let type_of = |mut fresh: SqliteConnection| {
            let instrumentation: &dyn Any = &*fresh.instrumentation();
            instrumentation.type_id()
        };
        // Another thread may have set a default meanwhile.
        if let Ok(none) = SqliteConnection::establish(":memory:").map(type_of)
            && is_default_none()
        {
            NONE.get_or_init(|| none);
        }
    }
    Watch::on(connection, *NONE.get()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::setup::FirstWords;

    #[test]
    fn a_statement_has_no_words_in_its_values() {
        let query = diesel::sql_query("SELECT ?").bind::<Text, _>("; PRAGMA query_only = 1");
        let words = FirstWords::of(&diesel::debug_query::<diesel::sqlite::Sqlite, _>(&query));
        assert!(!words.is_unusual);
    }

    #[test]
    fn an_instrumentation_of_the_applications_own_stays() {
        let open = || SqliteConnection::establish(":memory:").expect("it is in memory");
        assert!(watch(&mut open()).is_some());
        let mut instrumented = open();
        instrumented.set_instrumentation(|_: diesel::connection::InstrumentationEvent<'_>| {});
        assert!(watch(&mut instrumented).is_none());
    }
}
