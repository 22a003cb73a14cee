//! The settings that a handler may change on a session of MySQL or MariaDB, and how they are restored at the end of its
//! message.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use diesel::connection::DynInstrumentation;
use diesel::deserialize::QueryableByName;
use diesel::mysql::Mysql;
use diesel::sql_types::{BigInt, Nullable, Text};

use super::clients::MysqlSession;
use crate::backend::schema::{Target, finding};
use crate::backend::setup::{SessionSettings, Watch};
use crate::backend::statement::execute;
use crate::backend::transactions::Transactions;
use crate::error::Finding;
use crate::sync::Mutex;

use diesel::prelude::*;

/// The settings as one text, as MariaDB writes it, in a block that ends a message. `SET STATEMENT` and a new release
/// may add others; these are the ones that a later message would see. `timestamp` is the time of the statement, unless a handler has
/// set it: then the server's clock, which `SYSDATE` tells, is another one.
pub(super) const FINGERPRINT: &str = "CONCAT_WS('|', @@autocommit, @@sql_mode, @@time_zone, @@tx_isolation, \
     @@tx_read_only, @@foreign_key_checks, @@unique_checks, @@check_constraint_checks, @@sql_select_limit, \
     @@lock_wait_timeout, @@innodb_lock_wait_timeout <=> @queueable_lock_wait, @@max_statement_time, @@sql_safe_updates, \
     @@sql_auto_is_null, @@group_concat_max_len, @@div_precision_increment, @@lc_time_names, @@lc_messages, \
     @@character_set_client, @@character_set_results, @@collation_connection, @@insert_id, @@auto_increment_increment, \
     @@auto_increment_offset, @@optimizer_switch, @@system_versioning_asof, @@completion_type, \
     ABS(UNIX_TIMESTAMP(SYSDATE(6)) - @@timestamp) < 2, COALESCE(CURRENT_ROLE(), ''), COALESCE(DATABASE(), ''))";

/// The same as MySQL writes it.
const FINGERPRINT_OF_MYSQL: &str = "CONCAT_WS('|', @@autocommit, @@sql_mode, @@time_zone, @@transaction_isolation, \
     @@transaction_read_only, @@foreign_key_checks, @@unique_checks, @@sql_select_limit, @@lock_wait_timeout, \
     @@innodb_lock_wait_timeout <=> @queueable_lock_wait, @@max_execution_time, @@sql_safe_updates, @@sql_auto_is_null, \
     @@group_concat_max_len, @@div_precision_increment, @@lc_time_names, @@lc_messages, @@character_set_client, \
     @@character_set_results, @@collation_connection, @@insert_id, @@auto_increment_increment, @@auto_increment_offset, \
     @@optimizer_switch, @@completion_type, ABS(UNIX_TIMESTAMP(SYSDATE(6)) - @@timestamp) < 2, CURRENT_ROLE(), COALESCE(DATABASE(), ''))";

/// The variables, by their names on both servers.
const VARIABLES: &str = "'autocommit', 'sql_mode', 'time_zone', 'tx_isolation', 'transaction_isolation', 'tx_read_only', \
     'transaction_read_only', 'foreign_key_checks', 'unique_checks', 'check_constraint_checks', 'sql_select_limit', \
     'lock_wait_timeout', 'max_statement_time', 'max_execution_time', 'sql_safe_updates', 'sql_auto_is_null', \
     'group_concat_max_len', 'div_precision_increment', 'lc_time_names', 'lc_messages', 'character_set_client', \
     'character_set_results', 'collation_connection', 'idle_transaction_timeout', 'auto_increment_increment', \
     'auto_increment_offset', 'optimizer_switch', 'system_versioning_asof', 'completion_type'";

#[derive(QueryableByName)]
pub(crate) struct Variable {
    #[diesel(sql_type = Text, column_name = "Variable_name")]
    pub(crate) name: String,
    #[diesel(sql_type = Text, column_name = "Value")]
    pub(crate) value: String,
}

/// Finds a binary log of statements: InnoDB refuses every write in READ COMMITTED if the server keeps one (1665).
pub(super) fn binary_log(connection: &mut impl MysqlSession, target: &Target) -> QueryResult<Option<Finding>> {
    // A server that keeps no other log any more has no such variable.
    let found: Vec<Variable> = diesel::sql_query(
        "SHOW SESSION VARIABLES WHERE (Variable_name = 'log_bin' AND Value = 'ON') \
         OR (Variable_name = 'binlog_format' AND Value = 'STATEMENT')",
    )
    .load(connection)?;
    let problem =
        "the server's binlog_format is STATEMENT, with which it refuses every write of a transaction in READ COMMITTED";
    let mend = "SET GLOBAL binlog_format = 'ROW'";
    Ok((found.len() == 2).then(|| finding(target, problem.to_owned(), mend.to_owned())))
}

