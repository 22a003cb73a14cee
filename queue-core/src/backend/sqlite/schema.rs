//! SQLite's DDL, and its view of a live table and of its archives.

use diesel::connection::SimpleConnection;
use diesel::sql_types::{BigInt, Nullable, Text};
use diesel::sqlite::{Sqlite, SqliteConnection};

use crate::backend::schema::{
    ArchiveSchema, ColumnType, Ddl, Index, IndexedRows, LiveColumn, LiveTable, MARK, NeededColumn, OtherKind, Step,
    TableName, Target, Triggers, Types, UniqueColumn, finding, has_unique_key, indexes, needed_columns,
};
use crate::backend::statement::One;
use crate::error::Finding;
use crate::row::Lanes;

use diesel::prelude::*;

impl LiveTable for SqliteConnection {
    const INSERT_TIME: Option<&'static str> = None;

    fn other_kind(&mut self, target: &Target) -> QueryResult<Option<OtherKind>> {
        // Without a schema, a name means the temporary table of this name first.
        let found: Option<One<Text, String>> = diesel::sql_query(format!(
            "SELECT 'temporary' AS kind FROM sqlite_temp_master WHERE name = ?1 COLLATE NOCASE AND type = 'table' \
             AND ?2 IS NULL UNION ALL SELECT CASE WHEN sql LIKE 'CREATE VIRTUAL %' THEN 'virtual' ELSE type END FROM {} \
             WHERE name = ?1 COLLATE NOCASE AND type IN ('table', 'view') LIMIT 1",
            target.table.sibling("sqlite_master")
        ))
        .bind::<Text, _>(&target.table.name)
        .bind::<Nullable<Text>, _>(target.table.schema.as_deref())
        .get_result(self)
        .optional()?;
        Ok(match found.as_ref().map(|found| found.0.as_str()) {
            Some("view") => Some(OtherKind::View),
            Some("virtual") => Some(OtherKind::Virtual),
            Some("temporary") => Some(OtherKind::Temporary),
            _ => None,
        })
    }

    fn columns(&mut self, table: &TableName) -> QueryResult<Vec<LiveColumn>> {
        // Of a table, SQLite keeps the statements themselves, with their comments. SQLite quotes a renamed column differently.
        diesel::sql_query(format!(
            "SELECT c.name, c.type AS data_type, c.type AS whole_type, c.\"notnull\" = 0 AS nullable, \
             c.dflt_value AS default_value, c.dflt_value IS NOT NULL AS has_default, c.hidden <> 0 AS computed, NULL AS length, COALESCE(instr(m.sql, '`' || replace(c.name, '`', '``') || '` ' || ?3) > 0 \
             OR instr(m.sql, '\"' || replace(c.name, '\"', '\"\"') || '\" ' || ?3) > 0, 0) AS marked \
             FROM pragma_table_xinfo(?1, ?2) AS c \
             LEFT JOIN {} AS m ON m.type = 'table' AND m.name = ?1 COLLATE NOCASE",
            table.sibling("sqlite_master")
        ))
        .bind::<Text, _>(&table.name)
        .bind::<Text, _>(database_of(table))
        .bind::<Text, _>(comment())
        .load(self)
    }

    fn live_columns(&mut self, target: &Target) -> QueryResult<Vec<LiveColumn>> {
        let (mut live, needed) = (self.columns(&target.table)?, needed_columns::<Self>(target));
        let is_needed = |live: &LiveColumn| needed.iter().any(|needed| needed.name.eq_ignore_ascii_case(&live.name));
        live.retain(|column| !column.computed || is_needed(column));
        Ok(live)
    }

    fn alter(&mut self, ddl: &str) -> QueryResult<()> {
        self.batch_execute(ddl)
    }
}

impl Ddl for SqliteConnection {
    const TYPES: Types = Types {
        status: ColumnType("TEXT", &["text"]),
        // Text affinity: any other would turn a time into a number.
        time: ColumnType("TEXT", &["text"]),
        try_count: ColumnType("INTEGER", &["integer"]),
        message: ColumnType("TEXT", &["text"]),
        word: ColumnType("TEXT", &["text"]),
        count: ColumnType("BIGINT", &["bigint", "integer"]),
    };

