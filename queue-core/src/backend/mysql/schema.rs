//! The DDL of MySQL and MariaDB, and their view of a live table and of its archives.
//!
//! Both servers choose the least intrusive algorithm themselves: instant for the columns, in place and without a lock
//! for the index.

use diesel::deserialize;
use diesel::mysql::Mysql;
use diesel::result::Error;
use diesel::row::{NamedRow, Row};
use diesel::sql_types::{BigInt, Nullable, Text};

use super::clients::MysqlSession;
use super::control_table::CREATE_CONTROL;
use super::indexable::{live_indexes, shown, too_long};
use super::settings::binary_log;
use crate::backend::connection::message_of;
use crate::backend::schema::{
    ArchiveSchema, ColumnType, Computed, Ddl, Index, IndexKey, IndexedRows, KeyOrder, LiveColumn, LiveTable, MARK,
    Named, NeededColumn, OtherKind, Step, TableName, Target, Types, UniqueColumn, add_together, drop_together,
    find_column, finding, indexes, patiently,
};
use crate::backend::statement::One;
use crate::error::{Finding, refused};

use diesel::prelude::*;

/// A table's entry in the catalogue.
#[derive(QueryableByName)]
struct Entry {
    #[diesel(sql_type = Text)]
    kind: String,
    #[diesel(sql_type = Nullable<Text>)]
    engine: Option<String>,
}

/// The statement that creates a table, as the server writes it.
struct Created(String);

impl QueryableByName<Mysql> for Created {
    fn build<'a>(row: &impl NamedRow<'a, Mysql>) -> deserialize::Result<Self> {
        // The first column is the table's name.
        Ok(Created(Row::get_value::<Text, String, _>(row, 1)?))
    }
}

/// Reads the table's entry in the catalogue; `None` if there is no such table.
fn entry(connection: &mut impl MysqlSession, target: &Target) -> QueryResult<Option<Entry>> {
    diesel::sql_query(
        "SELECT CAST(TABLE_TYPE AS CHAR) AS kind, CAST(ENGINE AS CHAR) AS engine FROM information_schema.TABLES \
         WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ?",
    )
    .bind::<Nullable<Text>, _>(target.table.schema.as_deref())
    .bind::<Text, _>(&target.table.name)
    .get_result(connection)
    .optional()
}

impl<C: MysqlSession> LiveTable<Mysql> for C {
    const ALTERS_IN_TRANSACTION: bool = false;

    const INSERT_TIME: Option<&'static str> = Some("(UTC_TIMESTAMP(6))");

    fn other_kind(&mut self, target: &Target) -> QueryResult<Option<OtherKind>> {
        if let Some("VIEW" | "SYSTEM VIEW") = entry(self, target)?.as_ref().map(|entry| entry.kind.as_str()) {
            return Ok(Some(OtherKind::View));
        }
        // A temporary table may not be in the catalogue, and stands before another one of its name. MySQL prepares no SHOW
        // CREATE with a result, and cannot open such a table twice.
        let created = diesel::sql_query(format!("SHOW CREATE TABLE {}", target.table)).get_result::<Created>(self);
        let is_temporary = match created {
            Ok(Created(ddl)) => ddl.starts_with("CREATE TEMPORARY "),
            Err(_) => {
                let twice = format!("SELECT 1 FROM {0} AS one JOIN {0} AS other LIMIT 0", target.table);
                let opened = self.batch_execute(&twice);
                opened.is_err_and(|error| message_of(&error).is_some_and(|why| why.starts_with("Can't reopen table")))
            }
        };
        Ok(is_temporary.then_some(OtherKind::Temporary))
    }

