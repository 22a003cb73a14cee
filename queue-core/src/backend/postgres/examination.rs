//! What PostgreSQL can say of its own health.

use diesel::pg::Pg;
use diesel::result::Error;
use diesel::sql_types::Untyped;

use super::clients::PgSession;
use crate::backend::examination::{Check, Examination, Explained, Figures, LOOKS_FOR};
use crate::backend::statement::{Statement, load};
use crate::ill::{IllKind, Severity};

use diesel::prelude::*;

impl<C: PgSession> Examination<Pg> for C {
    const OF_DATABASE: &'static [Check] = OF_DATABASE;

    const OF_TABLE: &'static [Check] = OF_TABLE;

    const VERSION: &'static str = VERSION;

    const SETTINGS: &'static [&'static str] = SETTINGS;

    const SIZES: &'static str = SIZES;

    /// In a transaction, or in a savepoint of the caller's, because a statement that fails would end it.
    fn bounded<T>(&mut self, look: impl FnOnce(&mut Self) -> QueryResult<T>) -> QueryResult<T> {
        let mut found = None;
        let ended = self.transaction::<(), Error, _>(|connection| {
            let limits =
                format!("SET LOCAL statement_timeout = '{LOOKS_FOR}s'; SET LOCAL lock_timeout = '{LOOKS_FOR}s'");
            connection.batch_execute(&limits)?;
            found = Some(look(connection)?);
            Err(Error::RollbackTransaction)
        });
        match (found, ended) {
            (Some(found), Err(Error::RollbackTransaction)) => Ok(found),
            (_, ended) => Err(ended.err().unwrap_or(Error::NotFound)),
        }
    }

    fn plan(&mut self, statement: &dyn Statement<Pg>) -> QueryResult<String> {
        load::<Untyped, Figures, _>(self, &Explained("EXPLAIN ", statement)).map(Figures::lines)
    }
}

