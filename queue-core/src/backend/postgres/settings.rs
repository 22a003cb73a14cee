//! What a handler may set on a session of PostgreSQL's, and how it is put back with the end of its message.

use diesel::connection::SimpleConnection;
use diesel::deserialize::QueryableByName;
use diesel::pg::PgConnection;
use diesel::prelude::*;
use diesel::sql_types::{Bool, Text};

use crate::backend::settings::SessionSettings;

/// The settings beside the role. Those of an extension or of the application (`app.tenant`) are not known here.
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

/// The settings, and the SQL that compares them and puts them back.
#[derive(Default)]
pub struct PgSettings {
    /// The statements that give the session its role and its search path: without its role it may not even settle the row.
    role_and_path: String,
    /// Whether all settings are what they were but the one that a group has of its own.
    are_same: String,
    /// An integer; whatever is set otherwise is put back when it is evaluated.
    put_back: String,
}

impl PgSettings {
    /// Statements that stand before a settlement, with a semicolon each.
    pub(super) fn before_settlement(&self) -> &str {
        &self.role_and_path
    }

    /// The integer 1, as SQL that puts back whatever is set otherwise.
    pub(super) fn one(&self) -> &str {
        if self.put_back.is_empty() { "1" } else { &self.put_back }
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
        let role: String = one_text(self, "pg_catalog.current_setting('role')")?;
        let path: String = one_text(self, "pg_catalog.current_setting('search_path')")?;
        let role = if role == "none" { "NONE".to_owned() } else { format!("\"{}\"", role.replace('"', "\"\"")) };
        let role_and_path = format!("SET ROLE {role}; SET search_path = {}; ", list(&path));
        // First, so that the path is read as it is written then.
        self.batch_execute(&role_and_path)?;
        let names: Vec<String> = NAMES.iter().copied().chain(["role"]).map(literal).collect();
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
        // In a group, which waits for locks as it must.
        let (are_same, put_back) = (are_same(&within), put_back(&all));
        self.batch_execute(&format!(
            "PREPARE {PUT_BACK} AS SELECT {put_back}; PREPARE {PUT_BACK_WITHIN} AS SELECT {}",
            self::put_back(&within)
        ))?;
        Ok(PgSettings { role_and_path, are_same, put_back })
    }

    fn put_settings_back(&mut self, settings: &PgSettings) -> QueryResult<bool> {
        if !settings.role_and_path.is_empty() {
            self.batch_execute(&format!("{}EXECUTE {PUT_BACK}", settings.role_and_path))?;
        }
        Ok(true)
    }

    fn has_other_settings(&mut self, settings: &PgSettings) -> QueryResult<bool> {
        if settings.are_same.is_empty() {
            return Ok(false);
        }
        let are_same: bool = diesel::select(diesel::dsl::sql::<Bool>(&settings.are_same)).get_result(self)?;
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
        if !end.starts_with("ROLLBACK") && !settings.role_and_path.is_empty() {
            let put_back = if then.is_some() { PUT_BACK_WITHIN } else { PUT_BACK };
            text = format!("{end}; {}EXECUTE {put_back}", settings.role_and_path);
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

/// A list of names, each as a literal: as a word, `$user` would not be understood.
fn list(names: &str) -> String {
    let (mut list, mut name, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut characters = names.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if is_quoted && characters.peek() == Some(&'"') => name.extend(characters.next()),
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => list.push(std::mem::take(&mut name)),
            ' ' if !is_quoted => {}
            _ if is_quoted => name.push(character),
            // A word without quotes is read in lower case.
            _ => name.extend(character.to_lowercase()),
        }
    }
    list.push(name);
    list.iter().map(|name| literal(name)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_path_is_taken_apart() {
        assert_eq!(list("\"$user\", public"), "'$user', 'public'");
        assert_eq!(list("Shop, \"A \"\"b\"\", c\""), "'shop', 'A \"b\", c'");
        assert_eq!(list(""), "''");
    }

    #[test]
    fn a_literal_is_one() {
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal("a\\'"), "E'a\\\\'''");
    }
}
