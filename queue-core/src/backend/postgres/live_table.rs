//! PostgreSQL's view of a live table and of its archives, and what keeps a role from rows besides the rights on the table.

use diesel::deserialize::QueryableByName;
use diesel::pg::Pg;
use diesel::sql_types::{Array, BigInt, Bool, Text};

use super::clients::PgSession;
use super::settings::Setting;
use crate::backend::schema::{
    ArchiveSchema, LiveColumn, LiveTable, MARK, OtherKind, TableName, Target, UniqueColumn, finding, needed_columns,
    patiently,
};
use crate::backend::statement::One;
use crate::error::Finding;

use diesel::prelude::*;

/// How long the DDL may wait in the table's lock queue, where it blocks everybody behind it.
const LOCK_TIMEOUT: &str = "100ms";

impl<C: PgSession> LiveTable<Pg> for C {
    const NAMES_HAVE_CASE: bool = true;

    const INSERT_TIME: Option<&'static str> = Some("clock_timestamp()");

    fn other_kind(&mut self, target: &Target) -> QueryResult<Option<OtherKind>> {
        let found: Option<One<Text, String>> = diesel::sql_query(
            "SELECT CASE WHEN relpersistence = 't' THEN 't' ELSE relkind::text END AS kind FROM pg_class \
             WHERE oid = to_regclass($1)",
        )
        .bind::<Text, _>(target.table.to_string())
        .get_result(self)
        .optional()?;
        Ok(match found.as_ref().map(|found| found.0.as_str()) {
            Some("v" | "m") => Some(OtherKind::View),
            Some("f") => Some(OtherKind::Foreign),
            Some("t") => Some(OtherKind::Temporary),
            _ => None,
        })
    }

