//! How the live table is read and changed on PostgreSQL.

use diesel::pg::Pg;
use diesel::sql_types::Text;

use super::pg_session::PgSession;
use crate::backend::live_table::{LiveColumn, LiveTable, MARK, OtherKind, patiently};
use crate::backend::one::One;
use crate::backend::schema::needed_columns;
use crate::backend::target::Target;

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

    fn live_columns(&mut self, target: &Target) -> QueryResult<Vec<LiveColumn>> {
        let mut live: Vec<LiveColumn> = diesel::sql_query(
            "SELECT attname::text AS name, NOT attnotnull AS nullable, \
             format_type(atttypid, CASE WHEN atttypid = 'timestamptz'::regtype AND atttypmod < 6 \
             THEN NULLIF(atttypmod, -1) END) AS data_type, \
             pg_get_expr(d.adbin, d.adrelid) AS default_value, \
             CASE WHEN atttypid = 'varchar'::regtype AND atttypmod > 4 THEN atttypmod - 4 END::bigint AS length, \
             COALESCE(starts_with(col_description(attrelid, attnum), $2), false) AS marked FROM pg_attribute \
             LEFT JOIN pg_attrdef d ON d.adrelid = attrelid AND d.adnum = attnum \
             WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped",
        )
        .bind::<Text, _>(target.table.to_string())
        .bind::<Text, _>(MARK)
        .load(self)?;
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
        patiently(self, |connection| {
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
