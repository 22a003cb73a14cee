//! PostgreSQL's DDL: no table rewrite, a concurrent build of the index, and no long wait for a lock.

use std::time::{Duration, Instant};
use std::{iter, thread};

use diesel::deserialize::QueryableByName;
use diesel::pg::Pg;
use diesel::sql_types::{Array, BigInt, Bool, Text};

use super::clients::PgSession;
use super::live_table::{check_server, in_transaction};
use crate::backend::dialect::Dialect;
use crate::backend::schema::{
    ColumnType, Ddl, Index, IndexKey, IndexedRows, KeyOrder, LiveTable, MARK, NeededColumn, PATIENCE, Step, TableName,
    Target, Types, add_together, drop_together, finding, fingerprint, indexes, until_done,
};
use crate::backend::statement::One;
use crate::error::{Finding, refused};

use diesel::prelude::*;

impl<C: PgSession> Ddl<Pg> for C {
    const TYPES: Types = Types {
        status: ColumnType("text", &["text", "character varying"]),
        time: ColumnType("timestamptz", &["timestamp with time zone"]),
        try_count: ColumnType("integer", &["integer"]),
        message: ColumnType("text", &["text", "character varying"]),
        word: ColumnType("text", &["text", "character varying"]),
        count: ColumnType("bigint", &["bigint"]),
    };