    fn columns(&mut self, table: &TableName) -> QueryResult<Vec<LiveColumn>> {
        // The casts: MySQL 8 declares these columns with types of its own.
        diesel::sql_query(
            "SELECT CAST(COLUMN_NAME AS CHAR) AS name, \
             CAST(CASE WHEN DATA_TYPE = 'datetime' AND DATETIME_PRECISION < 6 THEN CONCAT('datetime(', DATETIME_PRECISION, ')') \
             WHEN DATA_TYPE LIKE '%text' AND CHARACTER_SET_NAME <> 'utf8mb4' \
             THEN CONCAT(DATA_TYPE, ' character set ', CHARACTER_SET_NAME) ELSE DATA_TYPE END AS CHAR) AS data_type, \
             CAST(COALESCE(CONCAT(COLUMN_TYPE, ' CHARACTER SET ', CHARACTER_SET_NAME), COLUMN_TYPE) AS CHAR) AS whole_type, \
             IS_NULLABLE = 'YES' AS nullable, CAST(COLUMN_DEFAULT AS CHAR) AS default_value, \
             COLUMN_DEFAULT IS NOT NULL OR EXTRA LIKE '%auto_increment%' AS has_default, \
             CAST(CHARACTER_MAXIMUM_LENGTH AS SIGNED) AS length, COLUMN_COMMENT LIKE CONCAT(?, '%') AS marked, \
             COALESCE(LENGTH(GENERATION_EXPRESSION), 0) > 0 AS computed \
             FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ? \
             ORDER BY ORDINAL_POSITION",
        )
        .bind::<Text, _>(MARK)
        .bind::<Nullable<Text>, _>(table.schema.as_deref())
        .bind::<Text, _>(&table.name)
        .load(self)
    }

    /// Waits for the table's metadata lock only for a short time, and tries again: every other session queues behind a
    /// waiting DDL statement. After a long attempt it waits for up to 30 seconds, because the build of an index ends with one more
    /// lock, without which the server throws away all that it has built.
    fn alter(&mut self, ddl: &str) -> QueryResult<()> {
        let before: i64 = diesel::select(diesel::dsl::sql::<BigInt>("@@SESSION.lock_wait_timeout")).get_result(self)?;
        let result = patiently(self, |connection, longest| {
            let wait = (longest.as_secs() / 10).clamp(1, 30);
            connection.batch_execute(&format!("SET SESSION lock_wait_timeout = {wait}"))?;
            let is_killed =
                |error: &Error| message_of(error).is_some_and(|why| why.contains("execution was interrupted"));
            // Whoever ends a build that takes long does not want another one.
            connection
                .batch_execute(ddl)
                .map_err(|error| if is_killed(&error) { refused(error.to_string()) } else { error })
        });
        let put_back = self.batch_execute(&format!("SET SESSION lock_wait_timeout = {before}"));
        result.and(put_back)
    }
}

// utf8mb4, whatever the table's own character set is: a failure's text may contain any character.
const STATUS: &str = "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin";
const TIME: &str = "DATETIME(6)";

impl<C: MysqlSession> Ddl<Mysql> for C {
    const TYPES: Types = Types {
        status: ColumnType(STATUS, &["varchar"]),
        time: ColumnType(TIME, &["datetime"]),
        try_count: ColumnType("INT", &["int"]),
        message: ColumnType("MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", &["mediumtext", "longtext"]),
        word: ColumnType("VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", &["varchar"]),
        count: ColumnType("BIGINT", &["bigint"]),
    };

    const CREATE_CONTROL: &'static str = CREATE_CONTROL;

    const NAME_TYPE: &'static str = "VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin";

    const END_OF_TABLE: &'static str = " ENGINE = InnoDB";

    fn add_columns(target: &Target, columns: &[NeededColumn]) -> Vec<String> {
        vec![add_together(target, columns, &comment())]
    }

    fn drop_columns(target: &Target, names: &[&str]) -> Vec<String> {
        vec![drop_together(target, "DROP COLUMN", names)]
    }

    /// Nulls can be replaced only when the type is right, and must be replaced before the column refuses them.
    fn redefine(target: &Target, column: &NeededColumn, marked: bool) -> String {
        let NeededColumn { definition, sql_type, default, .. } = column;
        let (table, name) = (&target.table, target.table.quoted(column.name));
        // Without its comment, the new definition would take it away.
        let comment = if marked { comment() } else { String::new() };
        let modify = |definition| format!("ALTER TABLE {table} MODIFY COLUMN {name} {definition}{comment}");
        match default {
            None => modify(*sql_type),
            Some(default) => {
                let fill = format!("UPDATE {table} SET {name} = {default} WHERE {name} IS NULL");
                [modify(*sql_type), fill, modify(definition)].join("; ")
            }
        }
    }