    // A column takes values of any type, so each is checked. A text that is not a time has no Julian day.
    const CREATE_CONTROL: &'static str = "CREATE TABLE IF NOT EXISTS `queueable_control` (
  `queue` TEXT NOT NULL CHECK (typeof(`queue`) = 'text' AND `queue` <> ''),
  `scope` TEXT NOT NULL DEFAULT '' CHECK (typeof(`scope`) = 'text'),
  `paused_at` TEXT CHECK (`paused_at` IS NULL
    OR (`paused_at` GLOB '[0-9][0-9][0-9][0-9]-*' AND julianday(`paused_at`) IS NOT NULL)),
  `paused_until` TEXT CHECK (`paused_until` IS NULL
    OR (`paused_until` GLOB '[0-9][0-9][0-9][0-9]-*' AND COALESCE(julianday(`paused_until`) > julianday(`paused_at`), 0))),
  `paused_by` TEXT CHECK (typeof(`paused_by`) IN ('text', 'null') AND trim(`paused_by`) <> ''),
  `pause_reason` TEXT CHECK (typeof(`pause_reason`) IN ('text', 'null') AND trim(`pause_reason`) <> ''),
  `paused_value` TEXT CHECK (typeof(`paused_value`) IN ('text', 'null')),
  `workers` INTEGER CHECK (typeof(`workers`) IN ('integer', 'null') AND `workers` > 0),
  `at_most` INTEGER CHECK (typeof(`at_most`) IN ('integer', 'null') AND `at_most` > 0),
  `retry_delay_ms` BIGINT CHECK (typeof(`retry_delay_ms`) IN ('integer', 'null')
    AND `retry_delay_ms` BETWEEN 0 AND 3155760000000),
  `limited_at` TEXT CHECK (`limited_at` IS NULL
    OR (`limited_at` GLOB '[0-9][0-9][0-9][0-9]-*' AND julianday(`limited_at`) IS NOT NULL)),
  `limited_by` TEXT CHECK (typeof(`limited_by`) IN ('text', 'null') AND trim(`limited_by`) <> ''),
  `limit_reason` TEXT CHECK (typeof(`limit_reason`) IN ('text', 'null') AND trim(`limit_reason`) <> ''),
  `environment` TEXT CHECK (typeof(`environment`) IN ('text', 'null') AND trim(`environment`) <> ''),
  PRIMARY KEY (`queue`, `scope`),
  CHECK ((`paused_at` IS NULL) = (`paused_by` IS NULL) AND (`paused_at` IS NULL) = (`pause_reason` IS NULL)),
  CHECK (`paused_at` IS NOT NULL OR `paused_until` IS NULL),
  CHECK ((`limited_at` IS NULL) = (`limited_by` IS NULL) AND (`limited_at` IS NULL) = (`limit_reason` IS NULL)),
  CHECK ((`limited_at` IS NULL) = (COALESCE(`workers`, `at_most`, `retry_delay_ms`) IS NULL))
)";

    fn add_columns(target: &Target, columns: &[NeededColumn]) -> Vec<String> {
        columns.iter().map(|column| add_column(target, column, true)).collect()
    }

    fn drop_columns(target: &Target, names: &[&str]) -> Vec<String> {
        let table = &target.table;
        names.iter().map(|name| format!("ALTER TABLE {table} DROP COLUMN {}", table.quoted(name))).collect()
    }

    /// SQLite cannot alter a column, so a new one takes its name and its values. An indexed column cannot be dropped, so
    /// its index is dropped first, and created again.
    fn redefine(target: &Target, column: &NeededColumn, marked: bool) -> String {
        let table = &target.table;
        let (name, old) = (table.quoted(column.name), table.quoted(&format!("{}_replaced", column.name)));
        let mut statements = vec![
            format!("ALTER TABLE {table} RENAME COLUMN {name} TO {old}"),
            add_column(target, column, marked),
            format!("UPDATE {} SET {name} = {old} WHERE {old} IS NOT NULL", table),
            format!("ALTER TABLE {table} DROP COLUMN {old}"),
        ];
        let is_of_reports = |index: &Index| index.rows == IndexedRows::Reported;
        let holds = |index: &&Index| {
            column.name == target.columns.next_attempt_time
                || index.keys.iter().any(|key| key.name == column.name)
                || is_of_reports(index) && column.name == target.columns.last_attempt_error_message
        };
        for index in indexes::<Sqlite>(target).iter().filter(holds) {
            statements.insert(0, drop_index(target, &index.name));
            statements.push(create_index(target, index));
        }
        // A trigger would follow the column to its new name, and keep it from being dropped.
        let triggers = Self::wanted(target).into_iter().flat_map(|trigger| Self::drop_trigger(target, &trigger.name));
        statements.splice(0..0, triggers);
        statements.join("; ")
    }

    fn index_steps(target: &Target, index: &Index) -> Vec<Step> {
        vec![Self::step(index.step, vec![create_index(target, index)], vec![drop_index(target, &index.name)])]
    }

    fn lacking(&mut self, target: &Target, index: &Index) -> QueryResult<Vec<String>> {
        let usable = index_is_usable(self, target, index)?;
        if usable == Some(true) {
            return Ok(Vec::new());
        }
        let drop = usable.map(|_| drop_index(target, &index.name));
        Ok(drop.into_iter().chain([create_index(target, index)]).collect())
    }

    /// Drops those of options that the entity no longer has too: a column that an index names cannot be dropped. SQLite quotes a
    /// renamed column differently.
    fn drop_indexes(&mut self, target: &Target) -> QueryResult<()> {
        let names: Vec<One<Text, String>> = diesel::sql_query(format!(
            "SELECT name FROM {} WHERE type = 'index' AND tbl_name = ?1 COLLATE NOCASE AND substr(name, 1, 10) = 'queueable_' \
             AND (instr(replace(lower(sql), '\"', '`'), '`' || lower(?2) || '`') > 0 \
             OR instr(replace(lower(sql), '\"', '`'), '`' || lower(?3) || '`') > 0)",
            target.table.sibling("sqlite_master")
        ))
        .bind::<Text, _>(&target.table.name)
        .bind::<Text, _>(target.columns.next_attempt_time)
        .bind::<Text, _>(target.columns.last_attempt_error_message)
        .load(self)?;
        let of_today = indexes::<Sqlite>(target).into_iter().map(|index| index.name);
        let mut names = names.into_iter().map(|name| name.0).chain(of_today);
        names.try_for_each(|name| self.batch_execute(&drop_index(target, &name)))
    }

    /// A STRICT table knows no BIGINT, and INTEGER has as many bits. Elsewhere Diesel reads it as 32 of them. Versions of SQLite
    /// without such tables have no list of tables either.
    fn suit(&mut self, target: &Target, needed: &mut [NeededColumn]) {
        let strict = diesel::sql_query(
            "SELECT COUNT(*) AS strict FROM pragma_table_list \
             WHERE name = ? COLLATE NOCASE AND schema = ? COLLATE NOCASE AND strict <> 0",
        )
        .bind::<Text, _>(&target.table.name)
        .bind::<Text, _>(database_of(&target.table))
        .get_result::<One<BigInt, i64>>(self);
        if strict.is_ok_and(|strict| strict.0 != 0) {
            for NeededColumn { definition, .. } in needed {
                if let Some(rest) = definition.strip_prefix("BIGINT") {
                    *definition = format!("INTEGER{rest}");
                }
            }
        }
    }

    /// Texts that are not the same are several values here, whatever the column's collation calls equal.
    fn check_own(&mut self, target: &Target) -> QueryResult<Vec<Finding>> {
        let Some(Lanes { column, .. }) = target.options.lanes else { return Ok(Vec::new()) };
        let collations: Vec<One<Text, String>> = diesel::sql_query(
            "SELECT DISTINCT i.coll FROM pragma_index_list(?1, ?2) AS l, pragma_index_xinfo(l.name, ?2) AS i \
             WHERE l.name LIKE 'queueable%' AND i.name = ?3 COLLATE NOCASE AND i.coll <> 'BINARY' COLLATE NOCASE",
        )
        .bind::<Text, _>(&target.table.name)
        .bind::<Text, _>(database_of(&target.table))
        .bind::<Text, _>(column)
        .load(self)?;
        let found = |collation: One<Text, String>| {
            let collation = collation.0;
            let problem = format!(
                "the column {column}, by which the rows of {} take turns or are limited, has the collation {collation}: texts that \
                 it calls equal are several values for the queue, and one for a claim",
                target.table
            );
            finding(target, problem, format!("rebuild the table with {column} without COLLATE {collation}"))
        };
        Ok(collations.into_iter().map(found).collect())
    }
}

