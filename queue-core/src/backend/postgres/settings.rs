//! What a handler may set on a session of PostgreSQL's, and how it is put back with the end of its message.

use std::sync::atomic::{AtomicBool, Ordering};

use diesel::connection::SimpleConnection;
use diesel::deserialize::QueryableByName;
use diesel::pg::PgConnection;
use diesel::prelude::*;
use diesel::sql_types::{Bool, Text};

use crate::backend::settings::SessionSettings;

/// The settings beside the role, which is put back first: another may not set them. Those of an extension or of the application
/// (`app.tenant`) are not known here.
const NAMES: [&str; 16] = [
    "search_path",
    "TimeZone",
    "DateStyle",
    "IntervalStyle",
    "statement_timeout",
    LOCK_TIMEOUT,
    "idle_in_transaction_session_timeout",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "default_transaction_deferrable",
    "session_replication_role",
    "row_security",
    "synchronous_commit",
    "bytea_output",
    "extra_float_digits",
    "standard_conforming_strings",
];

/// A group has one of its own until it ends.
const LOCK_TIMEOUT: &str = "lock_timeout";

/// The prepared statement that puts back what is set otherwise.
const PUT_BACK: &str = "queueable_settings";

/// The same between two handlers of one transaction.
const PUT_BACK_WITHIN: &str = "queueable_settings_within";

/// The settings, and the SQL that compares them.
///
/// To put them back before each settlement is a quarter of what a short message costs the server, and hardly any handler sets
/// something. So a settlement only compares them, until it has found a difference for the first time in the session: then
/// nothing is committed, and the message is handled once more.
#[derive(Default)]
pub struct PgSettings {
    /// Whether they were read, which is so where handlers run.
    are_known: bool,
    /// Whether all are what they were.
    are_same: String,
    /// The same without the one that a group has of its own.
    are_same_within: String,
    /// Whether they are put back before each settlement.
    put_back_first: AtomicBool,
}

impl PgSettings {
    /// What is executed before a settlement, with a semicolon.
    pub(super) fn before_settlement(&self) -> String {
        match self.put_back_first.load(Ordering::Relaxed) {
            true => format!("EXECUTE {PUT_BACK}; "),
            false => String::new(),
        }
    }

    /// Whether all settings are what they were, as SQL.
    pub(super) fn are_same(&self) -> &str {
        if self.are_known { &self.are_same } else { "true" }
    }

    /// Has them put back before each settlement from now on, and says whether that is new.
    pub(super) fn put_back_first(&self) -> bool {
        self.are_known && !self.put_back_first.swap(true, Ordering::Relaxed)
    }
}

#[derive(QueryableByName)]
struct Setting {
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Text)]
    value: String,
}

impl SessionSettings for PgConnection {
    type Settings = PgSettings;

    const SETTINGS_ROLL_BACK: bool = true;

    fn read_settings(&mut self) -> QueryResult<PgSettings> {
        let names: Vec<String> = ["role"].into_iter().chain(NAMES).map(literal).collect();
        let settings: Vec<Setting> = diesel::sql_query(format!(
            "SELECT name, pg_catalog.current_setting(name, true) AS value FROM pg_catalog.unnest(ARRAY[{}]) AS name \
             WHERE pg_catalog.current_setting(name, true) IS NOT NULL",
            names.join(", ")
        ))
        .load(self)?;
        let user: String = one_text(self, "CAST(SESSION_USER AS text)")?;
        let is_user = format!("CAST(SESSION_USER AS text) OPERATOR(pg_catalog.=) {}", literal(&user));
        let session_user =
            (is_user, format!("pg_catalog.set_config('session_authorization', {}, false)", literal(&user)));
        let each = |setting: &Setting| {
            let (name, value) = (literal(&setting.name), literal(&setting.value));
            (
                format!("pg_catalog.current_setting({name}) OPERATOR(pg_catalog.=) {value}"),
                format!("pg_catalog.set_config({name}, {value}, false)"),
            )
        };
        let within: Vec<_> = settings.iter().filter(|setting| setting.name != LOCK_TIMEOUT).map(each).collect();
        let all: Vec<_> = [session_user].into_iter().chain(settings.iter().map(each)).collect();
        self.batch_execute(&format!(
            "PREPARE {PUT_BACK} AS SELECT {}; PREPARE {PUT_BACK_WITHIN} AS SELECT {}",
            put_back(&all),
            put_back(&within)
        ))?;
        Ok(PgSettings {
            are_known: true,
            are_same: are_same(&all),
            are_same_within: are_same(&within),
            put_back_first: AtomicBool::new(false),
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
        let are_same: bool = diesel::select(diesel::dsl::sql::<Bool>(&settings.are_same_within)).get_result(self)?;
        Ok(!are_same)
    }

    fn end_handler(
        &mut self,
        end: &'static str,
        then: Option<&'static str>,
        settings: &PgSettings,
    ) -> QueryResult<bool> {
        let mut text = end.to_owned();
        // Before the next savepoint, whose end may undo it.
        if !end.starts_with("ROLLBACK") && settings.are_known {
            let put_back = if then.is_some() { PUT_BACK_WITHIN } else { PUT_BACK };
            text = format!("{end}; EXECUTE {put_back}");
        }
        if let Some(then) = then {
            text = format!("{text}; {then}");
        }
        self.batch_execute(&text).map(|()| true)
    }
}

fn one_text(connection: &mut PgConnection, sql: &str) -> QueryResult<String> {
    diesel::select(diesel::dsl::sql::<Text>(sql)).get_result(connection)
}

/// Whether all settings are what they were, as SQL.
fn are_same(settings: &[(String, String)]) -> String {
    settings.iter().map(|(is_same, _)| is_same.as_str()).collect::<Vec<_>>().join(" AND ")
}

/// The integer 1; what is set otherwise is set as it was. Only that is, because not every role may set everything.
fn put_back(settings: &[(String, String)]) -> String {
    let each: Vec<_> =
        settings.iter().map(|(is_same, set)| format!("CASE WHEN {is_same} THEN '' ELSE {set} END")).collect();
    format!(
        "CASE WHEN {} THEN 1 WHEN pg_catalog.concat({}) IS NULL THEN 0 ELSE 1 END",
        are_same(settings),
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