/// Settings are those with which a session begins: the role's, the database's or the server's own.
const OF_DATABASE: &[Check] = &[
    Check {
        kind: IllKind::Durability,
        severity: Severity::Error,
        sql: "SELECT name FROM pg_catalog.pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off'",
        problem: "{1} is off: a crash of the machine may damage the database",
        mend: "ALTER SYSTEM SET {1} = on; SELECT pg_reload_conf()",
    },
    Check {
        kind: IllKind::Durability,
        severity: Severity::Warning,
        sql: "SELECT pg_catalog.quote_ident(pg_catalog.current_database()) FROM pg_catalog.pg_settings \
              WHERE name = 'synchronous_commit' AND reset_val = 'off'",
        problem: "synchronous_commit is off: after a crash of the server the last messages may run once more",
        mend: "ALTER DATABASE {1} SET synchronous_commit = on",
    },
    Check {
        kind: IllKind::Isolation,
        severity: Severity::Warning,
        sql: "SELECT pg_catalog.quote_ident(pg_catalog.current_database()), reset_val FROM pg_catalog.pg_settings \
              WHERE name = 'default_transaction_isolation' AND reset_val <> 'read committed'",
        problem: "sessions begin in {2}: an operation fails if a row that it changes is changed meanwhile",
        mend: "ALTER DATABASE {1} SET default_transaction_isolation = 'read committed'",
    },
    Check {
        kind: IllKind::ReadOnly,
        severity: Severity::Warning,
        sql: "SELECT pg_catalog.quote_ident(pg_catalog.current_database()) FROM pg_catalog.pg_settings \
              WHERE name = 'default_transaction_read_only' AND reset_val = 'on'",
        problem: "sessions begin read only, so the application cannot enqueue",
        mend: "ALTER DATABASE {1} SET default_transaction_read_only = off",
    },
    Check {
        kind: IllKind::Timeouts,
        severity: Severity::Warning,
        sql: "SELECT pg_catalog.quote_ident(pg_catalog.current_database()), name, reset_val FROM pg_catalog.pg_settings \
              WHERE name IN ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout') \
              AND CAST(reset_val AS bigint) BETWEEN 1 AND {short_seconds} * 1000 - 1",
        problem: "{2} is {3} ms for sessions that set no other, as those that enqueue and operate",
        mend: "ALTER DATABASE {1} SET {2} = 0",
    },
    Check {
        kind: IllKind::Connections,
        severity: Severity::Warning,
        sql: "SELECT CAST(pg_catalog.count(*) AS text), pg_catalog.current_setting('max_connections') \
              FROM pg_catalog.pg_stat_activity WHERE backend_type = 'client backend' \
              HAVING pg_catalog.count(*) * 100 >= CAST(pg_catalog.current_setting('max_connections') AS bigint) * {full_percent}",
        problem: "{1} of the server's {2} connections are in use",
        mend: "make the pools of the applications smaller, or raise max_connections and restart the server",
    },
    Check {
        kind: IllKind::OldTransaction,
        severity: Severity::Warning,
        sql: "SELECT CAST(pid AS text), state, CAST(pg_catalog.date_trunc('second', pg_catalog.clock_timestamp() - xact_start) AS text), \
              CAST(usename AS text) FROM pg_catalog.pg_stat_activity \
              WHERE (datname = pg_catalog.current_database() OR backend_type = 'walsender') AND backend_type NOT LIKE 'autovacuum%' \
              AND xact_start < pg_catalog.clock_timestamp() - interval '{old_seconds} seconds' AND pid <> pg_catalog.pg_backend_pid() \
              AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL OR state LIKE 'idle in transaction%') ORDER BY xact_start LIMIT 3",
        problem: "the session {1} of {4} has been in a transaction for {3} ({2}): VACUUM keeps all rows that died since",
        mend: "SELECT pg_terminate_backend({1})",
    },
    Check {
        kind: IllKind::OldTransaction,
        severity: Severity::Warning,
        sql: "SELECT gid, CAST(pg_catalog.date_trunc('second', pg_catalog.clock_timestamp() - prepared) AS text), \
              pg_catalog.quote_literal(gid) FROM pg_catalog.pg_prepared_xacts WHERE database = pg_catalog.current_database() \
              AND prepared < pg_catalog.clock_timestamp() - interval '{old_seconds} seconds' ORDER BY prepared LIMIT 3",
        problem: "the prepared transaction {1} has waited for its end for {2}, holds locks, and keeps dead rows",
        mend: "ROLLBACK PREPARED {3}",
    },
    Check {
        kind: IllKind::OldTransaction,
        severity: Severity::Warning,
        sql: "SELECT CAST(slot_name AS text), pg_catalog.quote_literal(slot_name) FROM pg_catalog.pg_replication_slots \
              WHERE NOT active AND NOT pg_catalog.pg_is_in_recovery() \
              AND (restart_lsn IS NOT NULL OR xmin IS NOT NULL OR catalog_xmin IS NOT NULL) LIMIT 3",
        problem: "nobody reads the replication slot {1}, for which the server keeps its log and dead rows",
        mend: "SELECT pg_drop_replication_slot({2})",
    },
    Check {
        kind: IllKind::Autovacuum,
        severity: Severity::Warning,
        sql: "SELECT name FROM pg_catalog.pg_settings WHERE name IN ('autovacuum', 'track_counts') AND setting = 'off'",
        problem: "{1} is off, so nothing removes the dead rows that each message leaves",
        mend: "ALTER SYSTEM SET {1} = on; SELECT pg_reload_conf()",
    },
    Check {
        kind: IllKind::TransactionIds,
        severity: Severity::Error,
        sql: "SELECT CAST(pg_catalog.age(datfrozenxid) AS text) FROM pg_catalog.pg_database \
              WHERE datname = pg_catalog.current_database() AND pg_catalog.age(datfrozenxid) > {transaction_ids}",
        problem: "the oldest transaction id in use is {1} transactions old, and the server takes no more at 2,144,483,647",
        mend: "end old transactions and drop unused replication slots, and run VACUUM (FREEZE) in this database",
    },
    Check {
        kind: IllKind::Standby,
        severity: Severity::Note,
        sql: "SELECT 'standby' WHERE pg_catalog.pg_is_in_recovery()",
        problem: "the server is a standby: it takes no writes, and what is said here is of the past",
        mend: "connect to the primary, for example with target_session_attrs=read-write in the URL",
    },
    Check {
        kind: IllKind::ReplicaLag,
        severity: Severity::Warning,
        sql: "SELECT CAST(pg_catalog.date_trunc('second', pg_catalog.clock_timestamp() - pg_catalog.pg_last_xact_replay_timestamp()) AS text) \
              WHERE pg_catalog.pg_is_in_recovery() \
              AND pg_catalog.pg_last_wal_receive_lsn() IS DISTINCT FROM pg_catalog.pg_last_wal_replay_lsn() \
              AND pg_catalog.pg_last_xact_replay_timestamp() < pg_catalog.clock_timestamp() - interval '{old_seconds} seconds'",
        problem: "the standby is {1} behind its primary",
        mend: "end long queries on the standby, or set max_standby_streaming_delay",
    },
    Check {
        kind: IllKind::ReplicaLag,
        severity: Severity::Warning,
        sql: "SELECT CAST(application_name AS text), CAST(pg_catalog.date_trunc('second', replay_lag) AS text) \
              FROM pg_catalog.pg_stat_replication WHERE replay_lag > interval '{old_seconds} seconds' LIMIT 3",
        problem: "the standby {1} is {2} behind",
        mend: "end long queries on the standby, or give it more of the machine",
    },
];

