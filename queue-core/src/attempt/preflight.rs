//! The checks of an entity's live table before its poller starts.

use diesel::result::{Error as DieselError, QueryResult};

use crate::backend::{ErrorClass, LockSql, QueueConnection, TableName, Target, check_rights};
use crate::entity::Key;
use crate::error::Finding;
use crate::statement::ErasedQueue;

/// PostgreSQL's message about a statement that took longer than it may.
const TOO_SLOW: &str = "canceling statement due to statement timeout";

/// Compares the live table with what a queue needs, and checks the account's rights.
pub(crate) fn check_table<C: QueueConnection>(connection: &mut C, target: &Target) -> QueryResult<Vec<Finding>> {
    let findings = connection.check(target)?;
    if findings.is_empty() {
        return Ok(check_rights(connection, target)?.into_iter().map(|right| right.finding).collect());
    }
    // MySQL hides tables that the account may not use, so an archive that seems to be missing may well exist.
    let rights = check_rights(connection, target).unwrap_or_default();
    let denied: Vec<_> = rights.into_iter().filter(|right| right.is_denied).map(|right| right.finding).collect();
    Ok(if denied.is_empty() { findings } else { denied })
}

/// Compares the live table with what a queue needs, and makes its claim, which passes over rows that others hold. In lease
/// mode it needs no such lock.
pub(crate) fn check_queue<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
) -> QueryResult<Vec<Finding>> {
    let target = queue.target()?;
    let mut findings = check_table(connection, &target)?;
    let can_lock = C::Backend::ONE_WRITER || connection.skips_locked_rows()?;
    let finding = |problem, mend: &str| Finding { entity: queue.sql.entity.to_owned(), problem, mend: mend.to_owned() };
    if !can_lock && !queue.is_leased() {
        findings.push(finding(
            "the server has no SKIP LOCKED, without which a worker waits for every other".to_owned(),
            "upgrade it to MariaDB 10.6 or MySQL 8.0.1, or work the queue in lease mode",
        ));
    }
    if !findings.is_empty() {
        return Ok(findings);
    }
    if can_lock {
        // The claim itself, outside a transaction: it shows whether the entity's own columns exist, and whether the account
        // may lock rows.
        match queue.try_claim(connection) {
            Err(error) if C::classify(&error) == ErrorClass::Other => {
                findings.push(finding(format!("its rows cannot be claimed: {error}"), mend_of_claim(&error)));
            }
            tried => tried?,
        }
    }
    findings.extend(check_stages(queue, connection, &target.table)?);
    Ok(findings)
}

fn mend_of_claim(error: &DieselError) -> &'static str {
    match error {
        DieselError::DatabaseError(_, information) if information.message() == TOO_SLOW => {
            "end the sessions that hold old snapshots (`backend_xmin` in pg_stat_activity), and VACUUM the table"
        }
        _ => {
            "make the struct and its `table!` say what the table has, or migrate the table; a claim reads no other table, except \
             in a subselect"
        }
    }
}

/// Finds the rows that are pending in a stage that the entity does not know: no worker would ever claim them.
fn check_stages<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    table: &TableName,
) -> QueryResult<Vec<Finding>> {
    let Some(stages) = queue.sql.options.stages else { return Ok(Vec::new()) };
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let column = table.quoted(stages.column);
    let findings = queue.unknown_stages(connection)?.into_iter().map(|stage| Finding {
        entity: queue.sql.entity.to_owned(),
        problem: format!(
            "rows are pending in the stage `{stage}`, which is none of its stages {}: no worker would process them",
            stages.names.join(", "),
        ),
        mend: format!(
            "UPDATE {table} SET {column} = {} WHERE {column} = {}",
            quoted(stages.names.first().copied().unwrap_or_default()),
            quoted(&stage),
        ),
    });
    Ok(findings.collect())
}