    const CREATE_CONTROL: &'static str = r#"CREATE TABLE IF NOT EXISTS "queueable_control" (
  "queue" TEXT NOT NULL CHECK ("queue" <> ''),
  "scope" TEXT NOT NULL DEFAULT '',
  "paused_at" TIMESTAMP WITH TIME ZONE CHECK (isfinite("paused_at")),
  "paused_until" TIMESTAMP WITH TIME ZONE CHECK (isfinite("paused_until") AND "paused_until" > "paused_at"),
  "paused_by" TEXT CHECK (btrim("paused_by") <> ''),
  "pause_reason" TEXT CHECK (btrim("pause_reason") <> ''),
  "paused_value" TEXT,
  "workers" INTEGER CHECK ("workers" > 0),
  "at_most" INTEGER CHECK ("at_most" > 0),
  "retry_delay_ms" BIGINT CHECK ("retry_delay_ms" BETWEEN 0 AND 3155760000000),
  "limited_at" TIMESTAMP WITH TIME ZONE CHECK (isfinite("limited_at")),
  "limited_by" TEXT CHECK (btrim("limited_by") <> ''),
  "limit_reason" TEXT CHECK (btrim("limit_reason") <> ''),
  "environment" TEXT CHECK (btrim("environment") <> ''),
  PRIMARY KEY ("queue", "scope"),
  CHECK (("paused_at" IS NULL) = ("paused_by" IS NULL) AND ("paused_at" IS NULL) = ("pause_reason" IS NULL)),
  CHECK ("paused_at" IS NOT NULL OR "paused_until" IS NULL),
  CHECK (("limited_at" IS NULL) = ("limited_by" IS NULL) AND ("limited_at" IS NULL) = ("limit_reason" IS NULL)),
  CHECK (("limited_at" IS NULL) = (COALESCE("workers", "at_most", "retry_delay_ms") IS NULL))
)"#;

    fn may_read(&mut self, table: &TableName) -> QueryResult<bool> {
        let sql = "SELECT pg_catalog.has_table_privilege(CAST($1 AS regclass), 'SELECT') AS may";
        let may: One<Bool, bool> = diesel::sql_query(sql).bind::<Text, _>(table.to_string()).get_result(self)?;
        Ok(may.0)
    }

    fn add_columns(target: &Target, columns: &[NeededColumn]) -> Vec<String> {
        // One text is one transaction: no column is ever seen without its comment.
        let add = add_together(target, columns, "");
        let comments = columns.iter().map(|column| comment_on(target, column));
        vec![iter::once(add).chain(comments).collect::<Vec<_>>().join("; ")]
    }

    fn drop_columns(target: &Target, names: &[&str]) -> Vec<String> {
        vec![drop_together(target, "DROP COLUMN IF EXISTS", names)]
    }

    /// The old default is dropped first, because it may not be valid for the new type. A comment stays.
    fn redefine(target: &Target, column: &NeededColumn, _marked: bool) -> String {
        let NeededColumn { sql_type, default, .. } = column;
        let (table, name) = (&target.table, target.table.quoted(column.name));
        let to_type = format!(
            "ALTER TABLE {table} ALTER COLUMN {name} DROP DEFAULT, ALTER COLUMN {name} TYPE {sql_type} USING {name}::{sql_type}"
        );
        match default {
            None => format!("{to_type}, ALTER COLUMN {name} DROP NOT NULL"),
            Some(default) => format!(
                "{to_type}, ALTER COLUMN {name} SET DEFAULT {default}; UPDATE {table} SET {name} = {default} WHERE {name} IS NULL; \
                 ALTER TABLE {table} ALTER COLUMN {name} SET NOT NULL"
            ),
        }
    }

    fn mark(target: &Target, column: &NeededColumn) -> String {
        comment_on(target, column)
    }

    fn index_steps(target: &Target, index: &Index) -> Vec<Step> {
        // Several statements of one text are one transaction for the server, which therefore refuses `CONCURRENTLY`.
        let concurrently = if target.blocks_writers { "" } else { "CONCURRENTLY " };
        vec![Step {
            name: index.step,
            up: vec![create_index(target, index, concurrently)],
            down: vec![drop_index(target, index, concurrently)],
            in_transaction: false,
            alone: !target.blocks_writers,
        }]
    }

    fn lacking(&mut self, target: &Target, index: &Index) -> QueryResult<Vec<String>> {
        let concurrently = concurrently(self, target)?;
        let mut left = lacking(self, target, index, concurrently)?;
        if let [first, _] = &mut left[..]
            && !concurrently.is_empty()
        {
            first.insert_str(0, "-- each of the two as a text of its own, and outside a transaction\n");
        }
        Ok(left)
    }

    fn add_indexes(&mut self, target: &Target) -> QueryResult<()> {
        let alone = !in_transaction(self);
        let partitioned = is_partitioned(self, target)?;
        if alone && partitioned {
            for (place, index) in indexes::<Pg>(target).iter().enumerate() {
                // If the index of the whole table is valid, each partition has its index.
                if index_is_valid(self, target, index)? == Some(true) {
                    continue;
                }
                for partition in partitions(self, target)? {
                    build_index_alone(self, &partition, &indexes::<Pg>(&partition)[place])?;
                }
            }
        }
        match alone && !partitioned {
            true => build_indexes_alone(self, target),
            false => indexes::<Pg>(target).iter().try_for_each(|index| build_index(self, target, index, "")),
        }
    }

    fn drop_indexes(&mut self, target: &Target) -> QueryResult<()> {
        let concurrently = if in_transaction(self) { "" } else { concurrently(self, target)? };
        for index in indexes::<Pg>(target) {
            let drop = drop_index(target, &index, concurrently);
            match concurrently {
                "" => self.alter(&drop)?,
                _ => self.batch_execute(&drop)?,
            }
        }
        Ok(())
    }

    fn too_long(&mut self, target: &Target) -> QueryResult<Option<Finding>> {
        #[derive(QueryableByName)]
        struct Found {
            #[diesel(sql_type = Text)]
            name: String,
            #[diesel(sql_type = Text)]
            whole_type: String,
        }
        // Of texts and bytes the index has the beginnings.
        let columns = target.options.order.map_or(&[][..], |order| order.columns);
        let whole: Vec<_> = columns.iter().filter(|column| !column.is_long).map(|column| column.name).collect();
        let found: Option<Found> = diesel::sql_query(
            "SELECT a.attname::text AS name, format_type(a.atttypid, a.atttypmod) AS whole_type \
             FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid \
             WHERE a.attrelid = to_regclass($1) AND a.attname = ANY($2) AND NOT a.attisdropped AND t.typlen = -1 \
             AND t.typcategory IN ('A', 'C', 'R', 'S', 'U', 'V') AND a.atttypmod NOT BETWEEN 0 AND 604 \
             ORDER BY a.attnum LIMIT 1",
        )
        .bind::<Text, _>(target.table.to_string())
        .bind::<Array<Text>, _>(whole)
        .get_result(self)
        .optional()?;
        Ok(found.map(|Found { name, whole_type }| {
            let problem = format!(
                "the column {name} of {} is of type {whole_type}, whose values may be too long for an index: one takes 2,704 bytes, \
                 and PostgreSQL refuses a row with more",
                target.table
            );
            finding(target, problem, "name a column of a shorter type, or of type text, of which it has the beginning".to_owned())
        }))
    }

    fn check_own(&mut self, target: &Target) -> QueryResult<Vec<Finding>> {
        check_server(self, target)
    }
}

