//! The view that MySQL and MariaDB have of a live table and of its archives.

use diesel::mysql::Mysql;
use diesel::sql_types::{BigInt, Nullable, Text};

use super::clients::MysqlSession;
use crate::backend::schema::{
    ArchiveSchema, LiveColumn, LiveTable, MARK, OtherKind, TableName, Target, UniqueColumn, patiently,
};

use diesel::prelude::*;

/// A table's entry in the catalogue.
#[derive(QueryableByName)]
pub(crate) struct Entry {
    #[diesel(sql_type = Text)]
    kind: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) engine: Option<String>,
}

/// Reads the table's entry in the catalogue; `None` if there is no such table.
pub(crate) fn entry(connection: &mut impl MysqlSession, target: &Target) -> QueryResult<Option<Entry>> {
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

    /// A temporary table is not in the catalogue, so there seems to be none.
    fn other_kind(&mut self, target: &Target) -> QueryResult<Option<OtherKind>> {
        Ok(match entry(self, target)?.as_ref().map(|entry| entry.kind.as_str()) {
            Some("VIEW" | "SYSTEM VIEW") => Some(OtherKind::View),
            Some("TEMPORARY") => Some(OtherKind::Temporary),
            _ => None,
        })
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

    /// Waits for the table's metadata lock only for a short time, and tries again. Every other session queues behind a
    /// waiting DDL statement.
    fn alter(&mut self, ddl: &str) -> QueryResult<()> {
        let before: i64 = diesel::select(diesel::dsl::sql::<BigInt>("@@SESSION.lock_wait_timeout")).get_result(self)?;
        self.batch_execute("SET SESSION lock_wait_timeout = 1")?;
        let result = patiently(self, |connection| connection.batch_execute(ddl));
        self.batch_execute(&format!("SET SESSION lock_wait_timeout = {before}"))?;
        result
    }
}

impl<C: MysqlSession> ArchiveSchema<Mysql> for C {
    fn unique_columns(&mut self, table: &TableName) -> QueryResult<Vec<UniqueColumn>> {
        diesel::sql_query(
            "SELECT CAST(INDEX_NAME AS CHAR) AS index_name, CAST(COLUMN_NAME AS CHAR) AS column_name, \
             FALSE AS is_constraint FROM information_schema.STATISTICS \
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

    fn retype(archive: &TableName, column: &str, sql_type: &str) -> String {
        format!("ALTER TABLE {archive} MODIFY COLUMN {} {sql_type} NULL", archive.quoted(column))
    }

    fn drop_unique(archive: &TableName, index: &UniqueColumn) -> String {
        format!("ALTER TABLE {archive} DROP INDEX {}", archive.quoted(&index.index_name))
    }
}
