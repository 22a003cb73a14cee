//! The settings that a handler may change on a SQLite connection, and how they are restored at the end of its message.
//!
//! Reading them all takes as long as several short statements, and SQLite runs no statement that the connection was not sent:
//! its triggers take no PRAGMA. So the worker reads them only after a handler whose statements have a word that may change
//! them, and Diesel's instrumentation shows these statements.

use std::any::{Any, TypeId};
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use diesel::connection::{Instrumentation, InstrumentationEvent, SimpleConnection, get_default_instrumentation};
use diesel::sql_types::{Nullable, Text};
use diesel::sqlite::SqliteConnection;

use crate::backend::setup::SessionSettings;
use crate::backend::transactions::Transactions;

use diesel::prelude::*;

/// What holds for a connection: the SQL that reads it and, where that can be, the beginning of the SQL that sets it.
const SETTINGS: [(&str, Option<&str>); 26] = [
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
    pragma("PRAGMA locking_mode"),
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

/// The words without which no statement changes what the others of its connection meet.
const WORDS: [&str; 5] = ["pragma", "attach", "detach", "temp", "temporary"];

/// The settings of a session on which handlers run.
#[derive(Default)]
pub struct SqliteSettings(Option<Known>);

struct Known {
    own: Vec<String>,
    /// `None`: the application has an instrumentation of its own, which stays.
    watch: Option<Arc<Watch>>,
}

impl Known {
    /// Tells whether a handler may have changed a setting.
    fn may_differ(&self) -> bool {
        self.watch.as_ref().is_none_or(|watch| {
            // A handler may have replaced the instrumentation.
            watch.has_seen_word.load(Ordering::Relaxed) || Arc::strong_count(watch) == 1
        })
    }

    fn forget_words(&self) {
        self.watch.iter().for_each(|watch| watch.has_seen_word.store(false, Ordering::Relaxed));
    }
}

impl SessionSettings for SqliteConnection {
    type Settings = SqliteSettings;

    const SETTINGS_ROLL_BACK: bool = false;

    fn read_settings(&mut self) -> QueryResult<SqliteSettings> {
        let own = read_all(self)?;
        let watch = is_without_instrumentation(self).then(|| {
            let watch = Arc::<Watch>::default();
            self.set_instrumentation(Watching(watch.clone()));
            watch
        });
        Ok(SqliteSettings(Some(Known { own, watch })))
    }

    fn watch_handler(settings: &SqliteSettings, is_lent: bool) {
        if let Some(watch) = settings.0.as_ref().and_then(|known| known.watch.as_ref()) {
            watch.is_lent.store(is_lent, Ordering::Relaxed);
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

/// Tells whether a connection has no instrumentation. Diesel has a private type for none, which a connection shows that has just
/// been made.
fn is_without_instrumentation(connection: &mut SqliteConnection) -> bool {
    static NONE: OnceLock<TypeId> = OnceLock::new();
    let type_of = |connection: &mut SqliteConnection| {
        let instrumentation: &dyn Any = &*connection.instrumentation();
        instrumentation.type_id()
    };
    let is_default_none = || get_default_instrumentation().is_none();
    if NONE.get().is_none() && is_default_none() {
        let fresh = SqliteConnection::establish(":memory:").map(|mut fresh| type_of(&mut fresh));
        // Another thread may have set a default meanwhile.
        if let Ok(none) = fresh
            && is_default_none()
        {
            NONE.get_or_init(|| none);
        }
    }
    NONE.get() == Some(&type_of(connection))
}

/// What is known of a handler's statements.
#[derive(Default)]
struct Watch {
    /// Whether the connection is lent to a handler.
    is_lent: AtomicBool,
    has_seen_word: AtomicBool,
}

/// The instrumentation of a connection that is watched.
struct Watching(Arc<Watch>);

impl Instrumentation for Watching {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        let InstrumentationEvent::StartQuery { query, .. } = event else { return };
        if self.0.is_lent.load(Ordering::Relaxed) && !self.0.has_seen_word.load(Ordering::Relaxed) {
            let mut words = Words::default();
            // The writer stops the query's text before its values.
            let _ = write!(words, "{query}");
            self.0.has_seen_word.store(words.are_found, Ordering::Relaxed);
        }
    }
}

/// Looks for [`WORDS`] in the text of a statement that is written to it.
#[derive(Default)]
struct Words {
    are_found: bool,
}

impl Write for Words {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if text.starts_with(" -- binds: ") {
            return Err(fmt::Error);
        }
        let is_of_word = |byte: u8| byte == b'_' || byte == b'$' || byte.is_ascii_alphanumeric() || !byte.is_ascii();
        let mut words = text.as_bytes().split(|byte| !is_of_word(*byte));
        self.are_found |= words.any(|word| WORDS.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes())));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_statement_are_found_whole_and_not_in_its_values() {
        let has_word = |text: &str| {
            let mut words = Words::default();
            let _ = write!(words, "{text}");
            words.are_found
        };
        for text in
            ["PRAGMA query_only = 1", "SELECT 1;pragma foreign_keys=1", "Attach 'a' AS b", "CREATE TABLE temp.t (a)"]
        {
            assert!(has_word(text), "{text}");
        }
        for text in
            ["SELECT template FROM attachments", "SELECT * FROM pragma_query_only", "UPDATE t SET temp_c = 1", ""]
        {
            assert!(!has_word(text), "{text}");
        }
        let mut words = Words::default();
        let query = diesel::sql_query("SELECT ?").bind::<Text, _>("PRAGMA query_only = 1");
        let _ = write!(words, "{}", diesel::debug_query::<diesel::sqlite::Sqlite, _>(&query));
        assert!(!words.are_found);
    }

    #[test]
    fn an_instrumentation_of_the_applications_own_stays() {
        let open = || SqliteConnection::establish(":memory:").expect("it is in memory");
        assert!(is_without_instrumentation(&mut open()));
        let mut instrumented = open();
        instrumented.set_instrumentation(|_: InstrumentationEvent<'_>| {});
        assert!(!is_without_instrumentation(&mut instrumented));
    }
}