/// Writes the comment by which a column is known as the queue's. It stands before the type, so that it cannot be taken
/// for the next column's.
fn comment() -> String {
    format!("/* {MARK} */")
}

fn add_column(target: &Target, column: &NeededColumn, marked: bool) -> String {
    let (table, name) = (&target.table, target.table.quoted(column.name));
    let comment = if marked { comment() + " " } else { String::new() };
    // A column takes values of any type, and no attempt could be settled on a row that does not read as it is stored.
    let check = match column.name {
        column if column == target.columns.try_count => {
            format!(" CHECK (typeof({name}) = 'integer' AND {name} BETWEEN {} AND {})", i32::MIN, i32::MAX)
        }
        column if column == target.columns.next_attempt_time => format!(" CHECK ({name} NOT LIKE '-%')"),
        _ => String::new(),
    };
    format!("ALTER TABLE {table} ADD COLUMN {name} {comment}{}{check}", column.definition)
}

fn create_index(target: &Target, index: &Index) -> String {
    let table = &target.table;
    // Here the index name takes the schema's name, and the table name none.
    format!(
        "CREATE INDEX {} ON {} ({}) WHERE {}",
        table.sibling(&index.name),
        table.quoted(&table.name),
        index.columns,
        index.rows.condition(target)
    )
}

