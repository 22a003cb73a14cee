//! Archives on PostgreSQL.

use diesel::pg::Pg;
use diesel::sql_types::Text;

use super::pg_session::PgSession;
use crate::backend::archive::{ArchiveSchema, StoredColumn, UniqueColumn};
use crate::backend::table_name::TableName;
use crate::backend::target::Target;

use diesel::prelude::*;

impl<C: PgSession> ArchiveSchema<Pg> for C {
    fn table_columns(&mut self, table: &TableName) -> QueryResult<Vec<StoredColumn>> {
        diesel::sql_query(
            "SELECT attname::text AS name, format_type(atttypid, atttypmod) AS sql_type, NOT attnotnull AS nullable, \
             atthasdef OR attidentity <> '' AS has_default, attgenerated <> '' AS computed \
             FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        )
        .bind::<Text, _>(table.to_string())
        .load(self)
    }

    fn unique_columns(&mut self, table: &TableName) -> QueryResult<Vec<UniqueColumn>> {
        diesel::sql_query(
            "SELECT c.relname::text AS index_name, a.attname::text AS column_name, \
             EXISTS (SELECT 1 FROM pg_constraint WHERE conindid = c.oid) AS is_constraint \
             FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
             CROSS JOIN LATERAL generate_series(0, i.indnkeyatts - 1) AS n \
             LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[n] \
             WHERE i.indrelid = to_regclass($1) AND i.indisunique ORDER BY 1",
        )
        .bind::<Text, _>(table.to_string())
        .load(self)
    }

    fn create_archive(target: &Target, archive: &TableName, _columns: Option<&[StoredColumn]>) -> Vec<String> {
        // This copies the columns with their types, NOT NULL and generated expressions. It copies no indexes, defaults
        // or foreign keys.
        vec![format!(
            "CREATE TABLE IF NOT EXISTS {archive} (LIKE {} INCLUDING GENERATED, PRIMARY KEY ({}))",
            target.table,
            archive.quoted_all(&target.key)
        )]
    }

    fn run_ddl(&mut self, ddl: &str) -> QueryResult<()> {
        self.batch_execute(ddl)
    }

    fn retype(archive: &TableName, column: &str, sql_type: &str) -> String {
        let name = archive.quoted(column);
        format!(
            "ALTER TABLE {archive} ALTER COLUMN {name} DROP NOT NULL, \
             ALTER COLUMN {name} TYPE {sql_type} USING {name}::{sql_type}"
        )
    }

    fn drop_unique(archive: &TableName, index: &UniqueColumn) -> String {
        match index.is_constraint {
            true => format!("ALTER TABLE {archive} DROP CONSTRAINT {}", archive.quoted(&index.index_name)),
            false => format!("DROP INDEX {}", archive.sibling(&index.index_name)),
        }
    }
}