const OF_TABLE: &[Check] = &[
    Check {
        kind: IllKind::UnloggedTable,
        severity: Severity::Error,
        sql: "SELECT 'unlogged' FROM pg_catalog.pg_class WHERE oid = pg_catalog.to_regclass({literal}) AND relpersistence = 'u'",
        problem: "the table {table} is unlogged: a crash of the server empties it",
        mend: "ALTER TABLE {table} SET LOGGED",
    },
    Check {
        kind: IllKind::Autovacuum,
        severity: Severity::Warning,
        sql: "SELECT option FROM pg_catalog.pg_class, pg_catalog.unnest(reloptions) AS option \
              WHERE oid = pg_catalog.to_regclass({literal}) AND option IN ('autovacuum_enabled=false', 'autovacuum_enabled=off')",
        problem: "the table {table} has {1}, so nothing removes the dead rows that each message leaves",
        mend: "ALTER TABLE {table} RESET (autovacuum_enabled)",
    },
    Check {
        kind: IllKind::DeadRows,
        severity: Severity::Warning,
        sql: "SELECT CAST(n_dead_tup AS text), CAST(n_live_tup AS text), COALESCE('at ' || CAST(pg_catalog.date_trunc('second', \
              GREATEST(last_vacuum, last_autovacuum)) AS text), 'never') FROM pg_catalog.pg_stat_all_tables \
              WHERE relid = pg_catalog.to_regclass({literal}) AND n_dead_tup > {dead_rows} AND n_dead_tup > n_live_tup",
        problem: "the table {table} has {1} dead rows beside {2} live ones, and was last vacuumed {3}",
        mend: "VACUUM {table}",
    },
    // An entry of one time takes 20 bytes with its pointer, and other columns add some: ten times as much is too much. A guess.
    Check {
        kind: IllKind::BloatedIndex,
        severity: Severity::Warning,
        sql: "SELECT CAST(i.indexrelid AS pg_catalog.regclass)::text, pg_catalog.pg_size_pretty(pg_catalog.pg_relation_size(i.indexrelid)), \
              CAST(CAST(GREATEST(c.reltuples, 0) AS bigint) AS text) FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid \
              WHERE i.indrelid = pg_catalog.to_regclass({literal}) AND c.relname IN ({indexes}) AND c.relkind = 'i' AND c.reltuples >= 0 \
              AND pg_catalog.pg_relation_size(i.indexrelid) > {small_index} + CAST(c.reltuples AS bigint) * 200",
        problem: "the index {1} has {2} for about {3} entries, and a claim reads what lies before the first due one",
        mend: "REINDEX INDEX CONCURRENTLY {1}",
    },
    Check {
        kind: IllKind::RowSecurity,
        severity: Severity::Note,
        sql: "SELECT CAST(pg_catalog.count(p.*) AS text) FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_policy p ON p.polrelid = c.oid \
              WHERE c.oid = pg_catalog.to_regclass({literal}) AND c.relrowsecurity GROUP BY c.oid",
        problem: "row security is on for {table}, with {1} policies: no worker sees rows outside those of its role",
        mend: "ALTER TABLE {table} DISABLE ROW LEVEL SECURITY, unless each poller's role has policies for all rows of the queue",
    },
];

const VERSION: &str = "SELECT pg_catalog.version()";

const SETTINGS: &[&str] = &[
    "SELECT name, pg_catalog.concat_ws(' ', reset_val, unit) FROM pg_catalog.pg_settings WHERE name IN (\
     'autovacuum', 'autovacuum_freeze_max_age', 'autovacuum_max_workers', 'autovacuum_naptime', 'autovacuum_vacuum_cost_delay', \
     'autovacuum_vacuum_cost_limit', 'autovacuum_vacuum_scale_factor', 'autovacuum_vacuum_threshold', 'deadlock_timeout', \
     'default_transaction_isolation', 'default_transaction_read_only', 'effective_cache_size', 'enable_indexscan', 'enable_seqscan', \
     'enable_sort', 'fsync', 'full_page_writes', 'hot_standby_feedback', 'idle_in_transaction_session_timeout', 'idle_session_timeout', \
     'jit', 'lock_timeout', 'max_connections', 'max_locks_per_transaction', 'max_prepared_transactions', 'max_standby_streaming_delay', \
     'plan_cache_mode', 'random_page_cost', 'server_encoding', 'shared_buffers', 'statement_timeout', 'synchronous_commit', 'TimeZone', \
     'track_counts', 'transaction_timeout', 'wal_level', 'work_mem')",
    "SELECT 'in_recovery', CAST(pg_catalog.pg_is_in_recovery() AS text)",
    "SELECT 'connections', CAST(pg_catalog.count(*) AS text) FROM pg_catalog.pg_stat_activity WHERE backend_type = 'client backend'",
];

const SIZES: &str = "SELECT CAST(c.relname AS text), CAST(pg_catalog.pg_relation_size(c.oid) AS text), \
     CASE WHEN c.reltuples >= 0 THEN CAST(CAST(c.reltuples AS bigint) AS text) END \
     FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass({literal}) \
     OR c.oid IN (SELECT indexrelid FROM pg_catalog.pg_index WHERE indrelid = pg_catalog.to_regclass({literal})) \
     ORDER BY c.relkind DESC, c.relname";