    /// What is computed has a step of its own, because another order uses the same flag. So has what makes an index wider, because a
    /// step is written once.
    fn index_steps(target: &Target, index: &Index) -> Vec<Step> {
        let name = if index.rows == IndexedRows::Pending { "pending" } else { "reported" };
        let first = |width| target.table.quoted_all(index.keys[..width].iter().map(|key| &key.name));
        let columns = index.widened.map_or_else(|| index.columns.clone(), |(_, width, _)| first(width));
        let create = (vec![create_index(target, index, &columns)], vec![drop_index(target, &index.name)]);
        let compute = |computed: &[Computed]| match computed {
            [] => (Vec::new(), Vec::new()),
            _ => (vec![add_computed(target, computed.iter())], vec![drop_computed(target, computed.iter())]),
        };
        let (old, new) = index.computed.split_at(index.computed.len().min(2));
        let widen = index.widened.map(|(name, _, before)| {
            let (up, down) = compute(new);
            let replace = |columns: &str| vec![replace_index(target, index, columns)];
            (name, ([up, replace(&index.columns)].concat(), [replace(&first(before)), down].concat()))
        });
        let steps = [(name, compute(old)), (index.step, create)].into_iter().chain(widen);
        steps.filter(|(_, (up, _))| !up.is_empty()).map(|(name, (up, down))| Self::step(name, up, down)).collect()
    }

    fn lacking(&mut self, target: &Target, index: &Index) -> QueryResult<Vec<String>> {
        let usable = index_is_usable(self, target, index)?;
        if usable == Some(true) {
            return shown(self, target, &index.name);
        }
        let live = self.live_columns(target)?;
        let missing = index.computed.iter().filter(|column| find_column(&live, &column.name).is_none());
        let add = missing.clone().next().map(|_| add_computed(target, missing));
        if usable.is_none()
            && let Some(other) = same_index(self, target, index)?
        {
            // The index gets its own name, because a claim names it.
            let (table, name) = (&target.table, target.table.quoted(&index.name));
            return Ok(vec![format!("ALTER TABLE {table} RENAME INDEX {} TO {name}", table.quoted(&other))]);
        }
        // At once, because claims name the index.
        let replace = || replace_index(target, index, &index.columns);
        let create = usable.map_or_else(|| create_index(target, index, &index.columns), |_| replace());
        Ok(add.into_iter().chain([create]).collect())
    }

    /// Drops what belongs to options that the entity no longer has too: a column from which another is computed cannot be dropped.
    fn drop_indexes(&mut self, target: &Target) -> QueryResult<()> {
        let names = target.columns;
        let reported = [names.status, names.last_attempt_time, names.next_attempt_time].map(Named::Reported);
        let computed: Vec<_> =
            [Named::PendingFlag].into_iter().chain(reported).map(|named| target.name_of(named)).collect();
        for index in live_indexes(self, target, &computed)? {
            self.alter(&drop_index(target, &index.0))?;
        }
        let live = self.live_columns(target)?;
        let computed: Vec<_> =
            computed.iter().map(String::as_str).filter(|name| find_column(&live, name).is_some()).collect();
        if computed.is_empty() { Ok(()) } else { self.alter(&drop_together(target, "DROP COLUMN", &computed)) }
    }

    fn too_long(&mut self, target: &Target) -> QueryResult<Option<Finding>> {
        too_long(self, target)
    }

