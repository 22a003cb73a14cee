//! What MySQL and MariaDB can say of their own health.

use diesel::mysql::Mysql;
use diesel::sql_types::Untyped;

use super::clients::MysqlSession;
use crate::backend::examination::{Check, Examination, Explained, Figures, LOOKS_FOR};
use crate::backend::statement::{Statement, execute, load};
use crate::ill::{IllKind, Severity};

use diesel::prelude::*;

impl<C: MysqlSession> Examination<Mysql> for C {
    const OF_DATABASE: &'static [Check] = OF_DATABASE;

    const OF_TABLE: &'static [Check] = OF_TABLE;

    const VERSION: &'static str = VERSION;

    const SETTINGS: &'static [&'static str] = SETTINGS;

    const SIZES: &'static str = SIZES;

    /// Without a transaction: in one that is serializable, a SELECT would lock what it reads. MySQL 5.6 has no such limit.
    fn bounded<T>(&mut self, look: impl FnOnce(&mut Self) -> QueryResult<T>) -> QueryResult<T> {
        self.batch_execute(&format!(
            "SET @queueable_looks_for = 0 /*!50708 , @queueable_looks_for = @@SESSION.max_execution_time, \
             SESSION max_execution_time = {LOOKS_FOR}000 */ /*M!100101 , @queueable_looks_for = @@SESSION.max_statement_time, \
             SESSION max_statement_time = {LOOKS_FOR} */"
        ))?;
        let found = look(self);
        let restored = self.batch_execute(
            "SET @queueable_looked = 0 /*!50708 , SESSION max_execution_time = @queueable_looks_for */ \
             /*M!100101 , SESSION max_statement_time = @queueable_looks_for */",
        );
        found.and_then(|found| restored.map(|()| found))
    }

    /// MySQL does not say which columns a prepared EXPLAIN has, so its plan goes through a variable, which it can from 8.1 on.
    fn plan(&mut self, statement: &dyn Statement<Mysql>) -> QueryResult<String> {
        let version = Figures::lines(self.look("SELECT VERSION()".to_owned())?);
        if version.contains("MariaDB") {
            return load::<Untyped, Figures, _>(self, &Explained("EXPLAIN FORMAT=JSON ", statement))
                .map(Figures::lines);
        }
        execute(self, &Explained("EXPLAIN FORMAT=JSON INTO @queueable_plan ", statement))?;
        self.look("SELECT CAST(@queueable_plan AS CHAR)".to_owned()).map(Figures::lines)
    }
}

const OF_DATABASE: &[Check] = &[
    Check {
        kind: IllKind::Durability,
        severity: Severity::Warning,
        sql: "SHOW GLOBAL VARIABLES WHERE Variable_name = 'innodb_flush_log_at_trx_commit' AND Value IN ('0', '2')",
        problem: "{1} is {2}: after a crash of the machine the messages of the last second may run once more",
        mend: "SET GLOBAL {1} = 1",
    },
    Check {
        kind: IllKind::ReadOnly,
        severity: Severity::Error,
        sql: "SHOW GLOBAL VARIABLES WHERE Variable_name = 'read_only' AND Value <> 'OFF'",
        problem: "the server is read only, so no worker can write",
        mend: "SET GLOBAL read_only = 0 -- if it is the primary; else connect to the primary",
    },
    Check {
        kind: IllKind::Isolation,
        severity: Severity::Warning,
        sql: "SHOW SESSION VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation') AND Value = 'SERIALIZABLE'",
        problem: "sessions begin in {2}: each read of a queue's rows locks them, and workers wait",
        mend: "SET GLOBAL TRANSACTION ISOLATION LEVEL READ COMMITTED",
    },
    Check {
        kind: IllKind::Autocommit,
        severity: Severity::Warning,
        sql: "SHOW SESSION VARIABLES WHERE Variable_name = 'autocommit' AND Value = 'OFF'",
        problem: "sessions begin without autocommit: an operation or a report leaves a transaction open that keeps its locks",
        mend: "SET GLOBAL autocommit = 1",
    },
    Check {
        kind: IllKind::SqlMode,
        severity: Severity::Warning,
        sql: "SHOW SESSION VARIABLES WHERE Variable_name = 'sql_mode' AND Value NOT LIKE '%STRICT_%'",
        problem: "sql_mode is not strict: the server stores a mutilated value in place of one that does not fit, also when rows are enqueued",
        mend: "SET GLOBAL sql_mode = CONCAT_WS(',', NULLIF(@@GLOBAL.sql_mode, ''), 'STRICT_TRANS_TABLES')",
    },
    Check {
        kind: IllKind::Timeouts,
        severity: Severity::Warning,
        sql: "SHOW GLOBAL VARIABLES WHERE Variable_name = 'wait_timeout' AND CAST(Value AS DECIMAL(20, 6)) < {short_rest_seconds} \
              OR Variable_name = 'max_statement_time' AND Value > 0 AND CAST(Value AS DECIMAL(20, 6)) < {short_seconds} \
              OR Variable_name = 'max_execution_time' AND Value > 0 AND CAST(Value AS DECIMAL(20, 6)) < {short_seconds} * 1000",
        problem: "{1} is {2} for sessions that set no other, as those that enqueue and operate",
        mend: "SET GLOBAL {1} = DEFAULT",
    },
    Check {
        kind: IllKind::PacketSize,
        severity: Severity::Warning,
        // 1 MiB: a guess. The servers' defaults are 16 and 64.
        sql: "SHOW GLOBAL VARIABLES WHERE Variable_name = 'max_allowed_packet' AND CAST(Value AS UNSIGNED) < 1048576",
        problem: "{1} is {2} bytes: the server refuses longer statements and values",
        mend: "SET GLOBAL {1} = 16777216",
    },
    Check {
        kind: IllKind::Connections,
        severity: Severity::Warning,
        sql: "SHOW GLOBAL STATUS WHERE Variable_name = 'Threads_connected' \
              AND CAST(Value AS UNSIGNED) * 100 >= @@GLOBAL.max_connections * {full_percent}",
        problem: "{2} connections are in use, nearly as many as max_connections allows",
        mend: "make the pools of the applications smaller, or SET GLOBAL max_connections",
    },
    Check {
        kind: IllKind::Connections,
        severity: Severity::Warning,
        sql: "SHOW GLOBAL STATUS WHERE Variable_name = 'Prepared_stmt_count' \
              AND CAST(Value AS UNSIGNED) * 100 >= @@GLOBAL.max_prepared_stmt_count * {full_percent}",
        problem: "{2} prepared statements are in use, nearly as many as max_prepared_stmt_count allows",
        mend: "SET GLOBAL max_prepared_stmt_count = 1048576",
    },
    Check {
        kind: IllKind::OldTransaction,
        severity: Severity::Warning,
        // The server writes the beginning in the time zone of its process, whatever the session's.
        sql: "SELECT CAST(trx_mysql_thread_id AS CHAR), \
              CAST(TIMESTAMPDIFF(SECOND, CONVERT_TZ(trx_started, 'SYSTEM', '+00:00'), UTC_TIMESTAMP()) AS CHAR) \
              FROM information_schema.INNODB_TRX \
              WHERE CONVERT_TZ(trx_started, 'SYSTEM', '+00:00') < UTC_TIMESTAMP() - INTERVAL {old_seconds} SECOND \
              AND trx_mysql_thread_id > 0 ORDER BY trx_started LIMIT 3",
        problem: "the connection {1} has been in a transaction for {2} s, for which the server keeps old versions of all rows",
        mend: "KILL CONNECTION {1}",
    },
    Check {
        kind: IllKind::DeadRows,
        severity: Severity::Warning,
        sql: "SELECT CAST(`COUNT` AS CHAR) FROM information_schema.INNODB_METRICS \
              WHERE NAME = 'trx_rseg_history_len' AND `COUNT` > {history}",
        problem: "the server keeps old versions of {1} transactions, past which each claim walks",
        mend: "end the oldest transactions (information_schema.INNODB_TRX), and raise innodb_purge_threads",
    },
];

