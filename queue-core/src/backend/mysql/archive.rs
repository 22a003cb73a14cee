//! Archives on MySQL and MariaDB.

use diesel::mysql::Mysql;
use diesel::sql_types::{Nullable, Text};

use super::mysql_session::MysqlSession;
use crate::backend::archive::{ArchiveSchema, StoredColumn, UniqueColumn};
use crate::backend::table_name::TableName;
use crate::backend::target::Target;

use diesel::prelude::*;

impl<C: MysqlSession> ArchiveSchema<Mysql> for C {
    fn table_columns(&mut self, table: &TableName) -> QueryResult<Vec<StoredColumn>> {
        diesel::sql_query(
            "SELECT CAST(COLUMN_NAME AS CHAR) AS name, \
             CAST(COALESCE(CONCAT(COLUMN_TYPE, ' CHARACTER SET ', CHARACTER_SET_NAME), COLUMN_TYPE) AS CHAR) AS sql_type, \
             IS_NULLABLE = 'YES' AS nullable, \
             COLUMN_DEFAULT IS NOT NULL OR EXTRA LIKE '%auto_increment%' AS has_default, \
             COALESCE(LENGTH(GENERATION_EXPRESSION), 0) > 0 AS computed \
             FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ? \
             ORDER BY ORDINAL_POSITION",
        )
        .bind::<Nullable<Text>, _>(table.schema.as_deref())
        .bind::<Text, _>(&table.name)
        .load(self)
    }

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

    fn create_archive(target: &Target, archive: &TableName, columns: Option<&[StoredColumn]>) -> Vec<String> {
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
