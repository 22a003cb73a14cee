//! Archives on SQLite.

use diesel::sql_types::Text;
use diesel::sqlite::SqliteConnection;

use crate::backend::archive::{ArchiveSchema, StoredColumn, UniqueColumn};
use crate::backend::table_name::TableName;
use crate::backend::target::Target;

use diesel::prelude::*;

impl ArchiveSchema for SqliteConnection {
    fn table_columns(&mut self, table: &TableName) -> QueryResult<Vec<StoredColumn>> {
        diesel::sql_query(
            "SELECT name, type AS sql_type, \"notnull\" = 0 AS nullable, dflt_value IS NOT NULL AS has_default, \
             hidden <> 0 AS computed FROM pragma_table_xinfo(?, ?)",
        )
        .bind::<Text, _>(&table.name)
        .bind::<Text, _>(schema(table))
        .load(self)
    }

    fn unique_columns(&mut self, table: &TableName) -> QueryResult<Vec<UniqueColumn>> {
        diesel::sql_query(
            "SELECT l.name AS index_name, i.name AS column_name, l.origin <> 'c' AS is_constraint \
             FROM pragma_index_list(?, ?) l, pragma_index_info(l.name, ?) i WHERE l.\"unique\" = 1",
        )
        .bind::<Text, _>(&table.name)
        .bind::<Text, _>(schema(table))
        .bind::<Text, _>(schema(table))
        .load(self)
    }

    fn create_archive(target: &Target, archive: &TableName, columns: Option<&[StoredColumn]>) -> Vec<String> {
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
            .map(|StoredColumn { name, sql_type, nullable, .. }| {
                format!("{} {sql_type}{}", archive.quoted(name), if *nullable { "" } else { " NOT NULL" })
            })
            .collect();
        lines.push(format!("PRIMARY KEY ({keys})"));
        vec![format!("CREATE TABLE IF NOT EXISTS {archive} ({})", lines.join(", "))]
    }

    /// SQLite cannot alter a column, so a new one takes its name and its values.
    fn retype(archive: &TableName, column: &str, sql_type: &str) -> String {
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

fn schema(table: &TableName) -> &str {
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