    fn check_own(&mut self, target: &Target) -> QueryResult<Vec<Finding>> {
        let mut findings: Vec<_> = binary_log(self, target)?.into_iter().collect();
        for index in indexes::<Mysql>(target) {
            findings.extend(ascending(self, target, &index)?);
        }
        if let Some(engine) =
            entry(self, target)?.and_then(|entry| entry.engine).filter(|engine| !engine.eq_ignore_ascii_case("InnoDB"))
        {
            let problem = format!("the table {} uses the engine {engine}, which has no transactions", target.table);
            findings.push(finding(target, problem, format!("ALTER TABLE {} ENGINE = InnoDB", target.table)));
        }
        Ok(findings)
    }
}

/// Writes the comment by which a column is known as the queue's.
fn comment() -> String {
    format!(" COMMENT '{MARK}'")
}

/// Adds the columns that are null in the rows which an index would leave out. The server stores nothing but the index's entries.
/// Queries that do not name the columns do not see them, if the server can hide a column (MariaDB 10.3, MySQL 8.0.23).
fn add_computed<'a>(target: &Target, columns: impl Iterator<Item = &'a Computed>) -> String {
    let (table, names) = (&target.table, target.columns);
    let add = |column: &Computed| {
        let reported =
            |of: &str| format!("IF({}, {}, NULL)", IndexedRows::Reported.condition(target), table.quoted(of));
        let (sql_type, value) = match column.of {
            None => ("TINYINT", format!("IF({} IS NULL, NULL, 1)", table.quoted(names.next_attempt_time))),
            Some(of) => (if of == names.status { STATUS } else { TIME }, reported(of)),
        };
        format!(
            "ADD COLUMN {} {sql_type} AS ({value}) VIRTUAL /*!80023 INVISIBLE */ /*M!100303 INVISIBLE */",
            table.quoted(&column.name)
        )
    };
    format!("ALTER TABLE {table} {}", columns.map(add).collect::<Vec<_>>().join(", "))
}

fn drop_computed<'a>(target: &Target, columns: impl Iterator<Item = &'a Computed>) -> String {
    drop_together(target, "DROP COLUMN", &columns.map(|column| column.name.as_str()).collect::<Vec<_>>())
}

fn create_index(target: &Target, index: &Index, columns: &str) -> String {
    format!("CREATE INDEX {} ON {} ({columns})", target.table.quoted(&index.name), target.table)
}

fn drop_index(target: &Target, name: &str) -> String {
    format!("DROP INDEX {} ON {}", target.table.quoted(name), target.table)
}

fn replace_index(target: &Target, index: &Index, columns: &str) -> String {
    let (table, name) = (&target.table, target.table.quoted(&index.name));
    format!("ALTER TABLE {table} DROP INDEX {name}, ADD INDEX {name} ({columns})")
}

/// `None`: there is no index of that name; `Some(false)`: it does not begin with the right column, or if reports widen it, with all
/// of them.
fn index_is_usable(connection: &mut impl MysqlSession, target: &Target, index: &Index) -> QueryResult<Option<bool>> {
    let needed = if index.widened.is_none() { 1 } else { index.keys.len() };
    let columns: String = index.keys[..needed].iter().flat_map(|key| [key.name.as_str(), "\n"]).collect();
    let found: One<Nullable<BigInt>, Option<i64>> = diesel::sql_query(
        "SELECT CAST(LEFT(GROUP_CONCAT(CONCAT(COLUMN_NAME, '\n') ORDER BY SEQ_IN_INDEX SEPARATOR ''), CHAR_LENGTH(?)) = ? AS SIGNED) \
         AS usable FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ? AND INDEX_NAME = ?",
    )
    .bind::<Text, _>(&columns)
    .bind::<Text, _>(&columns)
    .bind::<Nullable<Text>, _>(target.table.schema.as_deref())
    .bind::<Text, _>(&target.table.name)
    .bind::<Text, _>(&index.name)
    .get_result(connection)?;
    Ok(found.0.map(|usable| usable != 0))
}

