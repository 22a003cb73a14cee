//! What a handler may set on a session of MySQL's or MariaDB's, and how it is put back with the end of its message.

use diesel::connection::SimpleConnection;
use diesel::deserialize::QueryableByName;
use diesel::mysql::MysqlConnection;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};

use crate::backend::connection::QueueConnection;
use crate::backend::settings::SessionSettings;

/// The settings as one text, as MariaDB writes it, in a block that ends a message. `SET STATEMENT` and a new release may add
/// others; these are what a later message would see.
pub(super) const FINGERPRINT: &str = "CONCAT_WS('|', @@autocommit, @@sql_mode, @@time_zone, @@tx_isolation, \
     @@tx_read_only, @@foreign_key_checks, @@unique_checks, @@check_constraint_checks, @@sql_select_limit, \
     @@lock_wait_timeout, @@innodb_lock_wait_timeout <=> @queueable_lock_wait, @@max_statement_time, @@sql_safe_updates, \
     @@sql_auto_is_null, @@group_concat_max_len, @@div_precision_increment, @@lc_time_names, @@lc_messages, \
     @@character_set_client, @@character_set_results, @@collation_connection, \
     COALESCE(CURRENT_ROLE(), ''), COALESCE(DATABASE(), ''))";

/// The variables, in the words of both servers.
const VARIABLES: &str = "'autocommit', 'sql_mode', 'time_zone', 'tx_isolation', 'transaction_isolation', 'tx_read_only', \
     'transaction_read_only', 'foreign_key_checks', 'unique_checks', 'check_constraint_checks', 'sql_select_limit', \
     'lock_wait_timeout', 'max_statement_time', 'max_execution_time', 'sql_safe_updates', 'sql_auto_is_null', \
     'group_concat_max_len', 'div_precision_increment', 'lc_time_names', 'lc_messages', 'character_set_client', \
     'character_set_results', 'collation_connection'";

#[derive(QueryableByName)]
pub(crate) struct Variable {
    #[diesel(sql_type = Text, column_name = "Variable_name")]
    pub(crate) name: String,
    #[diesel(sql_type = Text, column_name = "Value")]
    pub(crate) value: String,
}

/// The settings as they were.
#[derive(Default, PartialEq)]
pub struct MysqlSettings {
    variables: Vec<(String, String)>,
    role: Option<String>,
    database: Option<String>,
    is_known: bool,
}

impl SessionSettings for MysqlConnection {
    type Settings = MysqlSettings;

    const SETTINGS_ROLL_BACK: bool = false;

    fn read_settings(&mut self) -> QueryResult<MysqlSettings> {
        let settings = read(self)?;
        // One statement tells by this text whether anything has changed. MySQL does not know all of it, and has no such blocks.
        let _ = self.batch_execute(&format!(
            "SET @queueable_lock_wait = @@innodb_lock_wait_timeout; SET @queueable_settings = {FINGERPRINT}"
        ));
        // Without autocommit the questions may have opened a transaction.
        self.batch_execute("ROLLBACK")?;
        Ok(settings)
    }

    fn put_settings_back(&mut self, settings: &MysqlSettings) -> QueryResult<bool> {
        if !settings.is_known || !self.has_other_settings(settings)? {
            return Ok(true);
        }
        let found = read(self)?;
        if found.database != settings.database {
            let Some(database) = &settings.database else { return Ok(false) };
            self.batch_execute(&format!("USE `{}`", database.replace('`', "``")))?;
        }
        if found.role != settings.role {
            let role =
                settings.role.as_deref().map_or("NONE".to_owned(), |role| format!("`{}`", role.replace('`', "``")));
            self.batch_execute(&format!("SET ROLE {role}"))?;
        }
        for (name, value) in &settings.variables {
            if !found.variables.contains(&(name.clone(), value.clone())) {
                self.batch_execute(&format!("SET SESSION {name} = {}", literal(value)))?;
            }
        }
        self.batch_execute(
            "SET SESSION innodb_lock_wait_timeout = COALESCE(@queueable_lock_wait, @@innodb_lock_wait_timeout)",
        )?;
        // What was prepared in another database is run there whenever it is run, and what a handler runs is kept by its text.
        Ok(found.database == settings.database && read(self)? == *settings)
    }

    fn has_other_settings(&mut self, settings: &MysqlSettings) -> QueryResult<bool> {
        if !settings.is_known {
            return Ok(false);
        }
        let same = format!("CAST({FINGERPRINT} <=> @queueable_settings AS SIGNED)");
        match diesel::select(diesel::dsl::sql::<BigInt>(&same)).get_result::<i64>(self) {
            Ok(same) => Ok(same != 1),
            // MySQL does not know all of these.
            Err(_) => Ok(read(self)? != *settings),
        }
    }

    fn end_handler(
        &mut self,
        end: &'static str,
        then: Option<&'static str>,
        settings: &MysqlSettings,
    ) -> QueryResult<bool> {
        self.control(end)?;
        let is_as_it_was = self.put_settings_back(settings)?;
        then.map_or(Ok(()), |then| self.control(then))?;
        Ok(is_as_it_was)
    }
}

fn read(connection: &mut MysqlConnection) -> QueryResult<MysqlSettings> {
    let variables: Vec<Variable> =
        diesel::sql_query(format!("SHOW SESSION VARIABLES WHERE Variable_name IN ({VARIABLES})")).load(connection)?;
    let database = diesel::select(diesel::dsl::sql::<Nullable<Text>>("DATABASE()")).get_result(connection)?;
    // MySQL 5.7 has no roles, and MySQL 8 writes them in a way of its own.
    let role = diesel::select(diesel::dsl::sql::<Nullable<Text>>("CURRENT_ROLE()"))
        .get_result::<Option<String>>(connection)
        .unwrap_or_default()
        .filter(|role| role != "NONE");
    let variables = variables.into_iter().map(|Variable { name, value }| (name, value)).collect();
    Ok(MysqlSettings { variables, role, database, is_known: true })
}

/// A value as `SET` takes it: a number or a switch bare, anything else as a text.
fn literal(value: &str) -> String {
    match value.parse::<f64>().is_ok() || matches!(value, "ON" | "OFF") {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''")),
    }
}