/// The original settings, and how to compare them with the session's.
///
/// The session finds out what the server can answer when it is opened. Within a message it does not repeat a query in
/// another form after an error: the error may say that a cluster has undone the transaction, and the next statement
/// would begin another one.
#[derive(Default)]
pub struct MysqlSettings {
    /// `None` if no handler runs on the session.
    known: Option<Values>,
    /// Whether the server has roles.
    has_roles: bool,
    /// Whether the server ends transactions that are idle: MariaDB does.
    ends_idle_transactions: bool,
    /// An expression that shows whether anything has changed. `None`: the server can evaluate none.
    fingerprint: Option<&'static str>,
    /// Watches the handlers' statements. It alone sees a `USE`: a prepared statement runs in the database in which it was prepared,
    /// and sees no other. `None`: the application has an instrumentation of its own.
    watch: Option<Watch>,
    /// When the settings were compared last, on a session where only such statements change them that the watch sees.
    compared: Mutex<Option<Instant>>,
    /// Whether a trigger or a function has changed one before.
    changes_unseen: AtomicBool,
}

/// How long a session does without a comparison if its handlers have sent nothing unusual. A comparison costs the server as much as
/// a third of a settlement, see `docs/performance.md`.
const UNSEEN: Duration = Duration::from_millis(100);

#[derive(PartialEq)]
struct Values {
    variables: Vec<(String, String)>,
    role: Option<String>,
    database: Option<String>,
}

impl MysqlSettings {
    /// Returns the condition that the session's settings are the original ones. `None`: the server can evaluate none.
    pub(super) fn are_same(&self) -> Option<String> {
        self.fingerprint.map(|fingerprint| format!("{fingerprint} <=> @queueable_settings"))
    }
}

impl<C: MysqlSession> SessionSettings<Mysql> for C {
    type Settings = MysqlSettings;

    fn read_settings(&mut self) -> QueryResult<MysqlSettings> {
        // MySQL 5.7 has no roles, and no fingerprint for that.
        let has_roles = self.batch_execute("SET @queueable_role = CURRENT_ROLE()").is_ok();
        let known = read(self, has_roles)?;
        let ends_idle_transactions = known.variables.iter().any(|(name, _)| name == "idle_transaction_timeout");
        self.batch_execute("SET @queueable_lock_wait = @@innodb_lock_wait_timeout")?;
        let fingerprint = [FINGERPRINT, FINGERPRINT_OF_MYSQL]
            .into_iter()
            .find(|fingerprint| self.batch_execute(&format!("SET @queueable_settings = {fingerprint}")).is_ok());
        // Without autocommit the queries may have opened a transaction.
        self.batch_execute("ROLLBACK")?;
        let none: &dyn Any = &*DynInstrumentation::none();
        let watch = Watch::on(self, none.type_id());
        let known = Some(known);
        Ok(MysqlSettings { known, has_roles, ends_idle_transactions, fingerprint, watch, ..MysqlSettings::default() })
    }

    fn watch_handler(settings: &MysqlSettings, is_lent: bool) {
        settings.watch.iter().for_each(|watch| watch.lend(is_lent));
    }

    fn may_have_moved(settings: &MysqlSettings) -> bool {
        settings.watch.as_ref().is_some_and(Watch::has_moved)
    }

    fn has_to_compare(settings: &MysqlSettings) -> bool {
        let Some(watch) = &settings.watch else { return true };
        if watch.is_unusual() || settings.changes_unseen.load(Ordering::Relaxed) {
            return true;
        }
        settings.compared.lock().is_none_or(|compared| compared.elapsed() >= UNSEEN)
    }

    fn note_compared(settings: &MysqlSettings, are_same: bool) {
        let Some(watch) = &settings.watch else { return };
        *settings.compared.lock() = are_same.then(Instant::now);
        if are_same {
            watch.forget();
        } else {
            settings.changes_unseen.fetch_or(!watch.is_unusual(), Ordering::Relaxed);
        }
    }