/// Finds a descending order whose index is ascending: MariaDB before 10.8 takes the word `DESC` and ignores it.
fn ascending(connection: &mut impl MysqlSession, target: &Target, index: &Index) -> QueryResult<Option<Finding>> {
    let keys = || index.keys.iter().filter(|key| key.order == KeyOrder::Descending);
    if keys().next().is_none() {
        return Ok(None);
    }
    let ascending: Vec<One<Text, String>> = diesel::sql_query(
        "SELECT CAST(COLUMN_NAME AS CHAR) AS name FROM information_schema.STATISTICS \
         WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ? AND INDEX_NAME = ? AND COLLATION <> 'D'",
    )
    .bind::<Nullable<Text>, _>(target.table.schema.as_deref())
    .bind::<Text, _>(&target.table.name)
    .bind::<Text, _>(&index.name)
    .load(connection)?;
    Ok(keys().find(|key| ascending.iter().any(|found| found.0.eq_ignore_ascii_case(&key.name))).map(|key| {
        let problem = format!(
            "the index {} has the column {} in ascending order: MariaDB builds descending ones from version 10.8 on",
            index.name, key.name
        );
        finding(target, problem, replace_index(target, index, &index.columns))
    }))
}

/// Finds an index under another name on the same columns, as a copy of a table has it.
fn same_index(connection: &mut impl MysqlSession, target: &Target, index: &Index) -> QueryResult<Option<String>> {
    let key = |key: &IndexKey| {
        let letter = if key.order == KeyOrder::Descending { 'D' } else { 'A' };
        format!("{} {letter}", key.name)
    };
    let found: Option<One<Text, String>> = diesel::sql_query(
        "SELECT CAST(INDEX_NAME AS CHAR) AS name FROM information_schema.STATISTICS \
         WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ? AND INDEX_TYPE = 'BTREE' \
         GROUP BY INDEX_NAME HAVING GROUP_CONCAT(COLUMN_NAME, ' ', COLLATION ORDER BY SEQ_IN_INDEX SEPARATOR '\n') = ? \
         AND SUM(SUB_PART IS NOT NULL) = 0 LIMIT 1",
    )
    .bind::<Nullable<Text>, _>(target.table.schema.as_deref())
    .bind::<Text, _>(&target.table.name)
    .bind::<Text, _>(index.keys.iter().map(key).collect::<Vec<_>>().join("\n"))
    .get_result(connection)
    .optional()?;
    Ok(found.map(|found| found.0))
}

impl<C: MysqlSession> ArchiveSchema<Mysql> for C {
    fn unique_columns(&mut self, table: &TableName) -> QueryResult<Vec<UniqueColumn>> {
        diesel::sql_query(
            "SELECT CAST(INDEX_NAME AS CHAR) AS index_name, CAST(COLUMN_NAME AS CHAR) AS column_name, \
             FALSE AS is_constraint, FALSE AS is_partial FROM information_schema.STATISTICS \
             WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ? AND NON_UNIQUE = 0 \
             ORDER BY INDEX_NAME, SEQ_IN_INDEX",
        )
        .bind::<Nullable<Text>, _>(table.schema.as_deref())
        .bind::<Text, _>(&table.name)
        .load(self)
    }

    fn create_archive(target: &Target, archive: &TableName, columns: Option<&[LiveColumn]>) -> Vec<String> {
        let keys = archive.quoted_all(&target.key);
        let copied = match columns {
            None => "*".to_owned(),
            Some(columns) => {
                archive.quoted_all(columns.iter().filter(|column| !column.computed).map(|column| &column.name))
            }
        };
        vec![format!(
            "CREATE TABLE IF NOT EXISTS {archive} (PRIMARY KEY ({keys})) ENGINE = InnoDB \
             SELECT {copied} FROM {} WHERE FALSE",
            target.table
        )]
    }

    fn retype(archive: &TableName, column: &str, sql_type: &str, is_key: bool) -> String {
        let null = if is_key { "NOT NULL" } else { "NULL" };
        format!("ALTER TABLE {archive} MODIFY COLUMN {} {sql_type} {null}", archive.quoted(column))
    }

    fn drop_unique(archive: &TableName, index: &UniqueColumn) -> String {
        format!("ALTER TABLE {archive} DROP INDEX {}", archive.quoted(&index.index_name))
    }
}
