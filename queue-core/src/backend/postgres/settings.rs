//! The settings that a handler may change on a PostgreSQL session, and how they are restored at the end of its message.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use diesel::deserialize::QueryableByName;
use diesel::pg::Pg;
use diesel::sql_types::{Bool, Text};

use super::clients::PgSession;
use super::errors::{OTHER_SETTINGS, marked};
use crate::backend::setup::SessionSettings;
use crate::backend::statement::load_first;
use crate::sync::Mutex;

use diesel::prelude::*;

/// The settings by which a settlement could be another one, besides the role and the user: each settlement compares them.
const DECISIVE: [&str; 8] = [
    "search_path",
    "session_replication_role",
    "row_security",
    "synchronous_commit",
    "client_encoding",
    "standard_conforming_strings",
    "TimeZone",
    "DateStyle",
];

/// The settings that the next handlers would see, or by which the queue's statements would take longer. Settings of an extension
/// or of the application (`app.tenant`) are not known here.
const OTHERS: [&str; 24] = [
    "IntervalStyle",
    "statement_timeout",
    LOCK_TIMEOUT,
    "idle_in_transaction_session_timeout",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "default_transaction_deferrable",
    "bytea_output",
    "extra_float_digits",
    "transform_null_equals",
    "quote_all_identifiers",
    "xmloption",
    "default_tablespace",
    "zero_damaged_pages",
    // By its language deadlocks are recognized.
    "lc_messages",
    "application_name",
    "work_mem",
    "plan_cache_mode",
    "enable_seqscan",
    "enable_indexscan",
    "enable_bitmapscan",
    "enable_nestloop",
    "enable_hashjoin",
    "enable_mergejoin",
];

/// A group has its own value until it ends.
const LOCK_TIMEOUT: &str = "lock_timeout";

/// The empty text, after the session's advisory locks were released. The queue's own end with their transactions.
pub(super) const UNLOCKED: &str = "CAST(pg_catalog.pg_advisory_unlock_all() AS text)";

/// The prepared statement that fails if [`OTHERS`] have changed.
pub(super) const COMPARE: &str = "queueable_compare";

/// The prepared statement that restores changed settings.
pub(super) const PUT_BACK: &str = "queueable_settings";

/// The same between two handlers of one transaction.
const PUT_BACK_WITHIN: &str = "queueable_settings_within";

/// The settings, and the SQL that compares them.
///
/// Restoring them before each settlement is a quarter of the server's cost for a short message, and hardly any handler
/// changes one. So a settlement only compares them, until it finds the first difference in the session. Then it commits
/// nothing, and the message is handled once more.
#[derive(Default)]
pub struct PgSettings {
    /// Whether they were read, as in every session on which handlers run.
    pub(super) are_known: bool,
    /// The SQL that tells whether the decisive ones are unchanged.
    are_same: String,
    /// The statement that asks whether all are unchanged but the one for which a group has its own value.
    are_same_within: String,
    /// Whether they are restored before each settlement.
    pub(super) put_back_first: AtomicBool,
    /// When the others were compared last.
    pub(super) compared: Mutex<Option<Instant>>,
}

impl PgSettings {
    /// Returns the SQL that tells whether the decisive settings are unchanged.
    pub(super) fn are_same(&self) -> &str {
        if self.are_known { &self.are_same } else { "true" }
    }

    /// Restores them before each settlement from now on, and returns whether that is new.
    pub(super) fn put_back_first(&self) -> bool {
        self.are_known && !self.put_back_first.swap(true, Ordering::Relaxed)
    }
}

#[derive(QueryableByName)]
pub(super) struct Setting {
    #[diesel(sql_type = Text)]
    pub(super) name: String,
    #[diesel(sql_type = Text)]
    pub(super) value: String,
}

impl<C: PgSession> SessionSettings<Pg> for C {
    type Settings = PgSettings;