fn drop_index(target: &Target, name: &str) -> String {
    format!("DROP INDEX IF EXISTS {}", target.table.sibling(name))
}

/// `None`: there is no index of that name; `Some(false)`: it does not begin with the right column.
fn index_is_usable(connection: &mut SqliteConnection, target: &Target, index: &Index) -> QueryResult<Option<bool>> {
    let found: One<Nullable<BigInt>, Option<i64>> =
        diesel::sql_query("SELECT MAX(seqno = 0 AND name = ? COLLATE NOCASE) AS usable FROM pragma_index_info(?, ?)")
            // An index that begins with another column is not the queue's.
            .bind::<Text, _>(&index.keys[0].name)
            .bind::<Text, _>(&index.name)
            .bind::<Text, _>(database_of(&target.table))
            .get_result(connection)?;
    match found.0 {
        Some(usable) => Ok(Some(usable != 0)),
        None => Ok(has_same_index(connection, target, index)?.then_some(true)),
    }
}

/// Tells whether an index under another name serves as well: on the same columns, of pending rows or of all. A claim in
/// the entity's own order names its index, so no other index serves it.
fn has_same_index(connection: &mut SqliteConnection, target: &Target, index: &Index) -> QueryResult<bool> {
    if index.step != "index" {
        return Ok(false);
    }
    // The index of an expression has no column name, and a partial index shows what it leaves out only in its
    // statement.
    let found: One<BigInt, i64> = diesel::sql_query(format!(
        "SELECT EXISTS (SELECT 1 FROM pragma_index_list(?1, ?2) AS l \
         LEFT JOIN {} m ON m.type = 'index' AND m.name = l.name \
         WHERE (SELECT group_concat(name || ' ' || \"desc\" || ' ' || upper(coll), char(10)) \
         FROM pragma_index_xinfo(l.name, ?2) WHERE \"key\" = 1) = ?3 \
         AND (l.partial = 0 OR substr(replace(replace(m.sql, '`', ''), '\"', ''), -length(?4)) = ?4 COLLATE NOCASE)) AS same",
        target.table.sibling("sqlite_master")
    ))
    .bind::<Text, _>(&target.table.name)
    .bind::<Text, _>(database_of(&target.table))
    .bind::<Text, _>(format!("{} 0 BINARY", index.keys[0].name))
    .bind::<Text, _>(format!(" WHERE {} IS NOT NULL", target.columns.next_attempt_time))
    .get_result(connection)?;
    Ok(found.0 != 0)
}

impl ArchiveSchema for SqliteConnection {
    fn unique_columns(&mut self, table: &TableName) -> QueryResult<Vec<UniqueColumn>> {
        diesel::sql_query(
            "SELECT l.name AS index_name, i.name AS column_name, l.origin <> 'c' AS is_constraint, l.partial AS is_partial \
             FROM pragma_index_list(?, ?) l, pragma_index_info(l.name, ?) i WHERE l.\"unique\" = 1",
        )
        .bind::<Text, _>(&table.name)
        .bind::<Text, _>(database_of(table))
        .bind::<Text, _>(database_of(table))
        .load(self)
    }