const OF_TABLE: &[Check] = &[Check {
    kind: IllKind::CharacterSet,
    severity: Severity::Warning,
    sql: "SELECT CAST(COLUMN_NAME AS CHAR), CAST(CHARACTER_SET_NAME AS CHAR), CAST(CONCAT(COLUMN_TYPE, \
              ' CHARACTER SET utf8mb4 COLLATE utf8mb4_bin', IF(IS_NULLABLE = 'YES', '', ' NOT NULL'), \
              IF(COLUMN_COMMENT = '', '', CONCAT(' COMMENT ', QUOTE(COLUMN_COMMENT)))) AS CHAR) FROM information_schema.COLUMNS \
              WHERE TABLE_SCHEMA = COALESCE({schema}, DATABASE()) AND TABLE_NAME = {name} AND COLUMN_NAME IN ({columns}) \
              AND DATA_TYPE LIKE '%text' AND CHARACTER_SET_NAME <> 'utf8mb4'",
    problem: "the column {1} of {table} has the character set {2}: the text of a failure loses what is not in it",
    mend: "ALTER TABLE {table} MODIFY COLUMN `{1}` {3}",
}];

const VERSION: &str = "SELECT CONCAT(VERSION(), ', ', @@version_comment)";

/// A session's own limits of time are those that [`Examination::bounded`] sets.
const SETTINGS: &[&str] = &[
    "SHOW SESSION VARIABLES WHERE Variable_name IN ('autocommit', 'character_set_connection', 'sql_mode', 'time_zone', \
     'transaction_isolation', 'tx_isolation')",
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('binlog_format', 'character_set_server', 'innodb_autoinc_lock_mode', \
     'innodb_buffer_pool_size', 'innodb_deadlock_detect', 'innodb_flush_log_at_trx_commit', 'innodb_lock_wait_timeout', \
     'innodb_purge_threads', 'innodb_rollback_on_timeout', 'innodb_snapshot_isolation', 'interactive_timeout', 'lock_wait_timeout', \
     'max_allowed_packet', 'max_connections', 'max_execution_time', 'max_prepared_stmt_count', 'max_statement_time', 'read_only', \
     'sync_binlog', 'system_time_zone', 'wait_timeout')",
    "SHOW GLOBAL STATUS WHERE Variable_name IN ('Prepared_stmt_count', 'Threads_connected')",
];

/// The server counts all indexes together, and the primary key with the table.
const SIZES: &str = "SELECT CAST(TABLE_NAME AS CHAR), CAST(DATA_LENGTH AS CHAR), CAST(TABLE_ROWS AS CHAR) FROM information_schema.TABLES \
     WHERE TABLE_SCHEMA = COALESCE({schema}, DATABASE()) AND TABLE_NAME = {name} UNION ALL \
     SELECT 'indexes', CAST(INDEX_LENGTH AS CHAR), NULL FROM information_schema.TABLES \
     WHERE TABLE_SCHEMA = COALESCE({schema}, DATABASE()) AND TABLE_NAME = {name}";