    fn read_settings(&mut self) -> QueryResult<PgSettings> {
        let names: Vec<String> = ["role"].into_iter().chain(DECISIVE).chain(OTHERS).map(literal).collect();
        let settings: Vec<Setting> = diesel::sql_query(format!(
            "SELECT name, pg_catalog.current_setting(name, true) AS value FROM pg_catalog.unnest(ARRAY[{}]) AS name \
             WHERE pg_catalog.current_setting(name, true) IS NOT NULL",
            names.join(", ")
        ))
        .load(self)?;
        let user = diesel::dsl::sql::<Text>("CAST(SESSION_USER AS text)");
        let user: String = diesel::select(user).get_result(self)?;
        let session_user = Comparison {
            found: "CAST(SESSION_USER AS text)".to_owned(),
            own: literal(&user),
            put_back: format!("pg_catalog.set_config('session_authorization', {}, false)", literal(&user)),
        };
        let each = |setting: &Setting| {
            let (name, own) = (literal(&setting.name), literal(&setting.value));
            Comparison {
                found: format!("pg_catalog.current_setting({name})"),
                put_back: format!("pg_catalog.set_config({name}, {own}, false)"),
                own,
            }
        };
        let (others, decisive): (Vec<_>, Vec<_>) =
            settings.iter().partition(|setting| OTHERS.contains(&setting.name.as_str()));
        let locks = || Comparison { found: UNLOCKED.to_owned(), own: "''".to_owned(), put_back: "''".to_owned() };
        let within = settings.iter().filter(|setting| setting.name != LOCK_TIMEOUT);
        let within: Vec<_> = [locks()].into_iter().chain(within.map(each)).collect();
        let decisive: Vec<_> = [session_user, locks()].into_iter().chain(decisive.into_iter().map(each)).collect();
        let others: Vec<_> = others.into_iter().map(each).collect();
        self.batch_execute(&format!(
            "PREPARE {COMPARE} AS SELECT CAST(CASE WHEN {} THEN '1' ELSE '{}' END AS integer); \
             PREPARE {PUT_BACK} AS SELECT {}; PREPARE {PUT_BACK_WITHIN} AS SELECT {}",
            are_same(&others),
            marked(OTHER_SETTINGS),
            put_back(&decisive.iter().chain(&others).collect::<Vec<_>>()),
            put_back(&within.iter().collect::<Vec<_>>())
        ))?;
        Ok(PgSettings {
            are_known: true,
            are_same: are_same(&decisive),
            are_same_within: format!("SELECT {}", are_same(&within)),
            ..PgSettings::default()
        })
    }

    fn put_settings_back(&mut self, settings: &PgSettings) -> QueryResult<bool> {
        if settings.are_known {
            self.batch_execute(&format!("EXECUTE {PUT_BACK}"))?;
        }
        Ok(true)
    }

    fn has_other_settings(&mut self, settings: &PgSettings) -> QueryResult<bool> {
        if !settings.are_known {
            return Ok(false);
        }
        // Prepared once: its text is long.
        Ok(load_first::<Bool, bool, _>(self, &settings.are_same_within.as_str())? != Some(true))
    }

    fn end_handler(
        &mut self,
        end: &'static str,
        then: Option<&'static str>,
        settings: &PgSettings,
    ) -> QueryResult<bool> {
        let put_back = match then {
            // A rollback takes back the settings, and not these locks.
            _ if end.starts_with("ROLLBACK") => format!("SELECT {UNLOCKED}"),
            Some(_) => format!("EXECUTE {PUT_BACK_WITHIN}"),
            None => format!("EXECUTE {PUT_BACK}"),
        };
        // Before the next savepoint, whose rollback may undo it.
        let mut text = if settings.are_known { format!("{end}; {put_back}") } else { end.to_owned() };
        if let Some(then) = then {
            text = format!("{text}; {then}");
        }
        self.batch_execute(&text).map(|()| true)
    }
}

/// The SQL of one setting.
struct Comparison {
    /// Its value in the session.
    found: String,
    /// Its original value.
    own: String,
    /// Restores it.
    put_back: String,
}

/// Writes the SQL that tells whether all settings are unchanged. It compares two arrays, because the server looks up each
/// function of a statement, and the right to call it, each time that it runs the statement: one `=` costs less than one for
/// each setting.
fn are_same<'s>(settings: impl IntoIterator<Item = &'s Comparison>) -> String {
    let (found, own): (Vec<_>, Vec<_>) = settings.into_iter().map(|setting| (&*setting.found, &*setting.own)).unzip();
    format!("ARRAY[{}] OPERATOR(pg_catalog.=) ARRAY[{}]", found.join(", "), own.join(", "))
}

/// Writes SQL that restores changed settings and gives the integer 1. It sets only the changed ones, because not every
/// role may set everything.
fn put_back(settings: &[&Comparison]) -> String {
    let each: Vec<_> = settings
        .iter()
        .map(|Comparison { found, own, put_back }| {
            format!("CASE WHEN {found} OPERATOR(pg_catalog.=) {own} THEN '' ELSE {put_back} END")
        })
        .collect();
    format!(
        "CASE WHEN {} THEN 1 WHEN pg_catalog.concat({}) IS NULL THEN 0 ELSE 1 END",
        are_same(settings.iter().copied()),
        each.join(", ")
    )
}

fn literal(text: &str) -> String {
    match text.contains('\\') {
        true => format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''")),
        false => format!("'{}'", text.replace('\'', "''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_is_one() {
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal("a\\'"), "E'a\\\\'''");
    }
}