    /// A key that is the row's id has no index.
    fn key_is_unique(&mut self, target: &Target) -> QueryResult<bool> {
        let primary: Vec<One<Text, String>> =
            diesel::sql_query("SELECT name FROM pragma_table_info(?, ?) WHERE pk > 0")
                .bind::<Text, _>(&target.table.name)
                .bind::<Text, _>(database_of(&target.table))
                .load(self)?;
        let is_key = |column: &One<Text, String>| target.key.iter().any(|key| key.eq_ignore_ascii_case(&column.0));
        Ok(!primary.is_empty() && primary.iter().all(is_key)
            || has_unique_key(&self.unique_columns(&target.table)?, target))
    }

    fn create_archive(target: &Target, archive: &TableName, columns: Option<&[LiveColumn]>) -> Vec<String> {
        let keys = archive.quoted_all(&target.key);
        let Some(columns) = columns else {
            let index = archive.sibling(&format!("{}_key", archive.name));
            return vec![
                format!("CREATE TABLE IF NOT EXISTS {archive} AS SELECT * FROM {} WHERE FALSE", target.table),
                format!("CREATE UNIQUE INDEX IF NOT EXISTS {index} ON {} ({keys})", archive.quoted(&archive.name)),
            ];
        };
        let mut lines: Vec<_> = columns
            .iter()
            .filter(|column| !column.computed)
            .map(|LiveColumn { name, whole_type, nullable, .. }| {
                format!("{} {whole_type}{}", archive.quoted(name), if *nullable { "" } else { " NOT NULL" })
            })
            .collect();
        lines.push(format!("PRIMARY KEY ({keys})"));
        vec![format!("CREATE TABLE IF NOT EXISTS {archive} ({})", lines.join(", "))]
    }

    /// SQLite cannot alter a column, so a new one takes its name and its values.
    fn retype(archive: &TableName, column: &str, sql_type: &str, _is_key: bool) -> String {
        let (name, old) = (archive.quoted(column), archive.quoted(&format!("{column}_replaced")));
        [
            format!("ALTER TABLE {archive} RENAME COLUMN {name} TO {old}"),
            format!("ALTER TABLE {archive} ADD COLUMN {name} {sql_type}"),
            format!("UPDATE {archive} SET {name} = {old}"),
            format!("ALTER TABLE {archive} DROP COLUMN {old}"),
        ]
        .join("; ")
    }

    fn drop_unique(archive: &TableName, index: &UniqueColumn) -> String {
        match index.is_constraint {
            // The index of a constraint can only be dropped with the table.
            true => format!("move the rows of {archive} away, drop it, and run the migration again, which creates it"),
            false => format!("DROP INDEX {}", archive.sibling(&index.index_name)),
        }
    }

    /// A column's type means nothing but its affinity.
    fn same_type(live: &str, archive: &str) -> bool {
        affinity(live) == affinity(archive)
    }
}

/// Returns the name of the attached database that has the table.
pub(super) fn database_of(table: &TableName) -> &str {
    table.schema.as_deref().unwrap_or("main")
}

/// The affinity of a declared type, by <https://www.sqlite.org/datatype3.html#determination_of_column_affinity>.
fn affinity(declared: &str) -> &'static str {
    let declared = declared.to_ascii_uppercase();
    let has = |words: &[&str]| words.iter().any(|word| declared.contains(word));
    if has(&["INT"]) {
        "INTEGER"
    } else if has(&["CHAR", "CLOB", "TEXT"]) {
        "TEXT"
    } else if declared.is_empty() || has(&["BLOB"]) {
        "BLOB"
    } else if has(&["REAL", "FLOA", "DOUB"]) {
        "REAL"
    } else {
        "NUMERIC"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_alike_by_their_affinity() {
        assert!(SqliteConnection::same_type("BIGINT", "INT") && SqliteConnection::same_type("varchar(20)", "TEXT"));
        assert!(SqliteConnection::same_type("BOOLEAN", "NUM") && SqliteConnection::same_type("DOUBLE", "REAL"));
        assert!(!SqliteConnection::same_type("TEXT", "INTEGER") && !SqliteConnection::same_type("", "NUMERIC"));
    }
}
