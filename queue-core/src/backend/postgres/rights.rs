//! What keeps a PostgreSQL role from its rows besides the rights on the table: row security, and the role's own
//! settings.

use diesel::deserialize::QueryableByName;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Text};

use super::pg_session::PgSession;
use super::settings::Setting;
use crate::backend::target::{Target, finding};
use crate::error::Finding;

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
pub(super) fn check_row_security(connection: &mut impl PgSession, target: &Target) -> QueryResult<Vec<Finding>> {
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
pub(super) fn tell_of_overridden(connection: &mut impl PgSession, target: &Target) -> QueryResult<()> {
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

/// Returns the role, as a GRANT names it.
pub(super) fn current_role(connection: &mut impl PgSession) -> QueryResult<String> {
    diesel::select(diesel::dsl::sql::<Text>("pg_catalog.quote_ident(CURRENT_USER)")).get_result(connection)
}