/// Writes the comment by which a column is known as the queue's.
fn comment_on(target: &Target, column: &NeededColumn) -> String {
    let table = &target.table;
    format!("COMMENT ON COLUMN {table}.{} IS '{MARK}'", table.quoted(column.name))
}

#[diesel::declare_sql_function]
extern "SQL" {
    fn pg_try_advisory_lock(key: BigInt) -> Bool;
    fn pg_advisory_unlock(key: BigInt) -> Bool;
}

fn create_index(target: &Target, index: &Index, concurrently: &str) -> String {
    format!(
        "CREATE INDEX {concurrently}{} ON {} ({}) WHERE {}",
        target.table.quoted(&index.name),
        target.table,
        index.columns,
        index.rows.condition(target)
    )
}

/// Returns the word in an index's DDL that avoids blocking writers. It is empty if the server refuses that.
fn concurrently(connection: &mut impl PgSession, target: &Target) -> QueryResult<&'static str> {
    Ok(if is_partitioned(connection, target)? { "" } else { "CONCURRENTLY " })
}

fn is_partitioned(connection: &mut impl PgSession, target: &Target) -> QueryResult<bool> {
    let query = "SELECT EXISTS (SELECT 1 FROM pg_class WHERE oid = to_regclass($1) AND relkind = 'p') AS partitioned";
    let query = diesel::sql_query(query).bind::<Text, _>(target.table.to_string());
    query.get_result::<One<Bool, bool>>(connection).map(|found| found.0)
}

/// Returns the queue's place in each partition that holds rows. The index of a partitioned table takes in an equal index
/// that a partition has. So if the partitions are indexed first, without blocking writers, nothing is left to build.
fn partitions(connection: &mut impl PgSession, target: &Target) -> QueryResult<Vec<Target>> {
    #[derive(QueryableByName)]
    struct Partition {
        #[diesel(sql_type = Text)]
        schema: String,
        #[diesel(sql_type = Text)]
        name: String,
    }
    let found: Vec<Partition> = diesel::sql_query(
        "SELECT n.nspname::text AS schema, c.relname::text AS name FROM pg_partition_tree(to_regclass($1)) AS t \
         JOIN pg_class c ON c.oid = t.relid JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE t.isleaf AND c.relkind = 'r' ORDER BY 1, 2",
    )
    .bind::<Text, _>(target.table.to_string())
    .load(connection)?;
    let of = |partition: Partition| Target {
        table: target.table.in_schema(&partition.schema, &partition.name),
        ..target.clone()
    };
    Ok(found.into_iter().map(of).collect())
}

/// Returns the statements that are still to be run for an index.
fn lacking(
    connection: &mut impl PgSession,
    target: &Target,
    index: &Index,
    concurrently: &str,
) -> QueryResult<Vec<String>> {
    let valid = index_is_valid(connection, target, index)?;
    if valid == Some(true) {
        return Ok(Vec::new());
    }
    // A concurrent build that was interrupted leaves an index that serves nothing.
    let drop = valid.map(|_| drop_index(target, index, concurrently));
    Ok(drop.into_iter().chain([create_index(target, index, concurrently)]).collect())
}

fn build_index(connection: &mut impl PgSession, target: &Target, index: &Index, concurrently: &str) -> QueryResult<()> {
    until_done(
        connection,
        |connection| lacking(connection, target, index, concurrently),
        |connection, statement| match concurrently {
            "" => connection.alter(statement),
            _ => connection.batch_execute(statement),
        },
    )
}

fn build_indexes_alone(connection: &mut impl PgSession, target: &Target) -> QueryResult<()> {
    indexes::<Pg>(target).iter().try_for_each(|index| build_index_alone(connection, target, index))
}

/// Builds the index without blocking writers, and only while no other session builds it: an index that is still being
/// built looks like one whose build was interrupted. A session whose client was killed holds the lock until its build
/// has ended.
fn build_index_alone(connection: &mut impl PgSession, target: &Target, index: &Index) -> QueryResult<()> {
    if index_is_valid(connection, target, index)? == Some(true) {
        return Ok(());
    }
    let lock = fingerprint(&target.table.sibling(&index.name)) as i64;
    let started = Instant::now();
    // The loop asks again and again instead of waiting. A concurrent build waits until every statement that began
    // before it has ended, and a statement that waits for the lock would be one of them.
    while !diesel::select(pg_try_advisory_lock(lock)).get_result::<bool>(connection)? {
        if started.elapsed() > PATIENCE {
            return Err(refused(format!(
                "another session has been adding the queue to {} for {PATIENCE:?}: run the migration again when it has ended",
                target.table
            )));
        }
        thread::sleep(Duration::from_millis(fastrand::u64(50..250)));
    }
    let built = build_index(connection, target, index, "CONCURRENTLY ");
    let unlocked = diesel::select(pg_advisory_unlock(lock)).get_result::<bool>(connection);
    built.and(unlocked.map(|_| ()))
}