    fn put_settings_back(&mut self, settings: &MysqlSettings) -> QueryResult<bool> {
        let Some(known) = &settings.known else { return Ok(true) };
        if !self.has_other_settings(settings)? {
            return Ok(true);
        }
        let has_moved = C::may_have_moved(settings);
        let found = read(self, settings.has_roles)?;
        if has_moved || found.database != known.database {
            let Some(database) = &known.database else { return Ok(false) };
            self.batch_execute(&format!("USE `{}`", database.replace('`', "``")))?;
        }
        if found.role != known.role {
            self.batch_execute(&format!("SET ROLE {}", known.role.as_deref().unwrap_or("NONE")))?;
        }
        for (name, value) in &known.variables {
            if !found.variables.contains(&(name.clone(), value.clone())) {
                self.batch_execute(&format!("SET SESSION {name} = {}", literal(value)))?;
            }
        }
        // MySQL makes a decimal number of a signed and an unsigned one, and takes none here.
        self.batch_execute(
            "SET SESSION timestamp = DEFAULT, SESSION innodb_lock_wait_timeout = CAST(COALESCE(@queueable_lock_wait, @@innodb_lock_wait_timeout) AS UNSIGNED)",
        )?;
        // The server runs a prepared statement in the database in which it was prepared, and Diesel keeps a handler's
        // prepared statements by their texts. Nothing takes `insert_id` back: by 0 MySQL means that key.
        Ok(!has_moved
            && found.database == known.database
            && read(self, settings.has_roles)? == *known
            && !differ(self, settings, known)?)
    }

    fn has_other_settings(&mut self, settings: &MysqlSettings) -> QueryResult<bool> {
        let Some(known) = &settings.known else { return Ok(false) };
        if C::may_have_moved(settings) {
            return Ok(true);
        }
        if !C::has_to_compare(settings) {
            return Ok(false);
        }
        let differ = differ(self, settings, known)?;
        C::note_compared(settings, !differ);
        Ok(differ)
    }

    fn limit_idleness(&mut self, settings: &MysqlSettings, timeout: Option<Duration>) -> QueryResult<()> {
        if settings.ends_idle_transactions {
            return Ok(());
        }
        let limit = timeout.map_or(LONGEST_WAIT, |timeout| whole_seconds(timeout) + 1);
        execute(self, &format!("SET SESSION wait_timeout = {limit}").as_str()).map(drop)
    }

    fn end_handler(
        &mut self,
        end: &'static str,
        then: Option<&'static str>,
        settings: &MysqlSettings,
    ) -> QueryResult<bool> {
        let is_as_it_was = if end.starts_with("ROLLBACK") {
            self.control(end)?;
            self.put_settings_back(settings)?
        } else {
            // The release comes last: it fails if the transaction is no longer the one in which the handler wrote.
            let is_as_it_was = self.put_settings_back(settings)?;
            self.control(end)?;
            is_as_it_was
        };
        then.map_or(Ok(()), |then| self.control(then))?;
        Ok(is_as_it_was)
    }
}

/// Asks the server whether a setting has changed.
fn differ(connection: &mut impl MysqlSession, settings: &MysqlSettings, known: &Values) -> QueryResult<bool> {
    let Some(are_same) = settings.are_same() else { return Ok(read(connection, settings.has_roles)? != *known) };
    // A handler may have set `sql_select_limit` to 0.
    let same = format!("CAST({are_same} AS SIGNED)");
    Ok(diesel::select(diesel::dsl::sql::<BigInt>(&same)).limit(1).get_result::<i64>(connection)? != 1)
}

fn read(connection: &mut impl MysqlSession, has_roles: bool) -> QueryResult<Values> {
    let variables: Vec<Variable> =
        diesel::sql_query(format!("SHOW SESSION VARIABLES WHERE Variable_name IN ({VARIABLES})")).load(connection)?;
    let database = diesel::select(diesel::dsl::sql::<Nullable<Text>>("DATABASE()")).limit(1).get_result(connection)?;
    let role = match has_roles {
        true => {
            let role: Option<String> =
                diesel::select(diesel::dsl::sql::<Nullable<Text>>("CURRENT_ROLE()")).limit(1).get_result(connection)?;
            // MySQL returns this word, or names in quotes with their hosts, and MariaDB a bare name.
            role.filter(|role| role != "NONE").map(|role| match role.starts_with('`') {
                true => role,
                false => format!("`{}`", role.replace('`', "``")),
            })
        }
        false => None,
    };
    let variables = variables.into_iter().map(|Variable { name, value }| (name, value)).collect();
    Ok(Values { variables, role, database })
}

/// Writes a value as `SET` takes it: a number or a switch without quotes, anything else as a text.
fn literal(value: &str) -> String {
    match value.parse::<f64>().is_ok() || matches!(value, "ON" | "OFF" | "DEFAULT") {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''")),
    }
}

/// The most seconds that a setting takes: 24 days, the limit of `wait_timeout` on Windows.
pub(super) const LONGEST_WAIT: u64 = 2_147_483;

/// MySQL counts waits in whole seconds, at least one.
pub(super) fn whole_seconds(duration: Duration) -> u64 {
    duration.as_millis().div_ceil(1000).clamp(1, LONGEST_WAIT.into()) as u64
}