    fn columns(&mut self, table: &TableName) -> QueryResult<Vec<LiveColumn>> {
        diesel::sql_query(
            "SELECT attname::text AS name, NOT attnotnull AS nullable, format_type(atttypid, atttypmod) AS whole_type, \
             atthasdef OR attidentity <> '' AS has_default, attgenerated <> '' AS computed, \
             format_type(atttypid, CASE WHEN atttypid = 'timestamptz'::regtype AND atttypmod < 6 \
             THEN NULLIF(atttypmod, -1) END) AS data_type, \
             pg_get_expr(d.adbin, d.adrelid) AS default_value, \
             CASE WHEN atttypid = 'varchar'::regtype AND atttypmod > 4 THEN atttypmod - 4 END::bigint AS length, \
             COALESCE(starts_with(col_description(attrelid, attnum), $2), false) AS marked FROM pg_attribute \
             LEFT JOIN pg_attrdef d ON d.adrelid = attrelid AND d.adnum = attnum \
             WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        )
        .bind::<Text, _>(table.to_string())
        .bind::<Text, _>(MARK)
        .load(self)
    }

    fn column_types(&mut self, table: &TableName) -> QueryResult<Vec<(String, String)>> {
        let types: Vec<Setting> = diesel::sql_query(
            "SELECT CAST(attname AS text) AS name, CAST(pg_catalog.concat_ws(' ', pg_catalog.format_type(atttypid, atttypmod), \
             (SELECT pg_catalog.string_agg(CAST(enumlabel AS text), ',' ORDER BY enumsortorder) FROM pg_catalog.pg_enum \
             WHERE enumtypid = atttypid)) AS text) AS value FROM pg_catalog.pg_attribute \
             WHERE attrelid = pg_catalog.to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        )
        .bind::<Text, _>(table.to_string())
        .load(self)?;
        Ok(types.into_iter().map(|Setting { name, value }| (name, value)).collect())
    }

    fn live_columns(&mut self, target: &Target) -> QueryResult<Vec<LiveColumn>> {
        let mut live = self.columns(&target.table)?;
        // On other databases `Status` is `status`; here it is another column.
        let needed = needed_columns::<Self>(target);
        live.retain(|live| {
            needed.iter().all(|needed| needed.name == live.name || !needed.name.eq_ignore_ascii_case(&live.name))
        });
        Ok(live)
    }

    /// Asks for the lock, gives up after a moment so that no session queues behind it for long, and asks again.
    fn alter(&mut self, ddl: &str) -> QueryResult<()> {
        if in_transaction(self) {
            return self.batch_execute(ddl);
        }
        // One text is one transaction: SET LOCAL holds for the DDL and no longer.
        let text = format!("BEGIN; SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'; {ddl}; COMMIT");
        patiently(self, |connection, _| {
            let done = connection.batch_execute(&text);
            if done.is_err() {
                connection.batch_execute("ROLLBACK")?;
            }
            done
        })
    }
}

/// Tells whether the caller has opened a transaction: a savepoint is allowed only there, and outside one its refusal
/// does no harm.
pub(crate) fn in_transaction(connection: &mut impl PgSession) -> bool {
    connection.batch_execute("SAVEPOINT queueable_probe").is_ok()
        && connection.batch_execute("RELEASE SAVEPOINT queueable_probe").is_ok()
}

impl<C: PgSession> ArchiveSchema<Pg> for C {
    fn unique_columns(&mut self, table: &TableName) -> QueryResult<Vec<UniqueColumn>> {
        diesel::sql_query(
            "SELECT c.relname::text AS index_name, a.attname::text AS column_name, \
             EXISTS (SELECT 1 FROM pg_constraint WHERE conindid = c.oid) AS is_constraint, \
             i.indpred IS NOT NULL OR NOT i.indisvalid AS is_partial \
             FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
             CROSS JOIN LATERAL generate_series(0, i.indnkeyatts - 1) AS n \
             LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[n] \
             WHERE i.indrelid = to_regclass($1) AND i.indisunique ORDER BY 1",
        )
        .bind::<Text, _>(table.to_string())
        .load(self)
    }

    fn create_archive(target: &Target, archive: &TableName, _columns: Option<&[LiveColumn]>) -> Vec<String> {
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

    fn retype(archive: &TableName, column: &str, sql_type: &str, is_key: bool) -> String {
        let name = archive.quoted(column);
        let nullable = if is_key { String::new() } else { format!("ALTER COLUMN {name} DROP NOT NULL, ") };
        format!("ALTER TABLE {archive} {nullable}ALTER COLUMN {name} TYPE {sql_type} USING {name}::{sql_type}")
    }

    fn drop_unique(archive: &TableName, index: &UniqueColumn) -> String {
        match index.is_constraint {
            true => format!("ALTER TABLE {archive} DROP CONSTRAINT {}", archive.quoted(&index.index_name)),
            false => format!("DROP INDEX {}", archive.sibling(&index.index_name)),
        }
    }
}

/// Checks the server and the role: row security, a standby, the language of messages.
pub(super) fn check_server(connection: &mut impl PgSession, target: &Target) -> QueryResult<Vec<Finding>> {
    let mut findings = check_row_security(connection, target)?;
    findings.extend(check_padded_keys(connection, target)?);
    tell_of_overridden(connection, target)?;
    tell_of_heirs(connection, target)?;
    if diesel::select(pg_is_in_recovery()).get_result::<bool>(connection)? {
        let mend = "connect to the primary, for example with target_session_attrs=read-write in the URL".to_owned();
        findings.push(finding(target, "the server is a standby, which takes no writes".to_owned(), mend));
    }
    let language: String = diesel::select(current_setting("lc_messages")).get_result(connection)?;
    if !speaks_english(&language) {
        let problem = format!(
            "the server's lc_messages is {language}, but queueable recognizes deadlocks and lock timeouts by their \
             English words"
        );
        findings.push(finding(target, problem, "ALTER ROLE CURRENT_USER SET lc_messages = 'C'".to_owned()));
    }
    Ok(findings)
}

/// How many pending rows are searched for a key that is padded.
const SEARCHED: u32 = 1_000;

/// Finds columns of the key that are padded with spaces, if a pending row's is. Diesel reads the spaces, and finds nothing by
/// a text that has them: for PostgreSQL they are no part of the value.
fn check_padded_keys(connection: &mut impl PgSession, target: &Target) -> QueryResult<Vec<Finding>> {
    let padded: Vec<Setting> = diesel::sql_query(
        "WITH RECURSIVE typed AS ( \
             SELECT attname, atttypid AS type, atttypmod AS length FROM pg_attribute \
             WHERE attrelid = to_regclass($1) AND attname = ANY ($2) \
             UNION ALL SELECT typed.attname, t.typbasetype, CASE WHEN t.typtypmod < 0 THEN typed.length ELSE t.typtypmod END \
             FROM typed JOIN pg_type t ON t.oid = typed.type WHERE t.typtype = 'd') \
         SELECT attname::text AS name, (length - 4)::text AS value FROM typed WHERE type = 'bpchar'::regtype",
    )
    .bind::<Text, _>(target.table.to_string())
    .bind::<Array<Text>, _>(&target.key)
    .load(connection)?;
    let mut findings = Vec::new();
    for Setting { name, value: length } in padded {
        let (table, column) = (&target.table, target.table.quoted(&name));
        let pending = target.table.quoted(target.columns.next_attempt_time);
        let is_padded: One<Bool, bool> = diesel::sql_query(format!(
            "SELECT EXISTS (SELECT FROM (SELECT {column} AS key FROM {table} WHERE {pending} IS NOT NULL LIMIT {SEARCHED}) AS rows \
             WHERE char_length(key) < {length}) AS is_padded"
        ))
        .get_result(connection)?;
        if is_padded.0 {
            let problem = format!(
                "the key column `{name}` has the type character({length}), which pads shorter texts with spaces: no statement \
                 finds a row by the text that is read"
            );
            let mend = format!("ALTER TABLE {table} ALTER COLUMN {column} TYPE varchar({length})");
            findings.push(finding(target, problem, mend));
        }
    }
    Ok(findings)
}

/// Tells whether the server's messages are in English; an unset language is that of the C locale.
fn speaks_english(lc_messages: &str) -> bool {
    matches!(lc_messages, "" | "C" | "POSIX") || lc_messages.starts_with("C.") || lc_messages.starts_with("en")
}

#[diesel::declare_sql_function]
extern "SQL" {
    fn current_setting(name: Text) -> Text;
    fn pg_is_in_recovery() -> Bool;
}

#[derive(QueryableByName)]
struct RowSecurity {
    #[diesel(sql_type = Bool)]
    active: bool,
    #[diesel(sql_type = BigInt)]
    reading: i64,
    #[diesel(sql_type = BigInt)]
    writing: i64,
}

/// Counts the policies that apply to the role, by what they allow.
const ROW_SECURITY: &str = "SELECT pg_catalog.row_security_active(c.oid) AS active, \
     (SELECT pg_catalog.count(*) FROM pg_catalog.pg_policy p WHERE p.polrelid = c.oid AND p.polpermissive \
       AND p.polcmd IN ('*', 'r') AND (0 = ANY (p.polroles) OR EXISTS (SELECT 1 FROM pg_catalog.unnest(p.polroles) AS role \
       WHERE role <> 0 AND pg_catalog.pg_has_role(role, 'USAGE')))) AS reading, \
     (SELECT pg_catalog.count(*) FROM pg_catalog.pg_policy p WHERE p.polrelid = c.oid AND p.polpermissive \
       AND p.polcmd IN ('*', 'w') AND (0 = ANY (p.polroles) OR EXISTS (SELECT 1 FROM pg_catalog.unnest(p.polroles) AS role \
       WHERE role <> 0 AND pg_catalog.pg_has_role(role, 'USAGE')))) AS writing \
     FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass($1)";

/// Checks whether row security lets the role see and write rows. If policies decide, rows outside them are not
/// processed. That may well be intended, so it is logged.
fn check_row_security(connection: &mut impl PgSession, target: &Target) -> QueryResult<Vec<Finding>> {
    let found: Vec<RowSecurity> =
        diesel::sql_query(ROW_SECURITY).bind::<Text, _>(target.table.to_string()).load(connection)?;
    let Some(RowSecurity { reading, writing, .. }) = found.into_iter().find(|found| found.active) else {
        return Ok(Vec::new());
    };
    if reading > 0 && writing > 0 {
        tracing::warn!(
            entity = target.entity,
            "row security applies to the poller's role on {}: rows outside its policies are not processed",
            target.table
        );
        return Ok(Vec::new());
    }
    let role = current_role(connection)?;
    let problem = format!(
        "row security of {} hides all rows from the role {role}, or keeps it from writing them: no policy applies to it",
        target.table
    );
    let mend = format!("CREATE POLICY queueable ON {} TO {role} USING (true) WITH CHECK (true)", target.table);
    Ok(vec![finding(target, problem, mend)])
}

/// Logs which settings of the role or the database the workers' sessions override.
fn tell_of_overridden(connection: &mut impl PgSession, target: &Target) -> QueryResult<()> {
    let overridden: Vec<Setting> = diesel::sql_query(
        "SELECT name, reset_val || COALESCE(unit, '') AS value FROM pg_catalog.pg_settings WHERE source = 'session' AND \
         (name = 'default_transaction_read_only' AND reset_val = 'on' \
         OR name IN ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout') \
         AND reset_val <> '0' AND CAST(reset_val AS bigint) < CAST(setting AS bigint))",
    )
    .load(connection)?;
    for Setting { name, value } in overridden {
        tracing::warn!(
            entity = target.entity,
            "the role's or the database's own {name} is {value}; the workers' sessions use another value"
        );
    }
    Ok(())
}

/// Logs that other tables inherit from the queue's. It is no finding, because the tables of an extension such as TimescaleDB look the
/// same.
fn tell_of_heirs(connection: &mut impl PgSession, target: &Target) -> QueryResult<()> {
    let has_heirs: One<Bool, bool> = diesel::sql_query(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_inherits JOIN pg_catalog.pg_class c ON c.oid = inhparent \
         WHERE c.oid = pg_catalog.to_regclass($1) AND c.relkind = 'r') AS has_heirs",
    )
    .bind::<Text, _>(target.table.to_string())
    .get_result(connection)?;
    if has_heirs.0 {
        tracing::warn!(
            entity = target.entity,
            "other tables inherit from {}: unless an extension sees to it, the queue's indexes and triggers do not reach their rows",
            target.table
        );
    }
    Ok(())
}

/// Returns the role, as a GRANT names it.
pub(super) fn current_role(connection: &mut impl PgSession) -> QueryResult<String> {
    diesel::select(diesel::dsl::sql::<Text>("pg_catalog.quote_ident(CURRENT_USER)")).get_result(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn english_is_known_under_its_names() {
        assert!(["", "C", "C.UTF-8", "POSIX", "en_US.UTF-8", "en_GB"].into_iter().all(speaks_english));
        assert!(!["de_DE.UTF-8", "Czech_Czechia.1250"].into_iter().any(speaks_english));
    }
}