fn drop_index(target: &Target, index: &Index, concurrently: &str) -> String {
    format!("DROP INDEX {concurrently}IF EXISTS {}", target.table.sibling(&index.name))
}

/// `None`: there is no index of that name, and none that serves as well. `false`: it is not valid, or has other columns.
fn index_is_valid(connection: &mut impl PgSession, target: &Target, index: &Index) -> QueryResult<Option<bool>> {
    let definitions: Vec<_> = index.keys.iter().map(|key| definition_of(target, key)).collect();
    let names: Vec<_> = index.keys.iter().map(|key| &*key.name).collect();
    let found: Option<One<Bool, bool>> = diesel::sql_query(
        "SELECT i.indisvalid AND format($3, VARIADIC $4) = (SELECT string_agg(replace( \
             pg_get_indexdef(i.indexrelid, place, true), '::text', ''), ', ' ORDER BY place) \
             FROM generate_series(1, i.indnkeyatts) place) AS valid \
         FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
         WHERE i.indrelid = to_regclass($1) AND c.relname = $2",
    )
    .bind::<Text, _>(target.table.to_string())
    .bind::<Text, _>(&index.name)
    .bind::<Text, _>(definitions.join(", "))
    .bind::<Array<Text>, _>(names)
    .get_result(connection)
    .optional()?;
    match found {
        Some(found) => Ok(Some(found.0)),
        None => Ok(has_same_index(connection, target, index)?.then_some(true)),
    }
}

/// Returns how the catalogue writes a column of an index, with `%I` for its name, and without the cast of a `varchar` to text.
fn definition_of(target: &Target, key: &IndexKey) -> String {
    let (before, after) = Pg::indexed(key.is_long, target.options.long_columns());
    format!("{}%I{after}", before.trim_start_matches("pg_catalog."))
}

/// Tells whether an index under another name serves as well, as a copy of a table has it. It must have the same columns
/// in the same order, and contain only pending rows: a claim would walk an index of all rows, such as the primary
/// key's, past rows that are settled.
fn has_same_index(connection: &mut impl PgSession, target: &Target, index: &Index) -> QueryResult<bool> {
    if index.rows != IndexedRows::Pending {
        return Ok(false);
    }
    // The options: 1 for a descending column, and 2 for one whose nulls come first.
    let option = |order| match order {
        KeyOrder::Plain => 0,
        KeyOrder::Descending => 1,
        KeyOrder::NullsFirst => 2,
    };
    let keys: Vec<_> =
        index.keys.iter().map(|key| format!("{} {}", definition_of(target, key), option(key.order))).collect();
    let names: Vec<_> = index.keys.iter().map(|key| &*key.name).collect();
    let found: One<Bool, bool> = diesel::sql_query(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_index i \
         JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid JOIN pg_catalog.pg_am m ON m.oid = c.relam \
         WHERE i.indrelid = pg_catalog.to_regclass($1) AND i.indisvalid AND m.amname = 'btree' \
         AND pg_catalog.pg_get_expr(i.indpred, i.indrelid) = pg_catalog.format('(%I IS NOT NULL)', $2) \
         AND i.indnkeyatts = pg_catalog.cardinality($4) AND (SELECT pg_catalog.string_agg(\
         pg_catalog.replace(pg_catalog.pg_get_indexdef(i.indexrelid, CAST(key.k AS integer), true), '::text', '') \
         || ' ' || i.indoption[key.k - 1], E'\\n' ORDER BY key.k) \
         FROM pg_catalog.unnest($4) WITH ORDINALITY AS key (name, k) \
         JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attname = key.name \
         AND a.attcollation = i.indcollation[key.k - 1] \
         JOIN pg_catalog.pg_opclass o ON o.oid = i.indclass[key.k - 1] AND o.opcdefault) \
         = pg_catalog.format($3, VARIADIC $4)) AS same",
    )
    .bind::<Text, _>(target.table.to_string())
    .bind::<Text, _>(target.columns.next_attempt_time)
    .bind::<Text, _>(keys.join("\n"))
    .bind::<Array<Text>, _>(names)
    .get_result(connection)?;
    Ok(found.0)
}
